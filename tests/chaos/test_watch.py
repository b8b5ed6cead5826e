"""Whoever looks on has to see it: a leader too many, an end that goes back, an order that cannot be."""

from __future__ import annotations

import pytest

from tests.chaos.checks import check_copies
from tests.chaos.load import IN, OUT, Load
from tests.chaos.watch import Watch
from tests.simulation.history import TopicPartition, Violation

PARTITION = TopicPartition(IN, 0)


@pytest.fixture
def watch() -> Watch:
    return Watch([], Load("127.0.0.1:1", seed=1))


def test_two_leaders_in_one_epoch_are_seen(watch: Watch) -> None:
    watch.hear_of_leader(PARTITION, 4, 1, "one")
    watch.hear_of_leader(PARTITION, 5, 2, "one")
    # Who does not know where the leader is, is not another opinion.
    watch.hear_of_leader(PARTITION, 5, -1, "other")
    with pytest.raises(Violation, match="two leaders of in-0 in epoch 5: 2, says one; 3, says other"):
        watch.hear_of_leader(PARTITION, 5, 3, "other")


def test_an_end_that_goes_back_is_seen_and_an_answer_that_was_overtaken_is_not_held_against_its_broker(
    watch: Watch,
) -> None:
    watch.hear_of_end("high watermark", PARTITION, 10, 0, "one")
    watch.hear_of_end("high watermark", PARTITION, 8, 5, "other")
    with pytest.raises(Violation, match="the high watermark of in-0 went back from 10 to 9, says other"):
        watch.hear_of_end("high watermark", PARTITION, 9, watch.floor("high watermark", PARTITION), "other")


def test_copies_that_are_missing_or_too_many_are_seen() -> None:
    source, copies = TopicPartition(IN, 0), TopicPartition(OUT, 0)
    check_copies({source: {0: b"a"}, copies: {0: b"t1:a"}})
    with pytest.raises(AssertionError, match="1 of 2 were never copied"):
        check_copies({source: {0: b"a", 1: b"b"}, copies: {0: b"t1:a"}})
    with pytest.raises(AssertionError, match="copied more than once"):
        check_copies({source: {0: b"a"}, copies: {0: b"t1:a", 1: b"t2:a"}})

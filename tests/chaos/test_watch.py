"""The watch detects every violation: two leaders, an offset that goes back, a record that is visible too early."""

from __future__ import annotations

import pytest

from pessoa.coordinator.groups.classic.consumer_payloads import write_assignment
from tests.chaos.checks import check_copies
from tests.chaos.load import IN, OUT, Load
from tests.chaos.watch import Watch
from tests.simulation.history import TopicPartition, Violation

PARTITION = TopicPartition(IN, 0)


@pytest.fixture
def watch() -> Watch:
    return Watch([], Load("127.0.0.1:1", seed=1))


def test_the_watch_detects_two_leaders_in_one_epoch(watch: Watch) -> None:
    watch.hear_of_leader(PARTITION, 4, 1, "one")
    watch.hear_of_leader(PARTITION, 5, 2, "one")
    # A broker that does not know the leader does not contradict the others.
    watch.hear_of_leader(PARTITION, 5, -1, "other")
    with pytest.raises(Violation, match="two leaders of in-0 in epoch 5: 2, says one; 3, says other"):
        watch.hear_of_leader(PARTITION, 5, 3, "other")


def test_the_watch_detects_a_high_watermark_that_goes_back_except_in_outdated_answers(
    watch: Watch,
) -> None:
    watch.hear_of_end("high watermark", PARTITION, 10, 0, "one")
    watch.hear_of_end("high watermark", PARTITION, 8, 5, "other")
    with pytest.raises(Violation, match="the high watermark of in-0 went back from 10 to 9, says other"):
        watch.hear_of_end("high watermark", PARTITION, 9, watch.floor("high watermark", PARTITION), "other")


def test_the_watch_detects_a_leader_outside_the_isr_and_an_isr_member_outside_the_replicas(watch: Watch) -> None:
    watch.hear_of_in_sync(PARTITION, 1, [1, 2], [1, 2, 3], "one")
    watch.hear_of_in_sync(PARTITION, -1, [], [1, 2, 3], "one")
    with pytest.raises(Violation, match=r"1 leads, and only \[2\] are in sync"):
        watch.hear_of_in_sync(PARTITION, 1, [2], [1, 2, 3], "one")
    with pytest.raises(Violation, match=r"\{4\} are in sync, but no replicas"):
        watch.hear_of_in_sync(PARTITION, 1, [1, 4], [1, 2, 3], "one")


def test_the_watch_detects_a_partition_with_two_owners(watch: Watch) -> None:
    first, both = (write_assignment([(IN, numbers)], 1) for numbers in ((0,), (0, 1)))
    watch.hear_of_owners({"a": first, "b": b"", "c": write_assignment([(IN, (1,))], 3)}, "one")
    assert watch.groups_seen == 1
    with pytest.raises(Violation, match="in-0 belongs to a and to b, says one"):
        watch.hear_of_owners({"a": first, "b": both}, "one")


def test_the_watch_detects_a_record_that_is_visible_before_its_transaction_is_committed(watch: Watch) -> None:
    load = watch._load
    for name in ("t1", "t2"):
        load.history.begin_write(name.encode(), TopicPartition(OUT, 0), "p", load.history.begin_transaction(name))
    load.commits_begun.add("t1")
    last: dict[int, int] = {}
    watch.see(0, 5, b"t1", last)
    with pytest.raises(Violation, match="b't2' is visible at out-0@6, and t2 was never committed"):
        watch.see(0, 6, b"t2", last)


def test_the_watch_detects_missing_and_duplicate_copies() -> None:
    source, copies = TopicPartition(IN, 0), TopicPartition(OUT, 0)
    check_copies({source: {0: b"a"}, copies: {0: b"t1:a"}})
    with pytest.raises(AssertionError, match="1 of 2 were never copied"):
        check_copies({source: {0: b"a", 1: b"b"}, copies: {0: b"t1:a"}})
    with pytest.raises(AssertionError, match="copied more than once"):
        check_copies({source: {0: b"a"}, copies: {0: b"t1:a", 1: b"t2:a"}})

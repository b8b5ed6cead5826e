"""Placement of the replicas of new partitions: replicas and leaders are spread over brokers and racks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from pessoa.base.ids import Uuid
from pessoa.controller.placement import place
from pessoa.metadata.image import BrokerImage
from pessoa.wire.errors import ErrorCode, Refusal


def broker(
    broker_id: int,
    rack: str | None = None,
    *,
    fenced: bool = False,
    stopping: bool = False,
    cordoned: tuple[int, ...] | None = None,
) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=1,
        incarnation_id=Uuid.of(broker_id),
        listeners={},
        supported_features={},
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=stopping,
        directories=(Uuid.of(101), Uuid.of(102)),
        cordoned_directories=None if cordoned is None else tuple(Uuid.of(one) for one in cordoned),
    )


@pytest.mark.parametrize("seed", range(20))
def test_four_partitions_times_three_replicas_are_four_replicas_on_each_of_three_brokers(seed: int) -> None:
    placed = place([broker(one) for one in (1, 2, 3)], 4, 3, Random(seed).randrange)
    assert Counter(replica for replicas in placed for replica in replicas) == {1: 4, 2: 4, 3: 4}
    assert {replicas[0] for replicas in placed[:3]} == {1, 2, 3}, "each leads one of the first three"


@pytest.mark.parametrize("seed", range(20))
def test_each_rack_gets_a_replica_and_leaders_alternate_between_racks(seed: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place([broker(one, rack) for one, rack in racks.items()], 6, 3, Random(seed).randrange)
    assert all({racks[replica] for replica in replicas} == {"a", "b", "c"} for replicas in placed)
    assert Counter(racks[replicas[0]] for replicas in placed) == {"a": 2, "b": 2, "c": 2}
    assert Counter(replica for replicas in placed for replica in replicas) == dict.fromkeys(racks, 3)


def test_a_rack_whose_brokers_are_all_fenced_gets_followers_and_no_leader() -> None:
    brokers = [broker(1, "a", fenced=True), broker(2, "b"), broker(3, "c")]
    placed = place(brokers, 8, 3, Random(3).randrange)
    assert all(sorted(replicas) == [1, 2, 3] and replicas[0] != 1 for replicas in placed)


def test_the_replicas_after_the_leader_begin_with_the_rack_that_was_next() -> None:
    """The first rack cannot lead, so the second does; the first still comes before the third."""
    brokers = [broker(1, "a", fenced=True), broker(2, "b"), broker(3, "c")]
    assert place(brokers, 1, 2, lambda _: 0) == [(2, 1)]


def test_brokers_without_a_rack_count_as_one_rack() -> None:
    placed = place([broker(1), broker(2), broker(3, "a")], 6, 2, Random(1).randrange)
    assert all(3 in replicas for replicas in placed), "the other rack has no other broker"


def test_a_broker_that_has_shut_down_gets_followers_as_any_fenced_broker() -> None:
    """Or no topic with a replica on every broker, such as __consumer_offsets, could be created while one is away."""
    brokers = [broker(1), broker(2, fenced=True, stopping=True), broker(3)]
    placed = place(brokers, 6, 3, Random(3).randrange)
    assert all(sorted(replicas) == [1, 2, 3] and replicas[0] != 2 for replicas in placed)
    assert all(2 not in replicas for replicas in place(brokers, 6, 2, Random(3).randrange))


def test_a_broker_that_is_stopping_or_cordoned_gets_no_replicas() -> None:
    brokers = [broker(1), broker(2, stopping=True), broker(3, cordoned=(101, 102)), broker(4, cordoned=(101,))]
    placed = place(brokers, 6, 2, Random(1).randrange)
    assert {replica for replicas in placed for replica in replicas} == {1, 4}
    with pytest.raises(Refusal) as refused:
        place(brokers, 1, 3, Random(1).randrange)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_cannot_be_placed_when_every_broker_is_fenced() -> None:
    with pytest.raises(Refusal) as refused:
        place([broker(1, fenced=True)], 1, 1, Random(1).randrange)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR

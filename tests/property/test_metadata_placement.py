"""Placement of the replicas of new partitions: always valid, in as many racks as possible, and evenly spread."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.ids import Uuid
from pessoa.controller.placement import place
from pessoa.metadata.image import BrokerImage


def broker(broker_id: int, rack: str | None = None, fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        id=broker_id, epoch=1, incarnation_id=Uuid.of(broker_id + 1), listeners={}, supported_features={}, rack=rack,
        fenced=fenced, in_controlled_shutdown=False, directories=(),
    )  # fmt: skip


racks = st.lists(st.tuples(st.sampled_from([None, "r1", "r2", "r3"]), st.booleans()), min_size=1, max_size=9)


@given(racks, st.integers(1, 30), st.data(), st.integers(0, 1 << 30))
def test_a_placement_has_distinct_replicas_and_a_leader_that_is_up(
    layout: list[tuple[str | None, bool]], partitions: int, data: st.DataObject, seed: int
) -> None:
    brokers = [broker(index, rack, fenced) for index, (rack, fenced) in enumerate(layout)]
    brokers[0] = broker(0, layout[0][0])
    factor = data.draw(st.integers(1, len(brokers)))
    by_id = {one.id: one for one in brokers}
    placed = place(brokers, partitions, factor, Random(seed).randrange)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert not by_id[replicas[0]].fenced
        live = sum(not one.fenced for one in brokers)
        of_racks = Counter(by_id[replica].rack for replica in replicas)
        if live == len(brokers):
            sizes = Counter(one.rack for one in brokers)
            assert len(of_racks) == min(factor, len(sizes)), "as many racks as there are"


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 1 << 30))
def test_equal_racks_get_equal_shares(rack_count: int, rack_size: int, rounds: int, seed: int) -> None:
    brokers = [broker(index, f"r{index % rack_count}") for index in range(rack_count * rack_size)]
    placed = place(brokers, rounds * len(brokers), min(3, len(brokers)), Random(seed).randrange)
    of_racks = Counter(replicas[0] % rack_count for replicas in placed)
    assert max(of_racks.values()) - min(of_racks.values()) <= 1, "racks take turns in leading"

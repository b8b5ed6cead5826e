"""While a group rebalances its subscriptions are not known, so none of its offsets expire (KIP-211)."""

from __future__ import annotations

from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.classic_client import GROUP, ClassicClient
from tests.unit.coordinator.groups.test_offsets import WEEK_MS, OffsetClient


def test_an_offset_of_an_unsubscribed_topic_does_not_expire_before_the_group_is_stable() -> None:
    bench = Bench()
    (member,) = ClassicClient(bench).stable_group(1)
    OffsetClient(bench).commit(2, topic="payments", member=member, generation=1)
    group, offsets, later_ms = bench.shard.registry.groups[GROUP], bench.shard.offsets, bench.now_ms + 2 * WEEK_MS
    assert isinstance(group, ClassicGroup)
    assert len(offsets.expire(group, later_ms)[0]) == 1
    group.state = ClassicState.PREPARING_REBALANCE
    assert offsets.expire(group, later_ms) == ([], False)

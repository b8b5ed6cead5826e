"""The pruner deletes no record of `__share_group_state` that a later leader needs, whatever is committed then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pessoa.broker.share.share_state_pruner import ShareStatePruner
from pessoa.coordinator.runtime import LoadState
from pessoa.coordinator.share.share_state import ShareKey
from tests.unit.coordinator.share.test_share_shard import KEY, TOPIC, Driver

OTHER = ShareKey("g", TOPIC, 1)


class FakeLog:
    def __init__(self) -> None:
        self.high_watermark = 0
        self.log_start_offset = 0

    def delete_records_before(self, offset: int) -> None:
        assert offset <= self.high_watermark
        self.log_start_offset = offset


class Leader:
    """A share coordinator shard with its log, which is committed up to `log.high_watermark`, and its pruner."""

    def __init__(self) -> None:
        self.driver = Driver(updates_per_snapshot=2)
        self.log = FakeLog()
        self._led = SimpleNamespace(partition=0, state=LoadState.ACTIVE, shard=self.driver.shard, log_end_offset=0)
        partition = SimpleNamespace(log=self.log, is_leader=True, is_offline=False)
        broker = SimpleNamespace(replicas=SimpleNamespace(ensure=lambda *_: partition))
        coordinator = SimpleNamespace(runtime=SimpleNamespace(led_partitions=lambda: [self._led]))
        self._pruner = ShareStatePruner(cast("Any", broker), cast("Any", coordinator))
        self._pruner.close()

    def write(self, key: ShareKey, count: int) -> None:
        for _ in range(count):
            self.driver.write((0, 0, 2, 1), start=0, key=key)

    def prune(self) -> None:
        self._led.log_end_offset = len(self.driver.log)
        self._pruner.prune()

    def states_of_next_leader(self, start_offset: int) -> list[object]:
        """Return the states of a new shard that has replayed the committed records from an offset on."""
        next_leader = Driver()
        next_leader.log = self.driver.log[: self.log.high_watermark]
        next_leader.start_offset = start_offset
        shard = next_leader.load()
        return [
            None if (state := shard.state(key)) is None else state._replace(snapshot_offset=0) for key in (KEY, OTHER)
        ]


@pytest.mark.parametrize("turns", [(3, 4, 0), (2, 5, 2), (4, 0, 3), (5, 5, 5)])
def test_the_next_leader_knows_every_committed_state_after_pruning_at_any_high_watermark(
    turns: tuple[int, int, int],
) -> None:
    async def run() -> None:
        leader = Leader()
        leader.driver.initialize()
        leader.driver.initialize(key=OTHER)
        for key, count in zip((KEY, OTHER, KEY), turns, strict=True):
            leader.write(key, count)
        for high_watermark in range(len(leader.driver.log) + 1):
            leader.log.high_watermark = high_watermark
            leader.prune()
            kept = leader.states_of_next_leader(leader.log.log_start_offset)
            assert kept == leader.states_of_next_leader(0), f"high watermark {high_watermark}"
        assert leader.log.log_start_offset > 0

    asyncio.run(run())


def test_pruning_advances_though_a_write_is_always_under_way() -> None:
    async def run() -> None:
        leader = Leader()
        leader.driver.initialize()
        for _ in range(6):
            leader.log.high_watermark = len(leader.driver.log)
            leader.write(KEY, 3)
            leader.prune()
        assert leader.log.log_start_offset > 0

    asyncio.run(run())

"""Deletes the records of `__share_group_state` that no load needs any more.

The topic is not compacted: every share partition has a snapshot from time to time, and what stands before the oldest of
the last snapshots is passed over by every load. Every `share.coordinator.state.topic.prune.interval.ms` the leader of a
partition deletes that, once all it follows from is committed: until then a new leader may have to begin with an older
snapshot of any share partition. Where a write is always under way, what one round has found is deleted by the next.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from pessoa.coordinator.runtime import LoadState
from pessoa.log.files import DiskError
from pessoa.wire.internal_topics import SHARE_TOPIC

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.share.share_coordinator import ShareCoordinator
    from pessoa.coordinator.share.share_shard import ShareShard

log = logging.getLogger("pessoa.share")


class Prunable(NamedTuple):
    """The offset below which records can be deleted once the log is committed up to `log_end_offset`."""

    shard: ShareShard
    offset: int
    log_end_offset: int


class ShareStatePruner:
    def __init__(self, broker: BrokerServices, coordinator: ShareCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator
        # By partition, what was not committed in the last round.
        self._waiting_for_commit: dict[int, Prunable] = {}
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __repr__(self) -> str:
        return f"<ShareStatePruner of {self._coordinator!r}>"

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._broker.clock.wait_ms(self._broker.config.share_coordinator_state_topic_prune_interval_ms)
            self.prune()

    def prune(self) -> None:
        waiting, self._waiting_for_commit = self._waiting_for_commit, {}
        for led in self._coordinator.runtime.led_partitions():
            partition = self._broker.replicas.ensure(SHARE_TOPIC, led.partition)
            if (
                led.state is not LoadState.ACTIVE
                or partition is None
                or not partition.is_leader
                or partition.is_offline
            ):
                continue
            found = waiting.get(led.partition)
            # A shard that was elected since has replayed another log.
            if found is None or found.shard is not led.shard:
                found = Prunable(led.shard, led.shard.prunable_offset(), led.log_end_offset)
            if partition.log.high_watermark < found.log_end_offset:
                self._waiting_for_commit[led.partition] = found
                continue
            if found.offset <= partition.log.log_start_offset:
                continue
            try:
                partition.log.delete_records_before(found.offset)
            except DiskError as problem:
                partition.directory.fail(problem)
            else:
                log.debug("%s-%s is deleted up to offset %s", SHARE_TOPIC, led.partition, found.offset)

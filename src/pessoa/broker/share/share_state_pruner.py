"""Deletes the records of `__share_group_state` that no load needs any more.

The topic is not compacted: every share partition has a snapshot from time to time, and what stands before the oldest of
the last snapshots is passed over by every load. Every `share.coordinator.state.topic.prune.interval.ms` the leader of a
partition deletes that, once the snapshot is committed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pessoa.broker.topic_listing import SHARE_TOPIC
from pessoa.coordinator.runtime import LoadState
from pessoa.log.files import DiskError

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.share.share_coordinator import ShareCoordinator

log = logging.getLogger("pessoa.share")


class ShareStatePruner:
    def __init__(self, broker: BrokerServices, coordinator: ShareCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator
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
        for led in self._coordinator.runtime.led_partitions():
            partition = self._broker.replicas.get(SHARE_TOPIC, led.partition)
            if (
                led.state is not LoadState.ACTIVE
                or partition is None
                or not partition.is_leader
                or partition.is_offline
            ):
                continue
            offset = led.shard.prunable_offset()
            if not partition.log.log_start_offset < offset <= partition.log.high_watermark:
                continue
            try:
                partition.log.delete_records_before(offset)
            except DiskError as problem:
                partition.directory.fail(problem)
            else:
                log.debug("%s-%s is deleted up to offset %s", SHARE_TOPIC, led.partition, offset)

"""AlterPartition requests: the ISR changes of all partitions that this broker leads, on their way to the controller.

Many partitions may propose changes at once, as when a broker dies. They are collected, and one AlterPartition request
is in flight at a time; changes that are proposed meanwhile go with the next one, and so do those beyond the size of a
request. A request that fails is sent again: its changes are compare-and-set, so a second time does no harm (KIP-497). A
change that newer metadata has made void is not sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.replication.backoff import Backoff
from pessoa.replication.isr import IsrAnswer
from pessoa.wire.api.alter_partition import AlterPartitionResponse, BrokerState, PartitionData, TopicData
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.base.ids import Uuid
    from pessoa.replication.isr import IsrChange
    from pessoa.replication.partition import Partition

log = logging.getLogger("pessoa.replication")

# Raises ChannelFailed or TimeoutError if the controller did not answer.
AlterPartition = Callable[[list[TopicData]], Awaitable[AlterPartitionResponse]]

_LONGEST_PAUSE_MS = 1000
# A request has a bounded number of elements, and while one takes long the changes of other partitions wait.
_MAX_CHANGES_PER_REQUEST = 2000


class AlterPartitionQueue:
    def __init__(self, alter_partition: AlterPartition, clock: Clock) -> None:
        self._alter_partition = alter_partition
        self._clock = clock
        self._proposed: dict[Partition, IsrChange] = {}
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff()

    def __repr__(self) -> str:
        return f"<AlterPartitionQueue: {len(self._proposed)} proposed>"

    def propose(self, partition: Partition, change: IsrChange) -> None:
        self._proposed[partition] = change
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="alter-partition")
            self._task.add_done_callback(_report)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._proposed:
            changes = dict(islice(self._proposed.items(), _MAX_CHANGES_PER_REQUEST))
            for one in changes:
                del self._proposed[one]
            current = {one: change for one, change in changes.items() if _is_pending(one, change)}
            if current and not await self._send(current):
                # What was proposed meanwhile is newer, and stays.
                self._proposed = {**current, **self._proposed}
                await self._pause()

    async def _send(self, changes: dict[Partition, IsrChange]) -> bool:
        """Send the changes and take over the answers. Return False if the request must be retried: `changes` then has
        those that were not answered for good."""
        topics: dict[Uuid, TopicData] = {}
        by_key: dict[tuple[Uuid, int], Partition] = {}
        for partition, change in changes.items():
            by_key[partition.topic_id, partition.index] = partition
            topic = topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id, partitions=[]))
            topic.partitions.append(_partition_data(partition, change))
        try:
            response = await self._alter_partition(list(topics.values()))
        except (ChannelFailed, TimeoutError) as problem:
            log.info("the controller could not be asked to change in-sync replicas: %s", problem)
            return False
        if response.error_code:
            log.info("the controller refused changes of in-sync replicas: %s", ErrorCode.of(response.error_code).name)
            return False
        for answered in response.topics:
            for one in answered.partitions:
                found = by_key.pop((answered.topic_id, one.partition_index), None)
                if found is None:
                    continue
                answer = IsrAnswer(ErrorCode.of(one.error_code), one.leader_epoch, one.partition_epoch, tuple(one.isr))
                change = changes[found]
                log.info(
                    "%s-%s: in-sync replicas %s: %s",
                    found.topic, found.index, list(change.isr), answer.error.name,
                )  # fmt: skip
                if not found.apply_isr_answer(change, answer):
                    del changes[found]
        if not changes:
            self._backoff.succeeded()
        return not changes

    async def _pause(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._backoff.failed(now_ms, _LONGEST_PAUSE_MS)
        await self._clock.wait_ms(self._backoff.until_ms - now_ms)


def _is_pending(partition: Partition, change: IsrChange) -> bool:
    return partition.in_sync is not None and partition.in_sync.pending is change


def _partition_data(partition: Partition, change: IsrChange) -> PartitionData:
    return PartitionData(
        partition_index=partition.index,
        leader_epoch=change.leader_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=replica, broker_epoch=epoch)
            for replica, epoch in zip(change.isr, change.broker_epochs, strict=True)
        ],
        partition_epoch=change.partition_epoch,
    )


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": "changes of in-sync replicas failed", "exception": error, "task": task}
        )

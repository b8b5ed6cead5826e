"""One partition as the replica on this broker sees it.

The leader appends and moves the high watermark: to the least log end offset of the in-sync replicas. Whoever waits
for new records (a fetch that found too little) or for replication (a produce with acks=all) waits here:

    append ──▶ log end moves ──▶ high watermark moves ──▶ waiters whose need is met are woken

A waiter is a plain future with a need; it looks again itself when it wakes. So nothing here knows about requests.

Leadership comes with an epoch. A request that names an older epoch is fenced, one that names a newer epoch knows of a
leader that we have not heard of (KIP-320).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.log.directory import LogDirectory
    from pessoa.log.partition_log import Appended, PartitionLog
    from pessoa.log.producer_state import VerificationGuard

NO_LEADER = -1


class FetchWaiter:
    """Waits until `needed_bytes` more have become visible in any of the partitions that it stands in."""

    __slots__ = ("future", "needed_bytes", "partitions")

    def __init__(self, future: asyncio.Future[None], needed_bytes: int, partitions: list[Partition]) -> None:
        self.future = future
        self.needed_bytes = needed_bytes
        self.partitions = partitions
        for partition in partitions:
            partition.fetch_waiters.append(self)

    def arrived(self, size: int) -> None:
        self.needed_bytes -= size
        if self.needed_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def leave(self) -> None:
        for partition in self.partitions:
            partition.fetch_waiters.remove(self)


class Partition:
    """Invariant: `is_leader` only if `leader_id` is this broker."""

    __slots__ = (
        "_commit_waiters",
        "directory",
        "fetch_waiters",
        "index",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, index: int, log: PartitionLog, directory: LogDirectory) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.directory = directory
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.is_leader = False
        self.isr: tuple[int, ...] = ()
        self.fetch_waiters: list[FetchWaiter] = []
        # (offset that the high watermark must reach, who waits), in the order of the offsets
        self._commit_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"<Partition {self.topic}-{self.index}: {role} in epoch {self.leader_epoch}, {self.log!r}>"

    def lead(self, node_id: int, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> None:
        """This broker leads from now on, or goes on to lead, with these in-sync replicas."""
        self.leader_id, self.is_leader = node_id, True
        self.leader_epoch, self.partition_epoch, self.isr = leader_epoch, partition_epoch, isr
        self.maybe_advance_high_watermark()

    def resign(self, leader_id: int, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> None:
        """Another broker leads, or none does. Whoever waits here must look for it elsewhere."""
        self.leader_id, self.is_leader = leader_id, False
        self.leader_epoch, self.partition_epoch, self.isr = leader_epoch, partition_epoch, isr
        self.wake_all()

    def check_epoch(self, requested_epoch: int) -> ErrorCode:
        """NONE if the requester and we agree about the leader; -1 is a requester that does not care."""
        if requested_epoch < 0 or requested_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if requested_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def append(
        self, data: memoryview, now_ms: int, produce_version: int, guard: VerificationGuard | None = None
    ) -> Appended:
        """Append as leader what a producer sent; raises what `PartitionLog.append_as_leader` raises."""
        appended = self.log.append_as_leader(data, self.leader_epoch, now_ms, produce_version, guard)
        self.after_append(len(data))
        return appended

    def append_own(
        self,
        batch: bytearray,
        now_ms: int,
        transaction_version: int = -1,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append as leader a batch that this broker made."""
        appended = self.log.append_own(memoryview(batch), self.leader_epoch, now_ms, transaction_version, guard)
        self.after_append(len(batch))
        return appended

    def after_append(self, size: int) -> None:
        if self.maybe_advance_high_watermark() and self.fetch_waiters:
            for waiter in tuple(self.fetch_waiters):
                waiter.arrived(size)

    def maybe_advance_high_watermark(self) -> bool:
        """With this broker alone in sync, what is appended is replicated."""
        if not self.log.update_high_watermark(self.log.log_end_offset):
            return False
        waiters, reached = self._commit_waiters, self.log.high_watermark
        while waiters and waiters[0][0] <= reached:
            future = waiters.popleft()[1]
            if not future.done():
                future.set_result(None)
        return True

    async def wait_until_replicated(self, offset: int) -> bool:
        """True when the high watermark has reached `offset`; False if this broker stops leading before."""
        if self.log.high_watermark >= offset:
            return True
        if self.is_leader:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._commit_waiters.append((offset, future))
            await future
        return self.is_leader and self.log.high_watermark >= offset

    def wake_all(self) -> None:
        for waiter in tuple(self.fetch_waiters):
            waiter.wake()
        while self._commit_waiters:
            future = self._commit_waiters.popleft()[1]
            if not future.done():
                future.set_result(None)

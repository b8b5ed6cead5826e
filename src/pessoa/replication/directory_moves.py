"""Moving replicas between the log directories of this broker (KIP-113), while they go on to lead and to follow.

    AlterReplicaLogDirs ──▶ a copy begins ──▶ pieces of the log, in turn with everything else ──▶ caught up
    ──▶ synced ──▶ what came meanwhile ──▶ the copy takes the place of the original ──▶ AssignReplicasToDirs

One task for every directory that something moves to works through its copies, one after the other, at
`replica.alter.log.dirs.io.max.bytes.per.second` in all. Copying goes through the page cache on the event loop, as
reading and appending do; a piece is small, and requests have their turn between two of them. The last step waits for
nothing, so that no append comes between the last batch and the swap.

Before the swap the copy is synced at least as far as the original: what a topic has been promised (`flush.messages`)
still holds after it, and what has long been on one disk is not suddenly in memory alone.

`log/future_log.py` says how a copy survives the death of the process. `recover` finds what is left of it, when the
partition is opened again, and `resume` goes on.

AlterReplicaLogDirs may also name a replica that does not exist here yet: kafka-reassign-partitions sends it before the
broker has the new replica. The directory is remembered, and the log is then created in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from pessoa.log.directory import DirectoryOffline
from pessoa.log.files import DiskError
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.base.ids import Uuid
    from pessoa.log.directory import LogDirectory
    from pessoa.log.flusher import Flusher
    from pessoa.log.future_log import FutureLog
    from pessoa.log.upkeep import Upkeep
    from pessoa.replication.partition import LocalBroker, Partition

log = logging.getLogger("pessoa.replication")

# So much is copied before others have their turn: less than a millisecond's work.
_PIECE_BYTES = 256 << 10
# A topic that syncs all the time can be ahead of the copy's disk for ever. After so many rounds the swap waits for it.
_PATIENT_FLUSHES = 3
# Wishes for replicas that never come must not fill the memory.
_MAX_REQUESTED = 10_000


class DirectoryMoves:
    def __init__(
        self,
        broker: LocalBroker,
        directories: Sequence[LogDirectory],
        upkeep: Upkeep,
        flusher: Flusher,
        new_uuid: Callable[[], Uuid],
    ) -> None:
        self._broker = broker
        self._directories = directories
        self._upkeep = upkeep
        self._flusher = flusher
        self._new_uuid = new_uuid
        # Called with every replica that has been moved to another directory.
        self.on_moved: list[Callable[[Partition], None]] = []
        # The directory in which a replica shall be created that is not on this broker, as AlterReplicaLogDirs said.
        self._requested_directories: dict[tuple[str, int], LogDirectory] = {}
        # Those whose interrupted swap cannot be ended before the next start.
        self._unreachable: set[tuple[Uuid, int]] = set()
        # By the path of the directory that they move to.
        self._waiting: dict[str, deque[Partition]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<DirectoryMoves: {sum(map(len, self._waiting.values()))} waiting, {len(self._tasks)} tasks>"

    # What AlterReplicaLogDirs asks for.

    def request_directory(self, topic: str, index: int, destination: LogDirectory) -> None:
        """Note that this replica, which does not exist on this broker, shall be created in `destination`
        (AlterReplicaLogDirs)."""
        if len(self._requested_directories) < _MAX_REQUESTED:
            self._requested_directories[topic, index] = destination

    def take_requested_directory(self, topic: str, index: int) -> LogDirectory | None:
        """Return the directory that was requested for a new replica, and forget the request; None if there is none, or
        the directory is offline."""
        destination = self._requested_directories.pop((topic, index), None)
        return destination if destination is not None and destination.offline is None else None

    def move(self, partition: Partition, destination: LogDirectory) -> ErrorCode:
        """Begin to move a replica to `destination`. If it is there already, cancel a move to another directory."""
        if destination.offline is not None or partition.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        future = partition.future
        if future is not None and future.directory is not destination:
            self.cancel(partition)
        if partition.directory is destination or partition.future is not None:
            return ErrorCode.NONE
        if (partition.topic, partition.index) in destination.partitions:
            log.error(
                "%s-%s is in %s already, and belongs to no topic there",
                partition.topic,
                partition.index,
                destination.path,
            )
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            future = destination.create_future(
                partition.topic,
                partition.index,
                partition.topic_id,
                self._new_uuid(),
                partition.log.config,
                self._broker.clock.now_ms(),
            )
        except DirectoryOffline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._begin(partition, future)
        return ErrorCode.NONE

    def cancel(self, partition: Partition) -> None:
        """Cancel the move. The copying task notices that the partition has no copy any more, or another one."""
        future, partition.future = partition.future, None
        if future is not None and future.directory.offline is None:
            self._remove(future)

    def _remove(self, future: FutureLog) -> None:
        try:
            future.directory.remove_future(future)
        except DirectoryOffline as error:
            log.warning("%r could not be removed: %s", future, error)

    # After a start.

    def recover(self, topic: str, topic_id: Uuid, index: int) -> bool:
        """Finish a swap that was interrupted, and remove copies whose original is lost, before a partition is opened or
        created. Return False if the partition is in a directory that is offline: an empty log must not take its
        place."""
        if (topic_id, index) in self._unreachable:
            return False
        if any((topic, index) in directory.partitions for directory in self._directories):
            return True
        copies = self._copies_of(topic, topic_id, index)
        for future in copies:
            original = next((one for one in self._directories if future.retired_name in one.unwanted), None)
            if original is not None and not self._end_swap(topic, future):
                # Its name is what tells that the swap was decided, so it stays until that has worked.
                original.unwanted.remove(future.retired_name)
                self._unreachable.add((topic_id, index))
                return False
            if original is not None:
                return True
        for future in copies:
            if future.directory.offline is None:
                log.warning("%r has no original: it is removed", future)
                self._remove(future)
        return True

    def _end_swap(self, topic: str, future: FutureLog) -> bool:
        try:
            future.directory.promote(topic, future)
        except DirectoryOffline as error:
            log.error("%r cannot take the place of its original: %s", future, error)  # noqa: TRY400  # expected
            return False
        log.info("%s-%s has taken the place of its original", topic, future.partition)
        return True

    def resume(self, partition: Partition) -> None:
        """Continue with the copy of a partition that was opened, if it has one."""
        for future in self._copies_of(partition.topic, partition.topic_id, partition.index):
            if future.directory.offline is not None:
                continue
            if partition.future is None and future.directory is not partition.directory:
                future.topic, future.topic_id = partition.topic, partition.topic_id
                future.log.configure(partition.log.config)
                self._begin(partition, future)
            else:
                self._remove(future)

    def remove_strays(self, wanted: Sequence[Partition]) -> None:
        """Remove copies that no partition of this broker has."""
        known = {id(partition.future) for partition in wanted if partition.future is not None}
        for directory in self._directories:
            for future in list(directory.futures) if directory.offline is None else ():
                if id(future) not in known:
                    log.info("%r belongs to no partition any more", future)
                    self._remove(future)

    def _copies_of(self, topic: str, topic_id: Uuid, index: int) -> list[FutureLog]:
        return [
            future
            for directory in self._directories
            for future in directory.futures
            if future.is_of(topic, topic_id, index)
        ]

    # Copying.

    def _begin(self, partition: Partition, future: FutureLog) -> None:
        partition.future = future
        path = future.directory.path
        self._upkeep.look_after(future.directory, future.log)
        self._waiting.setdefault(path, deque()).append(partition)
        if path not in self._tasks:
            task = self._tasks[path] = asyncio.get_running_loop().create_task(self._work(path), name=f"moves-{path}")
            task.add_done_callback(_report)

    async def _work(self, path: str) -> None:
        partition: Partition | None = None
        try:
            while waiting := self._waiting.get(path):
                partition = waiting.popleft()
                future = partition.future
                if future is not None and future.directory.path == path:
                    await self._move(partition, future)
        except Exception:
            # No task would go on with these before the next start, and DescribeLogDirs would still show them as moving.
            for left in (partition, *self._waiting[path]):
                if left is not None:
                    self._give_up(left, path)
            raise
        finally:
            self._waiting.pop(path, None)
            del self._tasks[path]

    def _give_up(self, partition: Partition, path: str) -> None:
        """Cancel the move to `path`, unless the swap has renamed the original already: the copy is then the only log of
        the replica, and the next start completes the swap."""
        is_in_place = (partition.topic, partition.index) in partition.directory.partitions
        if is_in_place and partition.future is not None and partition.future.directory.path == path:
            self.cancel(partition)

    async def _move(self, partition: Partition, future: FutureLog) -> None:
        log.info("%s-%s moves to %s", partition.topic, partition.index, future.directory.path)
        try:
            await self._sync_creation(future)
            if _is_moving(partition, future):
                future.resume(partition.log, self._broker.clock.now_ms())
            flushes = 0
            while _is_moving(partition, future):
                if await self._copy(partition, future):
                    continue
                if self._is_safe(partition, future, flushes):
                    self._swap(partition, future)
                else:
                    await self._flush(future, flushes)
                    flushes += 1
        except DiskError as error:
            partition.directory.fail(error)
        except InvalidBatch as damage:
            log.error("%r stays where it is: %s", partition, damage)  # noqa: TRY400  # expected
            self.cancel(partition)

    async def _sync_creation(self, future: FutureLog) -> None:
        if future.log.sync_creation is not None:
            await asyncio.get_running_loop().run_in_executor(None, future.log.sync_creation)
            future.log.sync_creation = None

    async def _copy(self, partition: Partition, future: FutureLog) -> bool:
        """Copy a part of the log when the throttle allows it; return whether there may be more."""
        throttle, clock = self._broker.directory_throttle, self._broker.clock
        if wait_ms := throttle.wait_ms(clock.monotonic_ms()):
            await clock.wait_ms(wait_ms)
            return True
        size = future.copy_from(partition.log, _PIECE_BYTES, clock.now_ms())
        if not size:
            return False
        throttle.take(size, clock.monotonic_ms())
        await asyncio.sleep(0)
        return True

    def _is_safe(self, partition: Partition, future: FutureLog, flushes: int) -> bool:
        """Return whether the copy has everything that the original has, also on its disk."""
        if not flushes or self._flusher.is_flushing(future.log):
            return False
        return future.log.recovery_point >= partition.log.recovery_point

    async def _flush(self, future: FutureLog, flushes: int) -> None:
        if flushes >= _PATIENT_FLUSHES and not self._flusher.is_flushing(future.log):
            future.log.flush()
        else:
            await self._flusher.wait_until_durable(future.log, future.log.log_end_offset)
            # The flush of a segment that is full may be on its way.
            await asyncio.sleep(0)

    def _swap(self, partition: Partition, future: FutureLog) -> None:
        """Replace the original by the copy, without a wait in between. If a disk fails in the middle, the replica is
        lost with it."""
        original, source = partition.log, partition.directory
        future.log.take_over(original)
        # After a crash behind the first rename the start offset is found here: what was deleted stays deleted.
        future.directory.write_checkpoints()
        try:
            source.retire(partition.topic, partition.index, future.retired_name)
        except DirectoryOffline:
            return
        partition.log, partition.directory, partition.future = future.log, future.directory, None
        original.successor = future.log
        try:
            future.directory.promote(partition.topic, future)
        except DirectoryOffline as error:
            log.warning("%r was lost while it took the place of its original: %s", future, error)
        else:
            source.unwanted.append(future.retired_name)
            log.info("%s-%s is in %s now", partition.topic, partition.index, future.directory.path)
        for told in self.on_moved:
            told(partition)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_moving(partition: Partition, future: FutureLog) -> bool:
    return partition.future is future and not partition.is_offline and future.directory.offline is None


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "moving a replica failed", "exception": error, "task": task})

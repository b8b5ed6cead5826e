"""The background jobs of a broker's logs: retention, flushing, checkpoints, removing files.

    job                       every                                            does
    retention                 log.retention.check.interval.ms          5 min   drops expired segments; at first after
                              log.initial.task.delay.ms                30 s
    producers                 producer.id.expiration.check.interval.ms 10 min  forgets producers that are long silent
    flush                     log.flush.scheduler.interval.ms                  syncs logs whose flush.ms has passed
    truncations               log.flush.scheduler.interval.ms                  syncs logs that were truncated
    checkpoints               log.flush.offset.checkpoint.interval.ms  1 min   writes what recovery will need
    removal                   1 s                                              removes files after file.delete.delay.ms
    creations                 creation                                         syncs the files of a new log

Calls that wait for the disk run in a worker thread; only the decisions, and the few renames that make them true, run
on the event loop. A `DiskError` takes its directory offline, and the jobs go on with the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.directory import home_of
from pessoa.log.files import DiskError
from pessoa.log.log_config import NEVER
from pessoa.log.retention import expired_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from pessoa.base.clock import Clock
    from pessoa.log.directory import LogDirectory
    from pessoa.log.files import Disk
    from pessoa.log.flusher import Flusher
    from pessoa.log.partition_log import PartitionLog
    from pessoa.log.segment import Segment

log = logging.getLogger("pessoa.log")

_REMOVAL_INTERVAL_MS = 1000
# Kafka's default for log.flush.scheduler.interval.ms is never; a topic's flush.ms would then be idle, so we look once a
# second.
LONGEST_FLUSH_CHECK_MS = 1000


class UpkeepSettings(NamedTuple):
    """Names and defaults are Kafka's."""

    log_retention_check_interval_ms: int = 5 * 60 * 1000
    producer_id_expiration_check_interval_ms: int = 10 * 60 * 1000
    log_flush_scheduler_interval_ms: int = LONGEST_FLUSH_CHECK_MS
    log_flush_offset_checkpoint_interval_ms: int = 60 * 1000
    # When retention is looked at first: a broker that is restarted more often than every five minutes has it too.
    log_initial_task_delay_ms: int = 30 * 1000


class Upkeep:
    """`run` repeats the jobs until it is cancelled. Tests call single jobs."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[LogDirectory],
        clock: Clock,
        flusher: Flusher,
        settings: UpkeepSettings | None = None,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._clock = clock
        self._flusher = flusher
        self._settings = settings or UpkeepSettings()
        # (when, which), in the order in which they were dropped.
        self._dropped_segments: deque[tuple[int, PartitionLog, Segment]] = deque()
        # Since when a job has seen that a log with `flush.ms` waits for a sync.
        self._unflushed_since_ms: dict[PartitionLog, int] = {}
        self._background: set[asyncio.Task[None]] = set()
        # Whether a task is about to sync the logs that were created.
        self._will_sync_creations = False
        # One of each for all logs: there may be thousands.
        self._on_rolled = self._flush_soon
        self._on_dropped = self._remember_dropped

    def __repr__(self) -> str:
        return f"<Upkeep of {len(self._directories)} directories, {len(self._dropped_segments)} segments to remove>"

    def look_after(self, directory: LogDirectory, partition_log: PartitionLog) -> None:
        """From now on, sync the full segments of this log and remove its dropped ones."""
        partition_log.on_segments_dropped = self._on_dropped
        partition_log.on_rolled = self._on_rolled
        if directory.unsynced_creations and not self._will_sync_creations:
            self._will_sync_creations = True
            self._start(self._sync_creations())

    async def run(self) -> None:
        settings = self._settings
        retention_ms = settings.log_retention_check_interval_ms
        first_ms = min(settings.log_initial_task_delay_ms, retention_ms)
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(self._repeat(retention_ms, self.apply_retention, first_ms))
            for interval_ms, job in (
                (settings.producer_id_expiration_check_interval_ms, self.expire_producers),
                (settings.log_flush_scheduler_interval_ms, self.flush_due),
                (settings.log_flush_scheduler_interval_ms, self.flush_truncated),
                (settings.log_flush_offset_checkpoint_interval_ms, self.write_checkpoints),
                (_REMOVAL_INTERVAL_MS, self.remove_dropped),
            ):
                jobs.create_task(self._repeat(interval_ms, job))

    async def _repeat(
        self, interval_ms: int, job: Callable[[], Coroutine[None, None, None]], first_ms: int | None = None
    ) -> None:
        await self._clock.wait_ms(interval_ms if first_ms is None else first_ms)
        while True:
            await job()
            await self._clock.wait_ms(interval_ms)

    # The jobs.

    async def apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        for directory, partition_log in self._online():
            try:
                expired = expired_segments(partition_log, now_ms)
                if expired.segments:
                    log.info("%s: %s segments go (%s)", partition_log.directory, expired.segments, expired.reason)
                    partition_log.drop_segments(expired.segments, now_ms)
            except DiskError as error:
                directory.fail(error)
            await asyncio.sleep(0)

    async def expire_producers(self) -> None:
        for _, partition_log in self._online():
            partition_log.producers.remove_expired(self._clock.now_ms(), partition_log.config.producer_id_expiration_ms)

    async def flush_due(self) -> None:
        """Sync the logs whose unflushed records are older than their `flush.ms`."""
        now_ms = self._clock.monotonic_ms()
        since_ms, self._unflushed_since_ms = self._unflushed_since_ms, {}
        for directory, partition_log in self._online():
            interval_ms = partition_log.config.flush_ms
            if interval_ms == NEVER or not partition_log.unflushed_count:
                continue
            if now_ms - since_ms.get(partition_log, now_ms) >= interval_ms:
                await self._flush(directory, partition_log)
            else:
                self._unflushed_since_ms[partition_log] = since_ms.get(partition_log, now_ms)

    async def flush_truncated(self) -> None:
        """Sync the logs with a truncation that a loss of power could undo: until then the checkpoint of the high
        watermark stays behind, and the next roll would have to wait for the disk."""
        for directory, partition_log in self._online():
            if partition_log.has_unsynced_truncation:
                try:
                    await self._flusher.flush(partition_log)
                except DiskError as error:
                    directory.fail(error)

    async def write_checkpoints(self) -> None:
        loop = asyncio.get_running_loop()
        for directory in self._directories:
            if directory.offline is not None:
                continue
            rendered = directory.render_checkpoints()
            try:
                await loop.run_in_executor(None, directory.write_rendered, rendered)
            except DiskError as error:
                directory.fail(error)

    async def remove_dropped(self) -> None:
        """Remove the files of segments that were dropped `file.delete.delay.ms` ago, and of deleted partitions."""
        loop = asyncio.get_running_loop()
        while self._dropped_segments and self._dropped_segments[0][0] <= self._clock.monotonic_ms():
            _, partition_log, segment = self._dropped_segments.popleft()
            # The directory of a log may have another name by now, and so have the segments that it dropped before.
            segment.relocate(partition_log.directory)
            paths = segment.release()
            directory = home_of(self._directories, partition_log.directory)
            if directory.offline is None:
                try:
                    await loop.run_in_executor(None, self._remove, paths)
                except DiskError as error:
                    directory.fail(error)
        for directory in self._directories:
            if directory.unwanted and directory.offline is None:
                try:
                    await loop.run_in_executor(None, directory.remove_unwanted)
                except DiskError as error:
                    directory.fail(error)

    # Reaching the disk.

    def _online(self) -> Iterator[tuple[LogDirectory, PartitionLog]]:
        for directory in self._directories:
            for partition_log in list(directory.partitions.values()):
                # Jobs wait between two logs, and meanwhile a partition may have been deleted.
                if directory.offline is None and not partition_log.is_released:
                    yield directory, partition_log

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._disk.remove(path, missing_ok=True)

    def _remember_dropped(self, partition_log: PartitionLog, segments: Sequence[Segment]) -> None:
        due_ms = self._clock.monotonic_ms() + partition_log.config.file_delete_delay_ms
        self._dropped_segments.extend((due_ms, partition_log, segment) for segment in segments)

    def _flush_soon(self, partition_log: PartitionLog) -> None:
        self._start(self._flush(home_of(self._directories, partition_log.directory), partition_log))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _sync_creations(self) -> None:
        self._will_sync_creations = False
        for directory in self._directories:
            created, directory.unsynced_creations = directory.unsynced_creations, []
            if not created or directory.offline is not None:
                continue
            try:
                await asyncio.get_running_loop().run_in_executor(None, directory.sync_creations, created)
            except DiskError as error:
                directory.fail(error)
                continue
            for one in created:
                one.sync_creation = None

    async def _flush(self, directory: LogDirectory, partition_log: PartitionLog) -> None:
        try:
            await self._flusher.wait_until_durable(partition_log, partition_log.log_end_offset)
        except DiskError as error:
            directory.fail(error)

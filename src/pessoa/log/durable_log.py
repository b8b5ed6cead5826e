"""How much of a log is on the disk: its recovery point, what a flush syncs, and which truncations are not synced.

    recovery point ≤ log end offset

Below the recovery point everything is on the disk itself, not only in the page cache. A flush moves it: `begin_flush`
says what must be synced, a worker thread runs that, `finish_flush` moves the recovery point.

What a flush must sync: after a crash recovery reads everything from the segment on that the recovery point lies in, and
makes its indexes anew. So of the last segment only the `.log` has to be on the disk, and a group commit costs one sync.
A segment that is full is synced whole, indexes and all, before the recovery point leaves it behind.

A truncation is synced by the next flush. Until then a loss of power could bring back what was truncated, so the high
watermark that a checkpoint may have stays below it, and no segment may be rolled (docs/CORRECTNESS.md).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.files import DiskError
from pessoa.log.leader_epoch_cache import LEADER_EPOCH_FILE
from pessoa.log.producer_snapshot_files import SNAPSHOT_SUFFIX
from pessoa.log.readable_log import ReadableLog
from pessoa.log.segment import segment_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.log.files import Disk
    from pessoa.log.leader_epoch_cache import LeaderEpochCache
    from pessoa.log.producer_snapshot_files import ProducerSnapshots
    from pessoa.log.producer_state import ProducerState
    from pessoa.log.segment import Segment


class LogState(Enum):
    """Whether a log has files.

    EMPTY ──the first append──▶ OPEN ──the partition is deleted or moved──▶ RELEASED
    """

    # Its directory has no files, and its only segment is a `LazySegment`.
    EMPTY = "empty"
    # It has its files.
    OPEN = "open"
    # Its files are closed, its directory may be that of another log, and nothing may be written any more.
    RELEASED = "released"


class Flush(NamedTuple):
    """The syncs, in this order, that make everything below `offset` durable."""

    offset: int
    # As they were when the flush began.
    truncations: int
    changes: int
    active_base_offset: int
    steps: Sequence[Callable[[], None]]

    def run(self) -> None:
        """Run the syncs; for a worker thread."""
        for step in self.steps:
            step()


class DurableLog(ReadableLog):
    """`PartitionLog` is this and everything that changes the log."""

    __slots__ = (
        "_changes",
        "_disk",
        "_flush_messages",
        "_synced_base_offset",
        "_synced_changes",
        "_truncations",
        "_unsynced_truncation",
        "epochs",
        "has_flush_messages",
        "recovery_point",
        "snapshots",
        "state",
        "sync_creation",
    )

    _flush_messages: int
    # Whether `flush.messages` is set at all: asked with every append, where a property is slow.
    has_flush_messages: bool

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[Segment],
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        epochs: LeaderEpochCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        *,
        synced_base_offset: int,
        is_durable: bool,
        unsynced_truncation: int | None,
    ) -> None:
        super().__init__(directory, segments, producers, log_start_offset, log_end_offset)
        self.snapshots = snapshots
        self.epochs = epochs
        self.recovery_point = recovery_point
        self.state = LogState.OPEN
        # Syncs the directory and the names of the first files, so that the log itself survives a power loss; None once
        # that is done.
        self.sync_creation: Callable[[], None] | None = None
        self._disk = disk
        self._truncations = 0
        # From this offset on, what was truncated may come back with a loss of power; None if nothing may.
        self._unsynced_truncation = unsynced_truncation
        # Counts what has to become durable besides appended bytes: created and removed names, truncated files.
        self._changes = 0 if is_durable else 1
        self._synced_changes = 0
        # Segments that begin below it are on the disk whole, indexes and all.
        self._synced_base_offset = synced_base_offset

    @property
    def is_released(self) -> bool:
        """Whether its partition was deleted or moved to another directory."""
        return self.state is LogState.RELEASED

    @property
    def truncations(self) -> int:
        """How often the log was truncated: a reader that waited compares it to see whether its view still holds."""
        return self._truncations

    @property
    def has_unsynced_truncation(self) -> bool:
        """Whether a loss of power could bring truncated records back. A flush ends that."""
        return self._unsynced_truncation is not None

    @property
    def durable_high_watermark(self) -> int:
        """The high watermark for the checkpoint: at most the offset of a truncation that is not synced. Otherwise a
        loss of power could bring truncated records back below the high watermark, as if they had been committed."""
        limit = self._unsynced_truncation
        return self.high_watermark if limit is None else min(self.high_watermark, limit)

    @property
    def is_flush_due(self) -> bool:
        """Whether `flush.messages` asks for a sync before the last append is acknowledged."""
        return self.log_end_offset - self.recovery_point >= self._flush_messages

    @property
    def unflushed_count(self) -> int:
        """The number of offsets above the recovery point, which `flush.messages` is compared with."""
        return self.log_end_offset - self.recovery_point

    def begin_flush(self) -> Flush | None:
        """Return the syncs that make everything appended so far durable; None if it is durable already."""
        has_changed = self._changes != self._synced_changes
        if self.is_released or (self.recovery_point >= self.log_end_offset and not has_changed):
            return None
        active = self.segments[-1]
        steps: list[Callable[[], None]] = [] if self.sync_creation is None else [self.sync_creation]
        known = self._segment_number(self._synced_base_offset)
        # Retention may take the batches from which a lost snapshot could be made again.
        steps += [
            self._sync_step(f"{segment_name(segment.base_offset)}{SNAPSHOT_SUFFIX}")
            for segment in self.segments[known + 1 :]
            if segment.base_offset in self.snapshots.offsets
        ]
        for segment in self.segments[known:-1]:
            segment.offset_index.write()
            segment.time_index.write()
            steps += [file.sync_later() for file in segment.files()]
        steps.append(active.file.sync_later())
        if has_changed:
            if self._disk.exists(f"{self.directory}/{LEADER_EPOCH_FILE}"):
                steps.append(self._sync_step(LEADER_EPOCH_FILE))
            steps.append(self._sync_names)
        return Flush(self.log_end_offset, self._truncations, self._changes, active.base_offset, steps)

    def finish_flush(self, flush: Flush) -> None:
        """Move the recovery point after a flush has run, unless the log was truncated meanwhile: then what was synced
        is not what the log has now."""
        if self.sync_creation in flush.steps:
            self.sync_creation = None
        if flush.truncations == self._truncations:
            self._unsynced_truncation = None
            self.recovery_point = max(self.recovery_point, flush.offset)
            self._synced_base_offset = max(self._synced_base_offset, flush.active_base_offset)
            self._synced_changes = max(self._synced_changes, flush.changes)

    def _sync_step(self, name: str) -> Callable[[], None]:
        file = self._disk.open(f"{self.directory}/{name}", pooled=False)
        step = file.sync_later()
        file.close()
        return step

    def _sync_names(self) -> None:
        """Make the names of the log's files durable. May be called in a worker thread."""
        try:
            self._disk.sync_directory(self.directory)
        except DiskError as error:
            # The directory of a partition that was deleted meanwhile has another name, and need not be durable.
            if not (error.is_missing and self.is_released):
                raise

    def flush(self) -> None:
        """Flush on the calling thread: for shutdown, tools and tests."""
        flush = self.begin_flush()
        if flush is not None:
            flush.run()
            self.finish_flush(flush)

    def _write_epochs(self) -> None:
        # Synced with the next flush: until then the epochs above the recovery point stand in the batches themselves.
        self._disk.write_file(f"{self.directory}/{LEADER_EPOCH_FILE}", self.epochs.render().encode(), durable=False)
        self._changes += 1

    def _sync_truncation(self) -> None:
        self.active.file.sync()
        self._sync_names()
        self._unsynced_truncation = None

"""The log of one partition: everything that changes it, on top of what can be read of it (`readable_log`) and how much
of it is on the disk (`durable_log`).

The partition's leader appends what producers send: it checks the batch, gives it the next offsets and its leader
epoch, and writes it as it is (`append_as_leader`). A follower appends what it fetched, offsets and all
(`append_as_follower`). Both end in `_append`, which is also where producer state, leader epochs and open transactions
are kept up to date, so that every replica knows the same.

Nothing here waits. Appends and reads go to the page cache and take microseconds. What takes longer is handed out as
plain functions for a worker thread: `begin_flush` says what must be synced, and `finish_flush` moves the recovery
point: everything below it is on the disk itself, not only in the page cache.

An append happens whole or not at all: a batch is written with one call, offsets move only after it, and if it fails
(`DiskError`) the log is as it was. If the index entry that follows fails, the batch stands and the offsets have moved,
so that no offset is given twice. In both cases the caller takes the log directory offline, and
recovery decides about what was not acknowledged.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pessoa.log.durable_log import DurableLog, LogState
from pessoa.log.files import DiskError
from pessoa.log.index import MAX_RELATIVE_OFFSET
from pessoa.log.log_config import NEVER
from pessoa.log.producer_state import AppendOrigin
from pessoa.log.readable_log import Fetched, OffsetOutOfRange, ReadUpTo, base_offset_of
from pessoa.log.replay import note_epoch, note_producer, replay_producers
from pessoa.log.segment import DELETED_SUFFIX, Segment
from pessoa.records.batch import CODEC_MASK, NO_TIMESTAMP, RecordBatch, TimestampType, batches
from pessoa.records.batch_validation import (
    BYTES_ON_LOOP,
    check_produced,
    check_records,
    check_size,
    on_loop,
    open_produced,
)
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.stamping import stamp, stamp_log_append_time
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.log.files import Disk
    from pessoa.log.leader_epoch_cache import LeaderEpochCache
    from pessoa.log.log_config import LogConfig
    from pessoa.log.producer_snapshot_files import ProducerSnapshots
    from pessoa.log.producer_state import ProducerState, VerificationGuard
    from pessoa.records.compression import Codec

__all__ = ["Appended", "Fetched", "OffsetOutOfRange", "PartitionLog", "ReadUpTo"]


class Appended(NamedTuple):
    """The offsets of an appended batch. A duplicate was appended before, at these offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class PartitionLog(DurableLog):
    """The log of one partition: see the head of this file. `pessoa.log.log_loader` makes it."""

    __slots__ = (
        "_codec",
        "_end_offset_at_opening",
        "_is_log_append_time",
        "_rules",
        "cleaned_to",
        "config",
        "has_lost_end",
        "impossible_from",
        "on_log_start_moved",
        "on_materialise",
        "on_recovery_point_lowered",
        "on_rolled",
        "on_segments_dropped",
        "successor",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        epochs: LeaderEpochCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        *,
        synced_base_offset: int,
        is_durable: bool = False,
        unsynced_truncation: int | None = None,
    ) -> None:
        """`unsynced_truncation` is for a log that was not closed in order: the offset from which on a loss of power may
        undo a truncation by the process that died."""
        super().__init__(
            disk,
            directory,
            segments,
            producers,
            snapshots,
            epochs,
            log_start_offset,
            log_end_offset,
            recovery_point,
            synced_base_offset=synced_base_offset,
            is_durable=is_durable,
            unsynced_truncation=unsynced_truncation,
        )
        # It was closed in order, and recovery has truncated it: its disk has lost what this replica had acknowledged.
        self.has_lost_end = False
        # The base offset of a synced batch whose leader epoch is contradicted by the batches behind it: the disk has
        # changed it, and the leader epoch cache does not show it. None if there is none.
        self.impossible_from: int | None = None
        # Called when DeleteRecords or a truncation has moved the log start offset, so that its checkpoint is written.
        self.on_log_start_moved: Callable[[], None] = _ignore
        # The cleaner checkpoint: up to where compaction has come; None before the first pass.
        self.cleaned_to: int | None = None
        # Called when the recovery point or the cleaner checkpoint was lowered. The files must follow before anything is
        # appended: otherwise recovery might begin behind bytes that were never synced, or new ones be taken for clean.
        self.on_recovery_point_lowered: Callable[[], None] = _ignore
        # Called when the log was rolled: the full segment should be synced before long.
        self.on_rolled: Callable[[PartitionLog], None] = _ignore_log
        # Called with segments that were taken out of the log: their files are removed after `file.delete.delay.ms`.
        self.on_segments_dropped: Callable[[PartitionLog, Sequence[Segment]], None] = _remove_at_once
        # Called before an empty log gets its first segment: `partition.metadata` comes first (`lazy_segment`).
        self.on_materialise: Callable[[PartitionLog], None] = _ignore_log
        # The copy in another directory that has taken the place of this log (`future_log`).
        self.successor: PartitionLog | None = None
        self._end_offset_at_opening = log_end_offset
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Take over a changed configuration, from the next append on."""
        self.config = config
        self.producers.verification_enabled = config.transaction_partition_verification_enable
        self._rules = config.append_rules()
        self._codec = config.codec
        self._flush_messages = config.flush_messages
        self.has_flush_messages = config.flush_messages != NEVER
        self._is_log_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        for segment in self.segments:
            segment.configure(config)

    # Appending.

    def append_as_leader(
        self,
        data: memoryview,
        leader_epoch: int,
        now_ms: int,
        produce_version: int,
        guard: VerificationGuard | None = None,
        is_opened: bool = False,
    ) -> Appended:
        """Check and append what a producer sent. `data` must be writable: the batch is stamped in place.

        Raises `InvalidBatch` or `ProducerRefused` with the error for the producer, or `CostlyBatch`; nothing has
        changed then. `guard` is what `producers.start_verification` gave, for a batch that begins a transaction.
        `is_opened`: it is what `open_produced` gave.
        """
        batch = check_produced(data, self._rules, now_ms, produce_version, is_opened)
        if self._codec is not None and batch.attributes & CODEC_MASK != self._codec:
            batch = on_loop(self._rules, self._in_codec_of_topic, batch, self._codec, now_ms, BYTES_ON_LOOP)
            check_size(batch, self._rules)
        if batch.size > self.config.segment_bytes:
            self._refuse_size(batch)
        if batch.producer_id >= 0:
            known = self.producers.check(batch, guard=guard)
            if known is not None:
                # The time of the first append, even in a topic of CreateTime: so does Kafka.
                return Appended(known.first_offset, known.last_offset, known.timestamp, True)
        return self._append_stamped(batch, leader_epoch, now_ms)

    def open_produced(self, data: memoryview, now_ms: int) -> memoryview:
        """Return the batch that is appended in place of one that was too costly to check on the event loop. It may be
        called in a thread: nothing of the log changes."""
        rules, codec = self._rules, self._codec
        batch = open_produced(data, rules, now_ms)
        if codec is not None and batch.attributes & CODEC_MASK != codec:
            batch = self._in_codec_of_topic(batch, codec, now_ms, rules.decompressed_limit)
        return batch.view

    def _in_codec_of_topic(self, batch: RecordBatch, codec: Codec, now_ms: int, limit: int) -> RecordBatch:
        """Return the batch in the codec of `compression.type`. Its records are checked too, as Kafka does, since they
        are decompressed in any case."""
        from pessoa.records.recompression import recompress

        if not self._rules.opens_records:
            check_records(batch, self._rules, now_ms, limit)
        limit = max(limit, batch.size)
        return recompress(batch, codec, self.config.compression_level, limit)

    def append_own(
        self,
        data: memoryview,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int = -1,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append, as leader, one batch that this broker made itself: a coordinator's records, or a marker."""
        batch = RecordBatch(data)
        if batch.size > self.config.segment_bytes:
            self._refuse_size(batch)
        if batch.producer_id >= 0:
            self.producers.check(batch, AppendOrigin.COORDINATOR, guard, transaction_version)
        return self._append_stamped(batch, leader_epoch, now_ms)

    def append_as_follower(
        self, data: bytes | bytearray | memoryview, now_ms: int, leader_epoch: int | None = None
    ) -> int:
        """Append what the leader sent, with its offsets and epochs; return the number of batches.

        An incomplete batch at the end is dropped: it comes again, whole, with the next fetch. So are batches of a
        higher epoch than `leader_epoch`, the one of the fetch: their sender has lost the leadership meanwhile and may
        send what it fetches itself (KAFKA-18723). `InvalidBatch` if a batch is damaged or out of order: nothing has
        changed then.
        """
        found: list[RecordBatch] = []
        next_offset = self.log_end_offset
        for batch in batches(data):
            if leader_epoch is not None and batch.partition_leader_epoch > leader_epoch:
                break
            if not batch.is_valid():
                raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"the CRC of the fetched batch is wrong: {batch!r}")
            if batch.base_offset < next_offset or batch.last_offset_delta < 0:
                raise InvalidBatch(
                    ErrorCode.CORRUPT_MESSAGE, f"{batch!r} was fetched, but offset {next_offset} comes next"
                )
            next_offset = batch.next_offset
            found.append(batch)
        for batch in found:
            self._append(batch, now_ms)
        return len(found)

    def _refuse_size(self, batch: RecordBatch) -> NoReturn:
        raise InvalidBatch(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {batch.size} bytes, and segment.bytes is {self.config.segment_bytes}",
        )

    def _append_stamped(self, batch: RecordBatch, leader_epoch: int, now_ms: int) -> Appended:
        append_time = NO_TIMESTAMP
        if self._is_log_append_time:
            stamp_log_append_time(batch, now_ms)
            append_time = now_ms
        base_offset = self.log_end_offset
        stamp(batch, base_offset, leader_epoch)
        self._append(batch, now_ms)
        # Past the generated constructor, which is written in Python.
        return _new_tuple(Appended, (base_offset, self.log_end_offset - 1, append_time, False))

    def _append(self, batch: RecordBatch, now_ms: int) -> None:
        last_offset = batch.base_offset + batch.last_offset_delta
        segment = self.segments[-1]
        if not segment.has_room_for(batch.size, last_offset, batch.max_timestamp, now_ms):
            segment = self._roll_for(batch, now_ms)
        if batch.partition_leader_epoch != self.epochs.latest_epoch and note_epoch(self.epochs, batch):
            self._write_epochs()
        size = segment.file.size
        try:
            segment.append(batch)
        except DiskError:
            if segment.file.size > size:
                self.log_end_offset = last_offset + 1
            raise
        self.log_end_offset = last_offset + 1
        if batch.producer_id >= 0:
            note_producer(self.producers, batch, segment)

    def _roll_for(self, batch: RecordBatch, now_ms: int) -> Segment:
        """Roll a new segment for a batch, at the log end: a gap that recovery finds between two segments is then a
        loss.

        Only a follower's batch may lie so far beyond the log end that an index from there could not hold its offsets.
        """
        if batch.last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET:
            return self.roll(now_ms, batch.base_offset)
        return self.roll(now_ms)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Roll a new segment, at the log end or at `base_offset` beyond it, and return it."""
        start = self.log_end_offset if base_offset is None else base_offset
        if self.state is not LogState.OPEN:
            self.materialise(now_ms)
        last = self.segments[-1]
        if last.base_offset == start and not last.size:
            return last
        assert start >= self.log_end_offset, f"{self!r} cannot roll at {start}"
        if self._unsynced_truncation is not None:
            # Within one file a truncation and what follows it are lost together. With a next file, a loss of power
            # could leave its new batches behind the truncated ones of this file.
            self._sync_truncation()
        if self.sync_creation is not None:
            # Or a loss of power could take the first segment and leave the second.
            self.sync_creation()
            self.sync_creation = None
        last.finish()
        self.snapshots.take(start, self.producers)
        segment = Segment(self._disk, self.directory, start, self.config, now_ms, create=True)
        self.segments.append(segment)
        self._changes += 1
        self.on_rolled(self)
        return segment

    def materialise(self, now_ms: int) -> None:
        """Create the files of an empty log. A released one raises ValueError, as its closed files would do."""
        if self.state is LogState.RELEASED:
            raise ValueError(f"{self.directory} is closed")
        self.on_materialise(self)
        first = self.segments[0]
        self.segments = [Segment(self._disk, self.directory, first.base_offset, self.config, now_ms, create=True)]
        self.state = LogState.OPEN

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Move the log end to `offset`: the original of this copy has a gap before it."""
        self.roll(now_ms, offset)
        self.log_end_offset = self.producers.end_offset = offset

    # Truncating and dropping segments.

    def truncate_to(self, offset: int, now_ms: int, *, drops_damaged: bool = False) -> bool:
        """Drop every batch that reaches to `offset` or beyond; return whether there was one. The log then ends with the
        last batch that is left, which is below `offset` if that was in the middle of a batch.

        Where a damaged header hides which batches those are, `InvalidBatch` is raised and nothing has changed; or, with
        `drops_damaged`, everything from the damage on is dropped."""
        if offset >= self.log_end_offset:
            # The cache may have an epoch from there on that has written nothing, and that the leader does not have.
            if self.epochs.truncate_from_end(offset):
                self._write_epochs()
            return False
        if offset < self.segments[0].base_offset:
            self.restart_at(offset, now_ms)
            return True
        kept = self._segment_number(offset) + 1
        # Found before anything changes: where a header on the way there is damaged, the log stays as it is.
        try:
            position = self.segments[kept - 1].position_of(offset)
        except InvalidBatch:
            if not drops_damaged:
                raise
            offset, position = self.segments[kept - 1].damage_before(offset)
        # From the end, so that a crash in between leaves no hole.
        self._drop(self.segments[: kept - 1 : -1])
        del self.segments[kept:]
        self.active.truncate_to(offset, position)
        self.log_end_offset = self.active.next_offset()
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self._after_truncation()
        self._move_log_start(min(self.log_start_offset, self.log_end_offset))
        self.snapshots.remove(lambda known: known > self.log_end_offset)
        replay_producers(
            self.producers,
            self.snapshots,
            self.segments,
            self.log_end_offset,
            now_ms,
            self.config.producer_id_expiration_ms,
        )
        self.producers.on_high_watermark_updated(self.high_watermark)
        return True

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drop everything and go on at `offset`: for a follower whose leader no longer has the next offset."""
        if self.state is not LogState.OPEN:
            self.materialise(now_ms)
        self._drop(self.segments[::-1])
        self.segments = [Segment(self._disk, self.directory, offset, self.config, now_ms, create=True)]
        self.log_end_offset = self.high_watermark = offset
        self.impossible_from = None
        self.epochs.clear()
        self._write_epochs()
        self.producers.clear(offset)
        self.snapshots.remove(lambda _: True)
        self._after_truncation()
        self._sync_names()
        self._move_log_start(offset)

    def _after_truncation(self) -> None:
        offset = self.log_end_offset
        self._truncations += 1
        self._changes += 1
        self._synced_base_offset = min(self._synced_base_offset, self.active.base_offset)
        self.forget_ends()
        if self.epochs.truncate_from_end(offset):
            self._write_epochs()
        if self.impossible_from is not None and self.impossible_from >= offset:
            self.impossible_from = None
        before = self._unsynced_truncation
        self._unsynced_truncation = offset if before is None else min(before, offset)
        was_cleaned = self.cleaned_to is not None and self.cleaned_to > offset
        if was_cleaned:
            self.cleaned_to = offset
        if self.recovery_point > offset:
            # Rare, so it may wait for the disk: truncated bytes below the old recovery point must not come back.
            self.recovery_point = offset
            self._sync_truncation()
            self.on_recovery_point_lowered()
        elif was_cleaned:
            self.on_recovery_point_lowered()

    def _move_log_start(self, offset: int) -> None:
        if offset != self.log_start_offset:
            self.log_start_offset = offset
            self.on_log_start_moved()

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset up to `offset`, at most to the high watermark; return the new one (KIP-107)."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is beyond the high watermark {self.high_watermark} of {self.directory}")
        if offset > self.log_start_offset:
            # Before the epochs: epochs that begin too low are removed at the next start, lost ones would not come back.
            self._move_log_start(offset)
            if self.epochs.truncate_from_start(offset):
                self._write_epochs()
            self.producers.truncate_head(offset)
        return self.log_start_offset

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Drop the `count` oldest segments and move the log start offset; a log without segments rolls an empty one."""
        if count == len(self.segments):
            self.roll(now_ms)
            # Without it, a power loss that keeps the removals would leave a log that begins at 0 again.
            self._sync_names()
        assert count < len(self.segments), f"the last segment of {self!r} is empty and cannot be dropped"
        dropped = self.segments[:count]
        del self.segments[:count]
        self._drop(dropped)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        if self.epochs.truncate_from_start(self.log_start_offset):
            self._write_epochs()
        self.snapshots.remove(lambda offset: offset < self.segments[0].base_offset)
        self.producers.truncate_head(self.log_start_offset)

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replace segments by the cleaned ones that were made from them, and drop the old ones."""
        for segment in old:
            self.segments.remove(segment)
        for segment in new:
            insort(self.segments, segment, key=base_offset_of)
        self.forget_ends()
        self._drop(old)

    def _drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            if segment.suffix != DELETED_SUFFIX:
                segment.change_suffix(DELETED_SUFFIX)
        self._changes += 1
        self.on_segments_dropped(self, tuple(segments))

    # Moving to another directory (`future_log`).

    def take_over(self, original: PartitionLog) -> None:
        """Take over from the original of this copy what batches do not tell: producers and epochs whose batches have
        been deleted or compacted away, the high watermark, the log start offset and the cleaner checkpoint."""
        assert self.log_end_offset == original.log_end_offset, f"{self!r} is no copy of {original!r}"
        self.producers, self.epochs = original.producers, original.epochs
        self.high_watermark, self.log_start_offset = original.high_watermark, original.log_start_offset
        self.cleaned_to, self.impossible_from = original.cleaned_to, original.impossible_from
        self._write_epochs()

    def relocate(self, directory: str) -> None:
        """Take over the new name of its directory. No flush may run meanwhile."""
        self.directory = self.snapshots.directory = directory
        for segment in self.segments:
            segment.relocate(directory)

    def close(self) -> None:
        """Write and sync what is in memory only: after a clean shutdown the next start trusts every file."""
        if self.state is LogState.EMPTY:
            return
        self.active.finish()
        self.snapshots.take(self.log_end_offset, self.producers)
        if self._changes or self.log_end_offset != self._end_offset_at_opening:
            self.flush()
            # A flush leaves the indexes of the active segment to recovery, which does not run after a clean shutdown.
            self.active.sync()
            self._sync_names()
        for segment in self.segments:
            segment.close()

    def release(self) -> None:
        """Close the files without writing anything more: the partition was deleted, or moved to another directory."""
        self.state = LogState.RELEASED
        for segment in self.segments:
            for file in segment.files():
                file.close()


def _ignore() -> None:
    """Do nothing: no listener was set."""


def _ignore_log(_: PartitionLog) -> None:
    """Do nothing: no listener was set."""


def _remove_at_once(_: PartitionLog, segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.remove_files()


_new_tuple = tuple.__new__

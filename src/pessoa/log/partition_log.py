"""The log of one partition: what can be read of it (`readable_log`), and everything that changes it.

The partition's leader appends what producers send: it checks the batch, gives it the next offsets and its leader
epoch, and writes it as it is (`append_as_leader`). A follower appends what it fetched, offsets and all
(`append_as_follower`). Both end in `_append`, which is also where producer state, leader epochs and open transactions
are kept up to date, so that every replica knows the same.

Nothing here waits. Appends and reads go to the page cache and take microseconds. What takes longer is handed out as
plain functions for a worker thread: `begin_flush` says what must be synced, and `finish_flush` moves the recovery
point: everything below it is on the disk itself, not only in the page cache.

An append either happens whole or not at all: a batch is written with one call, offsets move only after it, and if it
fails (`DiskError`) the log is as it was. If what follows it fails, an entry in an index, the batch stands and the
offsets have moved, so that they rise whatever comes. In both cases the caller takes the log directory offline, and
recovery decides about what was not acknowledged.

What a flush must sync: after a crash recovery reads everything from the segment on that the recovery point lies in, and
makes its indexes anew. So of the last segment only the `.log` has to be on the disk, and a group commit costs one sync.
A segment that is full is synced whole, indexes and all, before the recovery point leaves it behind.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pessoa.log.files import DiskError
from pessoa.log.index import MAX_RELATIVE_OFFSET
from pessoa.log.leader_epochs import LEADER_EPOCH_FILE
from pessoa.log.producer_state import AppendOrigin
from pessoa.log.readable_log import Fetched, OffsetOutOfRange, ReadableLog, ReadUpTo, base_offset_of
from pessoa.log.replay import note_epoch, note_producer, replay_producers
from pessoa.log.segment import DELETED_SUFFIX, Segment, segment_name
from pessoa.log.snapshots import SNAPSHOT_SUFFIX
from pessoa.records.batch import CODEC_MASK, NO_TIMESTAMP, RecordBatch, TimestampType, batches
from pessoa.records.errors import InvalidBatch
from pessoa.records.stamping import stamp, stamp_log_append_time
from pessoa.records.validation import check_produced, check_records, check_size
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.log.config import LogConfig
    from pessoa.log.files import Disk
    from pessoa.log.leader_epochs import LeaderEpochs
    from pessoa.log.producer_state import ProducerState, VerificationGuard
    from pessoa.log.snapshots import ProducerSnapshots
    from pessoa.records.compression import Codec

__all__ = ["PRODUCER_EXPIRATION_MS", "Appended", "Fetched", "Flush", "OffsetOutOfRange", "PartitionLog", "ReadUpTo"]

# producer.id.expiration.ms
PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000


class Appended(NamedTuple):
    """What became of a batch. A duplicate was appended before, at these offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class Flush(NamedTuple):
    """What must be synced, in this order, until everything below `offset` is safe."""

    offset: int
    # As they were when the flush began.
    truncations: int
    changes: int
    active_base_offset: int
    steps: Sequence[Callable[[], None]]

    def run(self) -> None:
        """For a worker thread."""
        for step in self.steps:
            step()


class PartitionLog(ReadableLog):
    """See the head of this file. Made by `pessoa.log.loading`."""

    __slots__ = (
        "_changes",
        "_codec",
        "_disk",
        "_end_offset_at_opening",
        "_flush_messages",
        "_is_log_append_time",
        "_is_truncation_unsynced",
        "_rules",
        "_synced_base_offset",
        "_synced_changes",
        "_truncations",
        "bear",
        "cleaned_to",
        "config",
        "epochs",
        "has_lost_end",
        "is_released",
        "on_log_start_moved",
        "on_recovery_point_lowered",
        "on_rolled",
        "on_segments_dropped",
        "producer_expiration_ms",
        "recovery_point",
        "snapshots",
        "successor",
        "sync_birth",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        *,
        synced_base_offset: int,
        is_durable: bool = False,
    ) -> None:
        super().__init__(directory, segments, producers, log_start_offset, log_end_offset)
        self.snapshots = snapshots
        self.epochs = epochs
        self.recovery_point = recovery_point
        self.producer_expiration_ms = producer_expiration_ms
        # It was closed in order, and has been cut since: its disk has lost what this replica had answered for.
        self.has_lost_end = False
        # Called when DeleteRecords or a truncation has moved the log start offset: nothing else remembers it.
        self.on_log_start_moved: Callable[[], None] = _ignore
        # Up to where compaction has come; None if it never came by. Its checkpoint is that of a log and not of a name.
        self.cleaned_to: int | None = None
        # Called when the recovery point went back, or where it is clean. The checkpoint must follow before anything is
        # appended: otherwise recovery might begin behind bytes that were never synced, or new ones be taken for clean.
        self.on_recovery_point_lowered: Callable[[], None] = _ignore
        # Called when a segment is full and a new one has begun: the full one should reach the disk before long.
        self.on_rolled: Callable[[PartitionLog], None] = _pass_over
        # Called with segments that nobody can reach any more, so that their files go after `file.delete.delay.ms`.
        self.on_segments_dropped: Callable[[PartitionLog, Sequence[Segment]], None] = _remove_at_once
        # Makes what it consists of besides its segments, before the first of them; None once there is any (`unborn`).
        self.bear: Callable[[PartitionLog], None] | None = None
        # Makes it durable that there is such a log at all; None once it is.
        self.sync_birth: Callable[[], None] | None = None
        # The partition was deleted or moved, and its files are let go.
        self.is_released = False
        # The copy in another directory that has taken its place (`future_log`).
        self.successor: PartitionLog | None = None
        self._disk = disk
        self._truncations = 0
        # What the last of them took away may come back with a loss of power.
        self._is_truncation_unsynced = False
        # Counts what has to become durable besides appended bytes: names that came or went, files that were cut.
        self._changes = 0 if is_durable else 1
        self._synced_changes = 0
        self._end_offset_at_opening = log_end_offset
        # Segments that begin below it are on the disk whole, indexes and all.
        self._synced_base_offset = synced_base_offset
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Take over a changed topic configuration; it holds from the next append on."""
        self.config = config
        self._rules = config.append_rules()
        self._codec = config.codec
        self._flush_messages = config.flush_messages
        self._is_log_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        for segment in self.segments:
            segment.configure(config)

    # Offsets.

    @property
    def truncations(self) -> int:
        """How often it was cut: who has looked at it meanwhile may have to look again."""
        return self._truncations

    # Appending.

    def append_as_leader(
        self,
        data: memoryview,
        leader_epoch: int,
        now_ms: int,
        produce_version: int,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Check and append what a producer sent. `data` must be writable: the batch is stamped in place.

        Raises `InvalidBatch` or `ProducerRefused` with the error for the producer; nothing has changed then. `guard` is
        what `producers.start_verification` gave, for a batch that begins a transaction.
        """
        batch = check_produced(data, self._rules, now_ms, produce_version)
        if self._codec is not None and batch.attributes & CODEC_MASK != self._codec:
            batch = self._in_codec_of_topic(batch, self._codec, now_ms)
        if batch.size > self.config.segment_bytes:
            self._refuse_size(batch)
        if batch.producer_id >= 0:
            known = self.producers.check(batch, guard=guard)
            if known is not None:
                # The time of the first append, even in a topic of CreateTime: so does Kafka.
                return Appended(known.first_offset, known.last_offset, known.timestamp, True)
        return self._append_stamped(batch, leader_epoch, now_ms)

    def _in_codec_of_topic(self, batch: RecordBatch, codec: Codec, now_ms: int) -> RecordBatch:
        """The batch as `compression.type` wants it. What is unpacked in any case is also looked at, as Kafka does."""
        from pessoa.records.recompression import recompress

        if not self._rules.opens_records:
            check_records(batch, self._rules, now_ms)
        return check_size(recompress(batch, codec, self.config.compression_level), self._rules)

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
        """Append what the leader sent, with its offsets and epochs; the number of batches.

        A piece of a batch at the end is dropped: it comes again, whole, with the next fetch. So is what has a higher
        epoch than `leader_epoch`, the one of the fetch: its sender has lost the leadership meanwhile and may send what
        it fetches itself (KAFKA-18723). `InvalidBatch` if a batch is damaged or out of order: nothing has changed then.
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
        """Begin the segment of a batch, where the log ends: what recovery finds between two segments is then a loss.

        Only a follower's batch may lie so far beyond the end that a segment from there could not name its offsets.
        """
        if batch.last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET:
            return self.roll(now_ms, batch.base_offset)
        return self.roll(now_ms)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment, at the end of the log or, if need be, beyond it."""
        start = self.log_end_offset if base_offset is None else base_offset
        if self.bear is not None:
            self._be_born(self.bear, now_ms)
        last = self.segments[-1]
        if last.base_offset == start and not last.size:
            return last
        assert start >= self.log_end_offset, f"{self!r} cannot roll at {start}"
        if self._is_truncation_unsynced:
            # Within one file a cut and what follows it are lost together. With the next file, a loss of power could put
            # what is new there behind what was old here.
            self._sync_truncation()
        if self.sync_birth is not None:
            # Or a loss of power could take the first segment and leave the second.
            self.sync_birth()
            self.sync_birth = None
        last.finish()
        self.snapshots.take(start, self.producers)
        segment = Segment(self._disk, self.directory, start, self.config, now_ms, create=True)
        self.segments.append(segment)
        self._changes += 1
        self.on_rolled(self)
        return segment

    def _be_born(self, bear: Callable[[PartitionLog], None], now_ms: int) -> None:
        if self.is_released:
            # The directory may be that of another log by now. It is refused as a file that is closed would do it.
            raise ValueError(f"{self.directory} is closed")
        bear(self)
        first = self.segments[0]
        self.segments = [Segment(self._disk, self.directory, first.base_offset, self.config, now_ms, create=True)]
        self.bear = None

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Go on at `offset`: the log that this is a copy of has nothing before it."""
        self.roll(now_ms, offset)
        self.log_end_offset = self.producers.end_offset = offset

    # Shrinking.

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop every batch that reaches to `offset` or beyond; whether there was one. The log then ends with the last
        batch that is left, which is below `offset` if that was in the middle of a batch."""
        if offset >= self.log_end_offset:
            # An epoch may begin there that has written nothing, and that the leader does not know.
            if self.epochs.truncate_from_end(offset):
                self._write_epochs()
            return False
        if offset < self.segments[0].base_offset:
            self.restart_at(offset, now_ms)
            return True
        kept = self._segment_number(offset) + 1
        # From the end, so that a crash in between leaves no hole.
        self._drop(self.segments[: kept - 1 : -1])
        del self.segments[kept:]
        self.active.truncate_to(offset)
        self.log_end_offset = self.active.next_offset()
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self._after_truncation()
        self._move_log_start(min(self.log_start_offset, self.log_end_offset))
        self.snapshots.remove(lambda known: known > self.log_end_offset)
        replay_producers(
            self.producers, self.snapshots, self.segments, self.log_end_offset, now_ms, self.producer_expiration_ms
        )
        self.producers.on_high_watermark_updated(self.high_watermark)
        return True

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drop everything and go on at `offset`: for a follower whose leader no longer has what would come next."""
        if self.bear is not None:
            self._be_born(self.bear, now_ms)
        self._drop(self.segments[::-1])
        self.segments = [Segment(self._disk, self.directory, offset, self.config, now_ms, create=True)]
        self.log_end_offset = self.high_watermark = offset
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
        self._is_truncation_unsynced = True
        was_cleaned = self.cleaned_to is not None and self.cleaned_to > offset
        if was_cleaned:
            self.cleaned_to = offset
        if self.recovery_point > offset:
            # Rare, so it may wait: bytes that were called safe must not come back between those that follow now.
            self.recovery_point = offset
            self._sync_truncation()
            self.on_recovery_point_lowered()
        elif was_cleaned:
            self.on_recovery_point_lowered()

    def _sync_truncation(self) -> None:
        self.active.file.sync()
        self._sync_names()
        self._is_truncation_unsynced = False

    def _move_log_start(self, offset: int) -> None:
        if offset != self.log_start_offset:
            self.log_start_offset = offset
            self.on_log_start_moved()

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset up to `offset`, at most to the high watermark; the new one (KIP-107)."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is beyond the high watermark {self.high_watermark} of {self.directory}")
        if offset > self.log_start_offset:
            # Before the epochs: those that begin too low are cut at the next start, those that are gone are gone.
            self._move_log_start(offset)
            if self.epochs.truncate_from_start(offset):
                self._write_epochs()
            self.producers.truncate_head(offset)
        return self.log_start_offset

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Drop the oldest segments. The log start offset follows; if none is left, the log goes on in an empty one."""
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
        """Put cleaned segments in the place of the ones they were made from; their files have been renamed."""
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

    # Taking the place of another (`future_log`).

    def take_over(self, original: PartitionLog) -> None:
        """Know what the log knows that this is a copy of, besides its batches: producers and epochs whose batches have
        been deleted or compacted away, the offsets that others have agreed on, and how far it is clean."""
        assert self.log_end_offset == original.log_end_offset, f"{self!r} is no copy of {original!r}"
        self.producers, self.epochs = original.producers, original.epochs
        self.high_watermark, self.log_start_offset = original.high_watermark, original.log_start_offset
        self.cleaned_to = original.cleaned_to
        self._write_epochs()

    def relocate(self, directory: str) -> None:
        """Its directory has got another name. Nobody may be syncing it meanwhile."""
        self.directory = self.snapshots.directory = directory
        for segment in self.segments:
            segment.relocate(directory)

    # Making durable.

    @property
    def is_flush_due(self) -> bool:
        """Whether `flush.messages` asks for a sync before the last append is acknowledged."""
        return self.log_end_offset - self.recovery_point >= self._flush_messages

    @property
    def unflushed_count(self) -> int:
        """How many offsets are in the page cache only: what `flush.messages` is compared with."""
        return self.log_end_offset - self.recovery_point

    def begin_flush(self) -> Flush | None:
        """What to sync so that everything done so far survives a power loss; None if it does."""
        has_changed = self._changes != self._synced_changes
        if self.is_released or (self.recovery_point >= self.log_end_offset and not has_changed):
            return None
        active = self.segments[-1]
        steps: list[Callable[[], None]] = [] if self.sync_birth is None else [self.sync_birth]
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
        """It was run. If the log was truncated meanwhile, what is there now is not what was synced."""
        if self.sync_birth in flush.steps:
            self.sync_birth = None
        if flush.truncations == self._truncations:
            self._is_truncation_unsynced = False
            self.recovery_point = max(self.recovery_point, flush.offset)
            self._synced_base_offset = max(self._synced_base_offset, flush.active_base_offset)
            self._synced_changes = max(self._synced_changes, flush.changes)

    def _sync_step(self, name: str) -> Callable[[], None]:
        file = self._disk.open(f"{self.directory}/{name}", pooled=False)
        step = file.sync_later()
        file.close()
        return step

    def _sync_names(self) -> None:
        """Also from a worker thread."""
        try:
            self._disk.sync_directory(self.directory)
        except DiskError as error:
            # A partition that is deleted meanwhile has another name, and nobody needs it on the disk.
            if not (error.is_missing and self.is_released):
                raise

    def flush(self) -> None:
        """Sync here and now: for shutdown, tools and tests."""
        flush = self.begin_flush()
        if flush is not None:
            flush.run()
            self.finish_flush(flush)

    def _write_epochs(self) -> None:
        # Synced with the next flush: until then the epochs above the recovery point stand in the batches themselves.
        self._disk.write_file(f"{self.directory}/{LEADER_EPOCH_FILE}", self.epochs.render().encode(), durable=False)
        self._changes += 1

    def close(self) -> None:
        """Write what is in memory only, and sync it. After a clean stop the next start can trust every file."""
        if self.bear is not None:
            return
        self.active.finish()
        self.snapshots.take(self.log_end_offset, self.producers)
        if self._changes or self.log_end_offset != self._end_offset_at_opening:
            self.flush()
            # A flush leaves the indexes of the last segment to recovery, which a clean stop leaves out.
            self.active.sync()
            self._sync_names()
        for segment in self.segments:
            segment.close()

    def release(self) -> None:
        """Let go of the files without writing anything more: the partition is being deleted, or lives elsewhere."""
        self.is_released = True
        for segment in self.segments:
            for file in segment.files():
                file.close()


def _ignore() -> None:
    """Nobody listens."""


def _pass_over(_: PartitionLog) -> None:
    """Nobody listens."""


def _remove_at_once(_: PartitionLog, segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.remove_files()


_new_tuple = tuple.__new__

"""The log of one partition: segments in a row, and what is known about their offsets.

    log start offset ≤ high watermark ≤ log end offset
    last stable offset = the high watermark, or the first offset of the oldest open transaction if that is lower
    recovery point      everything below it is on the disk itself, not only in the page cache

The partition's leader appends what producers send: it checks the batch, gives it the next offsets and its leader
epoch, and writes it as it is (`append_as_leader`). A follower appends what it fetched, offsets and all
(`append_as_follower`). Both end in `_append`, which is also where producer state, leader epochs and open transactions
are kept up to date, so that every replica knows the same.

Nothing here waits. Appends and reads go to the page cache and take microseconds. What takes longer is handed out as
plain functions for a worker thread: `begin_flush` says what must be synced, and `finish_flush` moves the recovery
point.

An append either happens whole or not at all: a batch is written with one call, offsets move only after it, and a failed
write (`DiskError`) leaves the file as it was. The caller then takes the log directory offline.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.aborted_transactions import AbortedTransaction, overlapping_in_segments
from pessoa.log.leader_epochs import LEADER_EPOCH_FILE
from pessoa.log.producer_state import AppendOrigin
from pessoa.log.segment import DELETED_SUFFIX, FileSlice, Segment, TimestampOffset
from pessoa.records.batch import NO_TIMESTAMP, RecordBatch, TimestampType, batches
from pessoa.records.errors import InvalidBatch
from pessoa.records.stamping import stamp, stamp_log_append_time
from pessoa.records.validation import check_produced
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.log.config import LogConfig
    from pessoa.log.files import Disk
    from pessoa.log.leader_epochs import LeaderEpochs
    from pessoa.log.producer_state import ProducerState, VerificationGuard
    from pessoa.log.snapshots import ProducerSnapshots


# producer.id.expiration.ms
PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000


class OffsetOutOfRange(Exception):
    """The offset lies outside the log, or outside what may be done to it."""


class ReadUpTo(Enum):
    """How far a reader may see."""

    LOG_END = "log end"  # followers
    HIGH_WATERMARK = "high watermark"  # consumers
    LAST_STABLE_OFFSET = "last stable offset"  # read_committed consumers


class Appended(NamedTuple):
    """What became of a batch. A duplicate was appended before, at these offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class Fetched(NamedTuple):
    """What a read found: a place in a file, or None; for read_committed also what to leave out of it."""

    data: FileSlice | None
    aborted: Sequence[AbortedTransaction]


class Flush(NamedTuple):
    """What must be synced, in this order, until everything below `offset` is safe."""

    offset: int
    truncations: int
    steps: Sequence[Callable[[], None]]

    def run(self) -> None:
        """For a worker thread."""
        for step in self.steps:
            step()


class PartitionLog:
    """See the head of this file. Made by `pessoa.log.loading`."""

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
    ) -> None:
        assert segments, "a log has at least one segment"
        self.directory = directory
        self.producers = producers
        self.snapshots = snapshots
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        self.producer_expiration_ms = producer_expiration_ms
        self.segments = segments
        # Called when an offset that is checkpointed has moved in the direction in which a stale checkpoint would harm:
        # a lower recovery point, a higher log start offset.
        self.on_checkpoint_needed: Callable[[], None] = lambda: None
        # Called when a segment is full and a new one has begun: the full one should reach the disk before long.
        self.on_rolled: Callable[[PartitionLog], None] = lambda _: None
        # Called with segments that nobody can reach any more, so that their files go after `file.delete.delay.ms`.
        self.on_segments_dropped: Callable[[Sequence[Segment]], None] = _remove_at_once
        self._disk = disk
        self._truncations = 0
        # Small files that were replaced without waiting for the disk.
        self._unsynced: set[str] = set()
        # Where the last offset that bounded a read lies: (offset, segment, position).
        self._bound: tuple[int, Segment, int] | None = None
        self.configure(config)

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.directory}: offsets {self.log_start_offset}..{self.log_end_offset}, "
            f"high watermark {self.high_watermark}, {len(self.segments)} segments>"
        )

    def configure(self, config: LogConfig) -> None:
        """Take over a changed topic configuration; it holds from the next append on."""
        self.config = config
        self._rules = config.append_rules()
        self._is_log_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        for segment in self.segments:
            segment.configure(config)

    # Offsets.

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        first_unstable = self.producers.first_unstable_offset
        return self.high_watermark if first_unstable is None else min(first_unstable, self.high_watermark)

    def update_high_watermark(self, offset: int) -> bool:
        """Whether it moved. It never goes back, and never past the end."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)
        return True

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
        if batch.producer_id >= 0:
            known = self.producers.check(batch, guard=guard)
            if known is not None:
                append_time = known.timestamp if self._is_log_append_time else NO_TIMESTAMP
                return Appended(known.first_offset, known.last_offset, append_time, True)
        return self._append_stamped(batch, leader_epoch, now_ms)

    def append_own(self, data: memoryview, leader_epoch: int, now_ms: int, transaction_version: int = -1) -> Appended:
        """Append, as leader, one batch that this broker made itself: a coordinator's records, or a marker."""
        batch = RecordBatch(data)
        if batch.producer_id >= 0:
            self.producers.check(batch, AppendOrigin.COORDINATOR, transaction_version=transaction_version)
        return self._append_stamped(batch, leader_epoch, now_ms)

    def append_as_follower(self, data: bytes | bytearray | memoryview, now_ms: int) -> int:
        """Append what the leader sent, with its offsets and epochs; the number of batches.

        A piece of a batch at the end is dropped: it comes again, whole, with the next fetch.
        """
        count = 0
        for batch in batches(data):
            if not batch.is_valid():
                raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"the CRC of the fetched batch is wrong: {batch!r}")
            if batch.base_offset < self.log_end_offset:
                raise InvalidBatch(
                    ErrorCode.CORRUPT_MESSAGE, f"{batch!r} was fetched, but the log ends at {self.log_end_offset}"
                )
            self._append(batch, now_ms)
            count += 1
        return count

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
            segment = self.roll(now_ms, batch.base_offset)
        if batch.partition_leader_epoch != self.epochs.latest_epoch and note_epoch(self.epochs, batch):
            self._write_epochs()
        segment.append(batch)
        self.log_end_offset = last_offset + 1
        if batch.producer_id >= 0:
            note_producer(self.producers, batch, segment)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment, at the end of the log or a little beyond it if the next batch starts there."""
        start = self.log_end_offset if base_offset is None else base_offset
        last = self.segments[-1]
        if last.base_offset == start and not last.size:
            return last
        assert start >= self.log_end_offset, f"{self!r} cannot roll at {start}"
        last.finish()
        self.snapshots.take(start, self.producers)
        segment = Segment(self._disk, self.directory, start, self.config, now_ms, create=True)
        self.segments.append(segment)
        self.on_rolled(self)
        return segment

    # Reading.

    def read(self, offset: int, max_bytes: int, up_to: ReadUpTo, *, at_least_one_batch: bool = True) -> Fetched:
        """Batches from the one that holds `offset`. OffsetOutOfRange if the log does not reach there."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside {self.log_start_offset}..{self.log_end_offset} of {self.directory}"
            )
        bound = self._bound_of(up_to)
        if offset >= bound:
            return _NOTHING
        number = self._segment_number(offset)
        while number < len(self.segments):
            segment = self.segments[number]
            end_position = self._end_position(segment, number, bound)
            data = segment.read(offset, max_bytes, end_position, at_least_one_batch)
            if data is not None:
                if not data.size:
                    return _NOTHING
                if up_to is ReadUpTo.LAST_STABLE_OFFSET:
                    return Fetched(data, self._aborted_within(number, offset, data))
                return Fetched(data, ())
            number += 1
        return _NOTHING

    def _bound_of(self, up_to: ReadUpTo) -> int:
        if up_to is ReadUpTo.LOG_END:
            return self.log_end_offset
        return self.high_watermark if up_to is ReadUpTo.HIGH_WATERMARK else self.last_stable_offset

    def _segment_number(self, offset: int) -> int:
        """The last segment that starts at or before `offset`."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=_base_offset) - 1)

    def _end_position(self, segment: Segment, number: int, bound: int) -> int:
        """How far a read within the segment may go, if it may not reach the offset `bound`."""
        if bound >= self.log_end_offset:
            return segment.size
        if number + 1 < len(self.segments) and self.segments[number + 1].base_offset <= bound:
            return segment.size
        known = self._bound
        if known is None or known[0] != bound or known[1] is not segment:
            known = self._bound = (bound, segment, segment.position_of(bound))
        return known[2]

    def _aborted_within(self, number: int, offset: int, data: FileSlice) -> list[AbortedTransaction]:
        """The aborted transactions that overlap what was read."""
        upper = self.segments[number].offset_behind(data.position + data.size)
        if upper is None:
            upper = self.segments[number + 1].base_offset if number + 1 < len(self.segments) else self.log_end_offset
        indexes = (segment.aborted_transactions() for segment in self.segments[number:])
        return overlapping_in_segments(indexes, offset, upper)

    def find_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp` (KIP-79)."""
        for segment in self.segments:
            if segment.max_timestamp >= timestamp:
                found = segment.find_by_timestamp(timestamp, self.log_start_offset)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of them if there are several (KIP-734)."""
        newest = max(self.segments, key=lambda segment: segment.max_timestamp)
        if newest.max_timestamp < 0:
            return None
        return newest.find_by_timestamp(newest.max_timestamp, self.log_start_offset)

    # Shrinking.

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop everything at and after `offset`; whether there was something."""
        if offset >= self.log_end_offset:
            return False
        if offset < self.segments[0].base_offset:
            self.restart_at(offset, now_ms)
            return True
        kept = self._segment_number(offset) + 1
        self._drop(self.segments[kept:])
        del self.segments[kept:]
        self.active.truncate_to(offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self._after_truncation()
        self.snapshots.remove(lambda known: known > offset)
        replay_producers(self.producers, self.snapshots, self.segments, offset, now_ms, self.producer_expiration_ms)
        self.producers.on_high_watermark_updated(self.high_watermark)
        return True

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drop everything and go on at `offset`: for a follower whose leader no longer has what would come next."""
        self._drop(self.segments)
        self.segments = [Segment(self._disk, self.directory, offset, self.config, now_ms, create=True)]
        self.log_start_offset = self.log_end_offset = offset
        self.epochs.clear()
        self._write_epochs()
        self.producers.clear(offset)
        self.snapshots.remove(lambda _: True)
        self._after_truncation()

    def _after_truncation(self) -> None:
        offset = self.log_end_offset
        self._truncations += 1
        self._bound = None
        self.high_watermark = min(self.high_watermark, offset)
        if self.epochs.truncate_from_end(offset):
            self._write_epochs()
        if self.recovery_point > offset:
            self.recovery_point = offset
            self.on_checkpoint_needed()

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset up to `offset`, at most to the high watermark; the new one (KIP-107)."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is beyond the high watermark {self.high_watermark} of {self.directory}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self._write_epochs()
            self.on_checkpoint_needed()
        return self.log_start_offset

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Drop the oldest segments. The log start offset follows; if none is left, the log goes on in an empty one."""
        if count == len(self.segments):
            self.roll(now_ms)
        dropped = self.segments[:count]
        del self.segments[:count]
        self._drop(dropped)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        if self.epochs.truncate_from_start(self.log_start_offset):
            self._write_epochs()
        self.snapshots.remove(lambda offset: offset < self.segments[0].base_offset)
        self.producers.truncate_head(self.log_start_offset)
        self.on_checkpoint_needed()

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put cleaned segments in the place of the ones they were made from; their files have been renamed."""
        for segment in old:
            self.segments.remove(segment)
        for segment in new:
            insort(self.segments, segment, key=_base_offset)
        self._bound = None
        self._drop(old)

    def _drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            if segment.suffix != DELETED_SUFFIX:
                segment.change_suffix(DELETED_SUFFIX)
        self.on_segments_dropped(tuple(segments))

    # Making durable.

    @property
    def unflushed_count(self) -> int:
        """How many offsets are in the page cache only: what `flush.messages` is compared with."""
        return self.log_end_offset - self.recovery_point

    def begin_flush(self) -> Flush | None:
        """What to sync so that everything appended so far survives a power loss; None if it is safe."""
        if self.recovery_point >= self.log_end_offset:
            return None
        steps: list[Callable[[], None]] = []
        for segment in self.segments[self._segment_number(self.recovery_point) :]:
            segment.offset_index.write()
            segment.time_index.write()
            steps += [file.sync_later() for file in segment.files()]
        for name in sorted(self._unsynced):
            steps.append(self._sync_step(name))
        self._unsynced.clear()
        steps.append(lambda: self._disk.sync_directory(self.directory))
        return Flush(self.log_end_offset, self._truncations, steps)

    def finish_flush(self, flush: Flush) -> None:
        """It was run. If the log was truncated meanwhile, what is there now is not what was synced."""
        if flush.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, flush.offset)

    def _sync_step(self, name: str) -> Callable[[], None]:
        file = self._disk.open(f"{self.directory}/{name}", pooled=False)
        step = file.sync_later()
        file.close()
        return step

    def flush(self) -> None:
        """Sync here and now: for shutdown, tools and tests."""
        flush = self.begin_flush()
        if flush is not None:
            flush.run()
            self.finish_flush(flush)

    def _write_epochs(self) -> None:
        # Synced with the next flush: until then the epochs above the recovery point stand in the batches themselves.
        self._disk.write_file(f"{self.directory}/{LEADER_EPOCH_FILE}", self.epochs.render().encode(), durable=False)
        self._unsynced.add(LEADER_EPOCH_FILE)

    def close(self) -> None:
        """Write what is in memory only. After a clean stop the next start can trust every file."""
        self.flush()
        self.snapshots.take(self.log_end_offset, self.producers)
        for segment in self.segments:
            segment.close()

    def release(self) -> None:
        """Let go of the files without writing anything more: the partition is being deleted."""
        for segment in self.segments:
            for file in segment.files():
                file.close()


def note_epoch(epochs: LeaderEpochs, batch: RecordBatch) -> bool:
    """Learn from a batch that its leader's epoch has begun; whether that is news."""
    epoch = batch.partition_leader_epoch
    return epoch >= 0 and epochs.assign(epoch, batch.base_offset)


def note_producer(producers: ProducerState, batch: RecordBatch, segment: Segment | None) -> None:
    """Learn from a batch what it means for its producer. Transactions that it aborts go into the segment's index."""
    completed = producers.update(batch)
    if completed is not None:
        if completed.is_aborted and segment is not None:
            stable = producers.last_stable_offset(completed)
            segment.append_aborted(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        producers.complete(completed)


def replay_producers(
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Make the producers what the batches below `end_offset` say: from the last snapshot on, batch by batch."""
    found = snapshots.latest(end_offset)
    start = found[0] if found is not None else segments[0].base_offset
    producers.reload(found[1] if found is not None else (), start, now_ms, expiration_ms)
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue
        if segment.base_offset >= end_offset:
            break
        for _, batch in segment.batches(segment.position_of(start)):
            if batch.base_offset >= end_offset:
                break
            if batch.base_offset >= start:
                note_producer(producers, batch, None)
    producers.end_offset = end_offset


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _remove_at_once(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.remove_files()


_NOTHING = Fetched(None, ())
_new_tuple = tuple.__new__

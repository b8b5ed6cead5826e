"""The worker's part of compaction: reads the segments of a plan, writes cleaned ones beside them.

    1. leftovers    `.cleaned` and `.swap` files of a pass that died are removed
    2. map          the dirty batches are read in order until the offset map is full or there are no more
    3. groups       neighbouring segments that fit into one again become one
    4. each group   is read batch by batch and written into `<base offset>.log.cleaned`, with indexes; synced; renamed

What a batch becomes:

    transaction aborted                          nothing
    marker, transaction gone, horizon passed     nothing, unless it is the last word of a living producer
    marker, transaction gone, no horizon         itself with a delete horizon
    other markers and control records            itself
    behind what the map covers                   itself
    data                                         its records that are not superseded, have a key, and are no tombstones
                                                 whose horizon has passed; with a horizon if a tombstone is left
    nothing is left, but it is the last batch    its header: sequence numbers, and the end of the log, are read from
    of a living producer, or of the pass         it later

**Order on the disk.** `.cleaned` files are synced, then the directory, so that all of them are there or the names of
some still end in `.cleaned`. Then they are renamed to `.swap` and the directory is synced again. A start that finds any
`.cleaned` undoes the group; one that finds `.swap` alone finishes it (`log_loader`). All four files are always written,
even an empty `.txnindex`: which files a swap has must not depend on guessing.

**Steps.** `steps` is a generator that yields after every batch that ends half a millisecond of work or more, so that
its caller can stop it, throttle it, or let another thread have its turn. Closing the generator removes the
unfinished files. A pass works on a `Disk` of its own: pooled files belong to one thread.

A batch whose CRC is wrong stops the pass with `InvalidBatch`: writing it anew would make damage look sound.
"""

from __future__ import annotations

from contextlib import closing, suppress
from struct import Struct
from typing import TYPE_CHECKING

from pessoa.log.compaction.batch_rewrite import drop_records, keep_records, read_keys
from pessoa.log.compaction.cleaned_transactions import AbortedRanges, CleanedTransactions
from pessoa.log.compaction.cleaning_plan import CleanerStats, Finished, Pause, SwapReady
from pessoa.log.compaction.offset_map import DEAD, LIVE, TOMBSTONE, OffsetMap
from pessoa.log.files import DiskError
from pessoa.log.index import MAX_RELATIVE_OFFSET
from pessoa.log.log_loader import CLEANED_SUFFIX, SWAP_SUFFIX
from pessoa.log.segment import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment, segment_name
from pessoa.records.batch import LENGTH_POSITION, LOG_OVERHEAD, BatchWalk
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import unpacked_records
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from pessoa.log.compaction.cleaning_plan import CleaningPlan, SourceSegment, Step
    from pessoa.log.files import Disk
    from pessoa.records.batch import RecordBatch

# As much work as may happen between two steps.
SLICE_SECONDS = 0.0005
_READ_BYTES = 1 << 20
_LENGTH = Struct(">i")


class CleaningPass:
    """Runs one cleaning plan; `clock` returns seconds, counted from any moment."""

    def __init__(self, disk: Disk, plan: CleaningPlan, clock: Callable[[], float]) -> None:
        self._disk = disk
        self._plan = plan
        self._clock = clock
        self._map = OffsetMap(plan.map_bytes)
        # Below it every key is in the map.
        self._map_end = plan.first_dirty_offset
        # How many of the map's records have been written or dropped.
        self._next_number = 0
        self._aborted = AbortedRanges(plan.aborted)
        self._transactions = CleanedTransactions(self._aborted)
        self._pacer = _Pacer(clock, plan.max_bytes_per_second)
        self.stats = CleanerStats()

    def __repr__(self) -> str:
        return f"<CleaningPass over {self._plan.directory} up to {self._map_end}: {self._map!r}, {self.stats!r}>"

    def steps(self) -> Generator[Step, None, None]:
        started = self._clock()
        remove_leftovers(self._disk, self._plan.directory)
        yield from self._build_map()
        self.stats.map_seconds = self._clock() - started
        self.stats.map_keys = self._map.key_count
        segments = [source for source in self._plan.segments if source.base_offset < self._map_end]
        for group in group_segments(segments, self._plan):
            yield from self._clean_group(group)
        self.stats.seconds = self._clock() - started
        self.stats.throttled_seconds = self._pacer.throttled_seconds
        yield Finished(self._map_end, self.stats)

    # The map.

    def _build_map(self) -> Iterator[Step]:
        plan = self._plan
        for source, end_offset in _with_ends(plan.segments, plan):
            if end_offset <= plan.first_dirty_offset:
                continue
            for batch in self._batches(source):
                if batch.last_offset >= plan.first_dirty_offset:
                    if not self._map_batch(batch):
                        return
                    self._map_end = batch.next_offset
                if self._pacer.is_due():
                    yield self._pacer.pause()
            # Offsets at the end of a segment may have no records.
            self._map_end = end_offset

    def _map_batch(self, batch: RecordBatch) -> bool:
        """Add the keys of a batch to the offset map; return False if they do not fit."""
        if self._is_numbered(batch):
            if not self._map.has_room_for(batch.records_count):
                return False
            keys, verdicts = read_keys(unpacked_records(batch), batch.records_count)
            self.stats.records_without_key += keys.count(None)
            self._map.add(keys, verdicts)
        return True

    def _is_numbered(self, batch: RecordBatch) -> bool:
        return bool(batch.records_count) and not batch.is_control and not self._aborted.holds(batch)

    # A group.

    def _clean_group(self, group: Sequence[SourceSegment]) -> Iterator[Step]:
        directory, base_offset = self._plan.directory, group[0].base_offset
        target = Segment(
            self._disk, directory, base_offset, self._plan.config, self._plan.now_ms, create=True, suffix=CLEANED_SUFFIX
        )
        try:
            for source in group:
                for batch in self._batches(source):
                    cleaned = self._clean_batch(batch, target)
                    if cleaned is not None:
                        target.append(cleaned)
                        self._count_written(batch, cleaned)
                    if self._pacer.is_due():
                        yield self._pacer.pause()
            self._write_out(target, group[-1].modified_ms)
            # The last moment to stop: from here on the files stay.
            yield self._pacer.pause()
            target.change_suffix(SWAP_SUFFIX)
            self._disk.sync_directory(directory)
            target.close()
        except (DiskError, InvalidBatch, GeneratorExit):
            # What went wrong first is what matters; the next pass removes what cannot be removed here.
            with suppress(DiskError):
                target.remove_files()
            raise
        yield SwapReady(base_offset, tuple(source.base_offset for source in group))

    def _write_out(self, target: Segment, modified_ms: int) -> None:
        directory, name = self._plan.directory, segment_name(target.base_offset)
        target.finish()
        self._disk.open(f"{directory}/{name}{TRANSACTION_INDEX_SUFFIX}{CLEANED_SUFFIX}", create=True).close()
        target.sync()
        # Retention goes by it where records have no timestamps.
        self._disk.set_modified_ms(f"{directory}/{name}{LOG_SUFFIX}{CLEANED_SUFFIX}", modified_ms)
        self._disk.sync_directory(directory)

    def _count_written(self, batch: RecordBatch, cleaned: RecordBatch) -> None:
        stats = self.stats
        stats.records_kept += cleaned.records_count
        stats.bytes_written += cleaned.size
        if cleaned is batch:
            stats.batches_copied += 1
        else:
            stats.batches_rewritten += 1
        self._pacer.count(cleaned.size)

    # A batch.

    def _clean_batch(self, batch: RecordBatch, target: Segment) -> RecordBatch | None:
        """Return what compaction keeps of a batch: the batch itself, a smaller one, or None."""
        self.stats.records_read += batch.records_count
        if batch.is_control:
            return self._clean_control_batch(batch, target)
        if self._transactions.read_data_batch(batch) or not batch.records_count:
            return self._header_if_needed(batch)
        verdicts = self._verdicts(batch)
        if verdicts is None:
            return batch
        new_horizon_ms = None
        if TOMBSTONE in verdicts:
            horizon_ms = batch.delete_horizon_ms
            if horizon_ms is None:
                new_horizon_ms = self._plan.now_ms + self._plan.config.delete_retention_ms
            elif self._plan.now_ms >= horizon_ms:
                verdicts = verdicts.replace(_TOMBSTONE, _DEAD)
        if DEAD not in verdicts and new_horizon_ms is None:
            return batch
        if verdicts.count(DEAD) == len(verdicts):
            return self._header_if_needed(batch)
        return keep_records(batch, verdicts, new_horizon_ms)

    def _verdicts(self, batch: RecordBatch) -> bytes | bytearray | None:
        """Return for each record of the batch whether it is kept (`offset_map`); None if the batch lies beyond the
        offset map."""
        count = batch.records_count
        if batch.base_offset >= self._map_end:
            return None
        if batch.last_offset >= self._plan.first_dirty_offset:
            first = self._next_number
            self._next_number += count
            return self._map.verdicts(first, count)
        keys, verdicts = read_keys(unpacked_records(batch), count)
        self.stats.records_without_key += keys.count(None)
        self._map.supersede(keys, verdicts)
        return verdicts

    def _clean_control_batch(self, batch: RecordBatch, target: Segment) -> RecordBatch | None:
        marker = self._transactions.read_marker(batch)
        if marker.entry is not None:
            target.append_aborted(marker.entry)
        if not batch.records_count:
            return self._header_if_needed(batch)
        if not marker.is_idle:
            return batch
        horizon_ms = batch.delete_horizon_ms
        if horizon_ms is None:
            new_horizon_ms = self._plan.now_ms + self._plan.config.delete_retention_ms
            return keep_records(batch, _LIVE * batch.records_count, new_horizon_ms)
        if self._plan.now_ms < horizon_ms or self._is_last_of_producer(batch):
            # All that is known of that producer stands in the marker: without it, a restart would know less.
            return batch
        return self._header_if_needed(batch)

    def _header_if_needed(self, batch: RecordBatch) -> RecordBatch | None:
        if not (self._is_last_of_producer(batch) or batch.next_offset == self._plan.first_uncleanable_offset):
            return None
        return drop_records(batch) if batch.records_count else batch

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._plan.producers.get(batch.producer_id)
        if last is None:
            return False
        if not last.is_known:
            return True
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.epoch

    # Reading.

    def _batches(self, source: SourceSegment) -> Iterator[RecordBatch]:
        """Yield the batches of a segment, each after its CRC was checked."""
        path = f"{self._plan.directory}/{segment_name(source.base_offset)}{LOG_SUFFIX}"
        with closing(self._disk.open(path, pooled=False, read_only=True)) as file:
            position, piece = 0, _READ_BYTES
            while position < source.size:
                walk = BatchWalk(file.read(position, min(piece, source.size - position)))
                for batch in walk:
                    if not batch.is_valid():
                        raise _corrupt_batch_error(
                            path, position + walk.end - batch.size, "the CRC of a batch is wrong"
                        )
                    self.stats.bytes_read += batch.size
                    self._pacer.count(batch.size)
                    yield batch
                position += walk.end
                piece = _READ_BYTES if walk.end else _next_size(walk, path, position)
                if not walk.end and position + piece > source.size:
                    raise _corrupt_batch_error(path, position, "the last batch is not whole")


class _Pacer:
    """Decides when a pass pauses, and for how long, so that it reads and writes at most so many bytes per second."""

    __slots__ = ("_bytes", "_clock", "_max_bytes_per_second", "_slice_started", "_started", "throttled_seconds")

    def __init__(self, clock: Callable[[], float], max_bytes_per_second: float) -> None:
        self._clock = clock
        self._max_bytes_per_second = max_bytes_per_second
        self._started = self._slice_started = clock()
        self._bytes = 0
        self.throttled_seconds = 0.0

    def count(self, size: int) -> None:
        self._bytes += size

    def is_due(self) -> bool:
        return self._clock() - self._slice_started >= SLICE_SECONDS

    def pause(self) -> Pause:
        """Return the next pause. If the caller waited longer than the last one asked for, this one is shorter by that
        time."""
        now = self._clock()
        ahead = self._started + self._bytes / self._max_bytes_per_second - now
        seconds = max(0.0, ahead)
        self.throttled_seconds += seconds
        self._slice_started = now + seconds
        return Pause(seconds)


def group_segments(segments: Sequence[SourceSegment], plan: CleaningPlan) -> list[list[SourceSegment]]:
    """Return neighbouring segments in groups that fit into one segment: by their bytes, by their indexes, and by
    offsets that an index can hold. Sizes are those before cleaning, so the result may be smaller than it could be,
    never larger."""
    groups: list[list[SourceSegment]] = []
    for source, end_offset in _with_ends(segments, plan):
        if groups and _has_room_for(groups[-1], source, end_offset, plan):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _with_ends(segments: Sequence[SourceSegment], plan: CleaningPlan) -> Iterator[tuple[SourceSegment, int]]:
    """Yield each segment with its end offset, which is the base offset of the next one."""
    for number, source in enumerate(segments, 1):
        is_last = number == len(segments)
        yield source, plan.first_uncleanable_offset if is_last else segments[number].base_offset


def _has_room_for(group: list[SourceSegment], source: SourceSegment, end_offset: int, plan: CleaningPlan) -> bool:
    config = plan.config
    return (
        sum(one.size for one in group) + source.size <= config.segment_bytes
        and sum(one.index_size for one in group) + source.index_size <= config.segment_index_bytes
        and sum(one.time_index_size for one in group) + source.time_index_size <= config.segment_index_bytes
        # An empty segment fits with any offsets: otherwise one would be left for every 2^31 of them.
        and (source.size == 0 or end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET)
    )


def remove_leftovers(disk: Disk, directory: str, busy_swaps: frozenset[int] = frozenset()) -> None:
    """Remove what a pass left that did not come to its end.

    A `.swap` that no pass knows of would be finished by the next start, long after its time: records that were deleted
    since would be back. `busy_swaps` are segments of the log that still have their `.swap` names.
    """
    busy = {segment_name(offset) for offset in busy_swaps}
    stale = [
        name
        for name in disk.list(directory)
        if name.endswith(CLEANED_SUFFIX) or (name.endswith(SWAP_SUFFIX) and name.partition(".")[0] not in busy)
    ]
    for name in stale:
        disk.remove(f"{directory}/{name}", missing_ok=True)
    if stale:
        disk.sync_directory(directory)


def _next_size(walk: BatchWalk, path: str, position: int) -> int:
    """Return the size of a batch that is larger than the bytes that were read."""
    if len(walk.data) < LOG_OVERHEAD:
        raise _corrupt_batch_error(path, position, "the last batch is not whole")
    size: int = _LENGTH.unpack_from(walk.data, LENGTH_POSITION)[0] + LOG_OVERHEAD
    return size


def _corrupt_batch_error(path: str, position: int, problem: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{path}, position {position}: {problem}")


_DEAD = bytes((DEAD,))
_TOMBSTONE = bytes((TOMBSTONE,))
_LIVE = bytes((LIVE,))

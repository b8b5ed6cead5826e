"""Which part of a log may be cleaned, whether that is due, and the plan for the worker that cleans it.

    log start         first dirty offset              first uncleanable offset            log end
        │ clean: every key once │ dirty, cleanable            │ active segment, undecided,    │
        │ (as of the last pass) │                             │ unreplicated, or too young    │

A pass reads the dirty part, remembers the last record of every key (`offset_map`), and writes every segment below the
first uncleanable offset anew without the records that are superseded. Offsets never change; a record that is removed
leaves a gap.

**When.** A log is due when more than `min.cleanable.dirty.ratio` of its bytes below the first uncleanable offset are
dirty, or when a dirty record has waited for `max.compaction.lag.ms`. Of those that are due the dirtiest goes first.
The first uncleanable offset is rounded down to the start of a segment, and is at most: the active segment; the last
stable offset, and with it the high watermark; the first segment that has a record younger than
`min.compaction.lag.ms`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from pessoa.log.compaction.cleaning_plan import CleaningPlan, LastOfProducer, SourceSegment
from pessoa.log.compaction.segment_swap import unfinished_swaps
from pessoa.log.index import OFFSET_ENTRY, TIME_ENTRY
from pessoa.log.segment import (
    Segment,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.log.aborted_transactions import AbortedTransaction
    from pessoa.log.partition_log import PartitionLog
    from pessoa.log.producer_entry import ProducerStateEntry

log = logging.getLogger("pessoa.log")

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Names and defaults are those of Kafka's `log.cleaner.…`."""

    dedupe_buffer_size: int = 128 * _MIB
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000
    # How many passes may run at a time; each is a process of its own here.
    threads: int = 1

    @property
    def map_bytes(self) -> int:
        """The size of the offset map of one pass: the usable part of the dedupe buffer, divided by the number of
        cleaner threads."""
        return int(self.dedupe_buffer_size * self.io_buffer_load_factor) // max(1, self.threads)


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The dirty part of a log, and how dirty it is. `has_bad_checkpoint`: the cleaner checkpoint lies outside the log
    and must be reset."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    has_bad_checkpoint: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        return self.ratio > min_cleanable_dirty_ratio or (self.is_overdue and self.cleanable_bytes > 0)


def assess(partition_log: PartitionLog, checkpoint: int | None, now_ms: int) -> Cleanable:
    """Return how dirty a log is. `checkpoint` is the offset that the last pass reached, None if there was no pass."""
    start = partition_log.log_start_offset
    is_bad = checkpoint is not None and not start <= checkpoint <= partition_log.log_end_offset
    if is_bad and not partition_log.config.is_deleted:
        log.warning("%r cannot be clean up to %s: it is cleaned from its start", partition_log, checkpoint)
    first_dirty = start if checkpoint is None or is_bad else checkpoint
    dirty = _inactive_segments_from(partition_log, first_dirty)
    first_uncleanable = _first_uncleanable(partition_log, dirty, now_ms)
    cleanable = [segment for segment in dirty if segment.base_offset < first_uncleanable]
    return Cleanable(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable if cleanable else first_dirty,
        clean_bytes=sum(one.size for one in partition_log.segments if one.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in cleanable),
        is_overdue=_is_overdue(partition_log, dirty, now_ms),
        has_bad_checkpoint=is_bad,
    )


def _inactive_segments_from(partition_log: PartitionLog, offset: int) -> list[Segment]:
    """The segments that do not grow any more, from the one that holds the offset on."""
    inactive = partition_log.segments[:-1]
    ends = [segment.base_offset for segment in partition_log.segments[1:]]
    return [segment for segment, end in zip(inactive, ends, strict=True) if end > offset]


def _first_uncleanable(partition_log: PartitionLog, dirty: Sequence[Segment], now_ms: int) -> int:
    """The base offset of the first segment that may not be cleaned."""
    # Above the recovery point a gap between segments is how recovery recognises a loss, so none is made there.
    bound = min(partition_log.last_stable_offset, partition_log.active.base_offset, partition_log.recovery_point)
    bound = min(bound, _first_uncommitted_abort(partition_log))
    lag_ms = partition_log.config.min_compaction_lag_ms
    if lag_ms > 0:
        old = takewhile(lambda segment: segment.largest_timestamp_or_modified() <= now_ms - lag_ms, dirty)
        young = dirty[sum(1 for _ in old) :]
        if young:
            bound = min(bound, young[0].base_offset)
    starts = [segment.base_offset for segment in partition_log.segments if segment.base_offset <= bound]
    return starts[-1] if starts else partition_log.segments[0].base_offset


def _first_uncommitted_abort(partition_log: PartitionLog) -> int:
    """The first offset of the first transaction whose abort marker is above the high watermark, and may be truncated.
    The last stable offset would tell, but a producer snapshot does not say which transactions have ended that late."""
    high_watermark = partition_log.high_watermark
    ends = [*(segment.base_offset for segment in partition_log.segments[1:]), partition_log.log_end_offset]
    return min(
        (
            aborted.first_offset
            for segment, end in zip(partition_log.segments, ends, strict=True)
            if end > high_watermark and segment.has_aborted_transactions
            for aborted in segment.aborted_transactions()
            if aborted.last_offset >= high_watermark
        ),
        default=partition_log.log_end_offset,
    )


def _is_overdue(partition_log: PartitionLog, dirty: Sequence[Segment], now_ms: int) -> bool:
    latest_ms = now_ms - partition_log.config.max_compaction_lag_ms
    # Looking at the first batch of a segment costs a read, and hardly any topic has this setting.
    return latest_ms > 0 and any(0 < segment.first_timestamp < latest_ms for segment in dirty)


def make_plan(
    partition_log: PartitionLog, cleanable: Cleanable, settings: CleanerSettings, now_ms: int
) -> CleaningPlan:
    """Return the plan of a pass over the log at `now_ms`. The swaps of an earlier pass must be finished."""
    assert not unfinished_swaps(partition_log)
    segments = [one for one in partition_log.segments[:-1] if one.base_offset < cleanable.first_uncleanable_offset]
    return CleaningPlan(
        directory=partition_log.directory,
        config=partition_log.config,
        now_ms=now_ms,
        first_dirty_offset=cleanable.first_dirty_offset,
        first_uncleanable_offset=cleanable.first_uncleanable_offset,
        segments=tuple(_source(segment) for segment in segments),
        aborted=tuple(_aborted_transactions_of(partition_log)),
        producers={
            entry.producer_id: _last_of_producer(entry, partition_log.high_watermark)
            for entry in partition_log.producers.entries()
        },
        map_bytes=settings.map_bytes,
        max_bytes_per_second=settings.io_max_bytes_per_second / max(1, settings.threads),
    )


def _last_of_producer(entry: ProducerStateEntry, high_watermark: int) -> LastOfProducer:
    """The last committed batch of a producer, which has to stay. An uncommitted one may be truncated, and sequence
    numbers then count from the batch before it. Apache Kafka keeps the last batch alone, committed or not."""
    if not entry.batches:
        return LastOfProducer(None, entry.epoch)
    committed = [one.last_offset for one in entry.batches if one.last_offset < high_watermark]
    return LastOfProducer(committed[-1] if committed else None, entry.epoch, is_known=bool(committed))


def _source(segment: Segment) -> SourceSegment:
    return SourceSegment(
        base_offset=segment.base_offset,
        size=segment.size,
        index_size=segment.offset_index.entry_count * OFFSET_ENTRY.size,
        time_index_size=segment.time_index.entry_count * TIME_ENTRY.size,
        modified_ms=segment.last_modified_ms,
    )


def _aborted_transactions_of(partition_log: PartitionLog) -> list[AbortedTransaction]:
    # A marker may stand in a later segment than the data, even in the active one.
    return [transaction for segment in partition_log.segments for transaction in segment.aborted_transactions()]

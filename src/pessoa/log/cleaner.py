"""Compaction: a log with `cleanup.policy=compact` keeps at least the last record of every key.

    log start         first dirty offset              first uncleanable offset            log end
        │ clean: every key once │ dirty, cleanable            │ active segment, undecided,    │
        │ (as of the last pass) │                             │ unreplicated, or too young    │

A pass reads the dirty part, remembers the last record of every key (`offset_map`), and writes every segment below the
first uncleanable offset anew without the records that are superseded. Offsets never change; what is taken out leaves a
gap. Reading files in this order explains it: `cleaning_plan` (what goes to the worker), `offset_map`,
`cleaning_batches` and `cleaning_transactions` (pure), `cleaning_pass` (the worker), this file (the thread of the log),
`cleaning_process` and `cleaning_shell` (who runs it, and when).

**When.** A log is due when more than `min.cleanable.dirty.ratio` of its bytes below the first uncleanable offset are
dirty, or when a dirty record has waited for `max.compaction.lag.ms`. Of those that are due the dirtiest goes first.
The first uncleanable offset is rounded down to the start of a segment, and is at most: the active segment; the last
stable offset, and with it the high watermark; the first segment that has a record younger than
`min.compaction.lag.ms`.

**Taking part in the log.** The worker leaves complete `.swap` files. Then, on the log's thread:

    1. the new segment takes the place of the old ones in memory, and the old files are renamed to `.deleted`
       (the directory is synced, in a worker thread)
    2. `.swap` files get their final names
       (the directory is synced, in a worker thread)

The sync in between is needed: if after a power loss the new file had its final name and an old segment of the same
group were back, nothing would say that its offsets are covered. Until step 2 the new segment is in use under its
`.swap` name. A crash at any moment leaves the log as it was or as it will be (`loading` finishes or undoes it), and the
checkpoint is moved only after that.

Before step 1 the log is asked whether the segments are still the ones that were read. If they were truncated or dropped
by retention meanwhile, the work is thrown away, and the next pass begins anew. The plan's producers may be older than
the log's by then, which only means that a batch more is kept than necessary.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from pessoa.log.cleaning_plan import CleaningPlan, LastOfProducer, SourceSegment
from pessoa.log.index import OFFSET_ENTRY, TIME_ENTRY
from pessoa.log.loading import SWAP_SUFFIX
from pessoa.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.log.aborted_transactions import AbortedTransaction
    from pessoa.log.cleaning_plan import SwapReady
    from pessoa.log.files import Disk
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

    @property
    def map_bytes(self) -> int:
        return int(self.dedupe_buffer_size * self.io_buffer_load_factor)


@dataclass(frozen=True, slots=True)
class Cleanable:
    """How dirty a log is. `has_bad_checkpoint`: the one given lies outside the log, and should be set anew."""

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
    """`checkpoint` is where the last pass came to, if there was one."""
    start = partition_log.log_start_offset
    is_bad = checkpoint is not None and not start <= checkpoint <= partition_log.log_end_offset
    if is_bad and not partition_log.config.is_deleted:
        log.warning("%r cannot be clean up to %s: it is cleaned from its start", partition_log, checkpoint)
    first_dirty = start if checkpoint is None or is_bad else checkpoint
    dirty = _from(partition_log, first_dirty)
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


def _from(partition_log: PartitionLog, offset: int) -> list[Segment]:
    """The segments that do not grow any more, from the one that holds the offset on."""
    inactive = partition_log.segments[:-1]
    ends = [segment.base_offset for segment in partition_log.segments[1:]]
    return [segment for segment, end in zip(inactive, ends, strict=True) if end > offset]


def _first_uncleanable(partition_log: PartitionLog, dirty: Sequence[Segment], now_ms: int) -> int:
    """Always where a segment starts."""
    # Above the recovery point a gap between segments is how recovery recognises a loss, so none is made there.
    bound = min(partition_log.last_stable_offset, partition_log.active.base_offset, partition_log.recovery_point)
    bound = min(bound, _first_unsettled(partition_log))
    lag_ms = partition_log.config.min_compaction_lag_ms
    if lag_ms > 0:
        old = takewhile(lambda segment: segment.largest_timestamp_or_modified() <= now_ms - lag_ms, dirty)
        young = dirty[sum(1 for _ in old) :]
        if young:
            bound = min(bound, young[0].base_offset)
    starts = [segment.base_offset for segment in partition_log.segments if segment.base_offset <= bound]
    return starts[-1] if starts else partition_log.segments[0].base_offset


def _first_unsettled(partition_log: PartitionLog) -> int:
    """Where the first transaction begins whose abort is above the high watermark, and may yet be taken back. The last
    stable offset would say so, but a producer snapshot does not tell which transactions have ended that late."""
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
    """Everything a pass needs to know, as of now. Swaps of an earlier pass must have come to their end."""
    assert not unfinished_swaps(partition_log)
    segments = [one for one in partition_log.segments[:-1] if one.base_offset < cleanable.first_uncleanable_offset]
    return CleaningPlan(
        directory=partition_log.directory,
        config=partition_log.config,
        now_ms=now_ms,
        first_dirty_offset=cleanable.first_dirty_offset,
        first_uncleanable_offset=cleanable.first_uncleanable_offset,
        segments=tuple(_source(segment) for segment in segments),
        aborted=tuple(_aborted(partition_log)),
        producers={
            entry.producer_id: _last_of_producer(entry, partition_log.high_watermark)
            for entry in partition_log.producers.entries()
        },
        map_bytes=settings.map_bytes,
        max_bytes_per_second=settings.io_max_bytes_per_second,
    )


def unfinished_swaps(partition_log: PartitionLog) -> list[Segment]:
    """Segments in the log that have not got their final names, because somebody stopped in the middle."""
    return [segment for segment in partition_log.segments if segment.suffix == SWAP_SUFFIX]


def _last_of_producer(entry: ProducerStateEntry, high_watermark: int) -> LastOfProducer:
    """What is not committed may be taken back, and then sequence numbers count from the batch before it. Apache Kafka
    keeps the last batch alone, committed or not."""
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


def _aborted(partition_log: PartitionLog) -> list[AbortedTransaction]:
    # A marker may stand in a later segment than the data, even in the active one.
    return [transaction for segment in partition_log.segments for transaction in segment.aborted_transactions()]


class Cleaning:
    """One pass over one log, as the log's own thread sees it."""

    def __init__(self, disk: Disk, partition_log: PartitionLog, plan: CleaningPlan) -> None:
        self._disk = disk
        self._log = partition_log
        self.plan = plan
        self._sources = {
            segment.base_offset: (segment, segment.size)
            for segment in partition_log.segments
            if segment.base_offset < plan.first_uncleanable_offset
        }
        self._truncations = partition_log._truncations

    def __repr__(self) -> str:
        plan = self.plan
        return f"<Cleaning {plan.directory} from {plan.first_dirty_offset} to {plan.first_uncleanable_offset}>"

    @property
    def is_still_valid(self) -> bool:
        """Whether the log has what the plan says. Once it does not, the pass may be stopped."""
        present = {id(segment) for segment in self._log.segments[:-1]}
        return self._truncations == self._log._truncations and all(
            id(segment) in present and segment.size == size for segment, size in self._sources.values()
        )

    def begin_swap(self, ready: SwapReady, now_ms: int) -> Swap | None:
        """Put a cleaned segment into the log; None if the log has changed and `ready` is good for nothing."""
        if not self.is_still_valid:
            self._discard(ready)
            return None
        old = [self._sources.pop(offset)[0] for offset in ready.replaced]
        new = Segment(self._disk, self._log.directory, ready.base_offset, self._log.config, now_ms, suffix=SWAP_SUFFIX)
        return Swap(self._disk, self._log, old, new)

    def _discard(self, ready: SwapReady) -> None:
        log.info("%s: segments from %s on have changed while they were cleaned", self._log.directory, ready.base_offset)
        for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            name = f"{ready.base_offset:020d}{kind}{SWAP_SUFFIX}"
            self._disk.remove(f"{self._log.directory}/{name}", missing_ok=True)


class Swap:
    """A cleaned segment on its way into the log. One that is in the log already, but not under its final name, has no
    `old` any more.

    while (wait := swap.advance()) is not None:
        run wait() in a worker thread
    """

    def __init__(self, disk: Disk, partition_log: PartitionLog, old: Sequence[Segment], new: Segment) -> None:
        self._disk = disk
        self._log = partition_log
        self._old = old
        self._new = new
        self._stages = [self._replace, self._rename]

    def __repr__(self) -> str:
        return f"<Swap of {len(self._old)} segments for {self._new!r}, {len(self._stages)} stages to go>"

    def advance(self) -> Callable[[], None] | None:
        """Do the next stage; what must have been waited for before the one after it. None: it is done."""
        if not self._stages:
            return None
        self._stages.pop(0)()
        return partial(self._disk.sync_directory, self._log.directory)

    def finish(self) -> None:
        """All of it here and now: for tools and tests."""
        while (wait := self.advance()) is not None:
            wait()

    def _replace(self) -> None:
        if self._new in self._log.segments:
            return
        self._log.replace_segments(self._old, [self._new])
        # Snapshots stand where segments begin, and there are fewer of those now.
        gone = {segment.base_offset for segment in self._old} - {self._new.base_offset}
        self._log.snapshots.remove(lambda offset: offset in gone)

    def _rename(self) -> None:
        # Retention may have dropped it while the directory was synced.
        if self._new.suffix == SWAP_SUFFIX:
            self._new.change_suffix("")

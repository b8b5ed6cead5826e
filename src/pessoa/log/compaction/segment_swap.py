"""Swapping cleaned segments into a log, on the thread of the log.

The worker leaves complete `.swap` files. Then:

    1. the new segment takes the place of the old ones in memory, and the old files are renamed to `.deleted`
       (the directory is synced, in a worker thread)
    2. `.swap` files get their final names
       (the directory is synced, in a worker thread)

The sync in between is needed: if after a power loss the new file had its final name and an old segment of the same
group were back, nothing would say that its offsets are covered. Until step 2 the new segment is in use under its
`.swap` name. A crash at any moment leaves the log as it was or as it will be (`log_loader` finishes or undoes it), and
the checkpoint is moved only after that.

Before step 1 the log is asked whether the segments are still the ones that were read. If they were truncated or dropped
by retention meanwhile, the work is thrown away, and the next pass begins anew. The plan's producers may be older than
the log's by then, which only means that a batch more is kept than necessary.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pessoa.log.log_loader import SWAP_SUFFIX
from pessoa.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.log.compaction.cleaning_plan import CleaningPlan, SwapReady
    from pessoa.log.files import Disk
    from pessoa.log.partition_log import PartitionLog

log = logging.getLogger("pessoa.log")


def unfinished_swaps(partition_log: PartitionLog) -> list[Segment]:
    """Return the segments of the log that still have their `.swap` names, because a pass was stopped in the middle."""
    return [segment for segment in partition_log.segments if segment.suffix == SWAP_SUFFIX]


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
        self._truncations = partition_log.truncations

    def __repr__(self) -> str:
        plan = self.plan
        return f"<Cleaning {plan.directory} from {plan.first_dirty_offset} to {plan.first_uncleanable_offset}>"

    @property
    def is_still_valid(self) -> bool:
        """Whether the log still has the segments of the plan. Once it does not, the pass may be stopped."""
        present = {id(segment) for segment in self._log.segments[:-1]}
        return self._truncations == self._log.truncations and all(
            id(segment) in present and segment.size == size for segment, size in self._sources.values()
        )

    def begin_swap(self, ready: SwapReady, now_ms: int) -> Swap | None:
        """Put a cleaned segment into the log; None if the log has changed: the cleaned segment is removed then."""
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
        """Do the next stage. Return the sync that must have run before the stage after it; None if no stage is left."""
        if not self._stages:
            return None
        self._stages.pop(0)()
        return partial(self._disk.sync_directory, self._log.directory)

    def finish(self) -> None:
        """Do all stages and their syncs at once: for tools and tests."""
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

"""The shell around compaction: finds the dirtiest log, has it cleaned, swaps the result in, and moves the checkpoint.

One pass at a time for a whole broker. `run` goes on until it is cancelled and looks every `log.cleaner.backoff.ms`
whether something is due; `clean_filthiest` is one turn of it.

Where the pass runs is not decided here: `start_pass` makes a `RunningPass`, by default a process of its own
(`cleaning_process`). Tests hand in one that works in place.

What can go wrong, and what happens:

    the log was truncated, its segments were dropped, its partition deleted   the pass is thrown away and tried again
    a batch is damaged                                                        the log is left alone until a restart
    the worker died                                                           tried again after the backoff
    the disk refused                                                          its directory goes offline

A checkpoint is that of a log and not of a name, so the log has it (`PartitionLog.cleaned_to`), and its directory writes
it down. A topic that was deleted and created again begins anew, and a log that was cut is clean up to there at most:
taking more for clean would let a tombstone go while what it deletes is still there. A log that has moved to another
directory takes its checkpoint along; so it is left alone while it is copied, or the copy would have of it what was
copied before a pass, and the checkpoint of after it. Apache Kafka does the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.base.ids import ZERO_UUID
from pessoa.log.checkpoints import CLEANER_OFFSET_FILE, RECOVERY_POINT_FILE
from pessoa.log.cleaner import (
    Cleanable,
    CleanerSettings,
    Cleaning,
    Swap,
    assess,
    make_plan,
    unfinished_swaps,
)
from pessoa.log.cleaning_pass import remove_leftovers
from pessoa.log.cleaning_plan import Finished, SwapReady
from pessoa.log.cleaning_process import CleanerDied, CleaningProcess
from pessoa.log.files import DiskError
from pessoa.records.errors import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pessoa.base.clock import Clock
    from pessoa.log.checkpoints import TopicPartition
    from pessoa.log.cleaning_plan import CleanerStats, CleaningPlan
    from pessoa.log.directory import LogDirectory
    from pessoa.log.files import Disk
    from pessoa.log.partition_log import PartitionLog

log = logging.getLogger("pessoa.log")


class RunningPass(Protocol):
    def next_step(self) -> SwapReady | Finished:
        """Wait for it, in a worker thread."""

    def stop(self) -> None:
        """Make it end soon; `next_step` then raises `CleanerDied`. From any thread."""

    def close(self) -> None:
        """Return when it touches no file any more."""


class Candidate(NamedTuple):
    directory: LogDirectory
    key: TopicPartition
    log: PartitionLog
    cleanable: Cleanable


class _Outdated(Exception):
    """The log is no longer the one that the plan was made for."""


class LogCleaner:
    def __init__(
        self,
        disk: Disk,
        directories: Sequence[LogDirectory],
        clock: Clock,
        settings: CleanerSettings | None = None,
        start_pass: Callable[[CleaningPlan], RunningPass] = CleaningProcess,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._clock = clock
        self._settings = settings or CleanerSettings()
        self._start_pass = start_pass
        # Logs in which a damaged batch was found.
        self._uncleanable: set[PartitionLog] = set()
        self._at: PartitionLog | None = None
        self.last_stats: CleanerStats | None = None

    def __repr__(self) -> str:
        at = self._at.directory if self._at is not None else "nothing"
        return f"<LogCleaner at {at}, {len(self._uncleanable)} logs are damaged, last pass {self.last_stats!r}>"

    async def run(self) -> None:
        while True:
            if not await self.clean_filthiest():
                await self._clock.wait_ms(self._settings.backoff_ms)

    async def clean_filthiest(self) -> bool:
        """Clean the dirtiest log of those that are due; whether that came to its end."""
        now_ms = self._clock.now_ms()
        due = [
            one for one in self._candidates(now_ms) if one.cleanable.is_due(one.log.config.min_cleanable_dirty_ratio)
        ]
        if not due:
            return False
        return await self._clean(max(due, key=lambda one: one.cleanable.ratio), now_ms)

    # Choosing.

    def _candidates(self, now_ms: int) -> Iterator[Candidate]:
        for directory in self._directories:
            if directory.offline is not None:
                continue
            try:
                for key, partition_log in list(directory.partitions.items()):
                    is_wanted = partition_log.config.is_compacted and partition_log not in self._uncleanable
                    if is_wanted and not self._is_copied(directory, key):
                        cleanable = assess(partition_log, partition_log.cleaned_to, now_ms)
                        if cleanable.has_bad_checkpoint:
                            partition_log.cleaned_to = cleanable.first_dirty_offset
                        yield Candidate(directory, key, partition_log, cleanable)
            except DiskError as error:
                directory.fail(error)

    def _is_copied(self, directory: LogDirectory, key: TopicPartition) -> bool:
        """Whether it is on its way to another directory."""
        futures = [future for one in self._directories for future in one.futures]
        return any(future.is_of(key[0], directory.topic_ids.get(key, ZERO_UUID), key[1]) for future in futures)

    # Cleaning.

    async def _clean(self, chosen: Candidate, now_ms: int) -> bool:
        directory, _, partition_log, cleanable = chosen
        try:
            for segment in unfinished_swaps(partition_log):
                await self._finish(Swap(self._disk, partition_log, (), segment))
            await self._write_recovery_points(directory, partition_log)
            plan = make_plan(partition_log, cleanable, self._settings, now_ms)
            cleaning = Cleaning(self._disk, partition_log, plan)
            finished = await self._run_pass(chosen, cleaning)
            self._check(chosen, cleaning)
            partition_log.cleaned_to = finished.end_offset
            await self._write_checkpoints(directory, CLEANER_OFFSET_FILE)
        except (_Outdated, CleanerDied) as reason:
            log.info("%s is cleaned another time: %s", partition_log.directory, reason)
            await self._tidy_up(chosen)
        except InvalidBatch as damage:
            log.error("%s is not cleaned any more: %s", partition_log.directory, damage)  # noqa: TRY400  # expected
            self._uncleanable.add(partition_log)
            await self._tidy_up(chosen)
        except DiskError as error:
            # A partition that was deleted or moved meanwhile has taken its files along, and that is nobody's fault.
            if not partition_log.is_released:
                directory.fail(error)
        else:
            log.info("%s is clean up to %s: %r", partition_log.directory, finished.end_offset, finished.stats)
            self.last_stats = finished.stats
            return True
        return False

    async def _write_recovery_points(self, directory: LogDirectory, partition_log: PartitionLog) -> None:
        """Recovery takes a gap above the recovery point for a loss. So the one that a crash would find must be as far
        as what is cleaned, before the first gap is made."""
        truncations = partition_log.truncations
        await self._write_checkpoints(directory, RECOVERY_POINT_FILE)
        if partition_log.truncations != truncations:
            raise _Outdated("it was cut")

    async def _run_pass(self, chosen: Candidate, cleaning: Cleaning) -> Finished:
        in_thread = asyncio.get_running_loop().run_in_executor
        running = await in_thread(None, self._start_pass, cleaning.plan)
        self._at = chosen.log
        try:
            while True:
                step = await self._next_step(chosen, cleaning, running)
                if isinstance(step, Finished):
                    return step
                swap = cleaning.begin_swap(step, self._clock.now_ms())
                if swap is None:
                    raise _Outdated("its segments have changed")
                await self._finish(swap)
        finally:
            self._at = None
            running.stop()
            await in_thread(None, running.close)

    async def _finish(self, swap: Swap) -> None:
        while (wait := swap.advance()) is not None:
            await asyncio.get_running_loop().run_in_executor(None, wait)

    async def _next_step(self, chosen: Candidate, cleaning: Cleaning, running: RunningPass) -> SwapReady | Finished:
        try:
            step = await asyncio.get_running_loop().run_in_executor(None, running.next_step)
        except DiskError:
            if not (self._is_there(chosen) and cleaning.is_still_valid):
                raise _Outdated("its files have gone") from None
            raise
        self._check(chosen, cleaning)
        return step

    def _check(self, chosen: Candidate, cleaning: Cleaning) -> None:
        """Whoever has waited asks whether the log is still what it was."""
        if not (self._is_there(chosen) and cleaning.is_still_valid):
            raise _Outdated("it has changed")
        if self._is_copied(chosen.directory, chosen.key):
            raise _Outdated("it moves to another directory")

    def _is_there(self, chosen: Candidate) -> bool:
        return chosen.directory.partitions.get(chosen.key) is chosen.log

    async def _write_checkpoints(self, directory: LogDirectory, name: str) -> None:
        rendered = directory.render_checkpoints(name)
        await asyncio.get_running_loop().run_in_executor(None, directory.write_rendered, rendered)

    async def _tidy_up(self, chosen: Candidate) -> None:
        if not self._is_there(chosen):
            return
        busy = frozenset(segment.base_offset for segment in unfinished_swaps(chosen.log))
        # The partition may be deleted in this very moment, and its directory with it.
        with suppress(DiskError):
            await asyncio.get_running_loop().run_in_executor(
                None, remove_leftovers, self._disk, chosen.log.directory, busy
            )

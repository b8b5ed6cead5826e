"""The log cleaner: finds the dirtiest log, runs a pass over it, swaps the cleaned segments in, moves the checkpoint.

`log.cleaner.threads` passes at a time for a whole broker, each over another log, and not more than there are cores.
`run` goes on until it is cancelled and looks every `log.cleaner.backoff.ms` whether something is due;
`clean_filthiest` is one turn of it. Settings may change meanwhile (`configure`): they hold for the next pass.

Where the pass runs is not decided here: `start_pass` makes a `RunningPass`, by default a process of its own
(`cleaning_process`). Tests hand in one that works in place.

What can go wrong, and what happens:

    the log was truncated, its segments were dropped, its partition deleted   the pass is thrown away and tried again
    a batch is damaged                                                        the log is left alone until a restart
    the worker died                                                           tried again after the backoff
    the disk refused                                                          its directory goes offline

A checkpoint is that of a log and not of a name, so the log has it (`PartitionLog.cleaned_to`), and its directory writes
it down. A topic that was deleted and created again begins anew, and a log that was truncated is clean up to there at
most: taking more for clean would let a tombstone go while what it deletes is still there. A log that has moved to
another directory takes its checkpoint along; so it is left alone while it is copied, or the copy would have of it what
was copied before a pass, and the checkpoint of after it. Apache Kafka does the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.base.ids import ZERO_UUID
from pessoa.log.checkpoints import CLEANER_OFFSET_FILE, RECOVERY_POINT_FILE
from pessoa.log.compaction.cleaning_pass import remove_leftovers
from pessoa.log.compaction.cleaning_plan import Finished, SwapReady
from pessoa.log.compaction.cleaning_process import CleanerDied, CleaningProcess
from pessoa.log.compaction.log_to_clean import CleanerSettings, assess, make_plan
from pessoa.log.compaction.segment_swap import Cleaning, Swap, unfinished_swaps
from pessoa.log.files import DiskError
from pessoa.records.invalid_batch import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pessoa.base.clock import Clock
    from pessoa.log.checkpoints import TopicPartition
    from pessoa.log.compaction.cleaning_plan import CleanerStats, CleaningPlan
    from pessoa.log.compaction.log_to_clean import Cleanable
    from pessoa.log.directory import LogDirectory
    from pessoa.log.files import Disk
    from pessoa.log.partition_log import PartitionLog

log = logging.getLogger("pessoa.log")


class RunningPass(Protocol):
    def next_step(self) -> SwapReady | Finished:
        """Wait for the next step of the pass; for a worker thread."""

    def stop(self) -> None:
        """Make the pass end soon; `next_step` then raises `CleanerDied`. From any thread."""

    def close(self) -> None:
        """Return when the pass touches no file any more."""


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
        # Logs that a pass is cleaning.
        self._busy: set[PartitionLog] = set()
        # While it runs: its workers, their numbers, and the pauses of those that have found nothing to clean.
        self._workers: asyncio.TaskGroup | None = None
        self._busy_workers: set[int] = set()
        self._pauses: set[asyncio.Task[None]] = set()
        self.last_stats: CleanerStats | None = None

    def __repr__(self) -> str:
        at = ", ".join(sorted(one.directory for one in self._busy)) or "nothing"
        return f"<LogCleaner at {at}, {len(self._uncleanable)} logs are damaged, last pass {self.last_stats!r}>"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._workers:
            self._start_workers()
            # The group would end with its last worker, and there may be none for a while.
            await asyncio.get_running_loop().create_future()

    def configure(self, settings: CleanerSettings) -> None:
        """Take over changed settings. Workers that wait for their backoff look for a dirty log at once."""
        self._settings = settings
        for pause in self._pauses:
            pause.cancel()
        self._start_workers()

    def _start_workers(self) -> None:
        for number in range(min(self._settings.threads, max(2, os.cpu_count() or 1))):
            if self._workers is not None and number not in self._busy_workers:
                self._busy_workers.add(number)
                self._workers.create_task(self._work(number))

    async def _work(self, number: int) -> None:
        try:
            while number < self._settings.threads:
                if not await self.clean_filthiest():
                    await self._pause()
        finally:
            self._busy_workers.discard(number)

    async def _pause(self) -> None:
        pause = asyncio.get_running_loop().create_task(self._clock.wait_ms(max(1, self._settings.backoff_ms)))
        self._pauses.add(pause)
        try:
            await asyncio.wait([pause])
        finally:
            self._pauses.discard(pause)
            pause.cancel()

    async def clean_filthiest(self) -> bool:
        """Clean the dirtiest log of those that are due; return whether a pass was completed."""
        now_ms = self._clock.now_ms()
        due = [
            one for one in self._candidates(now_ms) if one.cleanable.is_due(one.log.config.min_cleanable_dirty_ratio)
        ]
        if not due:
            return False
        chosen = max(due, key=lambda one: one.cleanable.ratio)
        self._busy.add(chosen.log)
        try:
            return await self._clean(chosen, now_ms)
        finally:
            self._busy.discard(chosen.log)

    # Choosing.

    def _candidates(self, now_ms: int) -> Iterator[Candidate]:
        for directory in self._directories:
            if directory.offline is not None:
                continue
            try:
                for key, partition_log in list(directory.partitions.items()):
                    is_free = partition_log not in self._uncleanable and partition_log not in self._busy
                    if partition_log.config.is_compacted and is_free and not self._is_copied(directory, key):
                        cleanable = assess(partition_log, partition_log.cleaned_to, now_ms)
                        if cleanable.has_bad_checkpoint:
                            partition_log.cleaned_to = cleanable.first_dirty_offset
                        yield Candidate(directory, key, partition_log, cleanable)
            except DiskError as error:
                directory.fail(error)

    def _is_copied(self, directory: LogDirectory, key: TopicPartition) -> bool:
        """Whether the log is being copied to another directory."""
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
            await self._remove_leftovers(chosen)
        except InvalidBatch as damage:
            log.error("%s is not cleaned any more: %s", partition_log.directory, damage)  # noqa: TRY400  # expected
            self._uncleanable.add(partition_log)
            await self._remove_leftovers(chosen)
        except DiskError as error:
            # The files of a partition that was deleted or moved meanwhile are gone, which is no failure of the disk.
            if not partition_log.is_released:
                directory.fail(error)
        else:
            log.info("%s is clean up to %s: %r", partition_log.directory, finished.end_offset, finished.stats)
            self.last_stats = finished.stats
            return True
        return False

    async def _write_recovery_points(self, directory: LogDirectory, partition_log: PartitionLog) -> None:
        """Write the recovery points. Recovery takes a gap above the recovery point for a loss, so the checkpoint must
        have reached what is cleaned before the first gap is made."""
        truncations = partition_log.truncations
        await self._write_checkpoints(directory, RECOVERY_POINT_FILE)
        if partition_log.truncations != truncations:
            raise _Outdated("it was truncated")

    async def _run_pass(self, chosen: Candidate, cleaning: Cleaning) -> Finished:
        running = await self._start(cleaning.plan)
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
            await _end(running)

    async def _start(self, plan: CleaningPlan) -> RunningPass:
        """Start a pass in a worker thread. If this is cancelled meanwhile, the pass is ended as soon as it has started:
        no pass may touch files after the cleaner is gone."""
        starting = asyncio.get_running_loop().run_in_executor(None, self._start_pass, plan)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(CleanerDied):
                await _end(await starting)
            raise

    async def _finish(self, swap: Swap) -> None:
        while (wait := swap.advance()) is not None:
            await asyncio.get_running_loop().run_in_executor(None, wait)

    async def _next_step(self, chosen: Candidate, cleaning: Cleaning, running: RunningPass) -> SwapReady | Finished:
        try:
            step = await asyncio.get_running_loop().run_in_executor(None, running.next_step)
        except DiskError:
            if not (self._is_current(chosen) and cleaning.is_still_valid):
                raise _Outdated("its files have gone") from None
            raise
        self._check(chosen, cleaning)
        return step

    def _check(self, chosen: Candidate, cleaning: Cleaning) -> None:
        """Raise `_Outdated` if the log has changed while the pass was waited for."""
        if not (self._is_current(chosen) and cleaning.is_still_valid):
            raise _Outdated("it has changed")
        if self._is_copied(chosen.directory, chosen.key):
            raise _Outdated("it moves to another directory")

    def _is_current(self, chosen: Candidate) -> bool:
        return chosen.directory.partitions.get(chosen.key) is chosen.log

    async def _write_checkpoints(self, directory: LogDirectory, name: str) -> None:
        rendered = directory.render_checkpoints(name)
        await asyncio.get_running_loop().run_in_executor(None, directory.write_rendered, rendered)

    async def _remove_leftovers(self, chosen: Candidate) -> None:
        if not self._is_current(chosen):
            return
        busy = frozenset(segment.base_offset for segment in unfinished_swaps(chosen.log))
        # The partition may be deleted in this very moment, and its directory with it.
        with suppress(DiskError):
            await asyncio.get_running_loop().run_in_executor(
                None, remove_leftovers, self._disk, chosen.log.directory, busy
            )


async def _end(running: RunningPass) -> None:
    running.stop()
    await asyncio.get_running_loop().run_in_executor(None, running.close)

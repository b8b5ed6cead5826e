"""What is done to the logs by time: retention, checkpoints and flushes (`log.upkeep`), and compaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.base.clock import wait_at_most
from pessoa.broker.stages.node_context import BackgroundTasks
from pessoa.log.os_disk import OsDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.stages.log_directories import LogDirectories
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.log.compaction.cleaning_plan import CleaningPlan
    from pessoa.log.compaction.log_cleaner import LogCleaner, RunningPass
    from pessoa.log.compaction.log_to_clean import CleanerSettings
    from pessoa.log.upkeep import Upkeep

    StartCleaning = Callable[[CleaningPlan], RunningPass]


class LogMaintenance:
    """Runs retention, flushes and compaction. `start_cleaning` compacts logs on a disk that no other process can open;
    without it, those are not compacted."""

    def __init__(
        self, node: NodeContext, directories: LogDirectories, upkeep: Upkeep, start_cleaning: StartCleaning | None
    ) -> None:
        self._node = node
        self._directories = directories
        self._tasks = BackgroundTasks(node)
        # Made by its task once a log may have something to compact, since it takes long to import; None before.
        self.cleaner: LogCleaner | None = None
        self._tasks.run(upkeep.run())
        if node.config.current.log_cleaner_enable and (start_cleaning is not None or isinstance(node.disk, OsDisk)):
            self._tasks.run(self._clean(start_cleaning))

    def __repr__(self) -> str:
        return f"<LogMaintenance: {self._tasks!r}, {self.cleaner!r}>"

    async def close(self) -> None:
        await self._tasks.cancel()

    def abandon(self) -> None:
        """Do nothing: a killed process has nothing else to release here."""

    async def _clean(self, start_cleaning: StartCleaning | None) -> None:
        """Compact logs, in a separate process where other processes can open the files."""
        await self._wait_for_a_log_to_compact()
        from pessoa.log.compaction.cleaning_process import CleaningProcess
        from pessoa.log.compaction.log_cleaner import LogCleaner

        node = self._node
        cleaner = self.cleaner = LogCleaner(
            node.disk,
            self._directories.all,
            node.clock,
            _cleaner_settings(node.config.current),
            start_cleaning or CleaningProcess,
        )
        node.config.on_change.append(lambda config: cleaner.configure(_cleaner_settings(config)))
        await cleaner.run()

    async def _wait_for_a_log_to_compact(self) -> None:
        """Return when a log may have something to compact; it checks as often as the cleaner looks for dirty logs, and
        when settings change."""
        node, changed = self._node, asyncio.Event()
        node.config.on_change.append(lambda _: changed.set())
        while not self._has_log_to_compact:
            changed.clear()
            await wait_at_most(node.clock, changed.wait(), max(1, node.config.current.log_cleaner_backoff_ms))

    @property
    def _has_log_to_compact(self) -> bool:
        """Whether a compacted log has a segment below its active one, which is never compacted."""
        return any(
            log.config.is_compacted and len(log.segments) > 1
            for directory in self._directories.all
            for log in directory.partitions.values()
        )


def _cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    from pessoa.log.compaction.log_to_clean import CleanerSettings

    return CleanerSettings(
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        backoff_ms=config.log_cleaner_backoff_ms,
        threads=config.log_cleaner_threads,
    )

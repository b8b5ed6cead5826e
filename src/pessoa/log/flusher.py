"""Group commit: one fsync for all writers that wait.

    writer A ── append ── wait ─┐
    writer B ── append ── wait ─┼─ one flush runs in a worker thread ── A, B and C go on
    writer C ── append ── wait ─┘

`wait_until_durable` returns when the log is on the disk up to an offset. If a flush is running, it may have begun too
early to cover the offset; then the next one does, and that one also covers all writers that came meanwhile. So however
many wait, there is at most one flush of a log at a time, and no writer waits for more than two.

Kafka's default is to acknowledge from the page cache and rely on replicas. A topic with `flush.messages` or
`flush.ms` asks for more, and this is what makes it cheap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from pessoa.log.partition_log import PartitionLog


class Flusher:
    def __init__(self, executor: Executor | None = None) -> None:
        """If `executor` is None, the event loop's own pool of threads is used."""
        self._executor = executor
        self._running: dict[PartitionLog, asyncio.Task[None]] = {}
        self.flush_count = 0

    def __repr__(self) -> str:
        return f"<Flusher: {len(self._running)} flushes running, {self.flush_count} done>"

    def is_flushing(self, log: PartitionLog) -> bool:
        return log in self._running

    async def wait_until_durable(self, log: PartitionLog, offset: int) -> bool:
        """Return True when everything below `offset` is on the disk, False if the log was truncated below it or
        deleted. Raises DiskError."""
        while True:
            # It may move to another directory while we wait; then the disk that it left does not count.
            while log.successor is not None:
                log = log.successor
            if log.recovery_point >= offset:
                return True
            if log.is_released or offset > log.log_end_offset:
                return False
            await self.flush(log)

    async def flush(self, log: PartitionLog) -> None:
        """Return when a flush of the log has ended, which may have begun before this call. Raises DiskError."""
        running = self._running.get(log)
        if running is None:
            running = self._running[log] = asyncio.get_running_loop().create_task(self._flush(log))
        # One waiter that gives up must not take the flush away from the others.
        await asyncio.shield(running)

    async def _flush(self, log: PartitionLog) -> None:
        try:
            flush = log.begin_flush()
            if flush is not None:
                await asyncio.get_running_loop().run_in_executor(self._executor, flush.run)
                log.finish_flush(flush)
                self.flush_count += 1
        finally:
            del self._running[log]

"""Keeps syncing the metadata log as long as there is something that is not on the disk.

A sync runs in a worker thread (`pessoa.log.flusher`), one at a time, and covers all appends that came before it. After
each, the raft machine hears of it: a leader's high watermark may move then, and a follower may fetch on. How far the
log is on the disk is also kept in a file, for a voter that restarts and wants to know whether it has forgotten
something (`durable_offset_file`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.log.files import DiskError
from pessoa.raft.memory import Memory

if TYPE_CHECKING:
    from pessoa.log.flusher import Flusher
    from pessoa.quorum.raft_quorum import RaftQuorum


class LogSync:
    def __init__(self, quorum: RaftQuorum, flusher: Flusher) -> None:
        self._quorum = quorum
        self.flusher = flusher
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<LogSync {'idle' if self._task is None else 'running'}>"

    def maybe_begin(self) -> None:
        if self._task is None and self._is_behind:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """Return when everything is on the disk, or the quorum has failed."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def write_durable_offset_on_shutdown(self) -> None:
        if self._may_mark:
            log = self._quorum.log
            log.durable_offset_file.write_on_shutdown(log.durable_end_offset)

    @property
    def _is_behind(self) -> bool:
        log = self._quorum.log
        return log.durable_end_offset < log.log_end_offset

    @property
    def _may_mark(self) -> bool:
        """Only a voter's promise is kept in the file, and one that has forgotten something has none to keep."""
        quorum = self._quorum
        return quorum.node.is_controller and quorum.failure is None and quorum.raft.memory is Memory.WHOLE

    async def _run(self) -> None:
        quorum = self._quorum
        try:
            while quorum.failure is None and self._is_behind:
                await self.flusher.wait_until_durable(quorum.log.partition, quorum.log_end_offset)
                if not quorum.is_closed:
                    quorum.raft.flushed(quorum.monotonic_ms())
                    quorum.step()
                    self._mark()
        except BaseException as error:
            quorum.fail(error)
            if not isinstance(error, DiskError):
                raise
        finally:
            self._task = None

    def _mark(self) -> None:
        if self._may_mark:
            log = self._quorum.log
            log.durable_offset_file.follow(log.durable_end_offset, self._quorum.monotonic_ms())

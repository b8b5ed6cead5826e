"""Keeps syncing the metadata log as long as there is something that is not on the disk.

A sync runs in a worker thread (`pessoa.log.flusher`), one at a time, and covers all appends that came before it. After
each, `Raft.flushed` is called: it may advance a leader's high watermark, and lets a follower fetch again. The durable
end offset is also written to a file, from which a voter sees at its next start whether its log has lost records
(`durable_offset_file`).
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
        if self._writes_durable_offset:
            log = self._quorum.log
            log.durable_offset_file.write_on_shutdown(log.durable_end_offset)

    @property
    def _is_behind(self) -> bool:
        log = self._quorum.log
        return log.durable_end_offset < log.log_end_offset

    @property
    def _writes_durable_offset(self) -> bool:
        """Whether the durable offset is written to its file: only by a controller whose log has lost nothing
        (`Memory.WHOLE`), since only its promises as a voter have to be kept."""
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
                    self._maybe_write_durable_offset()
        except BaseException as error:
            quorum.fail(error)
            if not isinstance(error, DiskError):
                raise
        finally:
            self._task = None

    def _maybe_write_durable_offset(self) -> None:
        if self._writes_durable_offset:
            log = self._quorum.log
            log.durable_offset_file.follow(log.durable_end_offset, self._quorum.monotonic_ms())

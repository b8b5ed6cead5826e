"""A `Pending` for tests that deal with frames instead of messages."""

from __future__ import annotations

from collections.abc import Awaitable

from pessoa.net.pending import PendingTask
from pessoa.wire.frames import Buffer


class PendingFrames(PendingTask):
    """Sends the frames that a coroutine returns."""

    def __init__(self, work: Awaitable[list[Buffer] | None], *, lets_next_in: bool = False) -> None:
        super().__init__(self._keep(work), lets_next_in=lets_next_in)
        self._frames: list[Buffer] | None = None

    async def _keep(self, work: Awaitable[list[Buffer] | None]) -> None:
        self._frames = await work

    def frames(self) -> list[Buffer] | None:
        assert self.response() is None
        return self._frames

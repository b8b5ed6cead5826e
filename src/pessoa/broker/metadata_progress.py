"""How far this node has followed the metadata log, for requests that wait until it has come somewhere.

A change is committed before every broker has read of it. So a request that caused one at the controller, and then looks
at this node's image, waits here until the image shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pessoa.base.clock import wait_at_most

if TYPE_CHECKING:
    from pessoa.base.clock import Clock

Condition = Callable[[], bool]


class MetadataProgress:
    """How far this node has applied the metadata log: `offset` is that of the last record, -1 before the first."""

    def __init__(self, clock: Clock) -> None:
        self.offset = -1
        self._clock = clock
        self._waiters: list[tuple[Condition, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<MetadataProgress at {self.offset}, {len(self._waiters)} waiting>"

    def advance(self, offset: int) -> None:
        """Set the offset, after everything up to it was applied and its subscribers were called."""
        self.offset = offset
        self.look()

    def look(self) -> None:
        """Wake the waiters whose condition holds."""
        if self._waiters:
            still = []
            for condition, future in self._waiters:
                if future.done():
                    continue
                if condition():
                    future.set_result(None)
                else:
                    still.append((condition, future))
            self._waiters = still

    async def wait_until(self, condition: Condition, timeout_ms: int | None = None) -> bool:
        """Return True when the condition holds, False if it does not within `timeout_ms`."""
        if condition():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((condition, future))
        if timeout_ms is not None:
            return await wait_at_most(self._clock, future, timeout_ms)
        await future
        return True

"""How far this node has followed the metadata log, for requests that wait until it has come somewhere.

A change is committed before every broker has read of it. So a request that caused one at the controller, and then looks
at this node's image, waits here until the image shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Condition = Callable[[], bool]


class MetadataProgress:
    """`offset` is that of the last record that was applied; -1 before the first."""

    def __init__(self) -> None:
        self.offset = -1
        self._waiting: list[tuple[Condition, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<MetadataProgress at {self.offset}, {len(self._waiting)} waiting>"

    def advance(self, offset: int) -> None:
        """Everything up to this offset has been applied, and its subscribers have been called."""
        self.offset = offset
        self.look()

    def look(self) -> None:
        """Wake those whose condition holds."""
        if self._waiting:
            still = []
            for condition, future in self._waiting:
                if future.done():
                    continue
                if condition():
                    future.set_result(None)
                else:
                    still.append((condition, future))
            self._waiting = still

    async def wait_until(self, condition: Condition, timeout_ms: int | None = None) -> bool:
        """True when the condition holds; False if it does not in time."""
        if condition():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await future
        except TimeoutError:
            return False
        return True

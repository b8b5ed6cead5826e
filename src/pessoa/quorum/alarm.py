"""One timer that is set again and again, for the deadline that the raft machine names.

The deadline moves with every event, mostly to a later time. An alarm that rings too early costs one look, so only an
earlier deadline replaces the timer that runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.clock import Clock


class Alarm:
    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._deadline_ms = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Alarm {'off' if self._task is None else f'at {self._deadline_ms} ms'}>"

    def set(self, deadline_ms: int) -> None:
        """Call `ring` at `deadline_ms` of the monotonic clock, or earlier."""
        if self._task is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._task.cancel()
        self._deadline_ms = deadline_ms
        self._task = asyncio.get_running_loop().create_task(self._wait_and_ring(deadline_ms))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _wait_and_ring(self, deadline_ms: int) -> None:
        await self._clock.wait_ms(max(0, deadline_ms - self._clock.monotonic_ms()))
        self._task = None
        self._ring()

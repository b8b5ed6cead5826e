"""The door for time.

Code that decides takes `now_ms` as an argument. The shells around it get a `Clock` and ask it: the real one below, or
one that a test moves by hand. Two kinds of time, never mixed: `now_ms` is the wall clock, which people and records go
by and which may jump; `monotonic_ms` only ever grows, and is what timeouts and intervals are measured with.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, by the wall clock."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment."""

    async def wait_ms(self, duration_ms: int) -> None:
        """Return when so much time has passed."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def wait_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


class ManualClock:
    """Stands still until it is told how late it is. Whoever waits is woken in the order of their deadlines."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<ManualClock at {self._now_ms} ms, {len(self._waiting)} waiting>"

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    async def wait_ms(self, duration_ms: int) -> None:
        if duration_ms > 0:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((self._now_ms + duration_ms, future))
            await future

    def advance_ms(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
        due = sorted((entry for entry in self._waiting if entry[0] <= self._now_ms), key=lambda entry: entry[0])
        self._waiting = [entry for entry in self._waiting if entry[0] > self._now_ms]
        for _, future in due:
            if not future.done():
                future.set_result(None)

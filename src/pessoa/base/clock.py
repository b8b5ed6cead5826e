"""The door for time.

Code that decides takes `now_ms` as an argument. The shells around it get a `Clock` and ask it: the real one below, or
one that a test moves by hand. Two kinds of time, never mixed: `now_ms` is the wall clock, which people and records go
by and which may jump; `monotonic_ms` only ever grows, and is what timeouts and intervals are measured with.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the milliseconds since 1970, by the wall clock."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since some fixed moment."""

    def call_after_ms(self, duration_ms: int, call: Callable[[], object]) -> Timer:
        """Call `call` after `duration_ms`, unless the returned timer is cancelled before."""

    async def wait_ms(self, duration_ms: int) -> None:
        """Return after `duration_ms`."""


async def wait_at_most(clock: Clock, awaited: Awaitable[object], duration_ms: int) -> bool:
    """Wait until `awaited` is done, and raise what it raises. Return False if it is not done after so much time: then
    it is cancelled, as it is if the caller is cancelled."""
    work, task = asyncio.ensure_future(awaited), asyncio.current_task()
    assert task is not None
    is_late, cancellations = False, task.cancelling()

    def give_up() -> None:
        nonlocal is_late
        is_late = work.cancel()

    timer = clock.call_after_ms(duration_ms, give_up)
    try:
        await work
    except asyncio.CancelledError:
        # The caller may have been cancelled too, in the same turn of the loop.
        if not is_late or task.cancelling() > cancellations:
            raise
        return False
    finally:
        timer.cancel()
    return True


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_after_ms(self, duration_ms: int, call: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(duration_ms / 1000, call)

    async def wait_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


class ManualClock:
    """A clock that stands still until a test advances it. Timers are called in the order of their deadlines."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._timers: list[_ManualTimer] = []

    def __repr__(self) -> str:
        return f"<ManualClock at {self._now_ms} ms, {len(self._timers)} waiting>"

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def call_after_ms(self, duration_ms: int, call: Callable[[], object]) -> Timer:
        timer = _ManualTimer(self._timers, self._now_ms + duration_ms, call)
        self._timers.append(timer)
        return timer

    async def wait_ms(self, duration_ms: int) -> None:
        if duration_ms > 0:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake() -> None:
                if not future.done():
                    future.set_result(None)

            timer = self.call_after_ms(duration_ms, wake)
            try:
                await future
            finally:
                timer.cancel()

    def advance_ms(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
        for timer in sorted(self._timers, key=lambda one: one.deadline_ms):
            if timer.deadline_ms <= self._now_ms and timer in self._timers:
                timer.cancel()
                timer.call()


class _ManualTimer:
    def __init__(self, timers: list[_ManualTimer], deadline_ms: int, call: Callable[[], object]) -> None:
        self._timers = timers
        self.deadline_ms = deadline_ms
        self.call = call

    def cancel(self) -> None:
        if self in self._timers:
            self._timers.remove(self)

"""Coroutines that wait for a change in the quorum: fetches that find no records, changes of voters, a shutdown.

Whatever happens wakes all of them; each looks for itself whether it was what it waits for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.base.clock import Clock


class Waiters:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"<Waiters: {len(self._waiters)}>"

    async def wait(self, deadline_ms: int) -> bool:
        """Wait until `wake` is called. Return False if it is not called before the deadline on the monotonic clock."""
        remaining_ms = deadline_ms - self._clock.monotonic_ms()
        if remaining_ms <= 0:
            return False
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.create_task(self._clock.wait_ms(remaining_ms))
        try:
            await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
            return waiter.done()
        finally:
            timer.cancel()
            if not waiter.done():
                self._waiters.remove(waiter)
                waiter.cancel()

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

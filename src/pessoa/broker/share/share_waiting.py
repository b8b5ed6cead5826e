"""How a ShareFetch waits: for records, for records that become free, for a state that is loaded, and for its time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.replication.partition import FetchWaiter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.clock import Clock
    from pessoa.broker.share.led_share_partition import LedSharePartition
    from pessoa.broker.share.share_reads import Target


class Change:
    """Happens when another look at the targets that it watches may find more than the last one, or at the deadline.

    It must watch a target before that is looked at, or at least before the loop has done anything else since: what
    happens in between would not be heard of.
    """

    def __init__(self, clock: Clock, deadline_ms: int) -> None:
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched: list[LedSharePartition] = []
        self._waiters: list[FetchWaiter] = []

    def __repr__(self) -> str:
        return f"<Change in {len(self._watched)} share partitions, has happened: {self._happened.done()}>"

    def watch(self, targets: Sequence[Target]) -> None:
        led = [target.led for target in targets if target.led is not None]
        self._watched += led
        self._waiters.append(FetchWaiter(self._wake, 1, [one.partition for one in led]))
        for one in led:
            one.watch(self._wake)

    def _wake(self) -> None:
        if not self._happened.done():
            self._happened.set_result(None)

    async def wait(self) -> None:
        timer = self._clock.call_after_ms(max(0, self._deadline_ms - self._clock.monotonic_ms()), self._wake)
        try:
            await self._happened
        finally:
            timer.cancel()

    def close(self) -> None:
        for waiter in self._waiters:
            waiter.leave()
        for led in self._watched:
            led.unwatch(self._wake)
        self._waiters, self._watched = [], []

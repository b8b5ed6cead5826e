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
    """Completes when examining its targets again may find more records, or at the deadline. It must watch a target
    before it is examined, or at least without a wait in between: a change in that time would be missed."""

    def __init__(self, clock: Clock, deadline_ms: int) -> None:
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._happened_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched_partitions: list[LedSharePartition] = []
        self._waiters: list[FetchWaiter] = []

    def __repr__(self) -> str:
        has_happened = self._happened_future.done()
        return f"<Change in {len(self._watched_partitions)} share partitions, has happened: {has_happened}>"

    def watch(self, targets: Sequence[Target]) -> None:
        led = [target.led for target in targets if target.led is not None]
        self._watched_partitions += led
        self._waiters.append(FetchWaiter(self._wake, 1, [one.partition for one in led]))
        for one in led:
            one.watch(self._wake)

    def _wake(self) -> None:
        if not self._happened_future.done():
            self._happened_future.set_result(None)

    async def wait(self) -> None:
        timer = self._clock.call_after_ms(max(0, self._deadline_ms - self._clock.monotonic_ms()), self._wake)
        try:
            await self._happened_future
        finally:
            timer.cancel()

    def close(self) -> None:
        for waiter in self._waiters:
            waiter.leave()
        for led in self._watched_partitions:
            led.unwatch(self._wake)
        self._waiters, self._watched_partitions = [], []

"""How a ShareFetch waits: for records, for records that become free, for a state that is loaded, and for its time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.replication.partition import FetchWaiter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.clock import Clock
    from pessoa.broker.share.share_reads import Target


async def wait_for_change(clock: Clock, targets: Sequence[Target], deadline_ms: int) -> None:
    """Return when another look may find more than the last one, or at the deadline."""
    changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not changed.done():
            changed.set_result(None)

    watched = [target.led for target in targets if target.led is not None]
    waiter = FetchWaiter(wake, 1, [led.partition for led in watched])
    for led in watched:
        led.watch(wake)
    timer = clock.call_after_ms(max(0, deadline_ms - clock.monotonic_ms()), wake)
    try:
        await changed
    finally:
        timer.cancel()
        waiter.leave()
        for led in watched:
            led.unwatch(wake)

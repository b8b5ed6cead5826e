"""The purgatory of a partition: waiters for requests that cannot be answered yet. A waiter has a need and a function
that is called when the need is met; the request then looks at the partition again by itself.

    FetchWaiter    a fetch that found too little: so many more bytes must become visible to it
    CommitWaiter   a produce with acks=all, or a coordinator's write: the high watermark must pass some offsets
"""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.replication.partition import Partition


class FetchWaiter:
    """Waits until `needed_bytes` more are visible in any of its partitions: below the high watermark for a consumer, in
    the log for a follower."""

    __slots__ = ("is_follower", "needed_bytes", "partitions", "wake")

    def __init__(
        self,
        wake: Callable[[], None],
        needed_bytes: int,
        partitions: Sequence[Partition],
        *,
        is_follower: bool = False,
    ) -> None:
        # Called for every reason to look again, until it leaves; so more than once.
        self.wake = wake
        self.needed_bytes = needed_bytes
        self.partitions = partitions
        self.is_follower = is_follower
        for partition in partitions:
            (partition.follower_waiters if is_follower else partition.fetch_waiters).append(self)

    def arrived(self, size: int) -> None:
        self.needed_bytes -= size
        if self.needed_bytes <= 0:
            self.wake()

    def leave(self) -> None:
        for partition in self.partitions:
            (partition.follower_waiters if self.is_follower else partition.fetch_waiters).remove(self)


class CommitWaiter:
    """Calls `call` once: after `count` calls of `arrived` or `lost`, one for each offset that it waits for, or when
    woken. `on_lost` is called first when an offset is lost."""

    __slots__ = ("_call", "_offsets_left", "_on_lost")

    def __init__(self, call: Callable[[], object], count: int = 1, on_lost: Callable[[], object] | None = None) -> None:
        # None when it was called, or has left.
        self._call: Callable[[], object] | None = call
        self._offsets_left = count
        self._on_lost = on_lost

    @property
    def is_over(self) -> bool:
        return self._call is None

    def arrived(self) -> None:
        self._offsets_left -= 1
        if self._offsets_left <= 0:
            self.wake()

    def lost(self) -> None:
        """Count one offset as reached, since its partition does not lead any more or its broker stops. The other
        offsets are still waited for: a produce must not answer REQUEST_TIMED_OUT for partitions that are about to reach
        theirs."""
        if self._on_lost is not None and self._call is not None:
            self._on_lost()
        self.arrived()

    def wake(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()

    def leave(self) -> None:
        """Stop waiting. The queues of the partitions drop this waiter later."""
        self._call = self._on_lost = None


class AwaitedWaiter(CommitWaiter):
    """A `CommitWaiter` that a coroutine awaits."""

    __slots__ = ("_woken",)

    def __init__(self) -> None:
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        super().__init__(self._wake_coroutine)

    def _wake_coroutine(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    async def wait(self) -> None:
        try:
            await self._woken
        finally:
            self.leave()


class CommitQueue:
    """Waiters in the order of the offsets that the high watermark must reach for them."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        # Looked at behind every append, where a method would cost more than the look.
        self.waiting: list[tuple[int, CommitWaiter]] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, offset: int, waiter: CommitWaiter) -> None:
        waiting = self.waiting
        if waiting and waiting[0][1].is_over:
            # Waiters that have timed out would otherwise stay for as long as the high watermark does not move.
            given_up = sum(1 for _ in takewhile(lambda one: one[1].is_over, waiting))
            del waiting[:given_up]
        place = len(waiting)
        # Only a repeated batch has a lower offset than the last one.
        while place and waiting[place - 1][0] > offset:
            place -= 1
        waiting.insert(place, (offset, waiter))

    def reached(self, high_watermark: int) -> None:
        count = 0
        for offset, waiter in self.waiting:
            if offset > high_watermark:
                break
            waiter.arrived()
            count += 1
        del self.waiting[:count]

    def lose_all(self) -> None:
        """End the wait of all produce requests: this broker does not lead the partition any more, or stops."""
        waiting, self.waiting = self.waiting, []
        for _, waiter in waiting:
            waiter.lost()

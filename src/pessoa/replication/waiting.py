"""Who waits at a partition: something to call, and a need. They look again themselves when they wake, so nothing here
knows about requests.

    FetchWaiter    a fetch that found too little: so many more bytes must become visible to it
    CommitWaiter   a produce with acks=all, or a coordinator's write: the high watermark must pass some offsets
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from pessoa.replication.partition import Partition


class FetchWaiter:
    """Waits until `needed_bytes` more have become visible in any of the partitions that it stands in: below the high
    watermark for a consumer, in the log for a follower."""

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
    """Waits until something has arrived so many times."""

    __slots__ = ("_left", "future")

    def __init__(self, future: asyncio.Future[None], count: int = 1) -> None:
        self.future = future
        self._left = count

    def arrived(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class CommitQueue:
    """Waiters in the order of the offsets that the high watermark must reach for them."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, CommitWaiter]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, waiter: CommitWaiter) -> None:
        waiting = self._waiting
        if waiting and waiting[0][1].future.done():
            # Whoever gave up would otherwise stay for as long as the watermark stands still.
            given_up = sum(1 for _ in takewhile(lambda one: one[1].future.done(), waiting))
            del waiting[:given_up]
        place = len(waiting)
        # Only a repeated batch has a lower offset than the last one.
        while place and waiting[place - 1][0] > offset:
            place -= 1
        waiting.insert(place, (offset, waiter))

    def reached(self, high_watermark: int) -> None:
        count = 0
        for offset, waiter in self._waiting:
            if offset > high_watermark:
                break
            waiter.arrived()
            count += 1
        del self._waiting[:count]

    def wake_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            waiter.wake()

"""The deadlines of a shard: one per key, with what to do when it passes.

Sessions are put off with every heartbeat and nearly never expire, so putting off must be cheap: the new deadline is
noted and the entry in the heap stays where it is. When that entry comes up it is put back at the noted deadline.
Hence `next_deadline_ms` may be early, never late; an early call of `pop_due` finds nothing to do.

A clock that is slewed moves all deadlines every few seconds, so `shift` must be cheap too: what is stored is counted
from `_shift_ms`, the sum of all shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pessoa.coordinator.shard import Output

Action = Callable[[int], "Output"]


class _Timer(NamedTuple):
    deadline_ms: int
    # Where its entry stands in the heap: at the deadline, or before it.
    entry_ms: int
    # Tells the entry from older ones of the same key, and two of the same moment from each other.
    number: int
    action: Action


class Timers:
    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._scheduled_count = 0
        self._shift_ms = 0

    def __repr__(self) -> str:
        return f"<Timers: {len(self._timers)}, the next at {self.next_deadline_ms()}>"

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def deadline_ms(self, key: Hashable) -> int | None:
        timer = self._timers.get(key)
        return None if timer is None else timer.deadline_ms + self._shift_ms

    def schedule(self, key: Hashable, deadline_ms: int, action: Action) -> None:
        """Set the timer of `key`, in place of an earlier one."""
        deadline_ms -= self._shift_ms
        timer = self._timers.get(key)
        if timer is not None and timer.entry_ms <= deadline_ms:
            self._timers[key] = _Timer(deadline_ms, timer.entry_ms, timer.number, action)
            return
        self._scheduled_count += 1
        self._timers[key] = _Timer(deadline_ms, deadline_ms, self._scheduled_count, action)
        heappush(self._heap, (deadline_ms, self._scheduled_count, key))

    def cancel(self, key: Hashable) -> None:
        self._timers.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap:
            entry_ms, number, key = heap[0]
            timer = self._timers.get(key)
            if timer is not None and timer.number == number:
                return entry_ms + self._shift_ms
            heappop(heap)
        return None

    def pop_due(self, now_ms: int) -> Action | None:
        """Remove the earliest timer whose deadline has passed, and return its action; None if there is none."""
        while (entry_ms := self.next_deadline_ms()) is not None and entry_ms <= now_ms:
            _, number, key = heappop(self._heap)
            timer = self._timers[key]
            if timer.deadline_ms + self._shift_ms <= now_ms:
                del self._timers[key]
                return timer.action
            self._timers[key] = timer._replace(entry_ms=timer.deadline_ms)
            heappush(self._heap, (timer.deadline_ms, number, key))
        return None

    def shift(self, by_ms: int) -> None:
        """Move every deadline by `by_ms`: the clock has jumped."""
        self._shift_ms += by_ms

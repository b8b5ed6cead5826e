"""The records in flight of a share partition: runs of offsets in equal state, without a hole from start to end.

    start_offset                                                            end_offset (exclusive)
    ▼                                                                       ▼
    [available 1][acquired by a until t, 1][acknowledged 1][acquired by b …]

Every record below the start offset is done with, every record from the end offset on has never been acquired. If
nothing is in flight both are the same. A run is an immutable value: a change makes the runs that take the place of
others and puts them there in one step, so a change that is refused half-way has changed nothing.

A run in `transition` has its new state, but the write that stores it (its number) is not confirmed. It can be neither
acquired nor acknowledged. Its member and deadline are still those under which it was acquired: a write that fails
makes it ACQUIRED again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from pessoa.share.state_batches import DeliveryState, StateBatch

NO_MEMBER = ""
NO_TRANSITION = 0
_last_offset = attrgetter("last_offset")


class Run(NamedTuple):
    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int = 0
    # How many offsets were acquired together when this was delivered for the first time (`acquisition`).
    batch_size: int = 0
    # Of the lock; they mean something if the run is ACQUIRED or in transition.
    member_id: str = NO_MEMBER
    deadline_ms: int = 0
    # The number of the write that must succeed.
    transition: int = NO_TRANSITION

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def is_available(self) -> bool:
        return self.state is DeliveryState.AVAILABLE and not self.transition

    @property
    def is_acquired(self) -> bool:
        return self.state is DeliveryState.ACQUIRED

    @property
    def is_done(self) -> bool:
        return self.state.is_terminal and not self.transition

    def clip(self, first_offset: int, last_offset: int) -> Run:
        """Return the part of this run that lies between the offsets, both included."""
        if first_offset <= self.first_offset and last_offset >= self.last_offset:
            return self
        return self._replace(
            first_offset=max(first_offset, self.first_offset), last_offset=min(last_offset, self.last_offset)
        )

    def to_batch(self) -> StateBatch:
        return StateBatch(self.first_offset, self.last_offset, self.state, self.delivery_count)


class InFlight:
    """The runs of the records in flight. Invariant: they cover [start_offset, end_offset) in order, each offset
    once."""

    def __init__(self, start_offset: int, runs: Sequence[Run] = ()) -> None:
        self._start_offset = start_offset
        self._runs = list(runs)
        # No run before this offset is available: where a search for one begins.
        self._search_from = start_offset

    def __repr__(self) -> str:
        return f"<InFlight [{self.start_offset}, {self.end_offset}): {len(self._runs)} runs>"

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        return self._runs[-1].last_offset + 1 if self._runs else self._start_offset

    @property
    def span(self) -> int:
        return self.end_offset - self._start_offset

    @property
    def runs(self) -> Sequence[Run]:
        return self._runs

    @property
    def done_count(self) -> int:
        """How many offsets are acknowledged or archived, including those whose state is still being stored."""
        return sum(run.size for run in self._runs if run.state.is_terminal)

    def first_available_offset(self) -> int:
        """Return the first offset that a member can acquire: of an available run, otherwise the end offset."""
        for index in range(self._index(self._search_from), len(self._runs)):
            if self._runs[index].is_available:
                self._search_from = self._runs[index].first_offset
                return self._search_from
        self._search_from = self.end_offset
        return self._search_from

    def between(self, first_offset: int, last_offset: int) -> Iterator[Run]:
        """Yield the runs of these offsets, both included, the outer ones clipped; none if the first is behind the
        last."""
        if first_offset > last_offset:
            return
        for index in range(self._index(first_offset), len(self._runs)):
            run = self._runs[index]
            if run.first_offset > last_offset:
                return
            yield run.clip(first_offset, last_offset)

    def overwrite(self, runs: Sequence[Run]) -> None:
        """Replace the runs of the same offsets by these. They follow each other without a gap, begin between start
        and end offset, and may extend beyond the end."""
        if not runs:
            return
        first_offset, last_offset = runs[0].first_offset, runs[-1].last_offset
        assert self._start_offset <= first_offset <= self.end_offset, f"{self} has no place for {runs[0]}"
        low, high = self._index(first_offset), self._index(last_offset)
        changed = list(runs)
        if low < len(self._runs) and self._runs[low].first_offset < first_offset:
            changed.insert(0, self._runs[low].clip(0, first_offset - 1))
        if high < len(self._runs):
            behind = self._runs[high]
            if behind.last_offset > last_offset:
                changed.append(behind.clip(last_offset + 1, behind.last_offset))
            high += 1
        self._runs[low:high] = changed
        self._search_from = min(self._search_from, first_offset)

    def change_all(self, change: Callable[[Run], Run]) -> bool:
        """Replace every run by `change(run)`, which keeps the offsets. Return True if any run has changed."""
        changed = [change(run) for run in self._runs]
        if changed == self._runs:
            return False
        self._runs = changed
        self._search_from = self._start_offset
        return True

    def pass_done(self) -> bool:
        """Move the start offset past the acknowledged and archived records at the front. Return True if it moved."""
        count = next((index for index, run in enumerate(self._runs) if not run.is_done), len(self._runs))
        if count:
            self._drop_below(self._runs[count - 1].last_offset + 1)
        return bool(count)

    def begin_at(self, start_offset: int) -> bool:
        """Remove all runs below `start_offset`: the log has deleted their records. Return True if the start offset
        has moved."""
        if start_offset <= self._start_offset:
            return False
        self._drop_below(start_offset)
        return True

    def _drop_below(self, start_offset: int) -> None:
        del self._runs[: self._index(start_offset)]
        if self._runs:
            self._runs[0] = self._runs[0].clip(start_offset, self._runs[0].last_offset)
        self._start_offset = start_offset
        self._search_from = max(self._search_from, start_offset)

    def _index(self, offset: int) -> int:
        """Return the index of the run with this offset; the number of runs for offsets from the end offset on."""
        return bisect_left(self._runs, offset, key=_last_offset)

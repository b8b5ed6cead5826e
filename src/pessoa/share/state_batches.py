"""The stored form of records in flight: batches of offsets with a delivery state and a delivery count.

What is stored grows by writes that carry only what has changed, and `combine` makes one state of the old and the new.
Where both speak of an offset the higher (count, state) wins: along the transitions of a record both only grow, so the
order in which writes arrive does not matter. Neighbours that are alike become one batch, and what lies below the start
offset is cut off.

    stored  [0─────9 available 1][10──19 acknowledged 1]
    new          [5──12 archived 2]                        start offset 3
    gives   [3─4 a 1][5──12 archived 2][13─19 acknowledged 1]
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple


class DeliveryState(IntEnum):
    """KIP-932's states of a record in flight. ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    # Only Kafka 4.4 writes it: the record is on its way to a dead-letter topic (KIP-1191).
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        return self >= DeliveryState.ACKNOWLEDGED


class StateBatch(NamedTuple):
    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key by which the newer of two batches with the same offset is found: the higher rank wins."""
        return self.delivery_count, self.state


def combine(stored: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return the batches of both as one state: in order, without overlap, from `start_offset` on.

    Both may overlap themselves. It takes O(n log n): a sweep over the borders of all batches, with those that cover
    the present offset in a heap, the highest rank first.
    """
    batches = sorted(batch for batch in (*stored, *new) if batch.last_offset >= start_offset)
    combined: list[StateBatch] = []
    covering: list[tuple[int, int, int]] = []  # negated count and state, last offset
    offset = start_offset
    index = 0
    while index < len(batches) or covering:
        if not covering:
            offset = max(offset, batches[index].first_offset)
        while index < len(batches) and batches[index].first_offset <= offset:
            batch = batches[index]
            heappush(covering, (-batch.delivery_count, -batch.state, batch.last_offset))
            index += 1
        while covering and covering[0][2] < offset:
            heappop(covering)
        if not covering:
            continue
        count, state, last_offset = covering[0]
        if index < len(batches):
            # The next batch may outrank this one.
            last_offset = min(last_offset, batches[index].first_offset - 1)
        _append(combined, StateBatch(offset, last_offset, DeliveryState(-state), -count))
        offset = last_offset + 1
    return combined


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    if combined and combined[-1].last_offset + 1 == batch.first_offset and combined[-1].rank == batch.rank:
        combined[-1] = combined[-1]._replace(last_offset=batch.last_offset)
    else:
        combined.append(batch)

"""Keys in the order of times, in a state without scans: what falls due when stream time passes.

    first           the smallest time
    node (l, p)     level l of a tree of bytes: which bytes follow the prefix p in the times, ascending
    time t          how many members it has
    (t, i)          member i: bytes

A time is eight bytes, so the tree has eight levels, and a node at most 256 bytes. Adding to a time that is known costs
one number and one member; looking whether anything is due costs one number. A member cannot be taken out before its
time: who pops it looks whether it still counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from pessoa.ksql.operators.state_store import StateStore

_FIRST = b"first"
_LEVELS = 8


def _key(kind: bytes, time_ms: int) -> bytes:
    return kind + time_ms.to_bytes(_LEVELS, "big")


class TimeIndex:
    """An index of members, which are bytes, by their times, which begin at 0."""

    def __init__(self, state: StateStore, name: str) -> None:
        self._state = state
        self._name = name

    def add(self, time_ms: int, member: bytes) -> None:
        count_key = _key(b"n", time_ms)
        data = self._state.get(self._name, count_key)
        count = 0 if data is None else int.from_bytes(data, "big")
        if data is None:
            self._add_time(time_ms.to_bytes(_LEVELS, "big"))
        self._state.put(self._name, count_key, (count + 1).to_bytes(6, "big"))
        self._state.put(self._name, _key(b"m", time_ms) + count.to_bytes(6, "big"), member)

    def _add_time(self, time: bytes) -> None:
        first = self._state.get(self._name, _FIRST)
        if first is None or time < first:
            self._state.put(self._name, _FIRST, time)
        for level in range(_LEVELS - 1, -1, -1):
            place = b"t" + time[:level]
            node = self._state.get(self._name, place)
            if node is None:
                # The node is new, and its parent does not know it.
                self._state.put(self._name, place, time[level : level + 1])
                continue
            position = bisect_left(node, time[level])
            if node[position : position + 1] != time[level : level + 1]:
                self._state.put(self._name, place, node[:position] + time[level : level + 1] + node[position:])
            return

    def _remove_time(self, time: bytes) -> None:
        for level in range(_LEVELS - 1, -1, -1):
            place = b"t" + time[:level]
            node = self._state.get(self._name, place)
            assert node is not None
            position = bisect_left(node, time[level])
            left = node[:position] + node[position + 1 :]
            if left:
                self._state.put(self._name, place, left)
                return
            self._state.delete(self._name, place)

    def _smallest(self) -> bytes | None:
        time = b""
        for _ in range(_LEVELS):
            node = self._state.get(self._name, b"t" + time)
            if node is None:
                return None
            time += node[:1]
        return time

    def pop_before(self, end_ms: int) -> Iterator[tuple[int, bytes]]:
        """Yield all members with a time below the end, in order of time and arrival, and remove them."""
        while True:
            first = self._state.get(self._name, _FIRST)
            if first is None or int.from_bytes(first, "big") >= end_ms:
                return
            # Forgotten first: what is done with a member may add others.
            self._remove_time(first)
            smallest = self._smallest()
            if smallest is None:
                self._state.delete(self._name, _FIRST)
            else:
                self._state.put(self._name, _FIRST, smallest)
            yield from self._pop_time(int.from_bytes(first, "big"))

    def _pop_time(self, time_ms: int) -> Iterator[tuple[int, bytes]]:
        count_key = _key(b"n", time_ms)
        data = self._state.get(self._name, count_key)
        assert data is not None
        self._state.delete(self._name, count_key)
        for index in range(int.from_bytes(data, "big")):
            key = _key(b"m", time_ms) + index.to_bytes(6, "big")
            member = self._state.get(self._name, key)
            assert member is not None
            self._state.delete(self._name, key)
            yield time_ms, member


class StreamTime:
    """The highest timestamp that an operator of a task has seen."""

    def __init__(self, state: StateStore, name: str) -> None:
        self._state = state
        self._name = name

    def advance(self, timestamp_ms: int) -> int:
        """Advance stream time by an event with this timestamp, and return it."""
        data = self._state.get(self._name, b"time")
        seen = -1 if data is None else int.from_bytes(data, "big", signed=True)
        if timestamp_ms <= seen:
            return seen
        self._state.put(self._name, b"time", timestamp_ms.to_bytes(8, "big", signed=True))
        return timestamp_ms

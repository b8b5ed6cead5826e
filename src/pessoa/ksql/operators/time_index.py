"""Keys in the order of times, in a state without scans: what falls due when stream time passes.

    root            the buckets that have times, ascending
    bucket b        the times in it, ascending
    time t          how many members it has
    (t, i)          member i: bytes

Adding to a time that is known costs one number and one member. A member cannot be taken out before its time: who pops
it looks whether it still counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import cast

from pessoa.ksql.operators.row_packing import pack, unpack
from pessoa.ksql.operators.state_store import StateStore

_ROOT = b"root"
# So many different times in a bucket, if they are evenly spaced.
TIMES_IN_BUCKET = 256


def _key(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(9, "big", signed=True)


class TimeIndex:
    def __init__(self, state: StateStore, name: str, step_ms: int) -> None:
        """`step_ms` is how far apart times are, roughly: buckets are a few hundred of them wide."""
        self._state = state
        self._name = name
        self._width = max(1, step_ms) * TIMES_IN_BUCKET

    def _times(self, key: bytes) -> list[int]:
        data = self._state.get(self._name, key)
        return [] if data is None else cast("list[int]", unpack(data))

    def add(self, time_ms: int, member: bytes) -> None:
        count_key = _key(b"n", time_ms)
        data = self._state.get(self._name, count_key)
        count = 0 if data is None else int.from_bytes(data, "big")
        if data is None:
            self._add_time(time_ms)
        self._state.put(self._name, count_key, (count + 1).to_bytes(6, "big"))
        self._state.put(self._name, _key(b"m", time_ms) + count.to_bytes(6, "big"), member)

    def _add_time(self, time_ms: int) -> None:
        bucket = time_ms // self._width
        times = self._times(_key(b"b", bucket))
        if not times:
            root = self._times(_ROOT)
            insort(root, bucket)
            self._state.put(self._name, _ROOT, pack(root))
        insort(times, time_ms)
        self._state.put(self._name, _key(b"b", bucket), pack(times))

    def pop_before(self, end_ms: int) -> Iterator[tuple[int, bytes]]:
        """Return all members with a time below the end, in order of time and arrival, and forget them."""
        while True:
            root = self._times(_ROOT)
            if not root or root[0] * self._width >= end_ms:
                return
            bucket_key = _key(b"b", root[0])
            times = self._times(bucket_key)
            due = bisect_left(times, end_ms)
            if not due:
                return
            # Forgotten first: what is done with a member may add others.
            if due == len(times):
                self._state.delete(self._name, bucket_key)
                self._state.put(self._name, _ROOT, pack(root[1:]))
            else:
                self._state.put(self._name, bucket_key, pack(times[due:]))
            for time_ms in times[:due]:
                yield from self._pop_time(time_ms)

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
        """Return stream time behind an event with this timestamp."""
        data = self._state.get(self._name, b"time")
        seen = -1 if data is None else int.from_bytes(data, "big", signed=True)
        if timestamp_ms <= seen:
            return seen
        self._state.put(self._name, b"time", timestamp_ms.to_bytes(8, "big", signed=True))
        return timestamp_ms

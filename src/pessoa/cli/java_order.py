"""The order in which Java's HashMap hands out its keys.

Kafka's tools print many things in the order of a HashMap. It is an accident, but one that never changes: scripts have
been written, and transcripts taken, with the lines in that order. So where a tool prints from a map, we print in the
order that the map would have had.

A HashMap is an array of buckets, twice as long whenever it is three quarters full, and a key's bucket is the low bits
of its hash with the high half folded in. Keys of one bucket come in the order in which they were put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")

_INT_MASK = 0xFFFF_FFFF
_SMALLEST_TABLE = 16


def string_hash(text: str) -> int:
    """`String.hashCode()`, as an unsigned number."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & _INT_MASK
    return value


def partition_hash(key: tuple[str, int]) -> int:
    """`TopicPartition.hashCode()`."""
    topic, partition = key
    return (31 * (31 + partition) + string_hash(topic)) & _INT_MASK


def int_hash(number: int) -> int:
    return number & _INT_MASK


def hash_order(keys: Iterable[K], hash_of: Callable[[K], int], *, capacity: int = _SMALLEST_TABLE) -> list[K]:
    """The keys as a HashMap of that initial capacity would list them after they were put in this order."""
    ordered = list(keys)
    capacity = 1 << max(0, capacity - 1).bit_length()
    while len(ordered) > capacity * 3 // 4:
        capacity *= 2

    def bucket(key: K) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & (capacity - 1)

    return sorted(ordered, key=bucket)

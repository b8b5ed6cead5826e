"""The order in which Java's hash tables hand out their keys.

Apache Kafka lists many things in the order of a hash table: what its tools print, and groups, members, partitions and
transactions in its answers. It is an accident, but one that never changes: scripts have been written, and transcripts
taken, with the lines in that order. So where Kafka lists from a table, we list in the order that the table would have.

    table                               bucket of a key                       keys of one bucket         grows
    HashMap, put                        low bits, high half folded in         as they were put           beyond 3/4
    HashMap, computeIfAbsent            the same                              the last one first         one key later
    ConcurrentHashMap, Scala's HashMap  the same                              as they were put           at 3/4
    Kafka's TimelineHashMap             high bits of a product (Fibonacci)    the last one first         beyond 4/3

A table never shrinks, so after much has been removed Kafka's may be larger than the one that is assumed here: that of
the keys that are there. And keys of one bucket come in the order in which they were put, if it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")

_INT_MASK = 0xFFFF_FFFF
_LONG_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SMALLEST_TABLE = 16
_SMALLEST_TIMELINE = 2
# 2⁶⁴ divided by the golden ratio.
_FIBONACCI = 0x9E37_79B9_7F4A_7C15


def string_hash(text: str) -> int:
    """Return `String.hashCode()`, as an unsigned number, as all hash functions of this file do."""
    value = 0
    units = text.encode() if text.isascii() else memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) & _INT_MASK
    return value


def partition_hash(key: tuple[str, int]) -> int:
    """Return `TopicPartition.hashCode()`."""
    topic, partition = key
    return (31 * (31 + partition) + string_hash(topic)) & _INT_MASK


def int_hash(number: int) -> int:
    return number & _INT_MASK


def long_hash(number: int) -> int:
    """Return `Long.hashCode()`."""
    number &= _LONG_MASK
    return (number >> 32 ^ number) & _INT_MASK


def uuid_hash(uuid: bytes) -> int:
    """Return `hashCode()` of Kafka's `Uuid`."""
    return long_hash(int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big"))


def hash_order(keys: Iterable[K], hash_of: Callable[[K], int], *, capacity: int = _SMALLEST_TABLE) -> list[K]:
    """Return the keys in the order in which a HashMap of that initial capacity lists them, if they were put in this
    order."""
    ordered = list(keys)
    capacity = 1 << max(0, capacity - 1).bit_length()
    while len(ordered) > capacity * 3 // 4:
        capacity *= 2
    return _by_low_bits(ordered, hash_of, capacity)


def copied_hash_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return the keys in the order in which a HashSet that was made from a collection of them lists them."""
    ordered = list(keys)
    return hash_order(ordered, hash_of, capacity=max(len(ordered) * 4 // 3 + 1, _SMALLEST_TABLE))


def described_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return the keys in the order in which Java's Admin lists topics that it described: from a HashMap of their
    number, copied into another of the capacity that copies have, and put into one of their number again."""
    ordered = list(keys)
    count = len(ordered)
    for capacity in (count, count * 4 // 3 + 1, count):
        ordered = hash_order(ordered, hash_of, capacity=capacity)
    return ordered


def computed_hash_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return the keys in the order in which a HashMap lists them after `computeIfAbsent` of each in this order."""
    ordered = list(keys)[::-1]
    capacity = _SMALLEST_TABLE
    while len(ordered) - 1 > capacity * 3 // 4:
        capacity *= 2
    return _by_low_bits(ordered, hash_of, capacity)


def concurrent_hash_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return the keys in the order in which a ConcurrentHashMap, or Scala's mutable HashMap, lists them."""
    ordered = list(keys)
    capacity = _SMALLEST_TABLE
    while len(ordered) >= capacity * 3 // 4:
        capacity *= 2
    return _by_low_bits(ordered, hash_of, capacity)


def timeline_order(keys: Iterable[K], hash_of: Callable[[K], int], *, are_put_again: bool = False) -> list[K]:
    """Return the keys in the order in which Kafka's TimelineHashMap lists them. A key that is put again, for another
    value, makes the table grow as if it were one more."""
    ordered = list(keys)[::-1]
    bits = _SMALLEST_TIMELINE.bit_length() - 1
    while (len(ordered) + are_put_again) * 3 > 4 << bits:
        bits += 1

    def bucket(key: K) -> int:
        value = hash_of(key)
        signed = value - (value >> 31 << 32)
        return (signed * _FIBONACCI & _LONG_MASK) >> 64 - bits

    return sorted(ordered, key=bucket)


def _by_low_bits(ordered: list[K], hash_of: Callable[[K], int], capacity: int) -> list[K]:
    def bucket(key: K) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & (capacity - 1)

    return sorted(ordered, key=bucket)

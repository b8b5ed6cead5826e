"""Which partition of an internal topic keeps the state of a group or a transactional id.

Kafka takes the hash of the id as Java computes it for a string, without its sign, modulo the number of partitions.
Every broker and FindCoordinator must come to the same partition, so it is this hash and no other.
"""

from __future__ import annotations

_MASK = (1 << 32) - 1
_SIGN = 1 << 31


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32 bits with a sign."""
    value = 0
    if text.isascii():
        for byte in text.encode("ascii"):
            value = (value * 31 + byte) & _MASK
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(units), 2):
            value = (value * 31 + (units[position] << 8 | units[position + 1])) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of `key`. Kafka takes 0 for the absolute value of the one number that has none in 32 bits."""
    value = java_string_hash(key)
    return (0 if value == -_SIGN else abs(value)) % partition_count

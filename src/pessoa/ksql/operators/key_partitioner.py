"""The partition of a key: murmur2 as the Java producer computes it, so that rows lie where other writers put them."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of Kafka's partitioner, unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for index in range(0, whole, 4):
        k = int.from_bytes(data[index : index + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count

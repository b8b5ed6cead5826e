"""Which partition of an internal topic keeps the state of a group or a transactional id.

Kafka takes the hash of the id as Java computes it for a string, without its sign, modulo the number of partitions.
Every broker and FindCoordinator must come to the same partition, so it is this hash and no other.
"""

from __future__ import annotations

from pessoa.base.java_order import string_hash

_SIGN = 1 << 31


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of `key`: its Java hash code, made positive as in Kafka (0 for the smallest int), modulo the
    partition count."""
    value = string_hash(key)
    if value > _SIGN:
        value = (1 << 32) - value
    return (0 if value == _SIGN else value) % partition_count

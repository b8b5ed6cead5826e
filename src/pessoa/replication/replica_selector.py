"""Which replica a consumer should read from (KIP-392): one in its own rack, where there is one that can serve it.

Only in-sync replicas come into question, and of them those that have the offset. If the leader is in the consumer's
rack, it is the best there is; among several others the one that is furthest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.metadata.image import MetadataImage
    from pessoa.replication.partition import Partition

# The value of `replica.selector.class` that means this; without it every consumer reads from the leader.
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def replica_in_rack(image: MetadataImage, partition: Partition, rack: str, offset: int) -> int | None:
    """Return the replica in the consumer's rack that `offset` can be read from; None for the leader."""
    if partition.in_sync is None or _rack_of(image, partition.leader_id) == rack:
        return None
    candidates = [
        follower
        for follower in partition.in_sync.followers.values()
        if follower.broker_id in partition.isr
        and follower.log_start_offset <= offset <= follower.log_end_offset
        and _rack_of(image, follower.broker_id) == rack
    ]
    if not candidates:
        return None
    return max(candidates, key=lambda one: (one.log_end_offset, one.caught_up_ms)).broker_id


def _rack_of(image: MetadataImage, broker_id: int) -> str | None:
    broker = image.cluster.brokers.get(broker_id)
    return None if broker is None or broker.fenced else broker.rack

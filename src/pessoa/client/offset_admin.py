"""Offsets of partitions, asked of the leader of each: by time, at the ends, or the last stable one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.client_errors import RequestFailed, Unsupported
from pessoa.client.topic_admin import metadata
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pessoa.client.cluster_client import Cluster

TopicPartition = tuple[str, int]

# Timestamps with a special meaning in ListOffsets.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_READ_UNCOMMITTED = 0


class FoundOffset(NamedTuple):
    offset: int  # -1 where there is no such record
    timestamp: int
    leader_epoch: int


def leaders(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Return the leader of every partition of these topics, -1 for a partition without a leader."""
    return {
        (topic.name, part.partition): part.leader
        for topic in metadata(cluster, sorted(set(topics)), strict=False)
        for part in topic.partitions
    }


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation_level: int = _READ_UNCOMMITTED
) -> dict[TopicPartition, FoundOffset | RequestFailed]:
    """Return for each partition the offset at its timestamp, or the error with which its leader refused."""
    known = leaders(cluster, (topic for topic, _ in wanted))
    found: dict[TopicPartition, FoundOffset | RequestFailed] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        leader = known.get(partition)
        if leader is None:
            found[partition] = RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif leader < 0:
            found[partition] = RequestFailed(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            by_leader.setdefault(leader, []).append(partition)
    for leader, partitions in sorted(by_leader.items()):
        part = {partition: wanted[partition] for partition in partitions}
        try:
            found |= _at_leader(cluster, leader, part, isolation_level)
        except Unsupported:
            # A leader that cannot answer one kind of question says so for every partition.
            found |= {partition: RequestFailed(ErrorCode.UNSUPPORTED_VERSION) for partition in part}
    return found


def _at_leader(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, FoundOffset | RequestFailed]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in wanted.items():
        one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics.setdefault(topic, []).append(one)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        timeout_ms=cluster.api_timeout_ms,
    )
    answer = cluster.ask(request, ListOffsetsResponse, node=leader, name="listOffsets")
    return {
        (topic.name, part.partition_index): RequestFailed(part.error_code)
        if part.error_code
        else FoundOffset(part.offset, part.timestamp, part.leader_epoch)
        for topic in answer.topics
        for part in topic.partitions
    }


def offset_or_none(found: FoundOffset | RequestFailed | None) -> int | None:
    return found.offset if isinstance(found, FoundOffset) and found.offset >= 0 else None

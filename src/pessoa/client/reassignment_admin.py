"""Moving replicas between brokers and directories: what is under way, beginning, cancelling, where replicas lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.client_errors import RequestFailed, check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition


class Ongoing(NamedTuple):
    replicas: list[int]
    adding: list[int]
    removing: list[int]


def list_reassignments(cluster: Cluster) -> dict[TopicPartition, Ongoing]:
    from pessoa.wire.api.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )

    request = ListPartitionReassignmentsRequest(timeout_ms=cluster.api_timeout_ms, topics=None)
    answer = cluster.ask(request, ListPartitionReassignmentsResponse, name="listPartitionReassignments")
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, part.partition_index): Ongoing(part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    }


def alter_reassignments(
    cluster: Cluster, wanted: Mapping[TopicPartition, list[int] | None], *, allow_factor_change: bool = True
) -> dict[TopicPartition, RequestFailed]:
    """Start to move partitions to these replicas, or cancel with None. Return the partitions that were refused."""
    from pessoa.wire.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in wanted.items():
        topics.setdefault(topic, []).append(ReassignablePartition(partition_index=number, replicas=replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.api_timeout_ms,
        allow_replication_factor_change=allow_factor_change,
        topics=[ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    answer = cluster.ask(request, AlterPartitionReassignmentsResponse, name="alterPartitionReassignments")
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, part.partition_index): RequestFailed(part.error_code, part.error_message)
        for topic in answer.responses
        for part in topic.partitions
        if part.error_code
    }


def replica_directories(cluster: Cluster, brokers: Iterable[int]) -> dict[tuple[str, int, int], tuple[str, str | None]]:
    """Return for each topic, partition and broker the directory of the replica, and the one it is being moved to."""
    from pessoa.wire.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    current: dict[tuple[str, int, int], str] = {}
    future: dict[tuple[str, int, int], str] = {}
    for broker in sorted(set(brokers)):
        answer = cluster.ask(
            DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node=broker, name="describeLogDirs"
        )
        for one in answer.results:
            for topic in one.topics:
                for part in topic.partitions:
                    where = future if part.is_future_key else current
                    where[topic.name, part.partition_index, broker] = one.log_dir
    return {key: (path, future.get(key)) for key, path in current.items()}


def move_directories(
    cluster: Cluster, broker: int, wanted: Mapping[TopicPartition, str]
) -> dict[TopicPartition, RequestFailed]:
    from pessoa.wire.api.alter_replica_log_dirs import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopic,
    )

    paths: dict[str, dict[str, list[int]]] = {}
    for (topic, number), path in wanted.items():
        paths.setdefault(path, {}).setdefault(topic, []).append(number)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
            )
            for path, topics in paths.items()
        ]
    )
    answer = cluster.ask(request, AlterReplicaLogDirsResponse, node=broker, name="alterReplicaLogDirs")
    return {
        (topic.topic_name, part.partition_index): RequestFailed(part.error_code)
        for topic in answer.results
        for part in topic.partitions
        if part.error_code
    }

"""Topics and their partitions: list, describe, create, extend, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.client.client_errors import RequestFailed, check
from pessoa.client.cluster_client import Node
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pessoa.client.cluster_client import Cluster

Assignment = list[list[int]]


class PartitionInfo(NamedTuple):
    partition: int
    leader: int  # -1 without one
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    # None where the broker does not say (KIP-966).
    eligible_leaders: list[int] | None = None
    last_known_eligible: list[int] | None = None


class TopicInfo(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[PartitionInfo]


class NewTopic(NamedTuple):
    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Assignment | None = None
    configs: Mapping[str, str] = {}


def list_topics(cluster: Cluster, *, internal: bool = True) -> dict[str, TopicInfo]:
    """Return every topic by name."""
    found = metadata(cluster, None, name="listTopics")
    return {topic.name: topic for topic in found if internal or not topic.is_internal}


def metadata(
    cluster: Cluster, names: Iterable[str] | None, *, name: str = "describeTopics", strict: bool = True
) -> list[TopicInfo]:
    """Return the Metadata of these topics, or of all. Topics that do not exist raise if `strict`, else are left out."""
    wanted = None if names is None else [MetadataRequestTopic(name=topic) for topic in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return cluster.retried(lambda: _metadata(cluster, request, name, strict), name=name) if strict else _metadata(
        cluster, request, name, strict
    )  # fmt: skip


def topics_by_id(cluster: Cluster, ids: Iterable[Uuid]) -> list[TopicInfo]:
    wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    return _metadata(cluster, MetadataRequest(topics=wanted, allow_auto_topic_creation=False), "describeTopics", False)


def _metadata(cluster: Cluster, request: MetadataRequest, name: str, strict: bool) -> list[TopicInfo]:
    answer = cluster.ask(request, MetadataResponse, name=name)
    cluster.remember([Node(one.node_id, one.host, one.port, one.rack) for one in answer.brokers])
    topics = []
    for one in answer.topics:
        if one.error_code:
            # A retry does not create a topic, so an error that Kafka calls retriable is final here.
            if strict or one.error_code not in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ):
                raise RequestFailed(one.error_code)
            continue
        partitions = [
            PartitionInfo(part.partition_index, part.leader_id, part.leader_epoch, part.replica_nodes, part.isr_nodes)
            for part in sorted(one.partitions, key=lambda part: part.partition_index)
        ]
        topics.append(TopicInfo(one.name or "", one.topic_id, one.is_internal, partitions))
    return topics


def describe_topics(cluster: Cluster, names: Sequence[str], page_size: int = 2000) -> list[TopicInfo]:
    """Return the topics with their partitions, and with eligible leader replicas if the broker supports them."""
    from pessoa.wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest
    from pessoa.wire.catalogue import ApiKey

    if not names:
        return []
    served = {row.api_key for row in cluster.connection().api_versions.api_keys}
    if ApiKey.DESCRIBE_TOPIC_PARTITIONS not in served:
        return metadata(cluster, names)
    assert DescribeTopicPartitionsRequest.api_key == ApiKey.DESCRIBE_TOPIC_PARTITIONS
    topics: dict[str, TopicInfo] = {}
    for page in _described_pages(cluster, names, page_size):
        # A topic may go on on the next page.
        known = topics.setdefault(page.name, page)
        if known is not page:
            known.partitions.extend(page.partitions)
    return list(topics.values())


def _described_pages(cluster: Cluster, names: Sequence[str], page_size: int) -> Iterator[TopicInfo]:
    from pessoa.wire.api.describe_topic_partitions import (
        Cursor,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        TopicRequest,
    )

    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in sorted(names) if cursor is None or name >= cursor.topic_name],
            response_partition_limit=page_size,
            cursor=cursor,
        )
        answer = cluster.ask(request, DescribeTopicPartitionsResponse, name="describeTopics")
        for one in answer.topics:
            check(one.error_code)
            partitions = [
                PartitionInfo(
                    part.partition_index,
                    part.leader_id,
                    part.leader_epoch,
                    part.replica_nodes,
                    part.isr_nodes,
                    part.eligible_leader_replicas,
                    part.last_known_elr,
                )
                for part in one.partitions
            ]
            yield TopicInfo(one.name or "", one.topic_id, one.is_internal, partitions)
        if answer.next_cursor is None:
            return
        following = answer.next_cursor
        cursor = Cursor(topic_name=following.topic_name, partition_index=following.partition_index)


def create_topic(cluster: Cluster, topic: NewTopic) -> None:
    from pessoa.wire.api.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(topic.assignment or ())
    ]
    wanted = CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=cluster.api_timeout_ms)

    def attempt() -> None:
        result = cluster.ask(request, CreateTopicsResponse, name="createTopics").topics[0]
        check(result.error_code, result.error_message)

    cluster.retried(attempt, name="createTopics")


def create_partitions(cluster: Cluster, totals: Mapping[str, tuple[int, Assignment | None]]) -> None:
    """Extend each topic to its total of partitions; an assignment, if given, is for the new partitions."""
    from pessoa.wire.api.create_partitions import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assignment is None
            else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignment],
        )
        for name, (count, assignment) in totals.items()
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=cluster.api_timeout_ms, validate_only=False)

    def attempt() -> None:
        for result in cluster.ask(request, CreatePartitionsResponse, name="createPartitions").results:
            check(result.error_code, result.error_message)

    cluster.retried(attempt, name="createPartitions")


def delete_topics(cluster: Cluster, names: Sequence[str]) -> None:
    from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names], timeout_ms=cluster.api_timeout_ms
    )
    failed: RequestFailed | None = None
    for result in cluster.ask(request, DeleteTopicsResponse, name="deleteTopics").responses:
        if result.error_code and failed is None:
            failed = RequestFailed(result.error_code, result.error_message)
    if failed is not None:
        raise failed

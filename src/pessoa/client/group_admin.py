"""Consumer groups: list, describe, committed offsets, delete. Both protocols: classic and KIP-848's.

A group is described by its coordinator, first as a consumer group (ConsumerGroupDescribe) and, where the coordinator
says that it is none, as a classic one. That is what the Java client does, so that neither kind needs to be known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pessoa.client.client_errors import KafkaFailure, RequestFailed, TimedOut, Unsupported, check
from pessoa.client.cluster_client import Node
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition

T = TypeVar("T")


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str  # classic, consumer, share, streams


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]
    target: list[TopicPartition] | None = None
    epoch: int | None = None
    is_upgraded: bool | None = None


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class Group(NamedTuple):
    group_id: str
    state: str
    coordinator: Node
    protocol_type: str
    assignor: str
    members: list[Member]
    epoch: int | None = None
    target_epoch: int | None = None


def list_groups(cluster: Cluster, *, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[GroupListing]:
    """Return the groups of all brokers: each broker lists the groups that it coordinates."""
    from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse

    request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
    found: dict[str, GroupListing] = {}
    try:
        nodes = cluster.nodes()
    except TimedOut as failure:
        raise KafkaFailure("Failed to find brokers to send ListGroups") from failure
    for node in nodes:

        def attempt(node_id: int = node.node_id) -> None:
            answer = cluster.ask(request, ListGroupsResponse, node=node_id, name="listGroups")
            check(answer.error_code)
            for one in answer.groups:
                found[one.group_id] = GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)

        cluster.retried(attempt, name="listGroups")
    return list(found.values())


def describe_group(cluster: Cluster, group_id: str) -> Group:
    return at_coordinator(cluster, group_id, lambda node: _describe(cluster, group_id, node))


def at_coordinator(cluster: Cluster, group_id: str, attempt: Callable[[int], T]) -> T:
    """Return what `attempt` returns for the coordinator's id; it is called again if the coordinator has moved."""

    def attempt_at_coordinator() -> T:
        return attempt(cluster.coordinator(group_id))

    return cluster.retried(attempt_at_coordinator, name="findCoordinator")


def _describe(cluster: Cluster, group_id: str, node: int) -> Group:
    try:
        return _consumer_group(cluster, group_id, node)
    except Unsupported:
        return _classic_group(cluster, group_id, node)
    except RequestFailed as failure:
        if failure.code is ErrorCode.UNSUPPORTED_VERSION:
            return _classic_group(cluster, group_id, node)
        if failure.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        try:
            return _classic_group(cluster, group_id, node)
        except RequestFailed as classic:
            # A group of another type is neither: the error of the first request is the one to raise.
            raise (failure if classic.code is ErrorCode.GROUP_ID_NOT_FOUND else classic) from classic


def _consumer_group(cluster: Cluster, group_id: str, node: int) -> Group:
    from pessoa.wire.api.consumer_group_describe import (
        Assignment,
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    answer = cluster.ask(
        request, ConsumerGroupDescribeResponse, coordinator=node, name="describeConsumerGroups"
    ).groups[0]
    check(answer.error_code, answer.error_message)

    def partitions(assignment: Assignment) -> list[TopicPartition]:
        return [(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions]

    members = [
        Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            partitions(one.assignment),
            partitions(one.target_assignment),
            one.member_epoch,
            None if one.member_type < 0 else one.member_type == 1,
        )
        for one in answer.members
    ]
    return Group(
        group_id,
        answer.group_state,
        cluster.node(node),
        "consumer",
        answer.assignor_name,
        members,
        answer.group_epoch,
        answer.assignment_epoch,
    )


def _classic_group(cluster: Cluster, group_id: str, node: int) -> Group:
    from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    request = DescribeGroupsRequest(groups=[group_id])
    answer = cluster.ask(request, DescribeGroupsResponse, coordinator=node, name="describeConsumerGroups").groups[0]
    check(answer.error_code, answer.error_message)
    if answer.protocol_type not in ("", "consumer"):
        failure = KafkaFailure(f"GroupId {group_id} is not a consumer group ({answer.protocol_type}).")
        failure.java_name = "java.lang.IllegalArgumentException"
        raise failure
    members = [
        Member(one.member_id, one.group_instance_id, one.client_id, one.client_host, _assignment(one.member_assignment))
        for one in answer.members
    ]
    return Group(group_id, answer.group_state, cluster.node(node), answer.protocol_type, answer.protocol_data, members)


def _assignment(data: bytes) -> list[TopicPartition]:
    """Return a classic member's assignment: a version, then ConsumerProtocolAssignment."""
    if not data:
        return []
    from pessoa.wire.stored.consumer_protocol import ConsumerProtocolAssignment

    version = min(int.from_bytes(data[:2], "big", signed=True), ConsumerProtocolAssignment.versions.last)
    # A newer version may have more behind what we know, so what is left over is no mistake.
    found, _ = ConsumerProtocolAssignment.decoder(version)(bytes(data), 2, len(data))
    assert isinstance(found, ConsumerProtocolAssignment)
    return [(topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions]


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, Committed]:
    """Return every offset that the group has committed."""
    from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])

    def attempt(node: int) -> dict[TopicPartition, Committed]:
        # Topic ids came with version 10, and with them the need to know the names.
        answer = cluster.ask(
            request, OffsetFetchResponse, coordinator=node, name="listConsumerGroupOffsets", last_version=9
        ).groups[0]
        check(answer.error_code)
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code)
                if part.committed_offset >= 0:
                    found[topic.name, part.partition_index] = Committed(
                        part.committed_offset, part.committed_leader_epoch, part.metadata or ""
                    )
        return found

    return at_coordinator(cluster, group_id, attempt)


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members."""
    from pessoa.wire.api.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
    )

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        topics.setdefault(topic, []).append(one)
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    def attempt(node: int) -> None:
        answer = cluster.ask(
            request, OffsetCommitResponse, coordinator=node, name="alterConsumerGroupOffsets", last_version=9
        )
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code)

    at_coordinator(cluster, group_id, attempt)


def delete_group(cluster: Cluster, group_id: str) -> None:
    from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

    def attempt(node: int) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        for result in cluster.ask(request, DeleteGroupsResponse, coordinator=node, name="deleteConsumerGroups").results:
            check(result.error_code)

    at_coordinator(cluster, group_id, attempt)


def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Delete committed offsets, and return the outcome for each partition. Raises RequestFailed if the group as a
    whole is refused."""
    from pessoa.wire.api.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    def attempt(node: int) -> dict[TopicPartition, ErrorCode]:
        answer = cluster.ask(request, OffsetDeleteResponse, coordinator=node, name="offsetDelete")
        check(answer.error_code)
        return {
            (topic.name, part.partition_index): ErrorCode.of(part.error_code)
            for topic in answer.topics
            for part in topic.partitions
        }

    return at_coordinator(cluster, group_id, attempt)

"""Share groups (KIP-932): describe them, read, move and delete the offsets at which their partitions start.

All of it is decided by the group's coordinator. A share group has no committed offsets: a partition has a start offset,
below which every record is settled, and the coordinator keeps it in `__share_group_state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.client_errors import RequestFailed, check
from pessoa.client.group_admin import Group, Member, at_coordinator
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition


class StartOffset(NamedTuple):
    """The start offset of a share partition; None for values that the coordinator does not know yet."""

    offset: int | None
    leader_epoch: int | None
    lag: int | None


def describe_share_group(cluster: Cluster, group_id: str) -> Group:
    from pessoa.wire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)

    def attempt(node: int) -> Group:
        answer = cluster.ask(request, ShareGroupDescribeResponse, coordinator=node, name="describeShareGroups").groups[
            0
        ]
        check(answer.error_code, answer.error_message)
        members = [
            Member(
                one.member_id,
                None,
                one.client_id,
                one.client_host,
                [(part.topic_name, number) for part in one.assignment.topic_partitions for number in part.partitions],
                epoch=one.member_epoch,
            )
            for one in answer.members
        ]
        return Group(
            group_id,
            answer.group_state,
            cluster.node(node),
            "share",
            answer.assignor_name,
            members,
            answer.group_epoch,
            answer.assignment_epoch,
        )

    return at_coordinator(cluster, group_id, attempt)


def share_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, StartOffset]:
    """Return the start offset of every partition that the group has initialised."""
    from pessoa.wire.api.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsResponse,
    )

    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
    )

    def attempt(node: int) -> dict[TopicPartition, StartOffset]:
        name = "describeShareGroupOffsets"
        answer = cluster.ask(request, DescribeShareGroupOffsetsResponse, coordinator=node, name=name).groups[0]
        check(answer.error_code, answer.error_message)
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code, part.error_message)
                is_known = part.start_offset >= 0
                found[topic.topic_name, part.partition_index] = StartOffset(
                    part.start_offset if is_known else None,
                    part.leader_epoch if is_known else None,
                    part.lag if is_known and part.lag >= 0 else None,
                )
        return found

    return at_coordinator(cluster, group_id, attempt)


def alter_share_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    """Set the start offsets of a share group without members, and return the outcome for each partition.

    The group is created if it does not exist. Raises RequestFailed if the group as a whole is refused.
    """
    from pessoa.wire.api.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
        AlterShareGroupOffsetsResponse,
    )

    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        one = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        topics.setdefault(topic, []).append(one)
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=some) for name, some in topics.items()],
    )

    def attempt(node: int) -> dict[TopicPartition, ErrorCode]:
        answer = cluster.ask(request, AlterShareGroupOffsetsResponse, coordinator=node, name="alterShareGroupOffsets")
        check(answer.error_code, answer.error_message)
        return {
            (topic.topic_name, part.partition_index): ErrorCode.of(part.error_code)
            for topic in answer.responses
            for part in topic.partitions
        }

    return at_coordinator(cluster, group_id, attempt)


def delete_share_offsets(cluster: Cluster, group_id: str, topics: Iterable[str]) -> dict[str, RequestFailed | None]:
    """Delete the start offsets of whole topics from a group without members; return the refusal of each topic, or
    None."""
    from pessoa.wire.api.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
        DeleteShareGroupOffsetsResponse,
    )

    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )

    def attempt(node: int) -> dict[str, RequestFailed | None]:
        answer = cluster.ask(request, DeleteShareGroupOffsetsResponse, coordinator=node, name="deleteShareGroupOffsets")
        check(answer.error_code, answer.error_message)
        return {
            topic.topic_name: RequestFailed(topic.error_code, topic.error_message) if topic.error_code else None
            for topic in answer.responses
        }

    return at_coordinator(cluster, group_id, attempt)

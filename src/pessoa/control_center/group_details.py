"""A group of any kind as pages show it: members with what they are assigned, and an offset for each partition.

    classic, consumer   committed offsets; Describe(Consumer)Groups
    share               the start offset of each partition, below which all is settled; lag as the coordinator counts it
    streams             committed offsets; tasks of the topology, active and standby

Functions of a `Cluster`, for the worker threads of `KafkaLink`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pessoa.client.client_errors import check
from pessoa.client.cluster_client import Cluster
from pessoa.client.group_admin import Committed, at_coordinator, committed_offsets, describe_group
from pessoa.client.share_group_admin import (
    StartOffset,
    alter_share_offsets,
    delete_share_offsets,
    describe_share_group,
    share_offsets,
)
from pessoa.control_center.views import MemberView
from pessoa.wire.api.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
)
from pessoa.wire.errors import ErrorCode

TopicPartition = tuple[str, int]


class GroupDetails(NamedTuple):
    state: str
    coordinator: int
    assignor: str
    members: list[MemberView]
    # Of all but share groups.
    committed: Mapping[TopicPartition, Committed] = {}
    # Of share groups alone.
    starts: Mapping[TopicPartition, StartOffset] = {}
    # Of streams groups: what the topology reads and writes beside it.
    topology: tuple[str, ...] = ()


def group_details(cluster: Cluster, group: str, kind: str) -> GroupDetails:
    if kind == "share":
        return _share_group(cluster, group)
    if kind == "streams":
        return _streams_group(cluster, group)
    found = describe_group(cluster, group)
    members = [
        MemberView(one.member_id, one.client_id, one.host, one.instance_id, sorted(one.assignment))
        for one in found.members
    ]
    return GroupDetails(
        found.state, found.coordinator.node_id, found.assignor, members, committed_offsets(cluster, group)
    )


def _share_group(cluster: Cluster, group: str) -> GroupDetails:
    found = describe_share_group(cluster, group)
    members = [
        MemberView(one.member_id, one.client_id, one.host, None, sorted(one.assignment)) for one in found.members
    ]
    starts = share_offsets(cluster, group)
    return GroupDetails(found.state, found.coordinator.node_id, found.assignor, members, starts=starts)


def _streams_group(cluster: Cluster, group: str) -> GroupDetails:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)

    def attempt(node: int) -> tuple[int, DescribedGroup]:
        answer = cluster.ask(
            request, StreamsGroupDescribeResponse, coordinator=node, name="describeStreamsGroups"
        ).groups[0]
        check(answer.error_code, answer.error_message)
        return node, answer

    node, found = at_coordinator(cluster, group, attempt)
    subtopologies = {one.subtopology_id: one for one in (found.topology.subtopologies or ())} if found.topology else {}
    members = [
        MemberView(
            one.member_id, one.client_id, one.client_host, one.instance_id,
            task_partitions(one.assignment.active_tasks, subtopologies),
            [
                *(f"task {name}" for name in task_names(one.assignment.active_tasks)),
                *(f"standby {name}" for name in task_names(one.assignment.standby_tasks)),
                *(f"warm-up {name}" for name in task_names(one.assignment.warmup_tasks)),
            ],
        )
        for one in found.members
    ]  # fmt: skip
    written = sorted(
        {topic for one in subtopologies.values() for topic in one.repartition_sink_topics}
        | {topic.name for one in subtopologies.values() for topic in one.state_changelog_topics}
    )
    return GroupDetails(
        found.group_state, node, "streams", members, committed_offsets(cluster, group), topology=tuple(written)
    )


def task_names(tasks: list[TaskIds]) -> list[str]:
    """Return task ids as Kafka Streams writes them: `0_2` is partition 2 of subtopology 0."""
    return sorted(f"{one.subtopology_id}_{number}" for one in tasks for number in one.partitions)


def task_partitions(tasks: list[TaskIds], subtopologies: Mapping[str, Subtopology]) -> list[TopicPartition]:
    """Return the partitions that the tasks read: a task has the same partition of each source of its subtopology."""
    found = set()
    for one in tasks:
        about = subtopologies.get(one.subtopology_id)
        if about is None:
            continue
        topics = [*about.source_topics, *(topic.name for topic in about.repartition_source_topics)]
        found |= {(topic, number) for topic in topics for number in one.partitions}
    return sorted(found)


def reset_share_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    for (topic, partition), code in sorted(alter_share_offsets(cluster, group, offsets).items()):
        if code is not ErrorCode.NONE:
            check(code, f"{topic}-{partition}: {code.name}")


def forget_share_topic(cluster: Cluster, group: str, topic: str) -> None:
    for failure in delete_share_offsets(cluster, group, [topic]).values():
        if failure is not None:
            raise failure

"""What StreamsGroupDescribe says of a streams group."""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.base.java_order import string_hash, timeline_order
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.streams.streams_group import StreamsGroup, StreamsMember, TaskRoles, Tasks
from pessoa.wire.api.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.streams_group_records import StreamsGroupTopologyValueTopicInfo


def describe_streams_group(registry: Registry, group_id: str) -> DescribedGroup:
    try:
        group = registry.streams_group(group_id)
    except Refusal as refusal:
        return streams_group_error(group_id, refusal.code, refusal.message)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[
            _member(group.members[member_id], group.target_of(member_id))
            for member_id in timeline_order(group.members, string_hash, are_put_again=True)
        ],
    )


def streams_group_error(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        topology=None,
        members=[],
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """Return the topology of a group, with the partition counts of internal topics once they are decided."""
    if group.topology is None:
        return None
    counts = {} if group.configured is None else group.configured.internal_counts
    return Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=one.subtopology_id,
                source_topics=sorted(one.source_topics),
                repartition_sink_topics=sorted(one.repartition_sink_topics),
                state_changelog_topics=_topic_infos(one.state_changelog_topics, counts),
                repartition_source_topics=_topic_infos(one.repartition_source_topics, counts),
            )
            for one in group.topology.subtopologies
        ],
    )


def _topic_infos(infos: list[StreamsGroupTopologyValueTopicInfo], counts: Mapping[str, int]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=info.name,
            partitions=counts.get(info.name, info.partitions),
            replication_factor=info.replication_factor,
            topic_configs=[KeyValue(key=each.key, value=each.value) for each in info.topic_configs],
        )
        for info in sorted(infos, key=lambda info: info.name)
    ]


def _member(member: StreamsMember, target: TaskRoles) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.assigned.roles()),
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(roles: TaskRoles) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(roles.active),
        standby_tasks=_task_ids(roles.standby),
        warmup_tasks=_task_ids(roles.warmup),
    )


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(each)) for name, each in sorted(tasks.items())]

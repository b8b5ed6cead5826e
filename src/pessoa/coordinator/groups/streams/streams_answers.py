"""What a StreamsGroupHeartbeat says and is told: the tasks a member reports, and the response with tasks, statuses and
the endpoints of interactive queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pessoa.coordinator.groups.streams.streams_group import (
    StreamsGroup,
    StreamsMember,
    TaskRoles,
    Tasks,
    each_task,
)
from pessoa.coordinator.groups.streams.topology_configuration import CountOf, TopologyStatus
from pessoa.wire.api.streams_group_heartbeat import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseEndpoint,
    StreamsGroupHeartbeatResponseTaskIds,
    TaskIds,
    TopicPartition,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.streams_group_records import StreamsGroupTopologyValue


def reported(request: StreamsGroupHeartbeatRequest) -> TaskRoles | None:
    """Return the tasks that the member reports to own; None if it reports none."""
    if request.active_tasks is None:
        return None
    return TaskRoles(_tasks(request.active_tasks), _tasks(request.standby_tasks), _tasks(request.warmup_tasks))


def _tasks(ids: list[TaskIds] | None) -> Tasks:
    return {one.subtopology_id: frozenset(one.partitions) for one in ids or ()}


def are_owned(tasks: TaskRoles | None, member: StreamsMember) -> bool:
    """Return whether the member reports its tasks, and they are among those assigned to it."""
    if tasks is None:
        return False
    return all(
        partitions <= given.get(name, frozenset())
        for has, given in zip(tasks, member.assigned.roles(), strict=True)
        for name, partitions in has.items()
    )


def heartbeat_response(
    member: StreamsMember, statuses: Iterable[TopologyStatus], interval_ms: int, *, shows_tasks: bool
) -> StreamsGroupHeartbeatResponse:
    roles = member.assigned.roles()
    return StreamsGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=member.id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[Status(status_code=one.code, status_detail=one.detail) for one in statuses],
        active_tasks=_task_ids(roles.active) if shows_tasks else None,
        standby_tasks=_task_ids(roles.standby) if shows_tasks else None,
        warmup_tasks=_task_ids(roles.warmup) if shows_tasks else None,
        endpoint_information_epoch=0,
    )


def leave_response(member_id: str, epoch: int) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=0,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )


def failed_response(code: ErrorCode, message: str | None) -> StreamsGroupHeartbeatResponse:
    response = leave_response("", 0)
    response.error_code, response.error_message = code, message
    return response


def _task_ids(tasks: Tasks) -> list[StreamsGroupHeartbeatResponseTaskIds]:
    return [
        StreamsGroupHeartbeatResponseTaskIds(subtopology_id=name, partitions=sorted(each))
        for name, each in sorted(tasks.items())
    ]


def add_endpoints(
    response: StreamsGroupHeartbeatResponse,
    request: StreamsGroupHeartbeatRequest,
    group: StreamsGroup,
    moved: StreamsMember,
    topology: StreamsGroupTopologyValue,
    count_of: CountOf,
) -> None:
    """Add to the response which application serves interactive queries for which partitions, if that has changed for
    the member. `moved` is the member after this heartbeat."""
    response.endpoint_information_epoch = group.endpoint_epoch
    if request.endpoint_information_epoch == group.endpoint_epoch:
        return
    read = {
        one.subtopology_id: [*one.source_topics, *(info.name for info in one.repartition_source_topics)]
        for one in topology.subtopologies
    }
    response.partitions_by_user_endpoint = [
        EndpointToPartitions(
            user_endpoint=StreamsGroupHeartbeatResponseEndpoint(host=endpoint.host, port=endpoint.port),
            active_partitions=_partitions(member.assigned.roles().active, read, count_of),
            standby_partitions=_partitions(member.assigned.standby, read, count_of),
        )
        for member in {**group.members, moved.id: moved}.values()
        if (endpoint := member.user_endpoint) is not None
    ]


def _partitions(tasks: Tasks, read: Mapping[str, list[str]], count_of: CountOf) -> list[TopicPartition]:
    found: dict[str, set[int]] = {}
    for name, partition in each_task(tasks):
        for topic in read.get(name, ()):
            if partition < (count_of(topic) or 0):
                found.setdefault(topic, set()).add(partition)
    return [TopicPartition(topic=topic, partitions=sorted(each)) for topic, each in sorted(found.items())]

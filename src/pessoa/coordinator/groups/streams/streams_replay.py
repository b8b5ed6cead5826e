"""The records of streams groups: how they are written, and what a replay of them does.

Lists in records are sorted, so that equal states have equal bytes. A load sees what compaction has left: a record
creates the group and the member that it speaks of, and the tombstone of what is not there is passed over. A streams
group takes the place of a classic group of its id, which it may do when that one has no members; offsets are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pessoa.coordinator.groups.consumer.consumer_group import FIRST_EPOCH
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.streams.streams_group import (
    NO_TOPOLOGY_EPOCH,
    NOTHING_OWNED,
    ActiveTasks,
    OwnedTasks,
    StreamsGroup,
    StreamsMember,
    TaskRoles,
    Tasks,
    TaskState,
    UserEndpoint,
)
from pessoa.coordinator.groups.streams.topology_configuration import required_topics
from pessoa.coordinator.shard import CoordinatorRecord
from pessoa.wire.schema import Message
from pessoa.wire.stored.streams_group_records import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupCurrentMemberAssignmentValueTaskIds,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIds,
)

_CurrentTaskIds = StreamsGroupCurrentMemberAssignmentValueTaskIds

# ── writing ──


def streams_epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, configs: tuple[tuple[str, str], ...]
) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupMetadataKey(group_id=group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=[LastAssignmentConfig(key=key, value=value) for key, value in configs],
        ),
    )


def streams_member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    endpoint = member.user_endpoint
    return CoordinatorRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.id),
        StreamsGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags],
        ),
    )


def topology_record(group_id: str, topology: StreamsGroupTopologyValue) -> CoordinatorRecord:
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), topology)


def streams_target_record(group_id: str, member_id: str, target: TaskRoles) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_task_ids(target.active),
            standby_tasks=_task_ids(target.standby),
            warmup_tasks=_task_ids(target.warmup),
        ),
    )


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(each)) for name, each in sorted(tasks.items())]


def streams_assignment_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def streams_current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    assigned, pending = member.assigned, member.pending_revocation
    return CoordinatorRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id),
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=int(member.state),
            active_tasks=_current_active(assigned.active),
            standby_tasks=_current(assigned.standby),
            warmup_tasks=_current(assigned.warmup),
            active_tasks_pending_revocation=_current_active(pending.active),
            standby_tasks_pending_revocation=_current(pending.standby),
            warmup_tasks_pending_revocation=_current(pending.warmup),
        ),
    )


def _current_active(tasks: ActiveTasks) -> list[_CurrentTaskIds]:
    return [
        _CurrentTaskIds(
            subtopology_id=name, partitions=sorted(epochs), assignment_epochs=[epochs[each] for each in sorted(epochs)]
        )
        for name, epochs in sorted(tasks.items())
    ]


def _current(tasks: Tasks) -> list[_CurrentTaskIds]:
    return [_CurrentTaskIds(subtopology_id=name, partitions=sorted(each)) for name, each in sorted(tasks.items())]


def streams_member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def streams_group_tombstones(group: StreamsGroup) -> list[CoordinatorRecord]:
    """Return the tombstones of all records of a streams group, which is deleted only when it has no members."""
    return [
        CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group.id), None),
        CoordinatorRecord(StreamsGroupTopologyKey(group_id=group.id), None),
        CoordinatorRecord(StreamsGroupMetadataKey(group_id=group.id), None),
    ]


# ── replaying ──

_KEYS = (
    StreamsGroupMetadataKey,
    StreamsGroupTopologyKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupCurrentMemberAssignmentKey,
)
_MemberKey = (
    StreamsGroupMemberMetadataKey | StreamsGroupTargetAssignmentMemberKey | StreamsGroupCurrentMemberAssignmentKey
)
_Key = _MemberKey | StreamsGroupMetadataKey | StreamsGroupTargetAssignmentMetadataKey | StreamsGroupTopologyKey


def replay_streams_record(registry: Registry, key: Message, value: Message | None) -> bool:
    """Change the streams groups as the record says. Return False if the key is not of a streams group."""
    if not isinstance(key, _KEYS):
        return False
    found = registry.groups.get(key.group_id)
    if not isinstance(found, StreamsGroup):
        if value is None:
            return True
        found = registry.groups[key.group_id] = StreamsGroup(key.group_id)
    before = _topics(found)
    _replay(registry, found, key, value)
    is_there = registry.groups.get(found.id) is found
    registry.update_subscriptions(found.id, before, _topics(found) if is_there else set())
    return True


def _topics(group: StreamsGroup) -> set[str]:
    return set() if group.topology is None else required_topics(group.topology)


def _replay(registry: Registry, group: StreamsGroup, key: _Key, value: Message | None) -> None:
    if isinstance(key, StreamsGroupMetadataKey):
        if value is None:
            del registry.groups[key.group_id]
            return
        assert isinstance(value, StreamsGroupMetadataValue)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        group.validated_topology_epoch = value.validated_topology_epoch
        group.assignment_configs = tuple((one.key, one.value) for one in value.last_assignment_configs or ())
    elif isinstance(key, StreamsGroupTopologyKey):
        assert value is None or isinstance(value, StreamsGroupTopologyValue)
        group.topology, group.configured, group.refresh_at_ms = value, None, 0
        if value is None:
            group.validated_topology_epoch = NO_TOPOLOGY_EPOCH
    elif isinstance(key, StreamsGroupTargetAssignmentMetadataKey):
        assert value is None or isinstance(value, StreamsGroupTargetAssignmentMetadataValue)
        group.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp
    else:
        _replay_member(group, key, value)


def _replay_member(group: StreamsGroup, key: _MemberKey, value: Message | None) -> None:
    member_id = key.member_id
    member = group.members.get(member_id) or StreamsMember(member_id)
    if isinstance(key, StreamsGroupTargetAssignmentMemberKey):
        assert value is None or isinstance(value, StreamsGroupTargetAssignmentMemberValue)
        if value is None:
            group.targets.pop(member_id, None)
        else:
            group.targets[member_id] = TaskRoles(
                _tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)
            )
    elif isinstance(key, StreamsGroupMemberMetadataKey):
        assert value is None or isinstance(value, StreamsGroupMemberMetadataValue)
        if value is None:
            group.remove_member(member_id)
            group.targets.pop(member_id, None)
        else:
            group.put_member(_member_with_metadata(member, value))
    else:
        assert value is None or isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
        if value is not None:
            group.put_member(_with_tasks(member, value))
        elif member_id in group.members:
            group.put_member(
                replace(member, epoch=-1, previous_epoch=-1, assigned=NOTHING_OWNED, pending_revocation=NOTHING_OWNED)
            )


def _member_with_metadata(member: StreamsMember, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=tuple((one.key, one.value) for one in value.client_tags),
    )


def _with_tasks(member: StreamsMember, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=TaskState.of(value.state),
        assigned=OwnedTasks(
            _epochs(value.active_tasks, value.member_epoch), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)
        ),
        pending_revocation=OwnedTasks(
            _epochs(value.active_tasks_pending_revocation, value.member_epoch),
            _tasks(value.standby_tasks_pending_revocation),
            _tasks(value.warmup_tasks_pending_revocation),
        ),
    )


def _tasks(ids: list[TaskIds] | list[_CurrentTaskIds]) -> Tasks:
    return {one.subtopology_id: frozenset(one.partitions) for one in ids}


def _epochs(ids: list[_CurrentTaskIds], member_epoch: int) -> Mapping[str, Mapping[int, int]]:
    """Return the assignment epochs of the tasks; the member epoch for a record from before they were stored."""
    return {
        one.subtopology_id: dict(
            zip(one.partitions, one.assignment_epochs or [member_epoch] * len(one.partitions), strict=True)
        )
        for one in ids
    }

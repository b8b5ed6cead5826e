"""What ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups say of the groups of a shard.

In Apache's order: groups and members of consumer groups are kept in TimelineHashMaps there, members of classic groups
as they came, what a member has and is to have in HashMaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pessoa.base.ids import Uuid
from pessoa.base.java_order import (
    computed_hash_order,
    copied_hash_order,
    hash_order,
    int_hash,
    string_hash,
    timeline_order,
    uuid_hash,
)
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.coordinator.groups.classic.consumer_payloads import CONSUMER_PROTOCOL_TYPE
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from pessoa.coordinator.groups.group_registry import Group, Registry
from pessoa.coordinator.groups.share.share_group import SHARE_PROTOCOL_TYPE, ShareGroup
from pessoa.coordinator.groups.streams.streams_group import STREAMS_PROTOCOL_TYPE, StreamsGroup
from pessoa.wire.api import consumer_group_describe as modern
from pessoa.wire.api.describe_groups import DescribedGroup, DescribedGroupMember
from pessoa.wire.api.list_groups import ListedGroup, ListGroupsRequest
from pessoa.wire.errors import ErrorCode, Refusal

# How Kafka shows a group that does not exist.
_DEAD = "Dead"
# From this version on DescribeGroups can say that there is no such group.
_NOT_FOUND_VERSION = 6

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def group_type(group: Group | ShareGroup) -> str:
    if isinstance(group, ShareGroup):
        return SHARE_PROTOCOL_TYPE
    if isinstance(group, StreamsGroup):
        return STREAMS_PROTOCOL_TYPE
    return "classic" if isinstance(group, ClassicGroup) else "consumer"


def list_groups(registry: Registry, request: ListGroupsRequest) -> list[ListedGroup]:
    """Return the groups in one of the states and of one of the types that the request names; all if it names none."""
    states = {state.strip().lower().replace("_", "") for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    known = {**registry.groups, **registry.share_groups}
    groups = (known[group_id] for group_id in timeline_order(known, string_hash))
    return [
        ListedGroup(
            group_id=group.id,
            protocol_type=_protocol_type(group),
            group_state=group.state.value,
            group_type=group_type(group),
        )
        for group in groups
        if (not states or group.state.value.lower() in states) and (not types or group_type(group) in types)
    ]


def _protocol_type(group: Group | ShareGroup) -> str:
    if isinstance(group, ShareGroup):
        return SHARE_PROTOCOL_TYPE
    if isinstance(group, StreamsGroup):
        return STREAMS_PROTOCOL_TYPE
    return (group.protocol_type or "") if isinstance(group, ClassicGroup) else CONSUMER_PROTOCOL_TYPE


def describe_classic(registry: Registry, group_id: str, version: int) -> DescribedGroup:
    group = registry.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=_DEAD,
            protocol_type="",
            protocol_data="",
            members=[],
        )
        if version >= _NOT_FOUND_VERSION:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = (
                f"there is no group {group_id}" if group is None else f"{group_id} is not a classic group"
            )
        return described
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_consumer(registry: Registry, group_id: str) -> modern.DescribedGroup:
    try:
        group = registry.consumer_group(group_id)
    except Refusal as refusal:
        return consumer_group_error(group_id, refusal.code, refusal.message)
    return modern.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or registry.config.group_consumer_assignors[0],
        members=[
            _describe_member(registry, group, group.members[member_id])
            for member_id in timeline_order(group.members, string_hash, are_put_again=True)
        ],
    )


def consumer_group_error(group_id: str, code: ErrorCode, message: str | None = None) -> modern.DescribedGroup:
    return modern.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _describe_member(registry: Registry, group: ConsumerGroup, member: ConsumerMember) -> modern.Member:
    owned: dict[Uuid, list[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, partitions in part.items():
            owned.setdefault(topic_id, []).extend(partitions)
    target = group.target_of(member.id)
    return modern.Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=copied_hash_order(sorted(member.subscribed_topics), string_hash),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(registry, owned, computed_hash_order(owned, uuid_hash)),
        target_assignment=_assignment(registry, target, hash_order(target, uuid_hash)),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(
    registry: Registry, partitions: Mapping[Uuid, Iterable[int]], topic_ids: Iterable[Uuid]
) -> modern.Assignment:
    """Return the partitions of these topics, in this order, without topics that were deleted."""
    topics = registry.image.topics.by_id
    return modern.Assignment(
        topic_partitions=[
            modern.TopicPartitions(
                topic_id=topic_id,
                topic_name=topics[topic_id].name,
                partitions=hash_order(sorted(partitions[topic_id]), int_hash),
            )
            for topic_id in topic_ids
            if topic_id in topics
        ]
    )

"""What ShareGroupDescribe says of a share group. In Apache's order, that of its hash tables."""

from __future__ import annotations

from pessoa.base.java_order import (
    computed_hash_order,
    copied_hash_order,
    hash_order,
    int_hash,
    string_hash,
    timeline_order,
    uuid_hash,
)
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.share.share_group import ShareMember
from pessoa.wire.api.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from pessoa.wire.errors import ErrorCode, Refusal

_ASSIGNOR = "simple"


def describe_share_group(registry: Registry, group_id: str) -> DescribedGroup:
    try:
        group = registry.share_group(group_id)
    except Refusal as refusal:
        return share_group_error(group_id, refusal.code, refusal.message)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=_ASSIGNOR,
        members=[
            _describe_member(registry, group.members[member_id])
            for member_id in timeline_order(group.members, string_hash, are_put_again=True)
        ],
    )


def share_group_error(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _describe_member(registry: Registry, member: ShareMember) -> Member:
    topics = registry.image.topics.by_id
    return Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=copied_hash_order(sorted(member.subscribed_topics), string_hash),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(
                    topic_id=topic_id,
                    topic_name=topics[topic_id].name,
                    partitions=hash_order(sorted(member.assigned[topic_id]), int_hash),
                )
                for topic_id in computed_hash_order(sorted(member.assigned), uuid_hash)
                if topic_id in topics
            ]
        ),
    )

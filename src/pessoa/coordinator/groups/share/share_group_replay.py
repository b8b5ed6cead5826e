"""The records of share groups: how they are written, and what a replay of them does.

Lists in records are sorted, so that equal states have equal bytes. As with consumer groups, a load sees what compaction
has left: a record creates the group and the member that it speaks of, and the tombstone of what is not there is
passed over.
"""

from __future__ import annotations

from dataclasses import replace

from pessoa.coordinator.groups.consumer.consumer_group import FIRST_EPOCH, NO_PARTITIONS, Partitions
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.share.share_group import (
    InitialisedShares,
    NamedPartitions,
    NamedTopics,
    ShareGroup,
    ShareMember,
)
from pessoa.coordinator.shard import CoordinatorRecord
from pessoa.wire.schema import Message
from pessoa.wire.stored.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupCurrentMemberAssignmentValueTopicPartitions,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMemberValueTopicPartition,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)

_STABLE = 0

# ── writing ──


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topics),
        ),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                ShareGroupTargetAssignmentMemberValueTopicPartition(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in sorted(target.items())
            ]
        ),
    )


def assignment_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=_STABLE,
            assigned_partitions=[
                ShareGroupCurrentMemberAssignmentValueTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in sorted(member.assigned.items())
            ],
        ),
    )


def shares_record(group_id: str, shares: InitialisedShares) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=topic_infos(shares.initialising),
            initialized_topics=topic_infos(shares.initialised),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(shares.deleting.items())
            ],
        ),
    )


def topic_infos(topics: NamedTopics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
        for topic_id, (name, partitions) in sorted(topics.items())
    ]


def named_topics(infos: list[TopicPartitionsInfo]) -> NamedTopics:
    return {info.topic_id: NamedPartitions(info.topic_name, frozenset(info.partitions)) for info in infos}


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def share_group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Return the tombstones of all records of a share group, which is deleted only when it has no members."""
    return [
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group.id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group.id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group.id), None),
    ]


# ── replaying ──

_KEYS = (
    ShareGroupMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
_MemberKey = ShareGroupMemberMetadataKey | ShareGroupTargetAssignmentMemberKey | ShareGroupCurrentMemberAssignmentKey
_Key = _MemberKey | ShareGroupMetadataKey | ShareGroupTargetAssignmentMetadataKey | ShareGroupStatePartitionMetadataKey


def replay_share_record(registry: Registry, key: Message, value: Message | None) -> bool:
    """Change the share groups as the record says. Return False if the key is not of a share group."""
    if not isinstance(key, _KEYS):
        return False
    groups = registry.share_groups
    group = groups.get(key.group_id)
    if group is None:
        if value is None:
            return True
        group = groups[key.group_id] = ShareGroup(key.group_id)
    before = set(group.name_counts)
    _replay(groups, group, key, value)
    registry.update_subscriptions(group.id, before, set(group.name_counts) if group.id in groups else set())
    return True


def _replay(groups: dict[str, ShareGroup], group: ShareGroup, key: _Key, value: Message | None) -> None:
    if isinstance(key, ShareGroupMetadataKey):
        if value is None:
            del groups[key.group_id]
        else:
            assert isinstance(value, ShareGroupMetadataValue)
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif isinstance(key, ShareGroupStatePartitionMetadataKey):
        assert value is None or isinstance(value, ShareGroupStatePartitionMetadataValue)
        group.shares = InitialisedShares() if value is None else _shares_of(value)
    elif isinstance(key, ShareGroupTargetAssignmentMetadataKey):
        assert value is None or isinstance(value, ShareGroupTargetAssignmentMetadataValue)
        group.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp
    else:
        _replay_member(group, key, value)


def _replay_member(group: ShareGroup, key: _MemberKey, value: Message | None) -> None:
    member_id = key.member_id
    member = group.members.get(member_id) or ShareMember(member_id)
    if isinstance(key, ShareGroupTargetAssignmentMemberKey):
        assert value is None or isinstance(value, ShareGroupTargetAssignmentMemberValue)
        if value is None:
            group.targets.pop(member_id, None)
        else:
            group.targets[member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
    elif isinstance(key, ShareGroupMemberMetadataKey):
        assert value is None or isinstance(value, ShareGroupMemberMetadataValue)
        if value is None:
            group.remove_member(member_id)
            group.targets.pop(member_id, None)
        else:
            group.put_member(
                replace(
                    member,
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    subscribed_topics=frozenset(value.subscribed_topic_names),
                )
            )
    else:
        assert value is None or isinstance(value, ShareGroupCurrentMemberAssignmentValue)
        if value is not None:
            group.put_member(
                replace(
                    member,
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
                )
            )
        elif member_id in group.members:
            group.put_member(replace(member, epoch=-1, previous_epoch=-1, assigned=NO_PARTITIONS))


def _shares_of(value: ShareGroupStatePartitionMetadataValue) -> InitialisedShares:
    return InitialisedShares(
        named_topics(value.initializing_topics),
        named_topics(value.initialized_topics),
        {info.topic_id: info.topic_name for info in value.deleting_topics},
    )

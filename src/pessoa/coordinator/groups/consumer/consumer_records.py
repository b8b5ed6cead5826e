"""The records of consumer groups: as Kafka 4.3 writes them, and what replaying them does.

Lists in records are sorted, so that equal states have equal bytes.

A load sees what compaction has left, in which a record may come without those that were written with it. So each record
creates the group and the member that it speaks of, a tombstone of something that is not there is passed over, and one
takes with it whatever still hangs on what it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import (
    LEAVE_EPOCH,
    NO_EPOCH,
    NOTHING_OWNED,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    Partitions,
    ResolvedRegex,
)
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.shard import CoordinatorRecord
from pessoa.wire.schema import Message
from pessoa.wire.stored.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

# ── writing ──


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topics),
            subscribed_topic_regex=member.subscribed_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=classic,
        ),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in sorted(target.items())
            ]
        ),
    )


def assignment_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_stored_partitions(member.assigned),
            partitions_pending_revocation=_stored_partitions(member.pending_revocation),
        ),
    )


def _stored_partitions(owned: OwnedPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[index] for index in sorted(epochs)],
        )
        for topic_id, epochs in sorted(owned.items())
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the ConsumerGroupPartitionMetadata record, which Kafka wrote before 4.0."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def consumer_group_tombstones(
    group: ConsumerGroup, replaced: Mapping[str, str] | None = None
) -> list[CoordinatorRecord]:
    """Return the tombstones of all records of a group. `replaced` maps the id of a former member to that of the member
    which replaced it in this same decision."""
    member_ids = [(replaced or {}).get(member_id, member_id) for member_id in group.members]
    tombstones = [member_tombstones(group.id, member_id) for member_id in member_ids]
    return [
        *(current for current, _, _ in tombstones),
        *(target for _, target, _ in tombstones),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group.id), None),
        *(member for _, _, member in tombstones),
        *(regex_tombstone(group.id, regex) for regex in group.resolved_regexes),
        partition_metadata_tombstone(group.id),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group.id), None),
    ]


def consumer_group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return all records of a new group and its members."""
    members = group.members.values()
    return [
        *(member_record(group.id, member) for member in members),
        group_epoch_record(group.id, group.epoch, group.metadata_hash),
        *(target_record(group.id, member.id, group.target_of(member.id)) for member in members),
        assignment_epoch_record(group.id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(current_record(group.id, member) for member in members),
    ]


# ── replaying ──


class ConsumerReplay:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def replay(self, key: Message, value: Message | None) -> bool:
        """Apply a record; return False if its key is not one of a consumer group."""
        if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            self._replay_current(key, value)
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
            self._replay_member(key, value)
        elif isinstance(key, ConsumerGroupMetadataKey):
            assert value is None or isinstance(value, ConsumerGroupMetadataValue)
            self._replay_group(key, value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
            self._replay_target(key, value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
            assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
            self._replay_assignment_epoch(key, value)
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            self._replay_regex(key, value)
        elif isinstance(key, ConsumerGroupPartitionMetadataKey):
            group = self._group(key.group_id, value is not None)
            if group is not None:
                group.has_partition_metadata_record = value is not None
        else:
            return False
        return True

    def _group(self, group_id: str, creates: bool) -> ConsumerGroup | None:
        group = self._registry.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not creates:
            return None
        # In the place of a classic group, if there is one: what is later in the log counts. Mostly it is a simple group
        # that came of offsets.
        created = self._registry.groups[group_id] = ConsumerGroup(group_id)
        return created

    def _replay_group(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        group = self._group(key.group_id, value is not None)
        if group is None:
            return
        if value is not None:
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
            return
        self._registry.update_subscriptions(group.id, group.subscribed_topics(), set())
        del self._registry.groups[group.id]

    def _replay_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        group = self._group(key.group_id, value is not None)
        if group is None:
            return
        before = group.subscribed_topics()
        if value is not None:
            member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
            group.put_member(_with_metadata(member, value))
        elif key.member_id in group.members:
            group.remove_member(key.member_id)
            group.targets.pop(key.member_id, None)
        self._registry.update_subscriptions(group.id, before, group.subscribed_topics())

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        group = self._group(key.group_id, value is not None)
        if group is None:
            return
        if value is None:
            group.targets.pop(key.member_id, None)
        else:
            group.targets[key.member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
            }

    def _replay_assignment_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._group(key.group_id, value is not None)
        if group is not None:
            group.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        group = self._group(key.group_id, value is not None)
        if group is None:
            return
        if value is not None:
            member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
            group.put_member(_with_assignment(member, value))
        elif key.member_id in group.members:
            group.put_member(
                replace(
                    group.members[key.member_id],
                    epoch=LEAVE_EPOCH,
                    previous_epoch=LEAVE_EPOCH,
                    assigned=NOTHING_OWNED,
                    pending_revocation=NOTHING_OWNED,
                )
            )

    def _replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        group = self._group(key.group_id, value is not None)
        if group is None:
            return
        before = group.subscribed_topics()
        if value is None:
            group.resolved_regexes.pop(key.regular_expression, None)
        else:
            group.resolved_regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )
        self._registry.update_subscriptions(group.id, before, group.subscribed_topics())


def _with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = None
    if value.classic_member_metadata is not None:
        classic = ClassicSide(
            value.classic_member_metadata.session_timeout_ms,
            tuple((each.name, each.metadata) for each in value.classic_member_metadata.supported_protocols),
        )
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topics=frozenset(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def _with_assignment(member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_read_partitions(value.assigned_partitions, value.member_epoch),
        pending_revocation=_read_partitions(value.partitions_pending_revocation, value.member_epoch),
    )


def _read_partitions(stored: list[TopicPartitions], member_epoch: int) -> OwnedPartitions:
    owned: dict[Uuid, dict[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if not epochs or len(epochs) != len(topic.partitions):
            # Before 4.3 the epochs of partitions were not stored; the member's is a safe one.
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned

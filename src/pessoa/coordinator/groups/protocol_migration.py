"""A group moves between the protocols while its members live (`group.consumer.migration.policy`).

**Up**, when a member of the consumer protocol joins a classic group of consumers. The members become members of a
consumer group at their generation as epoch, with what they were assigned as what they own; they keep speaking the
classic protocol to it (`consumer.classic_members`). What their assignors told each other in user data would be lost,
so a group with such data stays.

**Down**, when the last member of the consumer protocol leaves and members of the classic protocol stay. Their
group's next classic generation begins at the group epoch; they notice a rebalance, no more.

Both directions write the end of the old group and the beginning of the new one in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicMember, ClassicState
from pessoa.coordinator.groups.classic.consumer_payloads import (
    CONSUMER_PROTOCOL_TYPE,
    embedded_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from pessoa.coordinator.groups.classic.rebalance import ClassicRebalance, join_response, sync_response
from pessoa.coordinator.groups.consumer.consumer_group import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    Partitions,
    cancel_member_timers,
)
from pessoa.coordinator.groups.consumer.consumer_records import consumer_group_records, consumer_group_tombstones
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.shard import Output
from pessoa.wire.errors import ErrorCode, ProtocolViolation, Refusal
from pessoa.wire.stored.consumer_protocol import ConsumerProtocolSubscription


class ProtocolMigration:
    def __init__(self, registry: Registry, rounds: ClassicRebalance) -> None:
        self._registry = registry
        self._rounds = rounds

    # ── up ──

    def upgrade(self, output: Output, classic: ClassicGroup) -> ConsumerGroup:
        """Return the consumer group that the classic group becomes, and add its records to `output`. Raises
        `Refusal`."""
        self._check_upgrade(classic)
        try:
            group = self._as_consumer_group(classic)
        except ProtocolViolation as violation:
            raise _cannot_upgrade(classic, f"a member's part of the protocol cannot be read: {violation}") from None
        for member in classic.members.values():
            rejoin = join_response(member.id, ErrorCode.REBALANCE_IN_PROGRESS)
            self._rounds.answer_join(output, classic, member, rejoin)
            self._rounds.answer_sync(output, member, sync_response(ErrorCode.REBALANCE_IN_PROGRESS))
        output.records += classic.tombstones()
        output.records += consumer_group_records(group)
        output.notes.append(f"group {classic.id} moves to the consumer protocol")
        return group

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        config = self._registry.config
        if not config.group_consumer_migration_policy.allows_upgrade:
            raise _cannot_upgrade(classic, "group.consumer.migration.policy does not allow it")
        if not classic.uses_consumer_protocol:
            raise _cannot_upgrade(classic, "its members are not consumers")
        if len(classic.members) > config.group_consumer_max_size:
            raise _cannot_upgrade(classic, "it has more members than group.consumer.max.size")

    def _as_consumer_group(self, classic: ClassicGroup) -> ConsumerGroup:
        group = ConsumerGroup(classic.id)
        epoch = group.epoch = group.assignment_epoch = classic.generation
        subscriptions = {member.id: _subscription(classic, member) for member in classic.members.values()}
        # A partition is one member's, whatever a strange assignor has said; and what is assigned comes first.
        taken: set[tuple[Uuid, int]] = set()
        assigned = {member.id: self._assigned_to(classic, member, taken) for member in classic.members.values()}
        for classic_member in classic.members.values():
            subscription = subscriptions[classic_member.id]
            target = assigned[classic_member.id]
            # A cooperative member that has not synced goes on with what it had when it joined, and Kafka forgets that.
            # Here it is the member's until it says that it has given it up.
            left_over = self._free(((each.topic, each.partitions) for each in subscription.owned_partitions), taken)
            group.targets[classic_member.id] = target
            group.put_member(
                ConsumerMember(
                    classic_member.id,
                    epoch=epoch,
                    previous_epoch=epoch,
                    state=MemberState.UNREVOKED_PARTITIONS if left_over else MemberState.STABLE,
                    instance_id=classic_member.instance_id,
                    rack_id=subscription.rack_id or None,
                    rebalance_timeout_ms=classic_member.rebalance_timeout_ms,
                    client_id=classic_member.client_id,
                    client_host=classic_member.client_host,
                    subscribed_topics=frozenset(subscription.topics),
                    assigned=_since(target, epoch),
                    pending_revocation=_since(left_over, epoch),
                    classic=ClassicSide(classic_member.session_timeout_ms, classic_member.protocols),
                )
            )
        group.metadata_hash = self._registry.metadata_hash(group.subscribed_topics())
        return group

    def _assigned_to(self, classic: ClassicGroup, member: ClassicMember, taken: set[tuple[Uuid, int]]) -> Partitions:
        if not member.assignment:
            return {}
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _cannot_upgrade(classic, "its assignor keeps data in the assignments, which would be lost")
        return self._free(((each.topic, each.partitions) for each in assignment.assigned_partitions), taken)

    def _free(self, partitions: Iterable[tuple[str, Iterable[int]]], taken: set[tuple[Uuid, int]]) -> Partitions:
        """Return those of the partitions that no member owns yet, by topic id, and mark them as owned."""
        free: dict[Uuid, frozenset[int]] = {}
        for name, indexes in partitions:
            topic = self._registry.topic(name)
            if topic is None:
                continue
            mine = frozenset(index for index in indexes if (topic.id, index) not in taken)
            if mine:
                free[topic.id] = free.get(topic.id, frozenset()) | mine
                taken.update((topic.id, index) for index in mine)
        return free

    # ── down ──

    def can_downgrade(self, group: ConsumerGroup, leaving: Mapping[str, ConsumerMember]) -> bool:
        """Whether all remaining members speak the classic protocol, and the policy permits a downgrade."""
        staying = [member for member in group.members.values() if member.id not in leaving]
        return bool(staying) and self._may_be_classic(staying)

    def can_downgrade_with(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Return whether the group can be downgraded when a member of the classic protocol replaces `replaced`, the
        last member of the consumer protocol."""
        staying = [member for member in group.members.values() if member.id != replaced.id]
        return not replaced.uses_classic_protocol and self._may_be_classic(staying, 1)

    def _may_be_classic(self, members: list[ConsumerMember], coming: int = 0) -> bool:
        config = self._registry.config
        return (
            all(member.uses_classic_protocol for member in members)
            and config.group_consumer_migration_policy.allows_downgrade
            and len(members) + coming <= config.group_max_size
        )

    def downgrade(
        self,
        output: Output,
        group: ConsumerGroup,
        leaving: Mapping[str, ConsumerMember],
        joining: ConsumerMember | None,
        rebalance_reason: str | None,
        now_ms: int,
    ) -> None:
        """Replace the consumer group by a classic one with the remaining members, and with `joining`.

        `joining` takes the place of the static member of its instance id. With a reason the classic group is
        rebalanced at once.
        """
        former = None if joining is None else group.static_member(joining.instance_id)
        replaced = {former.id: joining.id} if joining is not None and former is not None else {}
        output.records += consumer_group_tombstones(group, replaced)
        try:
            classic = self._as_classic_group(group, leaving, joining, former, now_ms)
        except ProtocolViolation as violation:
            raise Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.id} cannot go back to the classic protocol: {violation}"
            ) from None
        output.records.append(classic.record({member.id: member.assignment for member in classic.members.values()}))
        output.notes.append(f"group {group.id} goes back to the classic protocol")
        output.replays = False
        output.applied = self._take_over(group, classic, rebalance_reason, now_ms)

    def _take_over(
        self, group: ConsumerGroup, classic: ClassicGroup, rebalance_reason: str | None, now_ms: int
    ) -> Callable[[], None]:
        def applied() -> None:
            self._registry.update_subscriptions(group.id, group.subscribed_topics(), set())
            self._registry.groups[group.id] = classic
            for member_id in group.members:
                cancel_member_timers(self._registry.timers, group.id, member_id)
            for member in classic.members.values():
                self._rounds.expect_heartbeat(classic, member, now_ms)
            if rebalance_reason is not None:
                begun = Output()
                self._rounds.rebalance(begun, classic, rebalance_reason, now_ms)
                assert not begun.records, "members that have not joined cannot end a rebalance"
                assert not begun.replies

        return applied

    def _as_classic_group(
        self,
        group: ConsumerGroup,
        leaving: Mapping[str, ConsumerMember],
        joining: ConsumerMember | None,
        former: ConsumerMember | None,
        now_ms: int,
    ) -> ClassicGroup:
        classic = ClassicGroup(
            group.id, ClassicState.STABLE, group.epoch, CONSUMER_PROTOCOL_TYPE, state_since_ms=now_ms
        )
        members = [member for member in group.members.values() if member.id not in leaving and member is not former]
        if joining is not None:
            members.append(joining)
        for member in members:
            assert member.classic is not None
            classic.add(
                ClassicMember(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.classic.session_timeout_ms,
                    member.classic.protocols,
                ),
                CONSUMER_PROTOCOL_TYPE,
            )
        classic.protocol = classic.select_protocol()
        classic.refresh_subscriptions()
        for member in members:
            # What it uses, and not its target as in Kafka: should the group be upgraded again before the member
            # has joined, no other member may be given what it has.
            classic_member = classic.members[member.id]
            version = embedded_version(classic_member.metadata(classic.protocol))
            classic_member.assignment = write_assignment(self._used_by(member), version)
        return classic

    def _used_by(self, member: ConsumerMember) -> list[tuple[str, list[int]]]:
        topics = self._registry.image.topics.by_id
        used: dict[str, list[int]] = {}
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, indexes in owned.items():
                if topic_id in topics:
                    used.setdefault(topics[topic_id].name, []).extend(indexes)
        return [(name, sorted(indexes)) for name, indexes in sorted(used.items())]


def _subscription(classic: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    """Return the subscription of a classic member for the group's protocol. While the group rebalances there may be no
    protocol, or one that the member does not support: then for the first that it supports."""
    known = classic.protocol is not None and member.supports(classic.protocol)
    return read_subscription(member.metadata(classic.protocol if known else member.protocols[0][0]))


def _since(partitions: Partitions, epoch: int) -> OwnedPartitions:
    return {topic_id: dict.fromkeys(sorted(indexes), epoch) for topic_id, indexes in partitions.items()}


def _cannot_upgrade(classic: ClassicGroup, reason: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {classic.id} cannot move to the consumer protocol: {reason}")

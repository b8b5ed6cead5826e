"""The steps of a decision about a consumer group, for members of either protocol.

Each step appends its records and returns what the next one needs to know: nothing is replayed before the decision is
whole, so the steps hand on the member and the epoch as they are about to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.assignors import ASSIGNORS, MemberSpec
from pessoa.coordinator.groups.consumer.consumer_group import (
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
    cancel_member_timers,
    rebalance_key,
    rejoin_key,
    resync_key,
    session_key,
)
from pessoa.coordinator.groups.consumer.consumer_records import (
    assignment_epoch_record,
    current_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_record,
)
from pessoa.coordinator.groups.consumer.reconciliation import Situation, reconcile
from pessoa.coordinator.groups.group_config import METADATA_REFRESH_INTERVAL_MS, is_within_interval
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.protocol_migration import ProtocolMigration
from pessoa.coordinator.shard import CoordinatorRecord, Output
from pessoa.coordinator.timers import Action
from pessoa.wire.errors import ErrorCode, Refusal

# Kafka's wait between two tries of a timer whose records were refused.
_FENCING_RETRY_MS = 500

Records = list[CoordinatorRecord]
Reported = Mapping[Uuid, Collection[int]] | None


class Target(NamedTuple):
    epoch: int
    partitions: Partitions


class HeartbeatSteps:
    def __init__(self, registry: Registry, migration: ProtocolMigration) -> None:
        self.registry = registry
        self.migration = migration

    # ── what changed ──

    def note_member(
        self, records: Records, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
    ) -> bool:
        """Add the member's record if it has changed. Return whether its subscribed topic names have changed."""
        if updated == member:
            return False
        records.append(member_record(group.id, updated))
        return updated.subscribed_topics != member.subscribed_topics

    def refresh_metadata(
        self,
        records: Records,
        group: ConsumerGroup,
        has_changed: bool,
        member: ConsumerMember,
        updated: ConsumerMember,
        now_ms: int,
    ) -> int:
        """Return the group epoch, raised if the subscription or the metadata of its topics has changed."""
        epoch = group.epoch
        metadata_hash = self.registry.metadata_hash(_topics_with(group, member, updated))
        if has_changed or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(group_epoch_record(group.id, epoch, metadata_hash))
        group.refresh_at_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        group.refresh_epoch = epoch
        if group.has_partition_metadata_record:
            records.append(partition_metadata_tombstone(group.id))
        return epoch

    # ── the target ──

    def update_target(
        self, records: Records, group: ConsumerGroup, epoch: int, updated: ConsumerMember, now_ms: int
    ) -> Target:
        """Return the member's target, after the target of the whole group was computed again if the group epoch was
        raised."""
        last = Target(group.assignment_epoch, group.target_of(updated.id, updated.instance_id))
        if group.assignment_epoch >= epoch:
            return last
        interval_ms = self.registry.config.assignment_interval_ms(self.registry.overrides(group.id))
        if is_within_interval(group.assignment_timestamp_ms, interval_ms, now_ms):
            return last
        specs = self._specs(group, updated)
        counts = {
            topic_id: len(self.registry.image.topics.by_id[topic_id].partitions)
            for spec in specs.values()
            for topic_id in spec.topics
        }
        name = group.preferred_assignor(updated) or self.registry.config.group_consumer_assignors[0]
        result = ASSIGNORS[name](specs, counts)
        records += (
            target_record(group.id, member_id, result[member_id])
            for member_id in specs
            if group.targets.get(member_id) != result[member_id]
        )
        records.append(assignment_epoch_record(group.id, epoch, now_ms))
        return Target(epoch, result[updated.id])

    def _specs(self, group: ConsumerGroup, updated: ConsumerMember) -> dict[str, MemberSpec]:
        """Return the members for the assignor, with `updated` in the place of its earlier state or of the static member
        that it replaces."""
        specs = {
            member.id: self._spec(group, member, group.target_of(member.id))
            for member in group.members.values()
            if member.id != updated.id
        }
        target = group.target_of(updated.id)
        former = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
        if former is not None and former != updated.id:
            del specs[former]
            target = group.target_of(former)
        specs[updated.id] = self._spec(group, updated, target)
        return specs

    def _spec(self, group: ConsumerGroup, member: ConsumerMember, target: Partitions) -> MemberSpec:
        return MemberSpec(self.registry.topic_ids(group.topics_of(member)), member.instance_id, target)

    # ── the member's step ──

    def take_step(
        self,
        records: Records,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: Target,
        has_subscription_changed: bool,
        reported: Reported,
        now_ms: int,
    ) -> ConsumerMember:
        if not has_subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        updated = reconcile(
            member,
            Situation(
                target.epoch,
                target.partitions or NO_PARTITIONS,
                self.registry.topic_ids(group.topics_of(member)),
                group.partition_epoch,
                reported,
                has_subscription_changed,
            ),
        )
        if updated == member:
            return member
        records.append(current_record(group.id, updated))
        if not updated.uses_classic_protocol:
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                self.expect_revocation(group.id, updated, now_ms)
            else:
                self.registry.timers.cancel(rebalance_key(group.id, updated.id))
        return updated

    # ── timers ──

    def session_timeout_ms(self, group_id: str) -> int:
        return self.registry.config.session_timeout_ms(self.registry.overrides(group_id))

    def expect_heartbeat(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        action = self._fence_action(group_id, member_id, "its session has ended")
        self.registry.timers.schedule(session_key(group_id, member_id), deadline_ms, action)

    def expect_join(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        key = rejoin_key(group_id, member_id)
        if key not in self.registry.timers:
            action = self._fence_action(group_id, member_id, "it has not joined again in time")
            self.registry.timers.schedule(key, deadline_ms, action)

    def expect_sync(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        action = self._fence_action(group_id, member_id, "it has not synced in time")
        self.registry.timers.schedule(resync_key(group_id, member_id), deadline_ms, action)

    def expect_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        reason = f"it has not given up its partitions within {member.rebalance_timeout_ms} ms"
        self.registry.timers.schedule(
            rebalance_key(group_id, member.id),
            now_ms + member.rebalance_timeout_ms,
            self._fence_action(group_id, member.id, reason, member.epoch),
        )

    def _fence_action(self, group_id: str, member_id: str, reason: str, at_epoch: int | None = None) -> Action:
        def fence(now_ms: int) -> Output:
            output = Output()
            try:
                group = self.registry.consumer_group(group_id)
                member = group.member(member_id)
            except Refusal:
                return output
            if at_epoch is None or member.epoch == at_epoch:
                output.notes.append(f"member {member_id} of group {group_id} is fenced: {reason}")
                self.fence(output, group, [member], now_ms)
            return output

        return fence

    # ── the end of a member ──

    def fence(self, output: Output, group: ConsumerGroup, members: Iterable[ConsumerMember], now_ms: int) -> None:
        """Remove members; if only members of the classic protocol stay, the group goes back to that."""
        gone = {member.id: member for member in members}
        if not gone:
            return
        if self.migration.can_downgrade(group, gone):
            reason = f"{', '.join(gone)} left, and the others use the classic protocol"
            self.migration.downgrade(output, group, gone, None, reason, now_ms)
        else:
            for member_id in gone:
                output.records += member_tombstones(group.id, member_id)
            lost_regexes = _regexes_only_of(group, gone.values())
            output.records += (regex_tombstone(group.id, regex) for regex in lost_regexes)
            topics = _topics_without(group, gone.values(), lost_regexes)
            output.records.append(group_epoch_record(group.id, group.epoch + 1, self.registry.metadata_hash(topics)))
        output.on_outcome = lambda code, now_ms: self._after_fencing(group.id, gone, code, now_ms)

    def _after_fencing(self, group_id: str, gone: Iterable[str], code: ErrorCode, now_ms: int) -> Output:
        group = self.registry.groups.get(group_id)
        for member_id in gone:
            if not isinstance(group, ConsumerGroup) or member_id not in group.members:
                cancel_member_timers(self.registry.timers, group_id, member_id)
            elif code is not ErrorCode.NONE and session_key(group_id, member_id) not in self.registry.timers:
                # The timer that wanted it out is spent, and the log would not have it.
                self.expect_heartbeat(group_id, member_id, now_ms + _FENCING_RETRY_MS)
        return Output()


def _regexes_only_of(group: ConsumerGroup, members: Iterable[ConsumerMember]) -> list[str]:
    counts = Counter(member.subscribed_regex for member in members if member.subscribed_regex)
    return [regex for regex, count in counts.items() if group.regex_counts[regex] == count]


def _topics_with(group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember) -> set[str]:
    """Return the topics that the group is subscribed to with `updated` in the place of `member`."""
    if not group.counts(member):
        return group.subscribed_topics() | updated.subscribed_topics
    keeps_regex = member.subscribed_regex == updated.subscribed_regex
    lost = [] if keeps_regex else _regexes_only_of(group, [member])
    return _topics_without(group, [member], lost) | updated.subscribed_topics


def _topics_without(group: ConsumerGroup, members: Iterable[ConsumerMember], regexes: Collection[str]) -> set[str]:
    names = Counter(group.name_counts)
    for member in members:
        names.subtract(member.subscribed_topics)
    topics = {name for name, count in names.items() if count > 0}
    return topics.union(*(each.topics for regex, each in group.resolved_regexes.items() if regex not in regexes))

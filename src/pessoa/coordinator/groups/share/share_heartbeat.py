"""ShareGroupHeartbeat (KIP-932), which is all that a member of a share group sends to the group coordinator.

A heartbeat does, in this order, whatever of it is to be done:

1. find or make the member, and check its epoch;
2. note what the member says of itself;
3. raise the group epoch if a subscription or a topic has changed, or if share partitions were initialised since the
   last assignment;
4. compute a new target assignment if the group epoch has passed the last one's, at most once per
   `group.share.assignment.interval.ms`;
5. give this member its target. Nothing is revoked first: partitions are shared;
6. begin what is subscribed to and not initialised (`share_initialisation`).

So the first heartbeat of a group assigns nothing, and a later one does. Members join with epoch 0, also again, leave
with epoch -1, and are removed when their session ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.base.java_order import computed_hash_order, hash_order, int_hash, uuid_hash
from pessoa.coordinator.groups.consumer.consumer_group import LEAVE_EPOCH, Partitions
from pessoa.coordinator.groups.group_config import METADATA_REFRESH_INTERVAL_MS, is_within_interval
from pessoa.coordinator.groups.group_registry import Registry, client_host, client_id
from pessoa.coordinator.groups.share.share_group import ShareGroup, ShareMember
from pessoa.coordinator.groups.share.share_group_config import ShareGroupConfig
from pessoa.coordinator.groups.share.share_group_replay import (
    assignment_epoch_record,
    current_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    replay_share_record,
    target_record,
)
from pessoa.coordinator.groups.share.share_initialisation import (
    InitializeShares,
    ShareInitialisation,
    SharesInitialised,
)
from pessoa.coordinator.groups.share.simple_assignor import ShareMemberSpec, assign_simple
from pessoa.coordinator.shard import CoordinatorRecord, Output
from pessoa.wire.api.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message

JOIN_EPOCH = 0
# Kafka's wait between two tries of a timer whose records were refused.
_FENCING_RETRY_MS = 500

Records = list[CoordinatorRecord]


class Target(NamedTuple):
    epoch: int
    partitions: Partitions


def check_form(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for a heartbeat that is invalid for every group."""
    if not request.group_id.strip():
        raise Refusal(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if not request.member_id.strip():
        raise Refusal(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise Refusal(ErrorCode.INVALID_REQUEST, "RackId can't be empty.")
    if request.member_epoch < LEAVE_EPOCH:
        raise Refusal(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise Refusal(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")


class ShareGroups:
    """The share groups of a shard. `registry` has them, the groups of other types, the image and the timers."""

    def __init__(
        self, registry: Registry, config: ShareGroupConfig, initialize: Callable[[InitializeShares], None]
    ) -> None:
        self.groups = registry.share_groups
        self._registry = registry
        self.config = config
        self.initialisation = ShareInitialisation(
            registry, self.groups, config.group_share_initialize_retry_interval_ms, initialize
        )

    def __repr__(self) -> str:
        return f"<ShareGroups: {len(self.groups)}>"

    # ── heartbeats ──

    def heartbeat(self, request: ShareGroupHeartbeatRequest, context: Caller, token: int, now_ms: int) -> Output:
        check_form(request)
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request, token, now_ms)
        output = Output()
        records = output.records
        group = self._find_group(request)
        member = self._find_member(group, request)
        updated = _update_member(member, request, context)
        has_changed = updated.subscribed_topics != member.subscribed_topics
        if updated != member:
            records.append(member_record(group.id, updated))
        epoch = self._refresh_epoch(records, group, updated, has_changed, now_ms)
        target = self._update_target(records, group, epoch, updated, now_ms)
        updated = self._take_target(records, group, updated, target, has_changed)
        self.initialisation.begin(output, group, group.topics_with(updated), epoch, now_ms)
        self.expect_heartbeat(group.id, updated.id, now_ms + self._session_timeout_ms(group.id))
        wants_all = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        shows_assignment = wants_all or member.assigned != updated.assigned
        response = ShareGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=updated.id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self.config.heartbeat_interval_ms(self._registry.overrides(group.id)),
            assignment=_assignment(updated.assigned) if shows_assignment else None,
        )
        output.replies.append((token, response))
        return output

    def _find_group(self, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        """Return the share group, or a new one for a joining member; a new group is registered when its records are
        replayed."""
        if request.group_id in self._registry.groups or request.member_epoch != JOIN_EPOCH:
            return self._registry.share_group(request.group_id)
        return self.groups.get(request.group_id) or ShareGroup(request.group_id)

    def _find_member(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
        member_id, epoch = request.member_id, request.member_epoch
        limit = self.config.group_share_max_size
        if epoch == JOIN_EPOCH:
            if member_id not in group.members and len(group.members) >= limit:
                raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.id} has its {limit} members")
            return group.members.get(member_id) or ShareMember(member_id)
        member = group.member(member_id)
        # After a lost response a member comes with its previous epoch.
        if epoch not in (member.epoch, member.previous_epoch):
            raise Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH, f"the member is at epoch {member.epoch}, not {epoch}: it must join again"
            )
        return member

    def _leave(self, request: ShareGroupHeartbeatRequest, token: int, now_ms: int) -> Output:
        group = self._registry.share_group(request.group_id)
        member = group.member(request.member_id)
        output = Output(notes=[f"member {member.id} leaves share group {group.id}"])
        self._remove(output, group, member.id)
        response = ShareGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=member.id,
            member_epoch=LEAVE_EPOCH,
            heartbeat_interval_ms=0,
        )
        output.replies.append((token, response))
        return output

    # ── steps ──

    def _refresh_epoch(
        self, records: Records, group: ShareGroup, updated: ShareMember, has_changed: bool, now_ms: int
    ) -> int:
        names = group.topics_with(updated)
        is_pending = self._is_assignment_pending(group, names)
        if not has_changed and not is_pending and now_ms < group.refresh_at_ms:
            return group.epoch
        metadata_hash = self._registry.metadata_hash(names)
        group.refresh_at_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        if not has_changed and not is_pending and metadata_hash == group.metadata_hash:
            return group.epoch
        records.append(group_epoch_record(group.id, group.epoch + 1, metadata_hash))
        return group.epoch + 1

    def _is_assignment_pending(self, group: ShareGroup, names: Iterable[str]) -> bool:
        """Return whether share partitions were initialised or deleted since the last assignment."""
        if group.shares.initialising or group.epoch > group.assignment_epoch:
            return False
        assigned: dict[Uuid, frozenset[int]] = {}
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                assigned[topic_id] = assigned.get(topic_id, frozenset()) | partitions
        return assigned != self._assignable(group, names)

    def _assignable(self, group: ShareGroup, names: Iterable[str]) -> dict[Uuid, frozenset[int]]:
        """Return the initialised partitions of these topics that exist."""
        found = {}
        for name in names:
            topic = self._registry.topic(name)
            if topic is not None and topic.id in group.shares.initialised:
                partitions = group.shares.initialised[topic.id].partitions.intersection(topic.partitions)
                if partitions:
                    found[topic.id] = partitions
        return found

    def _update_target(
        self, records: Records, group: ShareGroup, epoch: int, updated: ShareMember, now_ms: int
    ) -> Target:
        last = Target(group.assignment_epoch, group.target_of(updated.id))
        if group.assignment_epoch >= epoch:
            return last
        interval_ms = self.config.assignment_interval_ms(self._registry.overrides(group.id))
        if is_within_interval(group.assignment_timestamp_ms, interval_ms, now_ms):
            return last
        members = {**group.members, updated.id: updated}
        specs = {
            member.id: ShareMemberSpec(self._registry.topic_ids(member.subscribed_topics), group.target_of(member.id))
            for member in members.values()
        }
        result = assign_simple(specs, self._assignable(group, group.topics_with(updated)))
        records += (
            target_record(group.id, member_id, result[member_id])
            for member_id in specs
            if group.targets.get(member_id) != result[member_id]
        )
        records.append(assignment_epoch_record(group.id, epoch, now_ms))
        return Target(epoch, result[updated.id])

    def _take_target(
        self, records: Records, group: ShareGroup, member: ShareMember, target: Target, has_changed: bool
    ) -> ShareMember:
        if member.epoch == target.epoch and not has_changed:
            return member
        topic_ids = self._registry.topic_ids(member.subscribed_topics)
        given = target.partitions if member.epoch != target.epoch else member.assigned
        assigned = {topic_id: indexes for topic_id, indexes in given.items() if topic_id in topic_ids}
        if member.epoch == target.epoch:
            updated = replace(member, assigned=assigned)
        else:
            updated = member.at_epoch(target.epoch, assigned)
        if updated != member:
            records.append(current_record(group.id, updated))
        return updated

    # ── sessions ──

    def _session_timeout_ms(self, group_id: str) -> int:
        return self.config.session_timeout_ms(self._registry.overrides(group_id))

    def expect_heartbeat(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        def end_session(_: int) -> Output:
            output = Output()
            group = self.groups.get(group_id)
            if group is not None and member_id in group.members:
                output.notes.append(f"member {member_id} of share group {group_id} is removed: its session has ended")
                self._remove(output, group, member_id)
            return output

        self._registry.timers.schedule(_session_key(group_id, member_id), deadline_ms, end_session)

    def _remove(self, output: Output, group: ShareGroup, member_id: str) -> None:
        metadata_hash = self._registry.metadata_hash(group.topics_without(member_id))
        output.records += member_tombstones(group.id, member_id)
        output.records.append(group_epoch_record(group.id, group.epoch + 1, metadata_hash))

        def on_outcome(code: ErrorCode, now_ms: int) -> Output:
            known = self.groups.get(group.id)
            if known is None or member_id not in known.members:
                self._registry.timers.cancel(_session_key(group.id, member_id))
            elif code is not ErrorCode.NONE and _session_key(group.id, member_id) not in self._registry.timers:
                # The timer that wanted it out is spent, and the log would not have it.
                self.expect_heartbeat(group.id, member_id, now_ms + _FENCING_RETRY_MS)
            return Output()

        output.on_outcome = on_outcome

    # ── the shard ──

    def note_initialised(self, request: SharesInitialised, token: int) -> Output:
        return self.initialisation.finish(request, token)

    def replay(self, key: Message, value: Message | None) -> bool:
        """Apply a record; return False if its key is not one of a share group."""
        return replay_share_record(self._registry, key, value)

    def resume(self, now_ms: int) -> None:
        """Begin the sessions of all members again, after the shard was loaded."""
        for group in self.groups.values():
            deadline_ms = now_ms + self._session_timeout_ms(group.id)
            for member_id in group.members:
                self.expect_heartbeat(group.id, member_id, deadline_ms)


def _session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("share session", group_id, member_id)


def _update_member(member: ShareMember, request: ShareGroupHeartbeatRequest, context: Caller) -> ShareMember:
    """Return the member with the fields of the request; a field that the request leaves out keeps its value."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topics=member.subscribed_topics if names is None else frozenset(names),
        client_id=client_id(context),
        client_host=client_host(context),
    )


def _assignment(assigned: Partitions) -> Assignment:
    """Return the assignment for the response, in the order in which Apache Kafka's hash tables iterate."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=hash_order(sorted(assigned[topic_id]), int_hash))
            for topic_id in computed_hash_order(sorted(assigned), uuid_hash)
        ]
    )

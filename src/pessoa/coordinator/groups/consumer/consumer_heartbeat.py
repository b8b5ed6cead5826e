"""The consumer protocol of KIP-848: ConsumerGroupHeartbeat, which is all a member ever sends.

A heartbeat does, in this order, whatever of it is to be done:

1. find or make the member, and check its epoch; a static member that comes back takes its old place;
2. note what the member says of itself: subscription, assignor, timeouts;
3. raise the group epoch if subscriptions or topics have changed;
4. compute a new target assignment if the group epoch has passed the last one's;
5. let this one member take its next step towards its target (`reconciliation`).

The reply has the member's epoch, and its partitions if they changed or the member asked for all.

Members leave with epoch -1, or -2 if they are static and will be back. They are fenced, that is removed, when their
session ends and when they do not give up partitions within their rebalance timeout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pessoa.base.java_order import computed_hash_order, hash_order, int_hash, uuid_hash
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup
from pessoa.coordinator.groups.consumer.consumer_group import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    OwnedPartitions,
)
from pessoa.coordinator.groups.consumer.consumer_records import (
    current_record,
    member_record,
    member_tombstones,
    target_record,
)
from pessoa.coordinator.groups.consumer.heartbeat_steps import HeartbeatSteps, Records, Reported
from pessoa.coordinator.groups.consumer.regex_refresh import RegexChange, RegexRefresh
from pessoa.coordinator.groups.group_registry import client_host, client_id
from pessoa.coordinator.groups.streams.streams_group import StreamsGroup
from pessoa.coordinator.shard import Output
from pessoa.wire.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
    TopicPartitions,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller

JOIN_EPOCH = 0


class ConsumerHeartbeat:
    def __init__(self, steps: HeartbeatSteps, regexes: RegexRefresh) -> None:
        self._steps = steps
        self._regexes = regexes
        self._registry = steps.registry

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, context: Caller, token: int, now_ms: int) -> Output:
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request, token, now_ms)
        output = Output()
        records = output.records
        group = self._find_group(output, request.group_id, request.member_epoch == JOIN_EPOCH, now_ms)
        member_id = request.member_id or str(self._registry.new_uuid())
        self.check_room(group, member_id)
        reported = _read_owned_partitions(request.topic_partitions)
        member = self._find_member(records, group, member_id, request, reported)
        updated = _update_member(member, request, context)
        names_changed = self._steps.note_member(records, group, member, updated)
        regex_change = self._regexes.update(records, group, member, updated, context, now_ms)
        epoch = group.epoch
        has_changed = names_changed or regex_change is RegexChange.RESOLVED
        if has_changed or group.has_metadata_expired(now_ms):
            epoch = self._steps.refresh_metadata(records, group, has_changed, member, updated, now_ms)
        target = self._steps.update_target(records, group, epoch, updated, now_ms)
        subscription_changed = names_changed or regex_change is not RegexChange.NONE
        updated = self._steps.take_step(records, group, updated, target, subscription_changed, reported, now_ms)
        self._steps.expect_heartbeat(group.id, updated.id, now_ms + self._steps.session_timeout_ms(group.id))
        wants_all = request.member_epoch == JOIN_EPOCH or _is_full(request)
        shows_assignment = wants_all or member.assigned != updated.assigned
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=updated.id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._registry.config.heartbeat_interval_ms(self._registry.overrides(group.id)),
            assignment=_assignment(updated.assigned) if shows_assignment else None,
        )
        output.replies.append((token, response))
        return output

    # ── finding ──

    def _find_group(self, output: Output, group_id: str, creates: bool, now_ms: int) -> ConsumerGroup:
        """Return the group, or a new one if `creates`; a new group is registered when its records are replayed."""
        group = self._registry.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not creates or isinstance(group, StreamsGroup):
            return self._registry.consumer_group(group_id)  # raises
        if group is None:
            self._registry.check_not_share(group_id)
            return ConsumerGroup(group_id)
        if group.is_empty:
            output.records += group.tombstones()
            return ConsumerGroup(group_id)
        return self._upgrade(output, group, now_ms)

    def _upgrade(self, output: Output, classic: ClassicGroup, now_ms: int) -> ConsumerGroup:
        group = self._steps.migration.upgrade(output, classic)
        for member in group.members.values():
            assert member.classic is not None
            self._steps.expect_heartbeat(group.id, member.id, now_ms + member.classic.session_timeout_ms)
        return group

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._registry.config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.id} has its {limit} members")

    def _find_member(
        self,
        records: Records,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        reported: Reported,
    ) -> ConsumerMember:
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None:
            member = self.find_static_member(records, group, member_id, request.instance_id, joins, False)
        elif joins:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = group.member(member_id)
        _check_epoch(member, request.member_epoch, reported)
        return member

    def find_static_member(
        self,
        records: Records,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str,
        joins: bool,
        uses_classic_protocol: bool,
    ) -> ConsumerMember:
        holder = group.static_member(instance_id)
        if not joins:
            return check_instance(holder, member_id, instance_id)
        if holder is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        speaks_epochs = not uses_classic_protocol and not holder.uses_classic_protocol
        if speaks_epochs and holder.epoch != STATIC_LEAVE_EPOCH:
            raise Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID, f"instance {instance_id} is held by {holder.id}, which has not left"
            )
        successor = replace(holder, id=member_id, epoch=0, previous_epoch=0)
        records += member_tombstones(group.id, holder.id)
        records += (
            member_record(group.id, successor),
            target_record(group.id, successor.id, group.target_of(holder.id)),
            current_record(group.id, successor),
        )
        return successor

    # ── leaving ──

    def _leave(self, request: ConsumerGroupHeartbeatRequest, token: int, now_ms: int) -> Output:
        group = self._registry.consumer_group(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = check_instance(group.static_member(request.instance_id), request.member_id, request.instance_id)
        output = Output()
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            output.records.append(current_record(group.id, _mark_absent(member)))
        else:
            output.notes.append(f"member {member.id} leaves group {group.id}")
            self._steps.fence(output, group, [member], now_ms)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        output.replies.append((token, response))
        return output


def check_instance(holder: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """Return `holder`, the member of the instance id, if it is `member_id`; refuse otherwise."""
    if holder is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"no member holds instance {instance_id}")
    if holder.id != member_id:
        raise Refusal(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} is held by {holder.id}, not {member_id}")
    return holder


def _check_epoch(member: ConsumerMember, epoch: int, reported: Reported) -> None:
    """Refuse an epoch that is neither the member's nor, after a lost response, its previous one."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _owns_only_assigned_partitions(member, reported):
        return
    raise Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member is at epoch {member.epoch}, not {epoch}: it must give up all its partitions and join again",
    )


def _owns_only_assigned_partitions(member: ConsumerMember, reported: Reported) -> bool:
    """Whether the heartbeat lists owned partitions, and all of them are assigned to the member."""
    return reported is not None and all(
        index in member.assigned.get(topic_id, {}) for topic_id, indexes in reported.items() for index in indexes
    )


def _mark_absent(member: ConsumerMember) -> ConsumerMember:
    """Return a static member that has left for a while: it keeps its partitions, and its old epoch may not commit."""
    return replace(
        member,
        epoch=STATIC_LEAVE_EPOCH,
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
        pending_revocation={},
    )


def _update_member(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, context: Caller) -> ConsumerMember:
    """Return the member with the fields of the request; a field that the request leaves out keeps its value."""
    names, regex, timeout_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else frozenset(names),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        client_id=client_id(context),
        client_host=client_host(context),
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all of its fields: then the response has the whole assignment too."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None


def _read_owned_partitions(partitions: Iterable[TopicPartitions] | None) -> Reported:
    if partitions is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in partitions}


def _assignment(assigned: OwnedPartitions) -> Assignment:
    """Return the assignment for the response, topics and partitions in the order in which Apache Kafka's hash tables
    iterate."""
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=topic_id, partitions=hash_order(sorted(assigned[topic_id]), int_hash)
            )
            for topic_id in computed_hash_order(sorted(assigned), uuid_hash)
        ]
    )

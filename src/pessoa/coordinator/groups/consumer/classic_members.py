"""Members that speak the classic protocol in a group that has moved to the consumer protocol.

They see a classic group of which they are followers: their generation is their member epoch, JoinGroup is a heartbeat
that says all, and SyncGroup fetches the assignment. No member leads; the coordinator assigns. A Heartbeat answers
REBALANCE_IN_PROGRESS when the member has a step to take, which it can only take by joining again.

A static member that comes back with the classic protocol may be the one that was last to speak the other: then the
whole group goes back to the classic protocol with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.classic.classic_group import Protocols, as_protocols
from pessoa.coordinator.groups.classic.consumer_payloads import (
    CONSUMER_PROTOCOL_TYPE,
    embedded_version,
    read_subscription,
    write_assignment,
)
from pessoa.coordinator.groups.classic.join import JoinCall
from pessoa.coordinator.groups.classic.rebalance import join_response
from pessoa.coordinator.groups.consumer.consumer_group import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    rejoin_key,
    resync_key,
)
from pessoa.coordinator.groups.consumer.consumer_heartbeat import ConsumerHeartbeat, check_instance
from pessoa.coordinator.groups.consumer.heartbeat_steps import HeartbeatSteps, Target
from pessoa.coordinator.groups.consumer.regex_refresh import RegexChange, RegexRefresh
from pessoa.coordinator.groups.group_config import MigrationPolicy
from pessoa.coordinator.groups.group_registry import client_host, client_id
from pessoa.coordinator.shard import Output
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from pessoa.wire.errors import ErrorCode, ProtocolViolation, Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.stored.consumer_protocol import ConsumerProtocolSubscription, TopicPartition

_MEMBER_ID_REQUIRED_VERSION = 4


class ClassicMembers:
    def __init__(self, steps: HeartbeatSteps, regexes: RegexRefresh, protocol: ConsumerHeartbeat) -> None:
        self._steps = steps
        self._regexes = regexes
        self._protocol = protocol
        self._registry = steps.registry

    # ── JoinGroup ──

    def join(self, group: ConsumerGroup, request: JoinGroupRequest, context: Caller, token: int, now_ms: int) -> Output:
        if self._registry.config.group_consumer_migration_policy is MigrationPolicy.DISABLED:
            raise Refusal(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.id} uses the consumer protocol, and moving between protocols is switched off",
            )
        protocols = as_protocols((each.name, each.metadata) for each in request.protocols)
        call = JoinCall(request, protocols, context, token, now_ms)
        is_unknown = not request.member_id
        member_id = str(self._registry.new_uuid()) if is_unknown else request.member_id
        self._protocol.check_room(group, member_id)
        if not group.supports_classic_protocols(request.protocol_type, protocols):
            raise Refusal(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{member_id} shares no protocol with the others of {group.id}"
            )
        instance_id = request.group_instance_id
        if is_unknown and instance_id is None and context.version >= _MEMBER_ID_REQUIRED_VERSION:
            return Output.reply(token, join_response(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        output = Output()
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = self._protocol.find_static_member(output.records, group, member_id, instance_id, is_unknown, True)
        self._join(output, group, member, call)
        return output

    def _join(self, output: Output, group: ConsumerGroup, member: ConsumerMember, call: JoinCall) -> None:
        records, now_ms = output.records, call.now_ms
        former = group.static_member(call.request.group_instance_id)
        goes_back = former is not None and self._steps.migration.can_downgrade_with(group, former)
        subscription = _read_subscription(call.protocols)
        updated = _update_member(member, subscription, call)
        names_changed = self._steps.note_member(records, group, member, updated)
        regex_change = self._regexes.update(records, group, member, updated, call.context, now_ms)
        has_changed = names_changed or regex_change is not RegexChange.NONE
        epoch = group.epoch
        if has_changed or group.has_metadata_expired(now_ms):
            epoch = self._steps.refresh_metadata(records, group, has_changed, member, updated, now_ms)
        reported = self._owned_by_topic_id(subscription.owned_partitions)
        if goes_back:
            # Kafka looks at the epochs alone. But while a member has not reached its target, what it still uses
            # may stand in another's, and a stable classic group would give it out.
            is_behind = group.assignment_epoch < epoch or not all(
                each.is_reconciled_to(group.assignment_epoch) for each in group.members.values() if each is not former
            )
            if not is_behind:
                target = Target(group.assignment_epoch, group.target_of(updated.id, updated.instance_id))
                updated = self._steps.take_step(records, group, updated, target, has_changed, reported, now_ms)
            reason = "it goes back to the classic protocol with an assignment that is out of date"
            self._steps.migration.downgrade(output, group, {}, updated, reason if is_behind else None, now_ms)
        else:
            target = self._steps.update_target(records, group, epoch, updated, now_ms)
            updated = self._steps.take_step(records, group, updated, target, has_changed, reported, now_ms)
            self._registry.timers.cancel(rejoin_key(group.id, updated.id))
            self._steps.expect_heartbeat(group.id, updated.id, now_ms + call.request.session_timeout_ms)
            self._steps.expect_sync(group.id, updated.id, now_ms + call.rebalance_timeout_ms)
        response = JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=updated.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=call.protocols[0][0],
            leader="",
            member_id=updated.id,
            members=[],
        )
        output.replies.append((call.token, response))

    def _owned_by_topic_id(self, owned: Sequence[TopicPartition]) -> dict[Uuid, frozenset[int]]:
        return {
            topic.id: frozenset(each.partitions)
            for each in owned
            if (topic := self._registry.topic(each.topic)) is not None
        }

    # ── SyncGroup and Heartbeat ──

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, token: int, now_ms: int) -> Output:
        member, side = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        protocol = side.protocols[0][0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, protocol):
            raise Refusal(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{member.id} joined with {CONSUMER_PROTOCOL_TYPE} {protocol}, "
                f"not {request.protocol_type} {request.protocol_name}",
            )
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._steps.expect_join(group.id, member.id, now_ms + member.rebalance_timeout_ms)
            raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.id} has a newer assignment")
        self._registry.timers.cancel(resync_key(group.id, member.id))
        self._steps.expect_heartbeat(group.id, member.id, now_ms + side.session_timeout_ms)
        response = SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._assignment(member, side),
        )
        return Output.reply(token, response)

    def _assignment(self, member: ConsumerMember, side: ClassicSide) -> bytes:
        topics = self._registry.image.topics.by_id
        partitions = [
            (topics[topic_id].name, sorted(indexes))
            for topic_id, indexes in sorted(member.assigned.items())
            if topic_id in topics
        ]
        return write_assignment(partitions, embedded_version(side.protocols[0][1]))

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, token: int, now_ms: int) -> Output:
        member, side = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._steps.expect_heartbeat(group.id, member.id, now_ms + side.session_timeout_ms)
        can_get_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member)
        must_join = (
            member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or can_get_more
        )
        if must_join:
            self._steps.expect_join(group.id, member.id, now_ms + member.rebalance_timeout_ms)
        code = ErrorCode.REBALANCE_IN_PROGRESS if must_join else ErrorCode.NONE
        return Output.reply(token, HeartbeatResponse(error_code=code))

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicSide]:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_instance(group.static_member(instance_id), member_id, instance_id)
        if member.classic is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} does not use the classic protocol")
        return member, member.classic

    # ── LeaveGroup ──

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, token: int, now_ms: int) -> Output:
        output = Output()
        leaving: dict[str, ConsumerMember] = {}
        responses = []
        for identity in request.members:
            code = ErrorCode.NONE
            try:
                member = _find_leaving_member(group, identity)
                leaving[member.id] = member
            except Refusal as refusal:
                code = refusal.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        self._steps.fence(output, group, leaving.values(), now_ms)
        output.replies.append((token, LeaveGroupResponse(error_code=ErrorCode.NONE, members=responses)))
        return output


def _find_leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    holder = group.static_member(identity.group_instance_id)
    if holder is not None and not identity.member_id:
        return holder  # an administrator removes it by its instance id
    return check_instance(holder, identity.member_id, identity.group_instance_id)


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"{member.id} is at generation {member.epoch}, not {generation}")


def _read_subscription(protocols: Protocols) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(protocols[0][1])
    except ProtocolViolation as violation:
        # What the others of the group could not read either.
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription cannot be read: {violation}") from None


def _update_member(
    member: ConsumerMember, subscription: ConsumerProtocolSubscription, call: JoinCall
) -> ConsumerMember:
    request, timeout_ms = call.request, call.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topics=frozenset(subscription.topics),
        subscribed_regex="",
        client_id=client_id(call.context),
        client_host=client_host(call.context),
        classic=ClassicSide(request.session_timeout_ms, call.protocols),
    )

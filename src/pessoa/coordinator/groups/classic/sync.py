"""SyncGroup, Heartbeat and LeaveGroup for a classic group."""

from __future__ import annotations

from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.coordinator.groups.classic.rebalance import (
    UNKNOWN_MEMBER,
    ClassicRebalance,
    heartbeat_key,
    join_response,
    sync_key,
    sync_response,
)
from pessoa.coordinator.shard import Output, public_error
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pessoa.wire.api.sync_group import SyncGroupRequest
from pessoa.wire.errors import ErrorCode, Refusal


class ClassicSync:
    def __init__(self, rebalance: ClassicRebalance) -> None:
        self._rebalance = rebalance
        self._timers = rebalance.timers

    # ── SyncGroup ──

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, token: int, now_ms: int) -> Output:
        output = Output(replays=False)
        code = self._sync_error(group, request)
        if code is not ErrorCode.NONE:
            output.replies.append((token, sync_response(code)))
            return output
        member = group.members[request.member_id]
        group.pending_sync.pop(member.id, None)
        if not group.pending_sync:
            self._timers.cancel(sync_key(group.id))
        if group.state is ClassicState.STABLE:
            output.replies.append((token, sync_response(ErrorCode.NONE, group, member.assignment)))
            return output
        # A member that syncs again has given up its first request.
        self._rebalance.answer_sync(output, member, sync_response(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if group.is_leader(member.id):
            self._take_assignment(output, group, request)
        return output

    def _sync_error(self, group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except Refusal as refusal:
            return refusal.code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _take_assignment(self, output: Output, group: ClassicGroup, request: SyncGroupRequest) -> None:
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        # A member that the leader forgot gets nothing.
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        output.records.append(group.record(assignments))
        generation = group.generation

        def on_outcome(code: ErrorCode, now_ms: int) -> Output:
            result = Output(replays=False)
            if group.state is not ClassicState.COMPLETING_REBALANCE or group.generation != generation:
                return result  # another rebalance has begun, and has answered
            if code is ErrorCode.NONE:
                for member in group.members.values():
                    member.assignment = assignments.get(member.id, b"")
                self._rebalance.share_assignments(result, group, code, now_ms)
                group.move_to(ClassicState.STABLE, now_ms)
            else:
                self._rebalance.share_assignments(result, group, public_error(code), now_ms)
                self._rebalance.rebalance(result, group, f"the assignment was not stored: {code.name}", now_ms)
            return result

        output.on_outcome = on_outcome

    # ── Heartbeat ──

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, token: int, now_ms: int) -> Output:
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise Refusal(ErrorCode.ILLEGAL_GENERATION)
        self._rebalance.expect_heartbeat(group, group.members[request.member_id], now_ms)
        preparing = group.state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE
        return Output.reply(token, HeartbeatResponse(error_code=code))

    # ── LeaveGroup ──

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest, token: int, now_ms: int) -> Output:
        output = Output(replays=False)
        responses = []
        for identity in request.members:
            code = self._leave(output, group, identity)
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        left = [each.member_id for each in responses if each.error_code == ErrorCode.NONE]
        if left:
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                self._rebalance.rebalance(output, group, f"{', '.join(left)} left", now_ms)
            else:
                self._rebalance.maybe_complete_join(output, group, now_ms)
        output.replies.append((token, LeaveGroupResponse(error_code=ErrorCode.NONE, members=responses)))
        return output

    def _leave(self, output: Output, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id.
            held_by = group.static_members.get(instance_id) if instance_id is not None else None
            if held_by is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = held_by
        elif member_id in group.pending_join:
            group.remove(member_id)
            self._timers.cancel(heartbeat_key(group.id, member_id))
            return ErrorCode.NONE
        else:
            try:
                group.check_member(member_id, instance_id)
            except Refusal as refusal:
                return refusal.code
        member = group.members[member_id]
        self._timers.cancel(heartbeat_key(group.id, member_id))
        gone = join_response(UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID)
        self._rebalance.answer_join(output, group, member, gone)
        self._rebalance.answer_sync(output, member, sync_response(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return ErrorCode.NONE


def _differ(given: str | None, expected: str | None) -> bool:
    return given is not None and expected is not None and given != expected

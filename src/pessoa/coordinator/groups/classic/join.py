"""JoinGroup for a classic group: new members, members that join again, static members that come back."""

from __future__ import annotations

from typing import NamedTuple

from pessoa.coordinator.groups.classic.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    Protocols,
    as_protocols,
)
from pessoa.coordinator.groups.classic.rebalance import (
    UNKNOWN_MEMBER,
    ClassicRebalance,
    heartbeat_key,
    join_response,
    listed_members,
    sync_response,
)
from pessoa.coordinator.groups.group_config import NEW_MEMBER_JOIN_TIMEOUT_MS
from pessoa.coordinator.groups.group_registry import client_host, client_id
from pessoa.coordinator.shard import Output, public_error
from pessoa.wire.api.join_group import JoinGroupRequest
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller

# From this version of JoinGroup on a dynamic member must know its id before it joins.
_MEMBER_ID_REQUIRED_VERSION = 4
# From this version on a static leader can be told not to compute an assignment.
_SKIP_ASSIGNMENT_VERSION = 9


class JoinCall(NamedTuple):
    """A JoinGroup request, its context, and when it came."""

    request: JoinGroupRequest
    protocols: Protocols
    context: Caller
    token: int
    now_ms: int

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout; in version 0, which has none, the session timeout."""
        request = self.request
        return request.session_timeout_ms if self.context.version == 0 else request.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return self.request.reason or "no reason given"


class ClassicJoin:
    """JoinGroup for a classic group."""

    def __init__(self, rebalance: ClassicRebalance) -> None:
        self._rebalance = rebalance
        self._registry = rebalance.registry

    def join(self, group: ClassicGroup, request: JoinGroupRequest, context: Caller, token: int, now_ms: int) -> Output:
        output = Output(replays=False)
        protocols = as_protocols((protocol.name, protocol.metadata) for protocol in request.protocols)
        call = JoinCall(request, protocols, context, token, now_ms)
        member_id = request.member_id
        if not self._has_room(group, member_id):
            group.remove(member_id)
            output.replies.append((token, join_response(UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)))
        elif not group.supports(request.protocol_type, protocols):
            output.replies.append((token, join_response(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
        elif member_id == UNKNOWN_MEMBER:
            self._join_unknown(output, group, call)
        elif member_id in group.pending_join and request.group_instance_id is None:
            self._add(output, group, member_id, call)
        else:
            self._rejoin(output, group, call)
        return output

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._registry.config.group_max_size
        member = group.members.get(member_id)
        if group.is_empty:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            # In a rebalance all members join again; the first group.max.size of them stay.
            return (member is not None and member.is_awaiting_join) or group.awaiting_join_count < limit
        return member is not None or len(group.members) < limit

    def _join_unknown(self, output: Output, group: ClassicGroup, call: JoinCall) -> None:
        instance_id = call.request.group_instance_id
        member_id = f"{client_id(call.context) if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static_member(output, group, instance_id, member_id, call)
        elif instance_id is None and call.context.version >= _MEMBER_ID_REQUIRED_VERSION:
            group.pending_join[member_id] = None
            self._rebalance.expect_heartbeat_of(group.id, member_id, call.now_ms + call.request.session_timeout_ms)
            output.replies.append((call.token, join_response(member_id, ErrorCode.MEMBER_ID_REQUIRED)))
        else:
            self._add(output, group, member_id, call)

    def _new_id(self) -> str:
        """Return a UUID as Java prints it, which is the form of member ids."""
        digits = self._registry.new_uuid().hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _add(self, output: Output, group: ClassicGroup, member_id: str, call: JoinCall) -> None:
        member = ClassicMember(
            member_id,
            call.request.group_instance_id,
            client_id(call.context),
            client_host(call.context),
            call.rebalance_timeout_ms,
            call.request.session_timeout_ms,
            call.protocols,
        )
        member.is_new = True
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.new_member_added = True
        group.add(member, call.request.protocol_type, call.token)
        self._rebalance.expect_heartbeat(group, member, call.now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.rebalance_or_complete(output, group, f"{member_id} joins ({call.reason})", call.now_ms)

    def _rejoin(self, output: Output, group: ClassicGroup, call: JoinCall) -> None:
        member_id = call.request.member_id
        try:
            group.check_member(member_id, call.request.group_instance_id)
        except Refusal as refusal:
            output.replies.append((call.token, join_response(member_id, refusal.code)))
            return
        member = group.members[member_id]
        is_leader = group.is_leader(member_id)
        # A leader that joins a stable group has seen something change, and wants to assign anew.
        wants_assignment = group.state is ClassicState.STABLE and is_leader
        if group.state is ClassicState.PREPARING_REBALANCE or wants_assignment or member.protocols != call.protocols:
            # A member that joins again has given up its first request.
            rejoins = join_response(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            self._rebalance.answer_join(output, group, member, rejoins)
            group.update(member, call.protocols, call.rebalance_timeout_ms, call.request.session_timeout_ms, call.token)
            self._rebalance.rebalance_or_complete(
                output, group, f"{member_id} joins again ({call.reason})", call.now_ms
            )
            return
        # Its answer was lost, or it does not know of the generation: tell it again.
        members = listed_members(group) if is_leader and group.state is not ClassicState.STABLE else None
        output.replies.append((call.token, join_response(member_id, group=group, members=members)))

    def _replace_static_member(
        self, output: Output, group: ClassicGroup, instance_id: str, new_id: str, call: JoinCall
    ) -> None:
        """Give a static member that joins without its member id a new id, in the place of the old one."""
        old_id = group.static_members[instance_id]
        old_leader = group.leader
        member = self._take_over(output, group, instance_id, old_id, new_id, call.now_ms)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(member, call.protocols, call.rebalance_timeout_ms, call.request.session_timeout_ms, call.token)
        if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol:
            group.set_join_token(member, None)
            output.records.append(group.record({each.id: each.assignment for each in group.members.values()}))
            output.on_outcome = lambda code, now_ms: (
                self._finish_replacement(group, member, call, old_leader)
                if code is ErrorCode.NONE
                else self._undo_replacement(group, member, old_id, before, call, old_leader, code, now_ms)
            )
            return
        reason = f"static member {instance_id} joins again as {new_id} ({call.reason})"
        self._rebalance.rebalance_or_complete(output, group, reason, call.now_ms)

    def _take_over(
        self, output: Output, group: ClassicGroup, instance_id: str, old_id: str, new_id: str, now_ms: int
    ) -> ClassicMember:
        old = group.members[old_id]
        self._rebalance.answer_join(output, group, old, join_response(old_id, ErrorCode.FENCED_INSTANCE_ID))
        self._rebalance.answer_sync(output, old, sync_response(ErrorCode.FENCED_INSTANCE_ID))
        self._registry.timers.cancel(heartbeat_key(group.id, old_id))
        member = group.replace_static(instance_id, old_id, new_id)
        self._rebalance.expect_heartbeat(group, member, now_ms)
        return member

    def _finish_replacement(
        self, group: ClassicGroup, member: ClassicMember, call: JoinCall, old_leader: str | None
    ) -> Output:
        """Answer the join of a static member in a stable group, whose new member id is written: no rebalance is
        needed."""
        if group.members.get(member.id) is not member:
            reply = join_response(UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID)
        elif group.state is not ClassicState.STABLE:
            reply = join_response(member.id, ErrorCode.REBALANCE_IN_PROGRESS)
        elif call.context.version >= _SKIP_ASSIGNMENT_VERSION:
            is_leader = group.is_leader(member.id)
            members = listed_members(group) if is_leader else None
            reply = join_response(member.id, group=group, members=members, skip_assignment=is_leader)
        else:
            # An old client that reads another's id as the leader's does not assign.
            reply = join_response(member.id, group=group, leader=old_leader)
        return Output.reply(call.token, reply)

    def _undo_replacement(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        old_id: str,
        before: tuple[Protocols, int, int],
        call: JoinCall,
        old_leader: str | None,
        code: ErrorCode,
        now_ms: int,
    ) -> Output:
        output = Output(replays=False)
        if group.members.get(member.id) is member:
            assert member.instance_id is not None
            group.update(member, *before, member.join_token)
            self._take_over(output, group, member.instance_id, member.id, old_id, now_ms)
        reply = join_response(UNKNOWN_MEMBER, public_error(code), group, leader=old_leader)
        output.replies.append((call.token, reply))
        return output

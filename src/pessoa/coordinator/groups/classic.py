"""The classic protocol: what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do to a classic group.

A rebalance has a barrier. The group says REBALANCE_IN_PROGRESS to heartbeats, members join again and are parked, and
when all have come, or the longest rebalance timeout of the members has passed, all joins are answered at once with
the next generation. Who did not come is out, unless it is static. The leader's answer lists the members; it computes
the assignment and hands it in with SyncGroup, where the others are parked too. When that is written and committed,
every sync is answered and the group is stable.

An empty group waits a little for company before its first generation (group.initial.rebalance.delay.ms), and for as
long again whenever somebody came, up to the rebalance timeout: so that ten consumers that start together cost one
rebalance.

A dynamic member joins twice (KIP-394): the first time it only gets a member id, so that a client whose first answer
is lost does not leave a dead member behind. A static member (KIP-345) is known by its group.instance.id: it takes
over its old place under a new member id, which fences the old one, and a stable group is not even rebalanced for it.

Every method returns an `Output` whose replies may answer others than the request at hand.
"""

from __future__ import annotations

from typing import NamedTuple

from pessoa.coordinator.groups.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    Protocols,
    as_protocols,
)
from pessoa.coordinator.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from pessoa.coordinator.groups.registry import Registry, client_host, client_id
from pessoa.coordinator.shard import Output, Refusal, Reply, RequestContext, public_error
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from pessoa.wire.api.sync_group import SyncGroupResponse
from pessoa.wire.errors import ErrorCode

UNKNOWN_MEMBER = ""
# From this version of JoinGroup on a dynamic member must know its id before it joins.
_MEMBER_ID_REQUIRED_VERSION = 4
# From this version on a static leader can be told not to compute an assignment.
_SKIP_ASSIGNMENT_VERSION = 9


def heartbeat_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("classic heartbeat", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("classic join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("classic sync", group_id)


def join_response(
    member_id: str,
    code: ErrorCode = ErrorCode.NONE,
    group: ClassicGroup | None = None,
    *,
    leader: str | None = None,
    members: list[JoinGroupResponseMember] | None = None,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """With `group`, its generation and protocol; its leader too unless another is named."""
    if group is None:
        return JoinGroupResponse(
            error_code=code, generation_id=-1, protocol_name=None, leader="", member_id=member_id, members=[]
        )
    return JoinGroupResponse(
        error_code=code,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=(group.leader if leader is None else leader) or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members or [],
    )


def sync_response(code: ErrorCode, group: ClassicGroup | None = None, assignment: bytes = b"") -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=code,
        protocol_type=None if group is None else group.protocol_type,
        protocol_name=None if group is None else group.protocol,
        assignment=assignment,
    )


class ClassicRebalance:
    """The part that all requests and timers of the classic protocol share: rounds of joining and what ends them."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.timers = registry.timers

    # ── answers to those who are parked ──

    def answer_join(self, output: Output, group: ClassicGroup, member: ClassicMember, reply: Reply) -> None:
        if member.join_token is not None:
            output.replies.append((member.join_token, reply))
            group.set_join_token(member, None)

    def answer_sync(self, output: Output, member: ClassicMember, reply: Reply) -> bool:
        if member.sync_token is None:
            return False
        output.replies.append((member.sync_token, reply))
        member.sync_token = None
        return True

    def share_assignments(self, output: Output, group: ClassicGroup, code: ErrorCode, now_ms: int) -> None:
        """Answer every parked sync: with the member's assignment, or with the error."""
        for member in group.members.values():
            reply = sync_response(code, group, member.assignment) if code is ErrorCode.NONE else sync_response(code)
            if self.answer_sync(output, member, reply):
                self.expect_heartbeat(group, member, now_ms)

    # ── timers ──

    def expect_heartbeat(
        self, group: ClassicGroup, member: ClassicMember, now_ms: int, timeout_ms: int | None = None
    ) -> None:
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.expect_heartbeat_of(group.id, member.id, now_ms + wait_ms)

    def expect_heartbeat_of(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        self.timers.schedule(
            heartbeat_key(group_id, member_id),
            deadline_ms,
            lambda now_ms: self.expire_heartbeat(group_id, member_id, now_ms),
        )

    def expire_heartbeat(self, group_id: str, member_id: str, now_ms: int) -> Output:
        output = Output(replays=False)
        group = self.registry.classic_group(group_id)
        if group is None:
            return output
        if member_id in group.pending_join:
            group.remove(member_id)
            self._complete_if_all_joined(output, group, now_ms)
            return output
        member = group.members.get(member_id)
        if member is None or member.is_heard_of:
            return output
        output.notes.append(f"member {member_id} of group {group_id} has not been heard of and is removed")
        self.answer_join(output, group, member, join_response(UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self.rebalance(output, group, f"member {member_id} failed", now_ms)
        else:
            self._complete_if_all_joined(output, group, now_ms)
        return output

    def _complete_if_all_joined(self, output: Output, group: ClassicGroup, now_ms: int) -> None:
        if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
            self.complete_join(output, group, now_ms)

    # ── a round of joining ──

    def rebalance_or_complete(self, output: Output, group: ClassicGroup, reason: str, now_ms: int) -> None:
        """Begin a rebalance where one can begin; within one, see whether it is over."""
        if group.can_rebalance:
            self.rebalance(output, group, reason, now_ms)
        else:
            self.maybe_complete_join(output, group, now_ms)

    def rebalance(self, output: Output, group: ClassicGroup, reason: str, now_ms: int) -> None:
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.share_assignments(output, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.pending_sync.clear()
        self.timers.cancel(sync_key(group.id))
        is_initial = group.is_empty
        group.move_to(ClassicState.PREPARING_REBALANCE, now_ms)
        output.notes.append(f"group {group.id} rebalances after generation {group.generation}: {reason}")
        if is_initial:
            delay_ms = self.registry.config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._delay_initial(group.id, delay_ms, remaining_ms, now_ms)
        elif group.has_all_joined:
            self.complete_join(output, group, now_ms)
        else:
            self._wait_for_joins(group, now_ms)

    def _delay_initial(self, group_id: str, delay_ms: int, remaining_ms: int, now_ms: int) -> None:
        self.timers.schedule(
            join_key(group_id),
            now_ms + delay_ms,
            lambda now_ms: self._end_initial_delay(group_id, delay_ms, remaining_ms, now_ms),
        )

    def _end_initial_delay(self, group_id: str, delay_ms: int, remaining_ms: int, now_ms: int) -> Output:
        output = Output(replays=False)
        group = self.registry.classic_group(group_id)
        if group is None or group.state is not ClassicState.PREPARING_REBALANCE:
            return output
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_ms = min(self.registry.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial(group_id, next_ms, max(remaining_ms - delay_ms, 0), now_ms)
        else:
            self.complete_join(output, group, now_ms)
        return output

    def _wait_for_joins(self, group: ClassicGroup, now_ms: int) -> None:
        group_id = group.id
        self.timers.schedule(
            join_key(group_id),
            now_ms + group.rebalance_timeout_ms,
            lambda now_ms: self._end_wait_for_joins(group_id, now_ms),
        )

    def _end_wait_for_joins(self, group_id: str, now_ms: int) -> Output:
        output = Output(replays=False)
        group = self.registry.classic_group(group_id)
        # The timer may be left from before the group moved to the other protocol and back.
        if group is not None and group.state is ClassicState.PREPARING_REBALANCE:
            self.complete_join(output, group, now_ms)
        return output

    def maybe_complete_join(self, output: Output, group: ClassicGroup, now_ms: int) -> None:
        # The first rebalance of an empty group ends by its timer alone.
        if group.previous_state is not ClassicState.EMPTY:
            self._complete_if_all_joined(output, group, now_ms)

    def complete_join(self, output: Output, group: ClassicGroup, now_ms: int) -> None:
        """Begin the next generation with those who came."""
        self.timers.cancel(join_key(group.id))
        for member in list(group.members.values()):
            if not member.is_awaiting_join and member.instance_id is None:
                output.notes.append(f"member {member.id} of group {group.id} did not join again and is removed")
                group.remove(member.id)
                self.timers.cancel(heartbeat_key(group.id, member.id))
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none of them came: wait for one more round.
            self._wait_for_joins(group, now_ms)
            return
        group.begin_generation(now_ms)
        if group.is_empty:
            output.notes.append(f"group {group.id} is empty at generation {group.generation}")
            output.records.append(group.record({}))
            return
        output.notes.append(f"group {group.id} has {len(group.members)} members at generation {group.generation}")
        for member in group.members.values():
            members = listed_members(group) if group.is_leader(member.id) else None
            self.answer_join(output, group, member, join_response(member.id, group=group, members=members))
            self.expect_heartbeat(group, member, now_ms)
            member.is_new = False
            group.pending_sync[member.id] = None
        self._wait_for_syncs(group, now_ms)

    def _wait_for_syncs(self, group: ClassicGroup, now_ms: int) -> None:
        group_id, generation = group.id, group.generation
        self.timers.schedule(
            sync_key(group_id),
            now_ms + group.rebalance_timeout_ms,
            lambda now_ms: self._end_wait_for_syncs(group_id, generation, now_ms),
        )

    def _end_wait_for_syncs(self, group_id: str, generation: int, now_ms: int) -> Output:
        output = Output(replays=False)
        group = self.registry.classic_group(group_id)
        if group is None or group.generation != generation or not group.pending_sync:
            return output
        if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return output
        missing = list(group.pending_sync)
        for member_id in missing:
            group.remove(member_id)
            self.timers.cancel(heartbeat_key(group_id, member_id))
        self.rebalance(output, group, f"no sync came from {', '.join(missing)}", now_ms)
        return output


def listed_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata(group.protocol)
        )
        for member in group.members.values()
    ]


class JoinCall(NamedTuple):
    """A JoinGroup with all that deciding on it takes."""

    request: JoinGroupRequest
    protocols: Protocols
    context: RequestContext
    token: int
    now_ms: int

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 knew no rebalance timeout: the session's served for both."""
        request = self.request
        return request.session_timeout_ms if self.context.version == 0 else request.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return self.request.reason or "no reason given"


class ClassicJoin:
    """JoinGroup for a classic group."""

    def __init__(self, rounds: ClassicRebalance) -> None:
        self._rounds = rounds
        self._registry = rounds.registry

    def join(
        self, group: ClassicGroup, request: JoinGroupRequest, context: RequestContext, token: int, now_ms: int
    ) -> Output:
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
            # Everybody joins again; the first to come stay.
            return (member is not None and member.is_awaiting_join) or group.awaiting_join_count < limit
        return member is not None or len(group.members) < limit

    def _join_unknown(self, output: Output, group: ClassicGroup, call: JoinCall) -> None:
        instance_id = call.request.group_instance_id
        member_id = f"{client_id(call.context) if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace(output, group, instance_id, member_id, call)
        elif instance_id is None and call.context.version >= _MEMBER_ID_REQUIRED_VERSION:
            group.pending_join[member_id] = None
            self._rounds.expect_heartbeat_of(group.id, member_id, call.now_ms + call.request.session_timeout_ms)
            output.replies.append((call.token, join_response(member_id, ErrorCode.MEMBER_ID_REQUIRED)))
        else:
            self._add(output, group, member_id, call)

    def _new_id(self) -> str:
        """A UUID as Java prints it, which is the form of member ids."""
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
        self._rounds.expect_heartbeat(group, member, call.now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rounds.rebalance_or_complete(output, group, f"{member_id} joins ({call.reason})", call.now_ms)

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
            # Whoever joins twice has given up the first time.
            rejoins = join_response(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            self._rounds.answer_join(output, group, member, rejoins)
            group.update(member, call.protocols, call.rebalance_timeout_ms, call.request.session_timeout_ms, call.token)
            self._rounds.rebalance_or_complete(output, group, f"{member_id} joins again ({call.reason})", call.now_ms)
            return
        # Its answer was lost, or it does not know of the generation: tell it again.
        members = listed_members(group) if is_leader and group.state is not ClassicState.STABLE else None
        output.replies.append((call.token, join_response(member_id, group=group, members=members)))

    def _replace(self, output: Output, group: ClassicGroup, instance_id: str, new_id: str, call: JoinCall) -> None:
        """A static member comes back without its member id: it takes over its old place."""
        old_id = group.static_members[instance_id]
        old_leader = group.leader
        member = self._take_over(output, group, instance_id, old_id, new_id, call.now_ms)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(member, call.protocols, call.rebalance_timeout_ms, call.request.session_timeout_ms, call.token)
        if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol:
            group.set_join_token(member, None)
            output.records.append(group.record({each.id: each.assignment for each in group.members.values()}))
            output.settled = lambda code, now_ms: (
                self._settle_replacement(group, member, call, old_leader)
                if code is ErrorCode.NONE
                else self._undo_replacement(group, member, old_id, before, call, old_leader, code, now_ms)
            )
            return
        reason = f"static member {instance_id} joins again as {new_id} ({call.reason})"
        self._rounds.rebalance_or_complete(output, group, reason, call.now_ms)

    def _take_over(
        self, output: Output, group: ClassicGroup, instance_id: str, old_id: str, new_id: str, now_ms: int
    ) -> ClassicMember:
        old = group.members[old_id]
        self._rounds.answer_join(output, group, old, join_response(old_id, ErrorCode.FENCED_INSTANCE_ID))
        self._rounds.answer_sync(output, old, sync_response(ErrorCode.FENCED_INSTANCE_ID))
        self._registry.timers.cancel(heartbeat_key(group.id, old_id))
        member = group.replace_static(instance_id, old_id, new_id)
        self._rounds.expect_heartbeat(group, member, now_ms)
        return member

    def _settle_replacement(
        self, group: ClassicGroup, member: ClassicMember, call: JoinCall, old_leader: str | None
    ) -> Output:
        """A stable group has noted the new member id; no rebalance is needed."""
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

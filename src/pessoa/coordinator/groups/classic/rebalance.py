"""The rounds of the classic protocol: what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do to a classic group.

A rebalance has a barrier. The group says REBALANCE_IN_PROGRESS to heartbeats, members join again and are parked, and
when all have come, or the longest rebalance timeout of the members has passed, all joins are answered at once with
the next generation. A member that did not join is removed, unless it is static. The leader's answer lists the members;
it computes the assignment and hands it in with SyncGroup, where the others are parked too. When that is written and
committed, every sync is answered and the group is stable.

An empty group waits a little for company before its first generation (group.initial.rebalance.delay.ms), and for as
long again whenever a member joined, up to the rebalance timeout: so that ten consumers that start together cost one
rebalance.

A dynamic member joins twice (KIP-394): the first time it only gets a member id, so that a client whose first answer
is lost does not leave a dead member behind. A static member (KIP-345) is known by its group.instance.id: it takes
over its old place under a new member id, which fences the old one, and a stable group is not even rebalanced for it.

Every method returns an `Output` whose replies may answer others than the request at hand.
"""

from __future__ import annotations

from pessoa.coordinator.groups.classic.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
)
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.shard import Output, Reply
from pessoa.wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from pessoa.wire.api.sync_group import SyncGroupResponse
from pessoa.wire.errors import ErrorCode

UNKNOWN_MEMBER = ""


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
    """Return a JoinGroup response; with `group`, it has its generation and protocol, and its leader unless another is
    given."""
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
    """Begins and completes rebalances: what all requests and timers of the classic protocol share."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.timers = registry.timers

    # ── answers to parked requests ──

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
        """Begin a rebalance if the group's state permits; in PreparingRebalance, complete it if all have joined."""
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
        """Begin the next generation with the members that joined."""
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

"""A classic group: members, generation and state. What the requests make of it is in `rebalance`, `join` and `sync`.

    Empty ──join──► PreparingRebalance ──all joined, or time up──► CompletingRebalance ──leader's sync──► Stable
      ▲                 │   ▲   ▲                                        │                                 │
      └──last left──────┘   │   └──────── join, leave, failure ──────────┘                                 │
                            └──────────────── join, leave, failure, leader rejoins ────────────────────────┘

Kafka's fifth state, Dead, is shown for groups that do not exist; here a group that is gone is simply not there.

What of it is stored: the generation, its members with their assignments, the protocol, the leader, and when the state
was entered; written when a generation becomes stable and when the group becomes empty. All else is soft: a new
coordinator starts from the last stable generation, and its members notice nothing as long as they heartbeat.

Invariants: `awaiting_join_count` counts the members with a join token; every member's protocol type is the group's;
the leader, if any, is a member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from pessoa.coordinator.groups.classic.consumer_payloads import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from pessoa.coordinator.shard import CoordinatorRecord
from pessoa.wire.errors import ErrorCode, ProtocolViolation, Refusal
from pessoa.wire.stored.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

# The newest version that is not flexible; Kafka 4.3 writes this one.
GROUP_METADATA_VERSION = 3

# (name, metadata), in the order of the member's preference.
Protocols = tuple[tuple[str, bytes], ...]


class ClassicState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


_PREVIOUS = {
    ClassicState.EMPTY: {ClassicState.PREPARING_REBALANCE},
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.EMPTY,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.STABLE,
    },
    ClassicState.COMPLETING_REBALANCE: {ClassicState.PREPARING_REBALANCE},
    ClassicState.STABLE: {ClassicState.COMPLETING_REBALANCE},
}


class ClassicMember:
    """A member of a classic group. `join_token` and `sync_token` are those of its requests that wait for a response."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join_token",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        # Of the last generation that was stable. It is kept through rebalances: a cooperative member goes on with it.
        self.assignment = assignment
        self.join_token: int | None = None
        self.sync_token: int | None = None
        # It waits for its first generation: other than an old member that waits, it can time out.
        self.is_new = False

    def __repr__(self) -> str:
        waits = "join" if self.join_token is not None else "sync" if self.sync_token is not None else "nothing"
        return f"<ClassicMember {self.id}, instance {self.instance_id}, waits for {waits}>"

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_token is not None

    @property
    def is_heard_of(self) -> bool:
        """Whether the member need not send heartbeats, because its JoinGroup or SyncGroup waits for a response."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self!r} does not support {protocol}")

    def supports(self, protocol: str) -> bool:
        return any(name == protocol for name, _ in self.protocols)


class ClassicGroup:
    def __init__(
        self,
        group_id: str,
        state: ClassicState = ClassicState.EMPTY,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol: str | None = None,
        leader: str | None = None,
        state_since_ms: int | None = None,
    ) -> None:
        self.id = group_id
        self.state = state
        # None for a group that came into being with its record.
        self.previous_state: ClassicState | None = None
        self.state_since_ms = state_since_ms
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol = protocol
        self.leader = leader
        self.members: dict[str, ClassicMember] = {}
        # instance id → member id
        self.static_members: dict[str, str] = {}
        # Got a member id from us and shall join again with it. In the order of their coming, as all of these.
        self.pending_join: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self.awaiting_join_count = 0
        # Whether a member joined while the first rebalance of an empty group waits for more members.
        self.new_member_added = False
        # None: not known, because members do not speak the consumer protocol, or their subscriptions cannot be read.
        self.subscribed_topics: frozenset[str] | None = None
        self._member_count_by_protocol: Counter[str] = Counter()

    def __repr__(self) -> str:
        return (
            f"<ClassicGroup {self.id}: {self.state.value}, generation {self.generation}, {len(self.members)} members, "
            f"leader {self.leader}>"
        )

    # ── what it is ──

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        return self.state in _PREVIOUS[ClassicState.PREPARING_REBALANCE]

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        # Not to know a consumer group's topics is to take it for a subscriber of all.
        return self.uses_consumer_protocol

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with this protocol type and these protocols can join the group."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self._member_count_by_protocol[name] == len(self.members) for name, _ in protocols
        )

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Refuse a member id that is unknown, or that another member of the same instance id has fenced."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise Refusal(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)

    # ── changes ──

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in _PREVIOUS[state], f"{self!r} cannot become {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def add(self, member: ClassicMember, protocol_type: str, join_token: int | None = None) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"{member!r} is in {self!r}"
            self.static_members[member.instance_id] = member.id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._count_protocols(member, 1)
        self.set_join_token(member, join_token)
        self.pending_join.pop(member.id, None)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.is_awaiting_join:
                self.awaiting_join_count -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        join_token: int | None,
    ) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.set_join_token(member, join_token)

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """Give the place of the old member to the new member id of the same instance, and return the member. The
        requests of the old member are answered."""
        old = self.members.pop(old_id)
        assert (old.join_token, old.sync_token) == (None, None), f"{old!r} is not answered"
        member = ClassicMember(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[new_id] = member
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        # The old id can never sync again, and a wait for it would end with its removal.
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def set_join_token(self, member: ClassicMember, token: int | None) -> None:
        self.awaiting_join_count += (token is not None) - (member.join_token is not None)
        member.join_token = token

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader; return False if none has joined."""
        if self.leader is None:
            return False
        if self.members[self.leader].is_awaiting_join:
            return True
        joined = next((member.id for member in self.members.values() if member.is_awaiting_join), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self._read_subscriptions()
        self.move_to(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms)
        self.pending_sync.clear()

    def select_protocol(self) -> str:
        """Return, of the protocols that all members support, the one that most members prefer."""
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[
                next(name for name, _ in member.protocols if self._member_count_by_protocol[name] == len(self.members))
            ] += 1
        return max(votes, key=votes.__getitem__)

    def refresh_subscriptions(self) -> None:
        self.subscribed_topics = self._read_subscriptions()

    def _read_subscriptions(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset(
                topic for member in self.members.values() for topic in subscribed_topics(member.metadata(self.protocol))
            )
        except ProtocolViolation:
            return None

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._member_count_by_protocol[name] += by

    # ── what others ask of any group ──

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, is_transactional: bool
    ) -> None:
        if generation < 0 and self.is_empty:
            return  # kafka-consumer-groups, or a client that assigns its partitions itself
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise Refusal(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional and not self.is_empty:
            # Transactional commits of old producers do not say which member they are for (KIP-447).
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_delete(self) -> None:
        if not self.is_empty and not self.uses_consumer_protocol:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.id), None)]

    # ── its record ──

    def record(self, assignments: dict[str, bytes]) -> CoordinatorRecord:
        return self._record(
            self.generation,
            self.protocol_type or "",
            self.protocol,
            self.leader,
            [
                MemberMetadata(
                    member_id=member.id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=assignments[member.id],
                )
                for member in self.members.values()
            ],
        )

    def empty_record(self) -> CoordinatorRecord:
        """Return the record of a group that exists and has no generation yet: a member is about to join."""
        return self._record(0, "", None, None, [])

    def _record(
        self,
        generation: int,
        protocol_type: str,
        protocol: str | None,
        leader: str | None,
        members: list[MemberMetadata],
    ) -> CoordinatorRecord:
        value = GroupMetadataValue(
            protocol_type=protocol_type,
            generation=generation,
            protocol=protocol,
            leader=leader,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.id), value, GROUP_METADATA_VERSION)

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(
            group_id,
            ClassicState.STABLE if value.members else ClassicState.EMPTY,
            value.generation,
            value.protocol_type or None,
            value.protocol,
            value.leader,
            None if value.current_state_timestamp == -1 else value.current_state_timestamp,
        )
        for stored in value.members:
            member = ClassicMember(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                # Version 0 knew no rebalance timeout.
                stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
                stored.session_timeout,
                # Of the protocols that a member offered only the chosen one is stored.
                ((value.protocol or "", stored.subscription),),
                stored.assignment,
            )
            group.add(member, value.protocol_type)
        group.refresh_subscriptions()
        return group


def as_protocols(pairs: Iterable[tuple[str, bytes]]) -> Protocols:
    return tuple((name, bytes(metadata)) for name, metadata in pairs)

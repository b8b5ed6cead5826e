"""A consumer group of KIP-848: members, epochs, target assignment. What the requests make of it is in
`consumer_heartbeat`.

Three epochs make the protocol turn:

    group epoch        rises when something changed that assignments depend on: members, subscriptions, topics
    assignment epoch   the group epoch that the target assignment was computed for
    member epoch       the assignment epoch that the member has reached; it carries it in every request

    Empty: no members   Assigning: group epoch > assignment epoch   Reconciling: some member is behind   Stable: none is

Everything here is stored, and changes by `replay` alone:

    ConsumerGroupMetadata             group epoch, hash of the subscribed topics
    ConsumerGroupMemberMetadata       what the member says of itself: subscription, client, timeouts
    ConsumerGroupTargetAssignment*    what each member shall own
    ConsumerGroupCurrentMemberAssignment  what it does own, what it shall give up, its epoch and state
    ConsumerGroupRegularExpression    the topics that a subscribed expression matched

except `refresh_at_ms`: when to look at the topics again.

A member is a value: it is replaced, not changed, so that a decision can hold the old and the new one side by side.

Invariant: no partition is owned by two members. `partition_epochs` has the epoch of the owner of every partition that
is owned, be it only until it is revoked, and `_own` asserts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.classic.classic_group import Protocols
from pessoa.coordinator.timers import Timers
from pessoa.wire.errors import ErrorCode, Refusal

LEAVE_EPOCH = -1
# A static member that leaves with this epoch will be back.
STATIC_LEAVE_EPOCH = -2
# Of a group and of its assignment, when they begin.
FIRST_EPOCH = 1
NO_EPOCH = -1

# topic id → partitions
Partitions = Mapping[Uuid, frozenset[int]]
# topic id → partition → the assignment epoch that gave it to the member
OwnedPartitions = Mapping[Uuid, Mapping[int, int]]
# Raises Refusal if an offset may not be committed for (topic name, topic id, partition).
CommitCheck = Callable[[str, Uuid, int], None]

NO_PARTITIONS: Partitions = {}
NOTHING_OWNED: OwnedPartitions = {}


def accept_any_partition(topic: str, topic_id: Uuid, partition: int) -> None:
    """Accept a commit for every partition: the check of a member whose epoch is current."""


class MemberState(IntEnum):
    """The state of a member; the values are those of the record."""

    STABLE = 0
    # It must give up partitions before it can go on.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that others have not given up.
    UNRELEASED_PARTITIONS = 2
    # Written by a newer coordinator.
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


class ConsumerState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ClassicSide(NamedTuple):
    """The fields of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    # Of the image that it was matched against, and when.
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    pending_revocation: OwnedPartitions = field(default_factory=dict)
    classic: ClassicSide | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def at_epoch(self, epoch: int, **changes: object) -> ConsumerMember:
        return replace(self, epoch=epoch, previous_epoch=self.epoch, **changes)  # type: ignore[arg-type]


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        # instance id → member id
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Partitions] = {}
        self.partition_epochs: dict[Uuid, dict[int, int]] = {}
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        # How many members are subscribed to each name, and by each expression.
        self.name_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        # Kafka before 4.0 wrote a record of the subscribed topics, which is to be removed.
        self.has_partition_metadata_record = False
        # Soft: when to look at the topics again, as long as the group epoch is at least that one.
        self.refresh_at_ms = 0
        self.refresh_epoch = 0

    def __repr__(self) -> str:
        return (
            f"<ConsumerGroup {self.id}: {self.state.value}, epoch {self.epoch}, assignment epoch "
            f"{self.assignment_epoch}, {len(self.members)} members>"
        )

    # ── what it is ──

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {self.id}")
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str, instance_id: str | None = None) -> Partitions:
        """Return the target assignment of the member, or of the static member that it replaces."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.targets.get(member_id, NO_PARTITIONS)

    def partition_epoch(self, topic_id: Uuid, partition: int) -> int:
        """Return the epoch of the member that owns the partition; NO_EPOCH if none does."""
        return self.partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.name_counts or any(topic in each.topics for each in self.resolved_regexes.values())

    def subscribed_topics(self) -> set[str]:
        return set(self.name_counts).union(*(each.topics for each in self.resolved_regexes.values()))

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that the member is subscribed to, by name and by expression."""
        if not member.subscribed_regex:
            return member.subscribed_topics
        resolved = self.resolved_regexes.get(member.subscribed_regex)
        return member.subscribed_topics if resolved is None else member.subscribed_topics | resolved.topics

    def has_metadata_expired(self, now_ms: int) -> bool:
        return now_ms >= self.refresh_at_ms or self.epoch < self.refresh_epoch

    def supports_classic_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a classic member with these protocols can join the group."""
        classic = [member.classic for member in self.members.values() if member.classic is not None]
        return protocol_type == "consumer" and any(
            all(any(name == other for other, _ in side.protocols) for side in classic) for name, _ in protocols
        )

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of the member's target."""
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.partition_epoch(topic_id, partition) != NO_EPOCH
            for topic_id, partitions in self.target_of(member.id).items()
            for partition in partitions
        )

    def counts(self, member: ConsumerMember) -> bool:
        """Return whether the member is counted in the group, itself or as the static member that it replaces."""
        return member.id in self.members or member.instance_id in self.static_members

    def preferred_assignor(self, member: ConsumerMember | None = None) -> str | None:
        """Return the assignor that most members name, with `member` as it is about to be; None if no member names
        one."""
        members = dict(self.members)
        if member is not None:
            members.pop(self.static_members.get(member.instance_id or "", ""), None)
            members[member.id] = member
        votes = Counter(each.server_assignor for each in members.values() if each.server_assignor is not None)
        return max(votes, key=votes.__getitem__) if votes else None

    # ── what others ask of any group ──

    def check_offset_commit(self, member_id: str, epoch: int, speaks_epochs: bool) -> CommitCheck:
        """Return the check of the partitions that the member commits for. `speaks_epochs`: the API and version have
        member epochs. Raises `Refusal`."""
        if epoch < 0 and not self.members:
            return accept_any_partition
        member = self.member(member_id)
        if not speaks_epochs and not member.uses_classic_protocol:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                "members that use the consumer protocol commit with OffsetCommit version 9 or newer",
            )
        if epoch == member.epoch:
            return accept_any_partition
        if epoch > member.epoch:
            raise _epoch_refusal(member, f"epoch {epoch} is newer than the member's, {member.epoch}")
        return lambda topic, topic_id, partition: _check_owner(member, epoch, topic, topic_id, partition)

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return  # an administrator asks
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _epoch_refusal(member, f"the member is at epoch {member.epoch}, not {epoch}")

    def check_delete(self) -> None:
        if self.members:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP)

    # ── replay ──

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.id)
        if old is not None:
            self._count_subscription(old, -1)
            self._disown(old)
        self.members[member.id] = member
        self._count_subscription(member, 1)
        self._own(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._count_subscription(member, -1)
        self._disown(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _count_subscription(self, member: ConsumerMember, by: int) -> None:
        for topic in member.subscribed_topics:
            _add(self.name_counts, topic, by)
        if member.subscribed_regex:
            _add(self.regex_counts, member.subscribed_regex, by)

    def _own(self, member: ConsumerMember) -> None:
        for topic_id, partition in _each(member):
            epochs = self.partition_epochs.setdefault(topic_id, {})
            owner_epoch = epochs.get(partition, NO_EPOCH)
            assert owner_epoch == NO_EPOCH or owner_epoch < member.epoch, (
                f"{member.id} of {self.id} takes {topic_id}-{partition}, which is owned at epoch {owner_epoch}"
            )
            epochs[partition] = member.epoch

    def _disown(self, member: ConsumerMember) -> None:
        for topic_id, partition in _each(member):
            epochs = self.partition_epochs.get(topic_id)
            # At another epoch it belongs to another member by now.
            if epochs is not None and epochs.get(partition) == member.epoch:
                del epochs[partition]
                if not epochs:
                    del self.partition_epochs[topic_id]


def _each(member: ConsumerMember) -> Iterable[tuple[Uuid, int]]:
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in owned.items():
            for partition in partitions:
                yield topic_id, partition


def _add(counts: Counter[str], key: str, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]


def _epoch_refusal(member: ConsumerMember, message: str) -> Refusal:
    code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
    return Refusal(code, message)


def _check_owner(member: ConsumerMember, epoch: int, topic: str, topic_id: Uuid, partition: int) -> None:
    """Raise a Refusal for a commit with an older epoch, unless the member has owned the partition since that epoch
    (KIP-1251)."""
    assigned_at = member.assigned.get(topic_id, {}).get(partition)
    if assigned_at is None:
        assigned_at = member.pending_revocation.get(topic_id, {}).get(partition)
    if assigned_at is None:
        raise _epoch_refusal(member, f"the member does not own {topic}-{partition}")
    if epoch < assigned_at:
        raise _epoch_refusal(
            member,
            f"the member owns {topic}-{partition} since epoch {assigned_at}, which is later than {epoch}",
        )


# The timers of a member.


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer session", group_id, member_id)


def rebalance_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer rebalance", group_id, member_id)


def rejoin_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Return the key of the timer until which a member of the classic protocol must join again."""
    return ("consumer join", group_id, member_id)


def resync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Return the key of the timer until which a member of the classic protocol must sync."""
    return ("consumer sync", group_id, member_id)


def cancel_member_timers(timers: Timers, group_id: str, member_id: str) -> None:
    for key in (session_key, rebalance_key, rejoin_key, resync_key):
        timers.cancel(key(group_id, member_id))

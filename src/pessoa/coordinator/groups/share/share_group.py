"""A share group: its epoch, its members with their assignments, and the share partitions that are initialised.

Everything here is stored, and changes by replay alone (`share_group_replay`):

    ShareGroupMetadata                  group epoch, hash of the subscribed topics
    ShareGroupMemberMetadata            what the member says of itself
    ShareGroupTargetAssignment*         what each member shall fetch from
    ShareGroupCurrentMemberAssignment   what it was told to, and its epoch
    ShareGroupStatePartitionMetadata    topic by topic, the share partitions that are being initialised, those that are,
                                        and the topics whose state is being deleted

except `refresh_at_ms`: when to look at the topics again. A member is a value: it is replaced, not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import FIRST_EPOCH, NO_PARTITIONS, Partitions
from pessoa.wire.errors import ErrorCode, Refusal

# The type of these groups, and of their protocol, in ListGroups.
SHARE_PROTOCOL_TYPE = "share"


class ShareState(Enum):
    EMPTY = "Empty"
    STABLE = "Stable"


class NamedPartitions(NamedTuple):
    topic_name: str
    partitions: frozenset[int]


NamedTopics = Mapping[Uuid, NamedPartitions]
NO_TOPICS: NamedTopics = {}


@dataclass(frozen=True, slots=True)
class ShareMember:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)

    def at_epoch(self, epoch: int, assigned: Partitions) -> ShareMember:
        return replace(self, epoch=epoch, previous_epoch=self.epoch, assigned=assigned)


class InitialisedShares(NamedTuple):
    """The share partitions of a group that are being initialised, and those that are. Invariant: none is both."""

    initialising: NamedTopics = NO_TOPICS
    initialised: NamedTopics = NO_TOPICS
    deleting: Mapping[Uuid, str] = {}

    def without_topics(self, topic_ids: frozenset[Uuid]) -> InitialisedShares:
        return InitialisedShares(
            {key: value for key, value in self.initialising.items() if key not in topic_ids},
            {key: value for key, value in self.initialised.items() if key not in topic_ids},
            {key: value for key, value in self.deleting.items() if key not in topic_ids},
        )

    def begin(self, topics: NamedTopics) -> InitialisedShares:
        """Return this with these share partitions as initialising."""
        return self._replace(initialising=_union(self.initialising, topics))

    def finish(self, topics: NamedTopics) -> InitialisedShares:
        """Return this with these share partitions as initialised."""
        return self._replace(
            initialising=_difference(self.initialising, topics), initialised=_union(self.initialised, topics)
        )

    def undo(self, topics: NamedTopics) -> InitialisedShares:
        """Return this without these initialising share partitions: they could not be initialised."""
        return self._replace(initialising=_difference(self.initialising, topics))


def _union(some: NamedTopics, others: NamedTopics) -> NamedTopics:
    joined = dict(some)
    for topic_id, (name, partitions) in others.items():
        known = joined[topic_id].partitions if topic_id in joined else frozenset[int]()
        joined[topic_id] = NamedPartitions(name, known | partitions)
    return joined


def _difference(some: NamedTopics, others: NamedTopics) -> NamedTopics:
    left = {
        topic_id: NamedPartitions(name, partitions - others[topic_id].partitions if topic_id in others else partitions)
        for topic_id, (name, partitions) in some.items()
    }
    return {topic_id: named for topic_id, named in left.items() if named.partitions}


class ShareGroup:
    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.shares = InitialisedShares()
        # How many members are subscribed to each topic.
        self.name_counts: Counter[str] = Counter()
        # Soft: when to look at the topics again.
        self.refresh_at_ms = 0

    def __repr__(self) -> str:
        return (
            f"<ShareGroup {self.id}: {self.state.value}, epoch {self.epoch}, assignment epoch {self.assignment_epoch}, "
            f"{len(self.members)} members>"
        )

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ShareState:
        return ShareState.STABLE if self.members else ShareState.EMPTY

    def member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {self.id}")
        return member

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_with(self, updated: ShareMember) -> set[str]:
        """Return the topics that the group is subscribed to, with `updated` in the place of its earlier state."""
        return self.topics_without(updated.id) | updated.subscribed_topics

    def topics_without(self, member_id: str) -> set[str]:
        names = Counter(self.name_counts)
        if member_id in self.members:
            names.subtract(self.members[member_id].subscribed_topics)
        return {name for name, count in names.items() if count > 0}

    # ── replay ──

    def put_member(self, member: ShareMember) -> None:
        self.remove_member(member.id)
        self.members[member.id] = member
        self.name_counts.update(member.subscribed_topics)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.name_counts.subtract(member.subscribed_topics)
            self.name_counts += Counter()  # drops what is zero

"""The assignors that a consumer group runs on the server: `range` and `uniform`.

An assignor gets the members with their subscriptions and what each had before, and the partition counts of the
topics; it says what each member shall have. Every partition of a topic with a subscriber goes to exactly one of its
subscribers.

- `range`: topic by topic, each subscriber gets a contiguous range, sizes differing by one at most. Members are sorted,
  static ones first, so that topics with equally many partitions are co-partitioned. What was before does not matter.
- `uniform`: over all topics, members get equally many partitions, as far as their subscriptions allow; and of what a
  member had it keeps as much as that permits.

Uniform in two cases. With one subscription for all, each member has a quota: the share, rounded down, and for as many
as there are partitions left over one more. A member keeps what it has up to its quota, the rest is handed out. With
different subscriptions there is no such quota. Members keep what they are subscribed to; what is free goes to the
subscriber with the fewest; then partitions are moved from members with more to subscribers of their topic with at
least two fewer, until no move helps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import NO_PARTITIONS, Partitions


@dataclass(frozen=True, slots=True)
class MemberSpec:
    topics: frozenset[Uuid]
    instance_id: str | None = None
    # The target that the member had.
    target: Partitions = field(default_factory=dict)


Assignment = dict[str, Partitions]
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], Assignment]


def assign_range(members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> Assignment:
    # Static members come first and by instance id, so a member that returns under another id keeps its place.
    ordered = sorted(members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each))
    ranges: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id in sorted(partition_counts):
        subscribers = [member_id for member_id in ordered if topic_id in members[member_id].topics]
        if not subscribers:
            continue
        share, extra = divmod(partition_counts[topic_id], len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + share + (position < extra)
            if end > start:
                ranges[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(ranges)


def assign_uniform(members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> Assignment:
    if not members:
        return {}
    subscriptions = {spec.topics for spec in members.values()}
    if len(subscriptions) == 1:
        return _UniformForOne(members, partition_counts).assign()
    return _UniformForMany(members, partition_counts).assign()


TopicIdPartition = tuple[Uuid, int]


def _keepable_partitions(spec: MemberSpec, partition_counts: Mapping[Uuid, int]) -> list[TopicIdPartition]:
    """Return the partitions of the member's previous target that it may keep, sorted."""
    return [
        (topic_id, index)
        for topic_id in sorted(spec.target)
        if topic_id in spec.topics
        for index in sorted(spec.target[topic_id])
        if index < partition_counts.get(topic_id, 0)
    ]


def _as_assignment(owned: Mapping[str, list[TopicIdPartition]]) -> Assignment:
    assignment: Assignment = {}
    for member_id, partitions in owned.items():
        topics: dict[Uuid, set[int]] = {}
        for topic_id, index in partitions:
            topics.setdefault(topic_id, set()).add(index)
        assignment[member_id] = (
            {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()} if topics else NO_PARTITIONS
        )
    return assignment


class _UniformForOne:
    """The uniform assignor for members that all have the same subscription."""

    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> None:
        self._members = members
        self._counts = {
            topic_id: partition_counts[topic_id]
            for topic_id in sorted(next(iter(members.values())).topics)
            if topic_id in partition_counts
        }

    def assign(self) -> Assignment:
        share, extras = divmod(sum(self._counts.values()), len(self._members))
        taken: set[TopicIdPartition] = set()
        owned: dict[str, list[TopicIdPartition]] = {}
        for member_id, spec in self._members.items():
            partitions = [each for each in _keepable_partitions(spec, self._counts) if each not in taken]
            # The one partition more than the share goes to the members that have it: for them it costs no move.
            has_extra = len(partitions) > share and extras > 0
            extras -= has_extra
            owned[member_id] = partitions[: share + has_extra]
            taken.update(owned[member_id])
        free = (
            partition
            for topic_id, count in self._counts.items()
            for index in range(count)
            if (partition := (topic_id, index)) not in taken
        )
        for partitions in owned.values():
            gets_extra = len(partitions) <= share and extras > 0
            extras -= gets_extra
            partitions.extend(islice(free, max(share + gets_extra - len(partitions), 0)))
        return _as_assignment(owned)


class _UniformForMany:
    """The uniform assignor for members with different subscriptions."""

    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> None:
        self._members = members
        self._counts = partition_counts
        self._subscribers: dict[Uuid, list[str]] = {}
        for member_id, spec in members.items():
            for topic_id in spec.topics:
                if topic_id in partition_counts:
                    self._subscribers.setdefault(topic_id, []).append(member_id)
        self._owned: dict[str, dict[Uuid, list[int]]] = {member_id: {} for member_id in members}
        self._sizes = dict.fromkeys(members, 0)

    def assign(self) -> Assignment:
        taken: set[TopicIdPartition] = set()
        for member_id, spec in self._members.items():
            for topic_id, index in _keepable_partitions(spec, self._counts):
                if (topic_id, index) not in taken:
                    taken.add((topic_id, index))
                    self._give(member_id, topic_id, index)
        topics = self._hardest_first()
        for topic_id in topics:
            self._hand_out(topic_id, [each for each in range(self._counts[topic_id]) if (topic_id, each) not in taken])
        # Each pass over the topics about halves what is out of balance where subscriptions overlap.
        for _ in range(16):
            if not sum(self._balance(topic_id) for topic_id in topics):
                break
        return {
            member_id: {topic_id: frozenset(indexes) for topic_id, indexes in topics.items() if indexes}
            for member_id, topics in self._owned.items()
        }

    def _hardest_first(self) -> list[Uuid]:
        """Return the topics in the order of assignment: those with the most partitions per subscriber first, since they
        leave the least choice."""
        return sorted(
            self._subscribers,
            key=lambda topic_id: (
                -self._counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )

    def _give(self, member_id: str, topic_id: Uuid, index: int) -> None:
        self._owned[member_id].setdefault(topic_id, []).append(index)
        self._sizes[member_id] += 1

    def _hand_out(self, topic_id: Uuid, free: list[int]) -> None:
        heap = [(self._sizes[each], each) for each in self._subscribers[topic_id]]
        heapify(heap)
        for index in free:
            size, member_id = heappop(heap)
            self._give(member_id, topic_id, index)
            heappush(heap, (size + 1, member_id))

    def _balance(self, topic_id: Uuid) -> int:
        """Move partitions of one topic from the members with the most partitions to the subscribers with the fewest;
        return how many were moved."""
        givers = [(-self._sizes[each], each) for each in self._subscribers[topic_id]]
        takers = [(self._sizes[each], each) for each in self._subscribers[topic_id]]
        heapify(givers)
        heapify(takers)
        moved = 0
        while givers:
            size, giver = heappop(givers)
            if -size != self._sizes[giver]:
                heappush(givers, (-self._sizes[giver], giver))
                continue
            while takers[0][0] != self._sizes[takers[0][1]]:
                _, stale = heappop(takers)
                heappush(takers, (self._sizes[stale], stale))
            taker = takers[0][1]
            if self._sizes[giver] - self._sizes[taker] <= 1:
                break
            indexes = self._owned[giver].get(topic_id)
            if not indexes:
                continue  # it has nothing of this topic to give
            index = indexes.pop()
            self._sizes[giver] -= 1
            self._give(taker, topic_id, index)
            moved += 1
            heappush(givers, (-self._sizes[giver], giver))
        return moved


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

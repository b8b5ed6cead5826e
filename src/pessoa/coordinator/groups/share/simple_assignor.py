"""Which members of a share group fetch from which partitions: Kafka's assignor `simple`.

Several members may have one partition. Of topics that the same members are subscribed to:

- every partition goes to the same number of members, ceil(members / partitions);
- the members have equally many partitions, or some have one more than others;
- as far as these two allow it, members keep what they had.

A partition of the plan is a column that needs `sharing` members, a member is a row with a number of places. Giving each
column to the rows with the most places left always fills the plan (Gale and Ryser), if it begins empty. If it begins
with what members had, it may not come out; then the plan is made without that. Balance goes before stickiness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import NO_PARTITIONS, Partitions

_Partition = tuple[Uuid, int]


class ShareMemberSpec(NamedTuple):
    topics: frozenset[Uuid]
    target: Partitions = NO_PARTITIONS


def assign_simple(members: Mapping[str, ShareMemberSpec], partitions: Partitions) -> dict[str, Partitions]:
    """Return the partitions of every member; `partitions` are those that can be assigned."""
    assigned: dict[str, set[_Partition]] = {member_id: set() for member_id in sorted(members)}
    for member_ids, topic_ids in _subscriber_sets(members, partitions):
        columns = [(topic_id, index) for topic_id in topic_ids for index in sorted(partitions[topic_id])]
        # Those with the least from other topics come first, and get one more where it does not come out even.
        rows = sorted(member_ids, key=lambda member_id: (len(assigned[member_id]), member_id))
        former = {
            member_id: [column for column in columns if column[1] in members[member_id].target.get(column[0], ())]
            for member_id in rows
        }
        plan = _fill(rows, columns, former) or _fill(rows, columns, {})
        assert plan is not None, "an empty plan can always be filled"
        for member_id, taken in plan.items():
            assigned[member_id] |= taken
    return {member_id: _by_topic(taken) for member_id, taken in assigned.items()}


def _subscriber_sets(
    members: Mapping[str, ShareMemberSpec], partitions: Partitions
) -> list[tuple[tuple[str, ...], list[Uuid]]]:
    """Return the topics, grouped by the members that are subscribed to them."""
    found: dict[tuple[str, ...], list[Uuid]] = {}
    for topic_id in sorted(partitions):
        subscribers = tuple(member_id for member_id in sorted(members) if topic_id in members[member_id].topics)
        if subscribers and partitions[topic_id]:
            found.setdefault(subscribers, []).append(topic_id)
    return list(found.items())


def _fill(
    rows: Sequence[str], columns: Sequence[_Partition], former: Mapping[str, Sequence[_Partition]]
) -> dict[str, set[_Partition]] | None:
    """Return the partitions of each member, with as many of `former` as possible; None if there is no such
    assignment."""
    sharing = -(-len(rows) // len(columns))
    least, extra = divmod(len(columns) * sharing, len(rows))
    plan: dict[str, set[_Partition]] = {row: set() for row in rows}
    needed = dict.fromkeys(columns, sharing)
    for row in rows:
        for column in former.get(row, ()):
            is_one_more = len(plan[row]) == least
            if needed[column] and (len(plan[row]) < least or (is_one_more and extra)):
                plan[row].add(column)
                needed[column] -= 1
                extra -= is_one_more
    places = {row: max(least, len(plan[row])) - len(plan[row]) for row in rows}
    for row in rows:
        if extra and len(plan[row]) <= least:
            places[row] += 1
            extra -= 1
    order = {row: number for number, row in enumerate(rows)}
    for column in sorted(columns, key=lambda column: -needed[column]):
        free = [row for row in rows if places[row] and column not in plan[row]]
        free.sort(key=lambda row: (-places[row], order[row]))
        if len(free) < needed[column]:
            return None
        for row in free[: needed[column]]:
            plan[row].add(column)
            places[row] -= 1
    return plan


def _by_topic(taken: set[_Partition]) -> Partitions:
    by_topic: dict[Uuid, set[int]] = {}
    for topic_id, index in sorted(taken):
        by_topic.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}

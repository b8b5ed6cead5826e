"""The server-side assignors, with random members, topics and earlier assignments.

An assignment must give every partition of a subscribed topic to exactly one of its subscribers, be even, and move few
partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.assignors import ASSIGNORS, Assignment, MemberSpec, assign_range, assign_uniform

TOPICS = [Uuid.of(number) for number in range(1, 6)]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
member_ids = st.lists(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1, unique=True)
subscriptions = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def groups(draw: st.DrawFn, same: bool = False) -> tuple[dict[str, MemberSpec], dict[Uuid, int]]:
    partition_counts = draw(counts)
    shared = draw(subscriptions)
    members = {}
    for member_id in draw(member_ids):
        topics = shared if same else draw(subscriptions)
        instance_id = draw(st.none() | st.just(f"i-{member_id}"))
        members[member_id] = MemberSpec(topics & frozenset(partition_counts), instance_id)
    return members, partition_counts


def with_targets(members: Mapping[str, MemberSpec], targets: Assignment) -> dict[str, MemberSpec]:
    return {
        member_id: MemberSpec(spec.topics, spec.instance_id, targets.get(member_id, {}))
        for member_id, spec in members.items()
    }


def check_complete(members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int], result: Assignment) -> None:
    assert set(result) == set(members)
    owners: dict[tuple[Uuid, int], str] = {}
    for member_id, topics in result.items():
        for topic_id, indexes in topics.items():
            assert indexes, "no empty sets"
            assert topic_id in members[member_id].topics
            for index in indexes:
                assert owners.setdefault((topic_id, index), member_id) == member_id, "two owners"
    subscribed = {topic_id for spec in members.values() for topic_id in spec.topics}
    assert set(owners) == {(each, index) for each in subscribed for index in range(partition_counts[each])}


def size(topics: Mapping[Uuid, frozenset[int]]) -> int:
    return sum(map(len, topics.values()))


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(group=groups())
def test_every_partition_goes_to_exactly_one_subscriber(
    name: str, group: tuple[dict[str, MemberSpec], dict[Uuid, int]]
) -> None:
    check_complete(*group, ASSIGNORS[name](*group))


@given(group=groups())
def test_range_gives_each_subscriber_a_contiguous_range_in_the_order_of_the_members(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    members, partition_counts = group
    result = assign_range(members, partition_counts)
    static = sorted((spec.instance_id, each) for each, spec in members.items() if spec.instance_id is not None)
    ordered = [each for _, each in static] + sorted(each for each, spec in members.items() if spec.instance_id is None)
    for topic_id, count in partition_counts.items():
        subscribers = [each for each in ordered if topic_id in members[each].topics]
        sizes = [len(result[each].get(topic_id, ())) for each in subscribers]
        if subscribers:
            assert sizes == sorted(sizes, reverse=True)
            assert max(sizes) - min(sizes) <= 1
            joined = [index for each in subscribers for index in sorted(result[each].get(topic_id, ()))]
            assert joined == list(range(count))


@given(first=groups(same=True), second=groups(same=True))
def test_uniform_is_balanced_with_one_subscription_and_moves_as_few_partitions_as_possible(
    first: tuple[dict[str, MemberSpec], dict[Uuid, int]], second: tuple[dict[str, MemberSpec], dict[Uuid, int]]
) -> None:
    before = assign_uniform(*first)
    members, partition_counts = with_targets(second[0], before), second[1]
    result = assign_uniform(members, partition_counts)
    check_complete(members, partition_counts, result)
    sizes = [size(topics) for topics in result.values()]
    assert max(sizes) - min(sizes) <= 1
    # What could have been kept: per member up to the share, and for so many as are left over one more.
    share, extras = divmod(sum(sizes), len(sizes))
    may_keep = [
        sum(
            index < partition_counts[topic_id]
            for topic_id, indexes in spec.target.items()
            if topic_id in spec.topics
            for index in indexes
        )
        for spec in members.values()
    ]
    best = sum(min(each, share) for each in may_keep) + min(extras, sum(each > share for each in may_keep))
    kept = sum(
        len(indexes & members[member_id].target.get(topic_id, frozenset()))
        for member_id, topics in result.items()
        for topic_id, indexes in topics.items()
    )
    assert kept == best


@given(first=groups(), second=groups())
def test_uniform_leaves_no_single_move_that_would_balance_better(
    first: tuple[dict[str, MemberSpec], dict[Uuid, int]], second: tuple[dict[str, MemberSpec], dict[Uuid, int]]
) -> None:
    before = assign_uniform(*first)
    members, partition_counts = with_targets(second[0], before), second[1]
    result = assign_uniform(members, partition_counts)
    check_complete(members, partition_counts, result)
    for giver, topics in result.items():
        for topic_id in topics:
            for taker, spec in members.items():
                if topic_id in spec.topics:
                    assert size(result[giver]) - size(result[taker]) <= 1


@given(group=groups())
def test_uniform_moves_no_partition_when_it_is_run_again(group: tuple[dict[str, MemberSpec], dict[Uuid, int]]) -> None:
    members, partition_counts = group
    once = assign_uniform(members, partition_counts)
    again = assign_uniform(with_targets(members, once), partition_counts)
    assert {each: {k: v for k, v in t.items() if v} for each, t in again.items()} == once


@given(group=groups(same=True))
def test_a_partition_that_two_members_owned_is_assigned_to_one_of_them(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    members, partition_counts = group
    everything = {topic_id: frozenset(range(count)) for topic_id, count in partition_counts.items()}
    greedy = {each: MemberSpec(spec.topics, None, everything) for each, spec in members.items()}
    check_complete(greedy, partition_counts, assign_uniform(greedy, partition_counts))

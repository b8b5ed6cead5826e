"""The assignor of share groups: every partition has a member, members are balanced, and few partitions move."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import Partitions
from pessoa.coordinator.groups.share.simple_assignor import ShareMemberSpec, assign_simple

TOPICS = [Uuid.of(1_000 + number) for number in range(3)]
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7).map(lambda count: frozenset(range(count))))
# What members had: anything, also of partitions that are gone.
TARGET = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 8), max_size=6))
MEMBERS = st.lists(st.tuples(TARGET, st.frozensets(st.sampled_from(TOPICS), min_size=1)), min_size=1, max_size=9)


def flat(partitions: Partitions) -> set[tuple[Uuid, int]]:
    return {(topic_id, index) for topic_id, indexes in partitions.items() for index in indexes}


@settings(max_examples=500, deadline=None)
@given(MEMBERS, PARTITIONS)
def test_members_of_one_subscription_are_balanced_and_every_partition_is_shared_equally(
    members: list[tuple[Partitions, frozenset[Uuid]]], partitions: Partitions
) -> None:
    specs = {f"m{number}": ShareMemberSpec(frozenset(TOPICS), target) for number, (target, _) in enumerate(members)}
    result = assign_simple(specs, partitions)
    assert set(result) == set(specs)
    everything = flat(partitions)
    sharers = Counter(each for assigned in result.values() for each in flat(assigned))
    assert set(sharers) == everything
    if everything:
        assert set(sharers.values()) == {-(-len(specs) // len(everything))}
        sizes = [len(flat(assigned)) for assigned in result.values()]
        assert max(sizes) - min(sizes) <= 1
    again = assign_simple(
        {member_id: spec._replace(target=result[member_id]) for member_id, spec in specs.items()}, partitions
    )
    assert again == result, "a balanced assignment changes without a reason"


@settings(max_examples=500, deadline=None)
@given(MEMBERS, PARTITIONS)
def test_members_get_only_what_they_are_subscribed_to_and_every_subscribed_partition_has_a_member(
    members: list[tuple[Partitions, frozenset[Uuid]]], partitions: Partitions
) -> None:
    specs = {f"m{number}": ShareMemberSpec(topics, target) for number, (target, topics) in enumerate(members)}
    result = assign_simple(specs, partitions)
    for member_id, assigned in result.items():
        assert set(assigned) <= specs[member_id].topics
        assert flat(assigned) <= flat(partitions)
    subscribed = {topic_id for spec in specs.values() for topic_id in spec.topics}
    given_out = {each for assigned in result.values() for each in flat(assigned)}
    assert given_out == {each for each in flat(partitions) if each[0] in subscribed}


def test_a_member_that_joins_gets_no_more_than_its_share() -> None:
    partitions: Partitions = {TOPICS[0]: frozenset(range(6))}
    one = assign_simple({"a": ShareMemberSpec(frozenset(TOPICS))}, partitions)
    two = assign_simple(
        {"a": ShareMemberSpec(frozenset(TOPICS), one["a"]), "b": ShareMemberSpec(frozenset(TOPICS))}, partitions
    )
    assert len(flat(two["a"])) == len(flat(two["b"])) == 3
    assert flat(two["a"]) <= flat(one["a"])
    assert not flat(two["a"]) & flat(two["b"])

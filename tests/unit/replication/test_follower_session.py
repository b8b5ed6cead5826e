"""The follower's side of a fetch session: which partitions each fetch names."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.replication.follower_session import FollowerSession, Position
from pessoa.wire.errors import ErrorCode

A, B = (Uuid.of(1000), 0), (Uuid.of(1000), 1)
START = Position(leader_epoch=3, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=0)


def partitions_of_next_fetch(session: FollowerSession, **positions: Position) -> tuple[list[int], list[int]]:
    """Return the partitions that the next fetch names, and its forgotten partitions."""
    wanted = {{"a": A, "b": B}[name]: position for name, position in positions.items()}
    topics, forgotten = session.next_fetch_topics(wanted, 1000)
    return (
        [one.partition for topic in topics for one in topic.partitions],
        [index for topic in forgotten for index in topic.partitions],
    )


def test_the_first_fetch_names_all_partitions_and_the_next_only_changed_ones() -> None:
    session = FollowerSession()
    assert session.epoch == 0
    assert partitions_of_next_fetch(session, a=START, b=START) == ([0, 1], [])
    session.apply_response(ErrorCode.NONE, 5)
    assert (session.id, session.epoch) == (5, 1)
    assert partitions_of_next_fetch(session, a=START, b=START._replace(fetch_offset=7)) == ([1], [])
    session.apply_response(ErrorCode.NONE, 5)
    assert session.epoch == 2
    assert partitions_of_next_fetch(session, a=START, b=START._replace(fetch_offset=7)) == ([], [])


def test_an_incremental_fetch_names_a_partition_whose_leader_epoch_has_changed() -> None:
    session = FollowerSession()
    partitions_of_next_fetch(session, a=START)
    session.apply_response(ErrorCode.NONE, 5)
    assert partitions_of_next_fetch(session, a=START._replace(leader_epoch=4)) == ([0], [])


def test_an_incremental_fetch_forgets_a_partition_that_is_not_followed_any_more() -> None:
    session = FollowerSession()
    partitions_of_next_fetch(session, a=START, b=START)
    session.apply_response(ErrorCode.NONE, 5)
    assert partitions_of_next_fetch(session, a=START) == ([], [1])
    session.apply_response(ErrorCode.NONE, 5)
    assert partitions_of_next_fetch(session, a=START, b=START) == ([1], [])


def test_a_follower_names_all_partitions_again_after_a_lost_answer() -> None:
    session = FollowerSession()
    partitions_of_next_fetch(session, a=START)
    session.apply_response(ErrorCode.NONE, 5)
    partitions_of_next_fetch(session, a=START)
    session.reset()
    assert partitions_of_next_fetch(session, a=START, b=START) == ([0, 1], [])
    # The id tells the leader which session it may throw away.
    assert (session.id, session.epoch) == (5, 0)


def test_a_follower_opens_a_new_session_when_the_leader_has_evicted_its_own() -> None:
    session = FollowerSession()
    partitions_of_next_fetch(session, a=START)
    session.apply_response(ErrorCode.NONE, 5)
    partitions_of_next_fetch(session, a=START)
    session.apply_response(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert session.epoch == 0
    assert partitions_of_next_fetch(session, a=START) == ([0], [])


def test_without_a_fetch_session_every_fetch_names_all_partitions() -> None:
    session = FollowerSession()
    for _ in range(3):
        assert partitions_of_next_fetch(session, a=START, b=START) == ([0, 1], [])
        session.apply_response(ErrorCode.NONE, 0)


def test_the_session_epoch_wraps_around_to_one_after_the_largest_value() -> None:
    session = FollowerSession()
    partitions_of_next_fetch(session, a=START)
    session.apply_response(ErrorCode.NONE, 5)
    session.epoch = (1 << 31) - 1
    session.apply_response(ErrorCode.NONE, 5)
    assert session.epoch == 1

"""Share sessions: epochs, connections, and limits."""

from __future__ import annotations

from random import Random

import pytest

from pessoa.base.ids import Uuid
from pessoa.share.share_sessions import FetchPlan, SessionKey, SharedPartition, ShareSessions
from pessoa.wire.errors import ErrorCode, Refusal

TOPIC = Uuid.of(1_000)
KEY = SessionKey("g", "a")
P: list[SharedPartition] = [(TOPIC, number) for number in range(10)]


def fetch(
    sessions: ShareSessions,
    epoch: int,
    wanted: list[SharedPartition] | None = None,
    forgotten: list[SharedPartition] | None = None,
    *,
    key: SessionKey = KEY,
    connection: int = 1,
    acks: bool = False,
) -> FetchPlan:
    return sessions.plan_fetch(key, connection, epoch, wanted or [], forgotten or [], has_acknowledgements=acks)


def refusal_error(sessions: ShareSessions, epoch: int, **options: object) -> ErrorCode:
    with pytest.raises(Refusal) as caught:
        fetch(sessions, epoch, **options)  # type: ignore[arg-type]
    return caught.value.code


def test_a_share_session_begins_with_epoch_zero_and_continues_with_the_next() -> None:
    sessions = ShareSessions(10)
    plan = fetch(sessions, 0, P[:3])
    assert (plan.partitions, plan.added, plan.is_closed) == (P[:3], frozenset(P[:3]), False)
    assert fetch(sessions, 1).added == frozenset()
    assert sessions.plan_acknowledge(KEY, 2) is plan.session
    assert fetch(sessions, 3, [P[5]], [P[0]]).added == {P[5]}
    assert list(plan.session.partitions) == [P[1], P[2], P[5]]


def test_the_order_in_which_partitions_are_fetched_rotates_with_the_session_epoch() -> None:
    sessions = ShareSessions(10)
    fetch(sessions, 0, P[:3])
    assert fetch(sessions, 1).partitions == [P[1], P[2], P[0]]
    assert fetch(sessions, 2).partitions == [P[2], P[0], P[1]]
    assert fetch(sessions, 3).partitions == P[:3]


def test_other_share_session_epochs_are_refused_and_change_nothing() -> None:
    sessions = ShareSessions(10)
    assert refusal_error(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert refusal_error(sessions, -1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    fetch(sessions, 0, P[:3])
    assert refusal_error(sessions, 2, wanted=P) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    with pytest.raises(Refusal) as caught:
        sessions.plan_acknowledge(KEY, 0)
    assert caught.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    with pytest.raises(Refusal) as caught:
        sessions.plan_acknowledge(SessionKey("g", "b"), 1)
    assert caught.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert fetch(sessions, 1).partitions == [P[1], P[2], P[0]]
    assert refusal_error(sessions, 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH, "an epoch is taken once"


def test_the_share_session_epoch_wraps_around_to_one() -> None:
    sessions = ShareSessions(10)
    session = fetch(sessions, 0).session
    session.epoch = (1 << 31) - 1
    fetch(sessions, (1 << 31) - 1)
    assert session.epoch == 1


def test_the_first_request_of_a_share_session_cannot_acknowledge() -> None:
    assert refusal_error(ShareSessions(10), 0, acks=True) is ErrorCode.INVALID_REQUEST


def test_the_final_request_closes_the_share_session_and_fetches_nothing() -> None:
    sessions = ShareSessions(10)
    session = fetch(sessions, 0, P).session
    plan = fetch(sessions, -1, acks=True)
    assert (plan.session, plan.partitions, plan.is_closed) == (session, [], True)
    assert len(sessions) == 0
    fetch(sessions, 0)
    assert sessions.plan_acknowledge(KEY, -1).key == KEY
    assert sessions.get(KEY) is None


def test_a_member_that_opens_a_new_share_session_replaces_the_old_one() -> None:
    sessions = ShareSessions(1)
    fetch(sessions, 0, P[:3], connection=1)
    fetch(sessions, 1, connection=1)
    new = fetch(sessions, 0, P[:1], connection=2).session
    assert sessions.disconnect(1) == []
    assert sessions.get(KEY) is new
    assert sessions.disconnect(2) == [new]
    assert sessions.disconnect(2) == []


def test_closing_a_connection_closes_all_share_sessions_opened_on_it() -> None:
    sessions = ShareSessions(10)
    other = SessionKey("h", "a")
    fetch(sessions, 0)
    fetch(sessions, 0, key=other)
    fetch(sessions, 0, key=SessionKey("g", "b"), connection=2)
    assert {session.key for session in sessions.disconnect(1)} == {KEY, other}
    assert sessions.has_group("g")
    assert not sessions.has_group("h")


def test_the_number_of_share_sessions_and_their_partitions_is_limited() -> None:
    sessions = ShareSessions(2, partition_limit=8)
    fetch(sessions, 0, P[:3])
    fetch(sessions, 0, P[:4], key=SessionKey("g", "b"))
    assert refusal_error(sessions, 0, key=SessionKey("g", "c")) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert refusal_error(sessions, 1, wanted=P[:5]) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    fetch(sessions, 2, P[:4])
    assert len(sessions.close_all()) == 2
    fetch(sessions, 0, P[:8])


@pytest.mark.parametrize("seed", range(20))
def test_the_counts_of_sessions_and_partitions_equal_those_of_the_open_sessions(seed: int) -> None:
    random = Random(seed)
    sessions = ShareSessions(4, partition_limit=25)
    known: dict[SessionKey, set[SharedPartition]] = {}
    for _ in range(300):
        key = SessionKey(random.choice("gh"), random.choice("abc"))
        session = sessions.get(key)
        epoch = random.choice([0, -1, session.epoch if session else 1, 7])
        wanted, forgotten = random.sample(P, random.randint(0, 9)), random.sample(P, random.randint(0, 3))
        if random.random() < 0.1:
            for closed in sessions.disconnect(random.choice([1, 2])):
                del known[closed.key]
            continue
        try:
            plan = fetch(sessions, epoch, wanted, forgotten, key=key, connection=random.choice([1, 2]))
        except Refusal:
            # It has changed nothing, which the next round sees.
            continue
        if plan.is_closed:
            del known[key]
        elif epoch == 0:
            known[key] = set(wanted)
        else:
            known[key] = (known[key] | set(wanted)) - set(forgotten)
            assert set(plan.partitions) == known[key]
        assert len(sessions) == len(known) <= 4
        assert sum(map(len, known.values())) <= 25
        assert f" {sum(map(len, known.values()))} partitions" in repr(sessions)
        for group in "gh":
            assert sessions.has_group(group) == any(each.group_id == group for each in known)


def test_a_share_session_that_cannot_be_replaced_stays_and_ends_with_its_connection() -> None:
    sessions = ShareSessions(1, partition_limit=5)
    session = fetch(sessions, 0, P[:3]).session
    assert refusal_error(sessions, 0, wanted=P[:6], connection=2) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.get(KEY) is session
    # What the old one has does not count against the new one, and a partition that is named twice counts once.
    assert fetch(sessions, 0, P[:5] + P[:5], connection=2).session is not session
    assert sessions.disconnect(1) == []
    assert [one.key for one in sessions.disconnect(2)] == [KEY]

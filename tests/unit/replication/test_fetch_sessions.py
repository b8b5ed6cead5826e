"""The leader's side of fetch sessions: creation, ownership, and eviction from the cache."""

from __future__ import annotations

from itertools import count

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker import fetch_sessions
from pessoa.broker.fetch_sessions import FetchPlan, FetchSessions, Wanted
from pessoa.wire.api.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from pessoa.wire.errors import ErrorCode

VERSION = 18
EVICTION_MS = 1000


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(count(1).__next__, slots, EVICTION_MS)


def begin(table: FetchSessions, now_ms: int = 0, replica: int = -1) -> FetchPlan:
    return table.plan(request(session_epoch=0), VERSION, now_ms, replica)


def request(session_id: int = 0, session_epoch: int = 0, *indexes: int) -> FetchRequest:
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in indexes or (0,)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic_id=Uuid.of(1000), partitions=partitions)],
    )


def data(error: ErrorCode = ErrorCode.NONE, *, parts: bool = False) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=7,
        log_start_offset=0,
        diverging_epoch=EpochEndOffset(epoch=1, end_offset=3) if parts else None,
        aborted_transactions=None,
        records=memoryview(b""),
    )


def first(plan: FetchPlan) -> Wanted:
    return plan.wanted[0]


def test_a_fetch_session_accepts_only_the_next_session_epoch() -> None:
    table = sessions()
    session_id = begin(table).session_id
    assert table.plan(request(session_id, 1), VERSION, 0).error is ErrorCode.NONE
    assert table.plan(request(session_id, 1), VERSION, 0).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert table.plan(request(session_id + 1, 1), VERSION, 0).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_forgotten_topics_are_applied_in_incremental_fetches_only() -> None:
    """In Apache Kafka FullFetchContext and SessionlessFetchContext do not look at `forgotten_topics_data`."""
    table = sessions()

    def wanted(session_id: int, session_epoch: int) -> list[int]:
        asked = request(session_id, session_epoch, 0, 1)
        asked.forgotten_topics_data = [ForgottenTopic(topic_id=Uuid.of(1000), partitions=[1])]
        return [one.request.partition for one in table.plan(asked, VERSION, 0).wanted]

    assert wanted(0, -1) == [0, 1]
    assert wanted(0, 0) == [0, 1]
    [session_id] = table._sessions
    assert wanted(session_id, 1) == [0]
    assert table.partition_count == 1


def test_a_fetch_session_of_one_replica_is_unknown_to_another() -> None:
    table = sessions()
    session_id = begin(table, replica=2).session_id
    for stranger in (3, -1):
        assert table.plan(request(session_id, 1), VERSION, 0, stranger).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert table.plan(request(session_id, 1), VERSION, 0, 2).error is ErrorCode.NONE


def test_a_followers_fetch_session_evicts_a_consumers_and_a_consumers_evicts_only_idle_consumers() -> None:
    table = sessions(slots=1)
    consumer = begin(table).session_id
    assert begin(table, now_ms=1).session_id == 0
    follower = begin(table, now_ms=2, replica=2).session_id
    assert follower
    assert table.plan(request(consumer, 1), VERSION, 3).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # Never the other way round, however long the follower has been idle.
    assert begin(table, now_ms=2 + EVICTION_MS).session_id == 0
    assert begin(table, now_ms=2 + EVICTION_MS, replica=3).session_id


def test_a_fetch_session_does_not_repeat_an_unchanged_high_watermark() -> None:
    plan = begin(sessions())
    session = plan.session
    assert session is not None
    assert session.is_news(first(plan), data(), 0)
    assert not session.is_news(first(plan), data(), 0)


def test_a_fetch_session_repeats_the_high_watermark_after_an_error_or_a_divergence() -> None:
    for trouble in (data(ErrorCode.NOT_LEADER_OR_FOLLOWER), data(parts=True)):
        plan = begin(sessions())
        session = plan.session
        assert session is not None
        assert session.is_news(first(plan), trouble, 0)
        assert session.is_news(first(plan), data(), 0)


def test_consumers_have_a_bounded_number_of_partitions_in_their_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    table = sessions(slots=5)
    one = table.plan(request(0, 0, *range(6)), VERSION, 0)
    assert table.partition_count == 6
    full = table.plan(request(0, 0, *range(6)), VERSION, 0)
    assert (full.error, full.session_id, len(full.wanted)) == (ErrorCode.NONE, 0, 6), "as a fetch outside any session"
    grown = table.plan(request(one.session_id, 1, 6, 7, 8), VERSION, 0)
    assert (grown.error, table.partition_count) == (ErrorCode.NONE, 9)
    too_much = table.plan(request(one.session_id, 2, *range(100, 110)), VERSION, 0)
    assert too_much.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the consumer begins anew"
    assert (len(table), table.partition_count) == (0, 0)


def test_partitions_of_a_closed_or_evicted_fetch_session_are_not_counted_any_more() -> None:
    table = sessions(slots=1)
    one = table.plan(request(0, 0, 1, 2, 3), VERSION, 0)
    table.plan(request(0, 0, 1, 2), VERSION, EVICTION_MS)
    assert (len(table), table.partition_count) == (1, 2)
    two = table.plan(request(one.session_id, 0, 5), VERSION, 2 * EVICTION_MS)
    assert table.partition_count == 1
    table.plan(request(two.session_id, -1, 5), VERSION, 2 * EVICTION_MS)
    assert (len(table), table.partition_count) == (0, 0)
    table.plan(request(0, 0, *range(50)), VERSION, 0, replica_id=2)
    assert table.partition_count == 0, "followers are not counted"

"""A fetch that names a partition very often."""

from __future__ import annotations

from itertools import count

from pessoa.broker.fetch_sessions import FetchSessions
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic

NO_SESSION_EPOCH = -1


def test_a_partition_that_is_asked_for_a_thousand_times_is_answered_once_at_the_last_offset() -> None:
    asked = [FetchPartition(partition=number % 2, fetch_offset=number, partition_max_bytes=1) for number in range(1000)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_epoch=NO_SESSION_EPOCH, topics=[FetchTopic(topic="t", partitions=asked)]
    )
    plan = FetchSessions(count(1).__next__).plan(request, 12, 0)
    assert [(one.request.partition, one.request.fetch_offset) for one in plan.wanted] == [(0, 998), (1, 999)]

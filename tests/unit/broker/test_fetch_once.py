"""A fetch that names the same partition many times."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.broker.apis import fetch
from pessoa.broker.fetch_sessions import FetchSessions
from pessoa.testing import Broker
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from pessoa.wire.request_context import RequestContext

NO_SESSION_EPOCH = -1
TIMEOUT_S = 60


def test_a_partition_that_a_fetch_names_a_thousand_times_is_answered_once_at_the_last_offset() -> None:
    asked = [FetchPartition(partition=number % 2, fetch_offset=number, partition_max_bytes=1) for number in range(1000)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_epoch=NO_SESSION_EPOCH, topics=[FetchTopic(topic="t", partitions=asked)]
    )
    plan = FetchSessions(count(1).__next__).plan(request, 12, 0)
    assert [(one.request.partition, one.request.fetch_offset) for one in plan.wanted] == [(0, 998), (1, 999)]


def test_a_waiting_fetch_that_names_a_partition_a_thousand_times_keeps_it_once() -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
        asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1) for _ in range(1000)]
        request = FetchRequest(
            max_wait_ms=600_000,
            min_bytes=1,
            session_epoch=NO_SESSION_EPOCH,
            topics=[FetchTopic(topic="t", partitions=asked)],
        )

        def handle(inside: Any) -> None:
            before = sys.getrefcount(request), sys.getrefcount(asked[5])
            parked = fetch.handle(inside.services, RequestContext(1, 12, 1, None, "", 1), request)
            assert isinstance(parked, fetch.WaitingFetch)
            assert (sys.getrefcount(request), sys.getrefcount(asked[5])) == before
            parked.cancel()

        broker.inspect(handle)

"""A ShareFetch of very many partitions is served in slices, and respects what other requests change in between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pessoa.base.clock import SystemClock
from pessoa.base.ids import Uuid
from pessoa.broker.apis import share_fetch
from pessoa.broker.share import share_reads
from pessoa.broker.share.led_share_partition import LoadState
from pessoa.broker.share.share_reads import Target
from pessoa.wire.api.share_fetch import AcquiredRecords, PartitionData, ShareFetchRequest
from pessoa.wire.errors import ErrorCode

TOPIC = Uuid.of(1)
LONG_BEFORE_ITS_TIME_S = 30.0
KEY = SimpleNamespace(group_id="g", member_id="m")


def target(index: int) -> Target:
    machine = SimpleNamespace(next_fetch_offset=lambda: 0, can_acquire=lambda: True)
    partition = SimpleNamespace(fetch_waiters=[])
    led = SimpleNamespace(
        state=LoadState.ACTIVE, machine=machine, partition=partition, watch=lambda _: None, unwatch=lambda _: None
    )
    return Target((TOPIC, index), cast("Any", led))


def test_a_share_fetch_returns_at_once_records_appended_to_a_partition_of_an_earlier_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for `max_wait_ms`: nothing told of what had come before it began to wait."""
    targets = {index: target(index) for index in range(2)}
    records: list[str] = []

    def produce() -> None:
        records.append("one")
        for waiter in targets[0].led.partition.fetch_waiters:  # type: ignore[union-attr]
            waiter.arrived(1)

    def acquire(broker: object, one: Target, *_: object, **__: object) -> PartitionData:
        data = share_reads.failed(one, ErrorCode.NONE)
        if one is targets[0] and records:
            data.acquired_records = [AcquiredRecords(first_offset=0, last_offset=0, delivery_count=1)]
        elif one is targets[0]:
            # Another request has its turn behind this slice.
            asyncio.get_running_loop().call_soon(produce)
        return data

    monkeypatch.setattr(share_fetch, "SLICE_COUNT", 1)
    monkeypatch.setattr(share_reads, "acquire", acquire)
    # Of the second partition some bytes can be read, and none acquired: another member was faster.
    monkeypatch.setattr(share_reads, "available_bytes", lambda one, _: 1 if one is targets[1] else 0)
    monkeypatch.setattr(share_reads, "target_of", lambda *arguments: targets[arguments[-1][1]])
    session = object()
    sessions = SimpleNamespace(get=lambda _: session)
    shares = SimpleNamespace(sessions=sessions, note_fetch=lambda *_: None)
    broker = SimpleNamespace(clock=SystemClock(), coordinators=SimpleNamespace(share_partitions=shares))
    plan = SimpleNamespace(session=session, partitions=[(TOPIC, 0), (TOPIC, 1)])
    limits = share_fetch._Limits(max_wait_ms=60_000, min_bytes=1, max_bytes=100, fetches=True)
    request = ShareFetchRequest(
        group_id="g", member_id="m", share_session_epoch=1, max_wait_ms=60_000, min_bytes=1, max_records=10,
        batch_size=10, topics=[], forgotten_topics_data=[],
    )  # fmt: skip
    finding = share_fetch._find(
        cast("Any", broker),
        cast("Any", SimpleNamespace(charge=None)),
        request,
        cast("Any", KEY),
        cast("Any", plan),
        limits,
        frozenset(),
    )
    found = asyncio.run(asyncio.wait_for(finding, LONG_BEFORE_ITS_TIME_S))
    assert found[TOPIC, 0].acquired_records

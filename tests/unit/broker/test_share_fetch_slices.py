"""A ShareFetch of very many partitions gives other requests their turn, and misses nothing that they do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pessoa.base.clock import SystemClock
from pessoa.base.ids import Uuid
from pessoa.broker.apis import share_fetch
from pessoa.broker.share import share_reads, share_waiting
from pessoa.broker.share.led_share_partition import LoadState
from pessoa.broker.share.share_reads import Target
from pessoa.wire.api.share_fetch import AcquiredRecords, PartitionData, ShareFetchRequest
from pessoa.wire.errors import ErrorCode

TOPIC = Uuid.of(1)
KEY = SimpleNamespace(group_id="g", member_id="m")


class Log:
    """Of a partition with `end` records of a byte each."""

    def __init__(self) -> None:
        self.end = 0

    def readable_end(self, up_to: object) -> int:
        return self.end


def target(index: int) -> Target:
    machine = SimpleNamespace(next_fetch_offset=lambda: 0)
    led = SimpleNamespace(
        state=LoadState.ACTIVE, machine=machine, partition=SimpleNamespace(log=Log()), settings=SimpleNamespace(up_to=0)
    )
    return Target((TOPIC, index), cast("Any", led))


def test_records_that_come_between_two_slices_to_a_partition_of_the_first_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for `max_wait_ms`: nothing told of what had come before it began to wait."""
    targets = {index: target(index) for index in range(2)}
    log = cast("Log", targets[0].led.partition.log)  # type: ignore[union-attr]

    def acquire(broker: object, one: Target, *_: object, **__: object) -> PartitionData:
        data = share_reads.failed(one, ErrorCode.NONE)
        if one is targets[0] and log.end:
            data.acquired_records = [AcquiredRecords(first_offset=0, last_offset=0, delivery_count=1)]
        elif one is targets[0]:
            # Another request has its turn behind this slice.
            asyncio.get_running_loop().call_soon(setattr, log, "end", 1)
        return data

    async def wait_for_change(*_: object) -> None:
        raise AssertionError("there is something to acquire")

    monkeypatch.setattr(share_fetch, "SLICE_COUNT", 1)
    monkeypatch.setattr(share_reads, "acquire", acquire)
    # Of the second partition some bytes can be read, and none acquired: another member was faster.
    monkeypatch.setattr(share_reads, "available_bytes", lambda one, _: 1 if one is targets[1] else 0)
    monkeypatch.setattr(share_reads, "target_of", lambda *arguments: targets[arguments[-1][1]])
    monkeypatch.setattr(share_waiting, "wait_for_change", wait_for_change)
    session = object()
    sessions = SimpleNamespace(get=lambda _: session)
    broker = SimpleNamespace(
        clock=SystemClock(), coordinators=SimpleNamespace(share_partitions=SimpleNamespace(sessions=sessions))
    )
    plan = SimpleNamespace(session=session, partitions=[(TOPIC, 0), (TOPIC, 1)])
    limits = share_fetch._Limits(max_wait_ms=60_000, min_bytes=1, max_bytes=100, fetches=True)
    request = ShareFetchRequest(
        group_id="g", member_id="m", share_session_epoch=1, max_wait_ms=60_000, min_bytes=1, max_records=10,
        batch_size=10, topics=[], forgotten_topics_data=[],
    )  # fmt: skip
    found = asyncio.run(
        share_fetch._find(
            cast("Any", broker),
            cast("Any", SimpleNamespace(charge=None)),
            request,
            cast("Any", KEY),
            cast("Any", plan),
            limits,
            frozenset(),
        )
    )
    assert found[TOPIC, 0].acquired_records

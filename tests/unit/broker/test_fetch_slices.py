"""A consumer's Fetch of very many partitions is served in slices between other requests, with the same response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import count
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.broker.apis import fetch
from pessoa.client.blocking_connection import Connection
from pessoa.replication.purgatory import FetchWaiter
from pessoa.testing import Broker
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.batches import plain

TOPIC, PARTITIONS = "t", 7
TIMEOUT_S = 60
# The last version that names topics.
VERSION = 12
NO_SESSION_EPOCH = -1


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
        for partition in range(0, PARTITIONS, 2):
            produce(broker, partition)
        yield broker


@pytest.fixture
def broker(running: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(fetch, "SLICE_COUNT", 3)
    return running


def produce(broker: Broker, partition: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(TOPIC, b"x" * 1000, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def request(max_bytes: int = 1 << 20, offsets: Sequence[int] = (0,) * PARTITIONS, wait_ms: int = 0) -> FetchRequest:
    asked = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in enumerate(offsets)
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=NO_SESSION_EPOCH,
        topics=[FetchTopic(topic=TOPIC, partitions=asked)],
    )


def at_the_end(broker: Broker) -> FetchRequest:
    def ends(inside: Any) -> list[int]:
        return [inside.services.replicas.ensure(TOPIC, number).log.log_end_offset for number in range(PARTITIONS)]

    return request(offsets=broker.inspect(ends), wait_ms=TIMEOUT_S * 1000)


def ask(broker: Broker, wanted: FetchRequest) -> FetchResponse:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    deadline = time.monotonic() + TIMEOUT_S
    connection = Connection(host, int(port), "slices", {}, deadline)
    try:
        return connection.send(wanted, FetchResponse, deadline, VERSION)
    finally:
        connection.close()


def with_records(response: FetchResponse) -> list[int]:
    return [one.partition_index for topic in response.responses for one in topic.partitions if one.records]


@pytest.mark.parametrize("max_bytes", [1, 1500, 2500, 1 << 20])
def test_a_fetch_served_in_slices_has_the_same_response_as_one_served_whole(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    in_slices = ask(broker, request(max_bytes))
    monkeypatch.setattr(fetch, "SLICE_COUNT", PARTITIONS)
    assert bytes(in_slices.encode(VERSION)) == bytes(ask(broker, request(max_bytes)).encode(VERSION))
    assert with_records(in_slices)


def test_others_have_their_turn_between_slices(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    look = fetch._read_partitions

    def look_and_note(*arguments: Any) -> list[Any]:
        events.append("slice")
        asyncio.get_running_loop().call_soon(events.append, "another")
        return look(*arguments)

    monkeypatch.setattr(fetch, "_read_partitions", look_and_note)
    ask(broker, request())
    assert events == ["slice", "another"] * 3


def test_a_fetch_in_slices_waits_for_records(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which come to a partition of the last slice, when it has begun to wait."""
    waits = Event()

    def wait(*arguments: Any, **more: Any) -> Any:
        waits.set()
        return FetchWaiter(*arguments, **more)

    monkeypatch.setattr(fetch, "FetchWaiter", wait)
    wanted = at_the_end(broker)

    async def main() -> FetchResponse:
        asking = asyncio.create_task(asyncio.to_thread(ask, broker, wanted))
        assert await asyncio.to_thread(waits.wait, TIMEOUT_S)
        await asyncio.to_thread(produce, broker, PARTITIONS - 1)
        return await asking

    assert with_records(asyncio.run(main())) == [PARTITIONS - 1]


def test_a_fetch_returns_at_once_records_appended_to_a_partition_of_an_earlier_slice(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would tell of what has come before it begins to wait."""
    wanted = at_the_end(broker)
    look, slices = fetch._read_partitions, count()

    def look_then_let_come(*arguments: Any) -> list[Any]:
        found = look(*arguments)
        if next(slices) == 0:
            partition = found[0].partition
            assert partition is not None
            partition.append(plain(), arguments[0].clock.now_ms(), VERSION)
        return found

    monkeypatch.setattr(fetch, "_read_partitions", look_then_let_come)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("there is something to read")

    monkeypatch.setattr(fetch, "FetchWaiter", never)
    assert with_records(ask(broker, wanted)) == [0]

"""Requests about transactions to Apache Kafka and to our coordinator: the same responses and records in the log.

One script of requests is played to both, byte for byte the same except for producer ids, which are named in the order
in which they appear. It has both versions of transactions, fenced producers, retries, invalid requests, a timeout and
the requests of operators. Then `__transaction_state` is read on both sides and compared by record, without times.

The script waits until a commit or abort is complete, so that CONCURRENT_TRANSACTIONS never depends on timing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from difflib import unified_diff
from itertools import count
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition

from pessoa.base.clock import SystemClock
from pessoa.coordinator.partitioning import partition_for
from pessoa.coordinator.transactions.marker_writer import Errors, Marker
from pessoa.coordinator.transactions.producer_id_pool import ProducerIdPool
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from pessoa.records.record import records
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsResponse
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest
from pessoa.wire.api.end_txn import EndTxnRequest
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.list_transactions import ListTransactionsRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import TRANSACTION_LOG, decode_coordinator_key, decode_coordinator_value
from tests.apache.broker import HOST, ApacheKafka
from tests.support.coordinators import submit
from tests.support.frame_reader import FrameReader
from tests.support.memory_coordinator_log import MemoryLog
from tests.unit.coordinator.transactions.driver import Context

pytestmark = pytest.mark.apache

TOPIC = "__transaction_state"
PARTITIONS = 3
GROUP_PARTITIONS = 5
ABORT_INTERVAL_MS = 100
PATIENCE_S = 120.0
# Long enough for the next transaction to begin and end, also on a busy machine.
SHORT_TIMEOUT_MS = 4_000
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Side(Protocol):
    async def ask(self, request: Message, version: int) -> Any: ...


class ApacheSide:
    def __init__(self, kafka: ApacheKafka) -> None:
        self._socket = socket.create_connection((HOST, kafka.port), PATIENCE_S)
        self._reader = FrameReader()
        self._ids = count()

    async def ask(self, request: Message, version: int) -> Any:
        correlation_id = next(self._ids)
        self._socket.sendall(b"".join(request_frame(request, version, correlation_id, "test")))
        while (view := self._reader.next_frame()) is None:
            self._reader.feed(self._socket.recv(65536))
        frame = bytes(view)
        kind = type(request)
        header, pos = ResponseHeader.decoder(response_header_version(kind, version))(frame, 0, len(frame))
        assert header.correlation_id == correlation_id
        response, end = ApiKey(kind.api_key).response.decoder(version)(frame, pos, len(frame))
        assert end == len(frame)
        return response

    async def prepare(self) -> None:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 7)
        # __consumer_offsets and __transaction_state are created by the first FindCoordinator.
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["first"])
            await wait_until_ready(self, find, 4, lambda response: response.coordinators[0].error_code)
        for number in range(20):
            init = InitProducerIdRequest(transactional_id=f"first-{number}", transaction_timeout_ms=1000)
            await wait_until_ready(self, init, 4, lambda response: response.error_code)

    def close(self) -> None:
        self._socket.close()


async def wait_until_ready(side: Side, request: Message, version: int, code: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while code(await side.ask(request, version)) in NOT_YET:
        assert time.monotonic() < deadline, request
        await asyncio.sleep(0.05)


class OurSide:
    """Our coordinator without a broker: every marker counts as written at once."""

    def __init__(self) -> None:
        self.log = MemoryLog(PARTITIONS)
        topics = {"t": 2, "__consumer_offsets": GROUP_PARTITIONS}
        by_name = {name: SimpleNamespace(partitions=dict.fromkeys(range(size))) for name, size in topics.items()}
        image: Any = SimpleNamespace(topics=SimpleNamespace(by_name=by_name))
        clock = SystemClock()
        self.coordinator = TransactionCoordinator(
            TransactionConfig(),
            self.log,
            clock,
            image,
            ProducerIdPool(self.allocate, clock),
            self,
            lambda: 2,
            lambda group: partition_for(group, GROUP_PARTITIONS),
        )

    async def allocate(self) -> AllocateProducerIdsResponse:
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=0, producer_id_start=1000, producer_id_len=1000
        )

    def write(self, marker: Marker, partitions: Any) -> Errors:
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def is_gone(self, partition: tuple[str, int]) -> bool:
        return False

    async def prepare(self) -> None:
        for partition in range(PARTITIONS):
            loading = self.coordinator.elect(partition, 0)
            assert loading is not None
            await loading

    async def ask(self, request: Message, version: int) -> Any:
        # Encoded and decoded, since a client sees only the fields that the version has.
        kind = type(request)
        asked = kind.decode(request.encode(version), version)
        answer = submit(self.coordinator, asked, Context(version))
        answer = answer if isinstance(answer, Message) else await answer
        return type(answer).decode(answer.encode(version), version)


class Play:
    """Plays the script to one side and writes down its responses."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.names: dict[int, str] = {-1: "none", 0: "zero"}
        self.transcript: list[str] = []

    def name(self, producer_id: int) -> str:
        return self.names.setdefault(producer_id, f"producer {len(self.names) - 1}")

    def say(self, *words: object) -> None:
        self.transcript.append(" ".join(map(str, words)))

    async def init(
        self, name: str | None, version: int = 5, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1)
    ) -> tuple[int, int]:
        response = await self.side.ask(
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
            ),
            version,
        )
        code = ErrorCode.of(response.error_code).name
        self.say("init", name, version, code, self.name(response.producer_id), response.producer_epoch)
        return response.producer_id, response.producer_epoch

    async def add(
        self, name: str, producer: tuple[int, int], *topics: tuple[str, int], version: int = 5, verify: bool = False
    ) -> None:
        wanted = [AddPartitionsToTxnTopic(name=topic, partitions=[partition]) for topic, partition in topics]
        if version >= 4:
            request = AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=name,
                        producer_id=producer[0],
                        producer_epoch=producer[1],
                        verify_only=verify,
                        topics=wanted,
                    )
                ]
            )
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=wanted,
            )
        response = await self.side.ask(request, version)
        found = response.results_by_topic_v3_and_below or [
            topic for result in response.results_by_transaction for topic in result.topic_results
        ]
        codes = sorted(
            (topic.name, partition.partition_index, ErrorCode.of(partition.partition_error_code).name)
            for topic in found
            for partition in topic.results_by_partition
        )
        self.say("verify" if verify else "add", name, producer[1], version, response.error_code, codes)

    async def add_offsets(self, name: str, producer: tuple[int, int], group: str, version: int = 4) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=group
        )
        response = await self.side.ask(request, version)
        self.say("add offsets", name, version, ErrorCode.of(response.error_code).name)

    async def end(
        self, name: str, producer: tuple[int, int], commits: bool, version: int = 5, waits: bool = True
    ) -> tuple[int, int]:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commits
        )
        response = await self.side.ask(request, version)
        code = ErrorCode.of(response.error_code).name
        named = self.name(response.producer_id)
        self.say("end", name, producer[1], commits, version, code, named, response.producer_epoch)
        if waits:
            await self.wait_for_the_end(name)
        return response.producer_id, response.producer_epoch

    async def wait_for_the_end(self, name: str, is_open: bool = False) -> None:
        """Wait until no commit or abort is under way; with `is_open` also until an open transaction is aborted."""
        busy = {"PrepareCommit", "PrepareAbort"} | ({"Ongoing"} if is_open else set())
        deadline = time.monotonic() + PATIENCE_S
        while (await self.state(name)).transaction_state in busy:
            assert time.monotonic() < deadline, name
            await asyncio.sleep(0.01)

    async def state(self, name: str) -> Any:
        response = await self.side.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0)
        return response.transaction_states[0]

    async def describe(self, name: str) -> None:
        state = await self.state(name)
        partitions = sorted((topic.topic, partition) for topic in state.topics for partition in topic.partitions)
        self.say(
            "describe", name, ErrorCode.of(state.error_code).name, state.transaction_state, state.producer_epoch,
            self.name(state.producer_id), state.transaction_timeout_ms, state.transaction_start_time_ms > 0, partitions,
        )  # fmt: skip

    async def list(self, states: list[str], pattern: str | None, duration_ms: int = -1) -> None:
        request = ListTransactionsRequest(
            state_filters=states,
            producer_id_filters=[],
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        response = await self.side.ask(request, 2)
        found = sorted((one.transactional_id, one.transaction_state) for one in response.transaction_states)
        code = ErrorCode.of(response.error_code).name
        self.say("list", states, pattern, duration_ms, code, sorted(response.unknown_state_filters), found)


async def with_an_epoch_for_each_transaction(play: Play) -> None:
    first = await play.init("v2")
    await play.describe("v2")
    await play.add("v2", first, ("t", 0), ("t", 1), ("__consumer_offsets", 3))
    await play.add("v2", first, ("t", 0))
    await play.add("v2", first, ("t", 0), ("__consumer_offsets", 4), verify=True)
    await play.describe("v2")
    second = await play.end("v2", first, True)
    await play.describe("v2")
    await play.end("v2", first, True)
    await play.end("v2", first, False)
    await play.end("v2", second, True)
    await play.add("v2", first, ("t", 0))
    third = await play.end("v2", second, False)
    await play.describe("v2")
    await play.end("v2", second, False)
    await play.end("v2", second, True)
    await play.end("v2", (second[0], 99), False)
    await play.end("v2", (first[0] + 500, 0), False)
    await play.add("v2", third, ("t", 1))
    await play.init("v2", timeout_ms=30_000)
    await play.wait_for_the_end("v2")
    await play.describe("v2")
    await play.end("v2", third, True)
    await play.end("v2", third, False)
    fourth = await play.init("v2", timeout_ms=30_000)
    await play.end("v2", third, False)
    await play.end("v2", fourth, True)
    await play.end("v2", fourth, False)
    await play.describe("v2")


async def with_one_epoch_for_all(play: Play) -> None:
    producer = await play.init("v1", version=2)
    await play.end("v1", producer, True, version=3)
    await play.end("v1", producer, False, version=4)
    await play.add("v1", producer, ("t", 0), version=3)
    await play.add("v1", producer, ("t", 1), version=0)
    await play.add_offsets("v1", producer, "group")
    await play.describe("v1")
    await play.add("v1", producer, ("t", 0), ("t", 1), verify=True, version=4)
    await play.end("v1", producer, True, version=4)
    await play.end("v1", producer, True, version=1)
    await play.end("v1", producer, False, version=4)
    await play.add("v1", producer, ("t", 0), version=3)
    await play.end("v1", producer, False, version=0)
    await play.end("v1", producer, False, version=3)
    await play.end("v1", producer, True, version=3)
    await play.describe("v1")
    again = await play.init("v1", version=2)
    for version in (0, 1, 2, 3):
        await play.add("v1", producer, ("t", 0), version=version)
        await play.add_offsets("v1", producer, "group", version=version)
        await play.end("v1", producer, True, version=version)
    await play.add("v1", again, ("t", 0), version=3)
    await play.end("v1", again, True)
    await play.describe("v1")


async def producers_that_go_on(play: Play) -> None:
    first = await play.init("goes on")
    second = await play.init("goes on", expected=first)
    await play.init("goes on", expected=first)
    await play.init("goes on", expected=second, version=4)
    await play.init("goes on", expected=first)
    await play.init("goes on", expected=first, version=3)
    await play.init("goes on", expected=(first[0] + 500, 0))
    await play.init("goes on", expected=(first[0], -1))
    await play.init("goes on", expected=(-1, 3))
    await play.init("is new", expected=(first[0] + 500, 3))


async def wrong_requests(play: Play) -> None:
    await play.init("")
    await play.init("wrong", timeout_ms=0)
    await play.init("wrong", timeout_ms=-5)
    await play.init("wrong", timeout_ms=900_001)
    await play.describe("wrong")
    unknown_producer = (12_345, 0)
    await play.add("wrong", unknown_producer, ("t", 0))
    await play.add("wrong", unknown_producer, ("t", 0), verify=True)
    await play.add("wrong", unknown_producer, ("t", 0), version=3)
    await play.add("wrong", unknown_producer, ("t", 7), ("unknown", 0), ("t", 0))
    await play.add("wrong", unknown_producer, ("__consumer_offsets", 0), ("t", 0), version=3)
    await play.add("", unknown_producer, ("t", 0))
    await play.add_offsets("wrong", unknown_producer, "group")
    await play.end("wrong", unknown_producer, True)
    await play.end("wrong", unknown_producer, True, version=4)
    await play.end("", unknown_producer, True, waits=False)
    await play.describe("")


async def a_transaction_that_is_too_old(play: Play) -> None:
    producer = await play.init("slow", timeout_ms=SHORT_TIMEOUT_MS)
    await play.add("slow", producer, ("t", 0))
    await play.wait_for_the_end("slow", is_open=True)
    await play.describe("slow")
    await play.add("slow", producer, ("t", 0))
    await play.end("slow", producer, True)
    after = await play.end("slow", producer, False)
    await play.add("slow", after, ("t", 1))
    await play.end("slow", after, True)
    await play.describe("slow")


async def lists(play: Play) -> None:
    producer = await play.init("open")
    await play.add("open", producer, ("t", 0))
    await play.list([], "open|v1|v2|slow|goes on|is new")
    await play.list(["Ongoing"], None)
    await play.list(["Ongoing", "Odd", "Dead"], "v.")
    await play.list(["CompleteCommit", "CompleteAbort"], "v[12]")
    await play.list(["Odd"], "v.")
    await play.list([], "v")
    await play.list([], "(")
    await play.list([], "o.*", 3_600_000)
    await play.list([], "", 1 << 62)
    await play.end("open", producer, False)


SCRIPT = (
    with_an_epoch_for_each_transaction,
    with_one_epoch_for_all,
    producers_that_go_on,
    wrong_requests,
    a_transaction_that_is_too_old,
    lists,
)


async def played(play: Play) -> None:
    for scene in SCRIPT:
        play.say("scene:", scene.__name__)
        await scene(play)


def stored(play: Play, found: Iterator[tuple[bytes | None, bytes | None]]) -> dict[str, list[str]]:
    """Return the records in the log by transactional id, in words without times."""
    told: dict[str, list[str]] = {}
    for key, value in found:
        assert key is not None
        assert value is not None
        name: Any = decode_coordinator_key(TRANSACTION_LOG, key)
        if name.transactional_id.startswith("first"):
            continue
        of: Any = decode_coordinator_value(TRANSACTION_LOG, name, value)
        partitions = of.transaction_partitions
        if partitions is not None:
            partitions = sorted((one.topic, index) for one in partitions for index in one.partition_ids)
        ids = [play.name(one) for one in (of.producer_id, of.previous_producer_id, of.next_producer_id)]
        told.setdefault(name.transactional_id, []).append(
            f"version {value[:2].hex()} state {of.transaction_status} {ids} epoch {of.producer_epoch} "
            f"next {of.next_producer_epoch} timeout {of.transaction_timeout_ms} "
            f"client {of.client_transaction_version} started {of.transaction_start_timestamp_ms > 0} {partitions}"
        )
    return told


def records_of_apache(kafka: ApacheKafka) -> Iterator[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(TOPIC, partition, 0)
            low, high = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            consumer.assign([place])
            position = low
            while position < high:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                offset = message.offset()
                assert offset is not None
                position = offset + 1
                yield message.key(), message.value()
    finally:
        consumer.close()


def records_of_ours(log: MemoryLog) -> Iterator[tuple[bytes | None, bytes | None]]:
    for partition in range(PARTITIONS):
        for batch in log.read(partition):
            for record in records(batch):
                yield record.key, record.value


async def play_ours() -> tuple[list[str], dict[str, list[str]]]:
    side = OurSide()
    await side.prepare()
    play = Play(side)
    await played(play)
    side.coordinator.close()
    return play.transcript, stored(play, records_of_ours(side.log))


async def play_apache(kafka: ApacheKafka) -> tuple[list[str], dict[str, list[str]]]:
    side = ApacheSide(kafka)
    await side.prepare()
    play = Play(side)
    await played(play)
    side.close()
    return play.transcript, stored(play, records_of_apache(kafka))


def test_a_script_of_transaction_requests_gets_the_same_responses_and_records_as_on_apache() -> None:
    with ApacheKafka(
        transaction_state_log_num_partitions=PARTITIONS,
        offsets_topic_num_partitions=GROUP_PARTITIONS,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=ABORT_INTERVAL_MS,
    ) as kafka:
        apache_said, apache_wrote = asyncio.run(play_apache(kafka))
    we_said, we_wrote = asyncio.run(play_ours())
    assert difference(apache_said, we_said) == []
    assert we_wrote.keys() == apache_wrote.keys()
    for name, written in apache_wrote.items():
        assert difference(written, we_wrote[name]) == [], name


def difference(theirs: list[str], ours: list[str]) -> list[str]:
    return list(unified_diff(theirs, ours, "apache", "ours", lineterm=""))

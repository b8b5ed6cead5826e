"""Clients of our own wire codec that count every request that fails while brokers stop and start.

librdkafka and the Java clients hide retries. These do not: each sends one small request after another, does
after a failure what franz-go would do (use the leader hint in the response, else request metadata from a listed broker,
then try again) and counts:

    REFUSED   the connection was refused where the newest Metadata lists a broker
    CUT       the connection ended, and a request on it had no response
    ERROR     a response with an error code; its name tells whether clients retry it by themselves

    producer    idempotent, acks=all, one batch of one record to each partition in turn
    fetcher     long polls of all partitions of one topic at their leaders, one thread for each partition
    committer   commits offsets of a group without members: it needs the coordinator
    asker       Metadata from a random broker, as any client may at any time

A connection that the broker closed without a request in flight is no failure: the client notices it before its next
request. A stopping broker cannot wait for ever for a silent client, so each failure has the time for which its client
was silent, possibly because the machine was busy. `check` finds lost and duplicate records.
"""

from __future__ import annotations

import select
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from pessoa.client.blocking_connection import Connection, ConnectionFailed
from pessoa.records.batch import batches
from pessoa.records.builder import build_batch
from pessoa.records.record import Record, records
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.ids import Uuid
    from pessoa.wire.schema import Message

REFUSED, CUT, ERROR = "refused", "cut", "error"
_REQUEST_TIMEOUT_S = 30.0
_LONG_POLL_MS = 500
# franz-go and Java wait longer before a retry, but a client that retries sooner sees more failures.
_BACKOFF_S = 0.02
_PACE_S = 0.01
_MAX_BYTES = 1 << 20

R = TypeVar("R", bound="Message")


class Failure(NamedTuple):
    at_s: float
    client: str
    kind: str
    # The API of the request.
    api: str
    broker: int
    # The name of the response's error, or the error of the connection.
    what: str
    # Seconds since this client got anything from that broker, or Metadata that lists it.
    silent_s: float

    def __str__(self) -> str:
        silent = f"after {self.silent_s:.3f} s of silence"
        return f"{self.client}: {self.api} to broker {self.broker} {self.kind} ({self.what}) {silent}"


class Broken(Exception):
    """The request got no response, and the failure was counted."""


@dataclass
class Journal:
    """The observations of all clients; `lock` guards them."""

    failures: list[Failure] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    closed_idle: int = 0
    lock: Lock = field(default_factory=Lock)
    # Partition → the times of acknowledgements, and the times of reads.
    acknowledged_at_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    read_at_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[int, dict[bytes, int]] = field(default_factory=lambda: defaultdict(dict))
    read: dict[int, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))

    def fail(self, failure: Failure) -> None:
        with self.lock:
            self.failures.append(failure)

    def of_kind(self, *kinds: str) -> list[Failure]:
        with self.lock:
            return [one for one in self.failures if one.kind in kinds]

    def summary(self) -> Counter[str]:
        with self.lock:
            return Counter(f"{one.kind}: {one.api} {one.what}" for one in self.failures)


class _Known(NamedTuple):
    """The content of one Metadata response."""

    brokers: dict[int, tuple[str, int]]
    topic_id: Uuid
    # Partition → leader and its epoch
    leaders: dict[int, tuple[int, int]]


class Client:
    """One thread's view of the cluster: metadata, and a connection to each broker that it needed."""

    def __init__(self, name: str, bootstrap: str, topic: str, journal: Journal, seed: int) -> None:
        self.name = name
        self._topic = topic
        self.journal = journal
        self._random = Random(seed)
        self._connections: dict[int, Connection] = {}
        addresses = [one.rpartition(":") for one in bootstrap.split(",")]
        self._seeds = {-2 - index: (host, int(port)) for index, (host, _, port) in enumerate(addresses)}
        self.known: _Known | None = None
        # Broker → when this client last got something from it, or Metadata that lists it.
        self._heard_at_s: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Client {self.name}: connected to {sorted(self._connections)}>"

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def ask(self, broker: int, request: Message, answer: type[R]) -> R:
        """Return the response; raise `Broken`, after counting the failure, if there is none."""
        api = type(request).__name__.removesuffix("Request")
        connection = self._connect(broker, api)
        with self.journal.lock:
            self.journal.requests[api] += 1
        sent_at_s = time.monotonic()
        try:
            found = connection.send(request, answer, sent_at_s + _REQUEST_TIMEOUT_S)
        except ConnectionFailed as problem:
            del self._connections[broker]
            self._fail(CUT, api, broker, str(problem).partition(": ")[2], sent_at_s)
            raise Broken from problem
        self._heard_at_s[broker] = time.monotonic()
        return found

    def _connect(self, broker: int, api: str) -> Connection:
        known = self._connections.get(broker)
        if known is not None:
            if not select.select([known._socket], [], [], 0)[0]:
                return known
            # Between two requests a readable connection is one that the broker has closed.
            known.close()
            del self._connections[broker]
            with self.journal.lock:
                self.journal.closed_idle += 1
        host, port = self._address(broker)
        try:
            made = Connection(host, port, self.name, {}, time.monotonic() + _REQUEST_TIMEOUT_S)
        except ConnectionFailed as problem:
            is_refused = "refused" in str(problem)
            self._fail(REFUSED if is_refused else CUT, api, broker, str(problem).partition(": ")[2])
            raise Broken from problem
        self._connections[broker] = made
        return made

    def _address(self, broker: int) -> tuple[str, int]:
        if self.known is not None and broker in self.known.brokers:
            return self.known.brokers[broker]
        return self._seeds[broker]

    def _fail(self, kind: str, api: str, broker: int, what: str, sent_at_s: float | None = None) -> None:
        now_s = time.monotonic()
        silent_s = (sent_at_s or now_s) - self._heard_at_s.get(broker, 0.0)
        self.journal.fail(Failure(now_s, self.name, kind, api, broker, what, silent_s))

    def check(self, code: int, api: str, broker: int) -> bool:
        """Count an error of the response; return whether the response has none."""
        if code:
            self._fail(ERROR, api, broker, ErrorCode.of(code).name)
        return not code

    # The choice of the broker.

    def refresh(self, apart_from: int | None = None) -> None:
        """Request metadata from a random listed broker; one that just failed is tried last."""
        listed = list(self.known.brokers if self.known is not None else self._seeds)
        self._random.shuffle(listed)
        listed.sort(key=lambda one: one == apart_from)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        for broker in listed:
            try:
                found = self.ask(broker, request, MetadataResponse)
            except Broken:
                continue
            (topic,) = found.topics
            brokers = {one.node_id: (one.host, one.port) for one in found.brokers}
            leaders = {one.partition_index: (one.leader_id, one.leader_epoch) for one in topic.partitions}
            if self.known is not None:
                # A Metadata response may be older than a leader hint.
                for index, (leader, epoch) in self.known.leaders.items():
                    if leaders.get(index, (-1, -1))[1] < epoch and leader in brokers:
                        leaders[index] = leader, epoch
                for gone in set(self._connections) - set(brokers):
                    self._connections.pop(gone).close()
            self.known = _Known(brokers, topic.topic_id, leaders)
            self._heard_at_s.update(dict.fromkeys(brokers, time.monotonic()))
            return
        # No broker of the newest Metadata answers: start again with the bootstrap servers.
        self.known = None
        time.sleep(_BACKOFF_S)

    def leader_of(self, partition: int) -> int:
        """Return the partition's leader, waiting until one is known."""
        while True:
            if self.known is not None:
                leader = self.known.leaders.get(partition, (-1, -1))[0]
                if leader in self.known.brokers:
                    return leader
                time.sleep(_BACKOFF_S)
            self.refresh()

    def hear(self, partition: int, hint: tuple[int, int] | None, endpoints: list[tuple[int, str, int]]) -> bool:
        """Use a leader hint of a response (KIP-951); return False if it is not newer than the known leader."""
        if self.known is None or hint is None or hint[0] < 0 or hint[1] <= self.known.leaders[partition][1]:
            return False
        self.known.brokers.update({node: (host, port) for node, host, port in endpoints})
        if hint[0] not in self.known.brokers:
            return False
        self.known.leaders[partition] = hint
        self.heard_of(hint[0])
        return True

    def heard_of(self, broker: int) -> None:
        self._heard_at_s[broker] = time.monotonic()


class CountingClients:
    """`with CountingClients(bootstrap, topic, partitions) as clients: …`; then `check()`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str = "counting") -> None:
        self.journal = Journal()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._group = group
        self._is_done = Event()
        self._has_read_all = Event()
        self.problems: list[BaseException] = []
        self._threads = [
            self._thread("producer", self._produce),
            self._thread("committer", self._commit),
            self._thread("asker", self._ask),
            *(self._thread(f"fetcher-{index}", self._fetch, index) for index in range(partitions)),
        ]

    def __repr__(self) -> str:
        return f"<CountingClients: {dict(self.journal.requests)}, {len(self.journal.failures)} failures>"

    def _thread(self, name: str, run: Callable[..., None], *arguments: int) -> Thread:
        client = Client(name, self._bootstrap, self._topic, self.journal, seed=sum(name.encode()))

        def guarded() -> None:
            try:
                run(client, *arguments)
            except BaseException as problem:
                self.problems.append(problem)
                raise
            finally:
                client.close()

        return Thread(target=guarded, daemon=True, name=name)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        if self.problems:
            self._has_read_all.set()
        for thread in self._threads:
            thread.join(_REQUEST_TIMEOUT_S)

    @property
    def acknowledged(self) -> int:
        with self.journal.lock:
            return sum(map(len, self.journal.acknowledged.values()))

    # What each thread does.

    def _produce(self, client: Client) -> None:
        producer_id, epoch = self._init_producer(client)
        number = 0
        sequences = dict.fromkeys(range(self._partitions), 0)
        while not self._is_done.is_set():
            partition, value = number % self._partitions, b"%d-%d" % (producer_id, number)
            number += 1
            batch = build_batch(
                [Record(0, int(time.time() * 1000), None, value)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequences[partition],
            )
            sequences[partition] += 1
            offset = None
            while offset is None:
                offset = self._send(client, partition, batch)
            with self.journal.lock:
                self.journal.acknowledged[partition][value] = offset
                self.journal.acknowledged_at_s[partition].append(time.monotonic())
            time.sleep(_PACE_S)

    def _init_producer(self, client: Client) -> tuple[int, int]:
        while True:
            client.leader_of(0)
            assert client.known is not None
            broker = min(client.known.brokers)
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            try:
                found = client.ask(broker, request, InitProducerIdResponse)
            except Broken:
                client.refresh(broker)
                continue
            if client.check(found.error_code, "InitProducerId", broker):
                return found.producer_id, found.producer_epoch
            time.sleep(_BACKOFF_S)

    def _send(self, client: Client, partition: int, batch: bytearray) -> int | None:
        broker = client.leader_of(partition)
        assert client.known is not None
        topic = TopicProduceData(
            name=self._topic,
            topic_id=client.known.topic_id,
            partition_data=[PartitionProduceData(index=partition, records=memoryview(bytes(batch)))],
        )
        try:
            found = client.ask(broker, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), ProduceResponse)
        except Broken:
            client.refresh(broker)
            return None
        answer = found.responses[0].partition_responses[0]
        if client.check(answer.error_code, "Produce", broker):
            return answer.base_offset
        leader = answer.current_leader
        hint = None if leader is None else (leader.leader_id, leader.leader_epoch)
        if not client.hear(partition, hint, [(one.node_id, one.host, one.port) for one in found.node_endpoints]):
            time.sleep(_BACKOFF_S)
            client.refresh()
        return None

    def _fetch(self, client: Client, partition: int) -> None:
        offset = 0
        while not self._is_done.is_set() or not self._has_everything(partition):
            broker = client.leader_of(partition)
            assert client.known is not None
            wanted = FetchPartition(
                partition=partition,
                current_leader_epoch=client.known.leaders[partition][1],
                fetch_offset=offset,
                partition_max_bytes=_MAX_BYTES,
            )
            request = FetchRequest(
                max_wait_ms=_LONG_POLL_MS,
                min_bytes=1,
                max_bytes=_MAX_BYTES,
                topics=[FetchTopic(topic=self._topic, topic_id=client.known.topic_id, partitions=[wanted])],
            )
            try:
                found = client.ask(broker, request, FetchResponse)
            except Broken:
                client.refresh(broker)
                continue
            if not found.responses:
                # A response without new records may list no partition.
                client.check(found.error_code, "Fetch", broker)
                continue
            answer = found.responses[0].partitions[0]
            if client.check(answer.error_code, "Fetch", broker):
                offset = self._take(partition, offset, answer.records)
                continue
            leader = answer.current_leader
            hint = None if leader is None else (leader.leader_id, leader.leader_epoch)
            if not client.hear(partition, hint, [(one.node_id, one.host, one.port) for one in found.node_endpoints]):
                time.sleep(_BACKOFF_S)
                client.refresh()

    def _take(self, partition: int, offset: int, data: memoryview | None) -> int:
        now_s = time.monotonic()
        for batch in batches(data or b""):
            for record in records(batch):
                if record.offset >= offset:
                    offset = record.offset + 1
                    with self.journal.lock:
                        self.journal.read[partition].append((record.offset, bytes(record.value or b"")))
                        self.journal.read_at_s[partition].append(now_s)
        return offset

    def _has_everything(self, partition: int) -> bool:
        if self._threads[0].is_alive():
            return False
        with self.journal.lock:
            end = max(self.journal.acknowledged[partition].values(), default=-1)
            read = self.journal.read[partition]
            return self._has_read_all.is_set() or end < 0 or (bool(read) and read[-1][0] >= end)

    def _commit(self, client: Client) -> None:
        coordinator = None
        offset = 0
        while not self._is_done.is_set():
            if coordinator is None:
                coordinator = self._find_coordinator(client)
                continue
            assert client.known is not None
            offset += 1
            wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
            topic = OffsetCommitRequestTopic(name=self._topic, topic_id=client.known.topic_id, partitions=[wanted])
            request = OffsetCommitRequest(group_id=self._group, member_id="", topics=[topic])
            try:
                found = client.ask(coordinator, request, OffsetCommitResponse)
            except Broken:
                client.refresh(coordinator)
                coordinator = None
                continue
            if not client.check(found.topics[0].partitions[0].error_code, "OffsetCommit", coordinator):
                coordinator = None
            time.sleep(_PACE_S)

    def _find_coordinator(self, client: Client) -> int | None:
        """Return the group's coordinator from a listed broker, or None."""
        client.leader_of(0)
        assert client.known is not None
        asked = client._random.choice(sorted(client.known.brokers))
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        try:
            found = client.ask(asked, request, FindCoordinatorResponse).coordinators[0]
        except Broken:
            client.refresh(asked)
            return None
        if not client.check(found.error_code, "FindCoordinator", asked):
            time.sleep(_BACKOFF_S)
            client.refresh()
            return None
        client.known.brokers[found.node_id] = (found.host, found.port)
        client.heard_of(found.node_id)
        return found.node_id

    def _ask(self, client: Client) -> None:
        while not self._is_done.is_set():
            client.refresh()
            time.sleep(_PACE_S)

    # Results.

    def longest_pause_s(self, times: dict[int, list[float]]) -> float:
        gaps = (after - before for one in times.values() for before, after in pairwise(one))
        return max(gaps, default=0.0)

    def check(self) -> None:
        """Assert that no acknowledged record is lost and that no record is there twice."""
        assert not self.problems, self.problems
        for partition in range(self._partitions):
            read = self.journal.read[partition]
            values = [value for _, value in read]
            assert len(set(values)) == len(values), f"partition {partition} has records twice"
            lost = self.journal.acknowledged[partition].keys() - set(values)
            assert not lost, f"partition {partition} lost {len(lost)} records, e.g. {sorted(lost)[:5]}"
            wrong = [one for one in read if self.journal.acknowledged[partition].get(one[1], one[0]) != one[0]]
            assert not wrong, f"partition {partition} has records elsewhere than was said: {wrong[:5]}"

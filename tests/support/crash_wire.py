"""A client for tests that attack a broker with raw bytes and frames, and a well-behaved client (the canary) beside it.

`Wire` is a connection that sends any bytes it is given, and reads responses with a deadline. `Canary` keeps to the
protocol: it produces one record and fetches it, on connections of its own, and so shows whether an attack on one
connection affects another. `hostile_message` makes a request that is correctly encoded and nothing else: it names
topics, groups and brokers that exist, with numbers and records that no real client would send.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from random import Random
from struct import pack, unpack
from typing import Any, Self

from pessoa.base.ids import Uuid
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import response_header_version
from pessoa.wire.schema import Field, Message, Struct
from tests.support.batches import idempotent, plain, transactional, values
from tests.support.wire_values import INTEGERS, Generator

# Only failures take this long: a healthy broker answers in milliseconds.
TIMEOUT_S = 60.0
# The last versions that name their topics (later ones have topic ids).
PRODUCE_VERSION = 12
FETCH_VERSION = 12
# Fields of responses whose values later requests use.
_LEARNT = frozenset(
    "member_id member_epoch generation_id producer_id producer_epoch session_id leader_epoch principal_name".split()
)


# Numbers with which a request passes the checks of its fields. Timeouts are short, so that no request waits for long.
_USUAL = {
    **dict.fromkeys(("partition", "partition_index", "partitions", "partition_indexes", "index"), (0, 0, 1, 2)),
    **dict.fromkeys(("session_timeout_ms", "rebalance_timeout_ms", "transaction_timeout_ms", "max_wait_ms"), (40, 1)),
    **dict.fromkeys(("count", "num_partitions"), (-1, 0, 1, 4)),
    **dict.fromkeys(("member_epoch", "generation_id"), (-2, -1, 0, 1)),
    **dict.fromkeys(("resource_type", "config_type"), (2, 4, 8, 16, 32)),
}


class Closed(Exception):
    """The broker has closed the connection."""


class Wire:
    """A connection to a broker. `receive` raises `Closed` at its end and `TimeoutError` after `timeout_s`."""

    def __init__(
        self,
        port: int,
        timeout_s: float = TIMEOUT_S,
        receive_buffer_bytes: int | None = None,
        client_id: str = "attacker",
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(timeout_s)
        self._socket.connect(("127.0.0.1", port))
        self._correlation_id = 0
        self._client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send the bytes. If the broker closes the connection meanwhile nothing is raised: `receive` returns its
        response or raises `Closed`."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def send_what_fits(self, data: bytes, timeout_s: float) -> bool:
        """Send the bytes, and return False if the broker has not read them within `timeout_s`."""
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            return False
        return True

    def receive(self, size: int) -> bytes:
        deadline = time.monotonic() + (self._socket.gettimeout() or TIMEOUT_S)
        got = bytearray()
        while len(got) < size:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(got)} of {size} bytes came")
            try:
                part = self._socket.recv(size - len(got))
            except ConnectionResetError as reset:
                raise Closed from reset
            if not part:
                raise Closed
            got += part
        return bytes(got)

    def frame(self) -> bytes:
        return self.receive(unpack(">i", self.receive(4))[0])

    def is_closed(self) -> bool:
        """Return whether the broker closes the connection within the timeout; bytes that it still sends are dropped."""
        try:
            while True:
                self.receive(1)
        except Closed:
            return True
        except TimeoutError:
            return False

    def write(self, request: Message, version: int) -> int:
        self._correlation_id += 1
        self.send(b"".join(request_frame(request, version, self._correlation_id, self._client_id)))
        return self._correlation_id

    def read(self, response: type[Message], version: int, correlation_id: int) -> Any:
        frame = self.frame()
        assert unpack(">i", frame[:4])[0] == correlation_id
        start = 5 if response_header_version(response, version) else 4
        message, end = response.decoder(version)(frame, start, len(frame))
        assert end == len(frame)
        return message

    def ask(self, request: Message, response: type[Message], version: int) -> Any:
        return self.read(response, version, self.write(request, version))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def produce_request(topic: str, records: bytes | memoryview, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(records))
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch_request(topic: str, offset: int, max_bytes: int = 1 << 20, **settings: Any) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=-1)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
        **settings,
    )


def produce(wire: Wire, topic: str, records: bytes | memoryview) -> Any:
    """Produce to partition 0 and return its part of the response."""
    response = wire.ask(produce_request(topic, records), ProduceResponse, PRODUCE_VERSION)
    return response.responses[0].partition_responses[0]


def fetch(wire: Wire, topic: str, offset: int, **settings: Any) -> Any:
    response = wire.ask(fetch_request(topic, offset, **settings), FetchResponse, FETCH_VERSION)
    return response.responses[0].partitions[0]


class Canary:
    """A well-behaved client, whose check fails if the broker does not serve it any more."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._wire = Wire(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def check_round_trip(self) -> None:
        """Produce one record and fetch it: on the connection that was opened at first, and on a new one."""
        with Wire(self._port) as fresh:
            for wire in (self._wire, fresh):
                produced = produce(wire, self._topic, plain(timestamp=now_ms()))
                assert produced.error_code == 0, produced
                fetched = fetch(wire, self._topic, produced.base_offset)
                assert fetched.error_code == 0, fetched
                assert values(fetched.records) == [(produced.base_offset, b"v0")]


class Vocabulary:
    """The names and ids that a hostile message uses, so that it passes the first check.

    It learns from responses: member ids, generations, epochs and producer ids are used in the same fields of requests.
    """

    def __init__(self, topics: dict[str, Uuid], groups: list[str], transactional_ids: list[str]) -> None:
        self.topics = topics
        self.groups = groups
        self.transactional_ids = transactional_ids
        self._learnt: dict[str, deque[Any]] = {}

    def learn(self, answer: Struct) -> None:
        for field in answer.fields:
            value = getattr(answer, field.name)
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, Struct):
                    self.learn(one)
                elif field.name in _LEARNT and one is not None:
                    self._learnt.setdefault(field.name, deque(maxlen=8)).append(one)

    def learnt_value(self, name: str, rng: Random) -> Any:
        return rng.choice(self._learnt[name]) if name in self._learnt else None

    def text(self, name: str, rng: Random) -> str | None:
        """Return a likely text for a field of this name, or None if any text will do."""
        if name in ("group_id", "group", "groups_names", "groups", "key", "coordinator_keys"):
            return rng.choice([*self.groups, *self.transactional_ids, ""])
        if "transactional_id" in name:
            return rng.choice(self.transactional_ids)
        if name in ("topic", "name", "topic_name", "topics", "topic_names", "resource_name", "subscribed_topic_names"):
            return rng.choice([*self.topics, "1", "retention.ms", "metadata.version", "SCRAM-SHA-256", ""])
        if name in ("config_names", "configuration_keys"):
            return rng.choice(("retention.ms", "cleanup.policy", "no.such.key"))
        if name in ("member_id", "group_instance_id", "instance_id", "rack_id"):
            return rng.choice(("", "", "a", "b"))
        if name == "server_assignor":
            return rng.choice(("uniform", "range", "none"))
        if name == "protocol_type":
            return rng.choice(("consumer", "connect", ""))
        if name == "protocol_name":
            return rng.choice(("range", "roundrobin"))
        if name == "value":
            return rng.choice(("1", "-1", "compact", "abc", ""))
        if "regex" in name:
            return rng.choice((".*", "(", "a{1,1000}", "(a+)+b"))
        return None


class HostileGenerator(Generator):
    """A generator of random messages that takes values from the vocabulary, by the name of the field."""

    def __init__(self, layout: Layout, rng: Random, words: Vocabulary) -> None:
        super().__init__(layout, rng, unknown_tags=True)
        self._words = words
        self._name = ""

    def field(self, field: Field) -> Any:
        self._name = field.name
        return super().field(field)

    def primitive(self, kind: str) -> Any:
        rng = self.rng
        if rng.random() < 0.75:
            learnt = self._words.learnt_value(self._name, rng)
            if learnt is not None:
                return learnt
            if kind == "string":
                text = self._words.text(self._name, rng)
                if text is not None:
                    return text
            elif kind == "uuid" and self._words.topics:
                return rng.choice(list(self._words.topics.values()))
            elif kind == "records":
                return self._records()
            elif kind in INTEGERS and self._name in _USUAL:
                return rng.choice(_USUAL[self._name])
            elif kind == "int8":
                return rng.choice((-1, 0, 1, 2, 3, 4, 8, 16, 32))
            elif kind in ("int16", "int32", "int64"):
                return rng.choice((-2, -1, 0, 1, 2, 3, 10, 1000))
        return super().primitive(kind)

    def _records(self) -> memoryview:
        rng, now = self.rng, now_ms()
        batch = rng.choice(
            (
                plain(rng.randrange(1, 4), timestamp=now),
                idempotent(rng.choice((0, 1, 1000)), rng.choice((0, 1, 2)), timestamp=now),
                transactional(rng.choice((0, 1, 1000)), rng.choice((0, 1, 2)), timestamp=now),
            )
        )
        if rng.random() < 0.3:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        return batch


def hostile_message(kind: type[Message], version: int, rng: Random, words: Vocabulary) -> Any:
    return HostileGenerator(Layout(kind, version), rng, words).struct(kind)

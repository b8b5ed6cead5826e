"""The client of a session: it sends requests to real brokers and keeps the transcript of their responses.

A `Player` has a connection to each broker for each actor (a JoinGroup waits for others, so members have their own).
`ask` plays a step and writes its response down; `look` sends a request whose response is not written, for values that a
script needs; `until` repeats a request until its response is right, and writes the last response, right or not.

`Words` writes a response as lines, one for each struct, without what differs between two clusters: ids, producers,
members, sessions and ports are numbered in the order in which they appear; of times and sizes only the presence is
written. Lists are sorted, except lists of replicas. Error messages are left out.

Apache's brokers learn of a change a moment after the controller has answered. `wait_until_applied` waits until every
broker has applied all committed changes: it writes a number into the configuration of a topic and reads it back from
all brokers, twice, since the second becomes visible only when the first has been applied completely.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.partitioning import partition_for
from pessoa.records.batch import RecordBatch, batches
from pessoa.records.record import records
from pessoa.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pessoa.wire.api.describe_quorum import DescribeQuorumResponse
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest
from pessoa.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Message, Struct
from tests.apache.broker import HOST
from tests.support.admin_script import SET, TOPIC, alter, create, topic
from tests.support.batches import NOW_MS
from tests.support.frame_reader import FrameReader

# A deadline for failures: a step whose response never becomes right takes this long.
PATIENCE_S = 120.0
UNTIL_S = 60.0
POLL_S = 0.02
CLIENT_ID = "session"
# Names that a script chooses begin like this, and are written unchanged.
MINE = "mine-"
BARRIER = "barrier"
# The script's timestamps of records lie around `NOW_MS`; every other time comes from the clock.
GIVEN_TIMES_MS = 10_000_000


# The partition count of both internal topics, on both sides.
INTERNAL_PARTITIONS = 6


def neighbour(key: str) -> str:
    """Return an unused group or transactional id with the same coordinator as `key`."""
    partition = partition_for(key, INTERNAL_PARTITIONS)
    names = (f"unused-{number}" for number in count())
    return next(name for name in names if partition_for(name, INTERNAL_PARTITIONS) == partition)


class Pending(NamedTuple):
    """A request that was sent and whose response has not been read."""

    title: str
    request: Message
    version: int
    connection: Connection
    correlation_id: int


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_S)
        self._frames = FrameReader()
        self._ids = count()

    def send(self, request: Message, version: int) -> int:
        correlation_id = next(self._ids)
        self._socket.sendall(b"".join(request_frame(request, version, correlation_id, CLIENT_ID)))
        return correlation_id

    def receive(self, request: Message, version: int, correlation_id: int) -> Any:
        while (view := self._frames.next_frame()) is None:
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionError("closed")
            self._frames.feed(part)
        frame = bytes(view)
        kind = type(request)
        header, position = ResponseHeader.decoder(response_header_version(kind, version))(frame, 0, len(frame))
        assert header.correlation_id == correlation_id
        response, end = ApiKey(kind.api_key).response.decoder(version)(frame, position, len(frame))
        assert end == len(frame)
        return response

    def has_received(self) -> bool:
        """Return whether there is something to receive, without waiting."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()


class Player:
    """Plays steps on one side, given as node id → port, and keeps the transcript: title → lines."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = dict(ports)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._words = Words()
        self._barriers = count(1_000_000)
        self.transcript: dict[str, list[str]] = {}

    @property
    def nodes(self) -> list[int]:
        return sorted(self._ports)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # Steps.

    def ask(self, title: str, request: Message, version: int | None = None, *, to: int = 1, actor: str = "") -> Any:
        return self.finish(self.begin(title, request, version, to=to, actor=actor))

    def begin(
        self, title: str, request: Message, version: int | None = None, *, to: int = 1, actor: str = ""
    ) -> Pending:
        version = type(request).versions.last if version is None else version
        title = f"{_api(request)} v{version}: {title}"
        assert title not in self.transcript, f"two steps are called {title!r}"
        self.transcript[title] = []
        connection = self._connection(actor, to)
        return Pending(title, request, version, connection, connection.send(request, version))

    def finish(self, pending: Pending) -> Any:
        title, request, version, connection, correlation_id = pending
        try:
            response = connection.receive(request, version, correlation_id)
        except ConnectionError:
            self.transcript[title] = ["the connection was closed"]
            self._forget(connection)
            return None
        self.transcript[title] = self._words.lines(response)
        return response

    def has_answer(self, pending: Pending) -> bool:
        """Return whether the response has come or the connection was closed."""
        return pending.connection.has_received()

    def until(
        self,
        title: str,
        is_right: Callable[[Any], object],
        request: Message,
        version: int | None = None,
        *,
        to: int = 1,
        actor: str = "",
    ) -> Any:
        version = type(request).versions.last if version is None else version
        deadline = time.monotonic() + UNTIL_S
        while not is_right(response := self.look(request, version, to=to, actor=actor)):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        title = f"{_api(request)} v{version}: {title}"
        assert title not in self.transcript, f"two steps are called {title!r}"
        self.transcript[title] = self._words.lines(response)
        return response

    def tell(self, request: Message, version: int, *, to: int) -> None:
        """Send a request that is not answered."""
        self._connection("", to).send(request, version)

    # Values that a script needs, and conditions that it waits for.

    def look(self, request: Message, version: int | None = None, *, to: int = 1, actor: str = "") -> Any:
        version = type(request).versions.last if version is None else version
        connection = self._connection(actor, to)
        return connection.receive(request, version, connection.send(request, version))

    def wait_for(self, what: str, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
            time.sleep(POLL_S)

    def open(self) -> None:
        """Create the barrier topic, which must exist before the first step."""
        self.look(create(topic(BARRIER, -1, -1, assignments={0: [1]})))
        self.wait_until_applied()

    def wait_until_applied(self) -> None:
        for _ in range(2):
            number = str(next(self._barriers))
            self.look(alter(TOPIC, BARRIER, ("retention.ms", SET, number)))
            for node in self.nodes:
                self._wait_for_barrier(node, number)

    def _wait_for_barrier(self, node: int, number: str) -> None:
        self.wait_for("a change has reached every broker", lambda: self._barrier_at(node) == number)

    def _barrier_at(self, node: int) -> str | None:
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=BARRIER, configuration_keys=["retention.ms"]
        )
        result = self.look(DescribeConfigsRequest(resources=[resource]), to=node).results[0]
        return result.configs[0].value if result.configs else None

    def leader(self, name: str, partition: int = 0) -> int:
        found = self._metadata(name)
        leader: int = next(each.leader_id for each in found.partitions if each.partition_index == partition)
        assert leader > 0, f"{name}-{partition} has no leader"
        return leader

    def topic_id(self, name: str) -> Uuid:
        topic_id: Uuid = self._metadata(name).topic_id
        return topic_id

    def _metadata(self, name: str) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return self.look(request).topics[0]

    def coordinator(self, key: str, key_type: int = 0) -> int:
        """Return the coordinator of a group (0) or of a transactional id (1), waiting until there is one."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        found: list[Any] = []

        def is_found() -> bool:
            found[:] = self.look(request).coordinators
            return bool(found[0].error_code == ErrorCode.NONE)

        self.wait_for(f"a coordinator of {key}", is_found)
        node: int = found[0].node_id
        return node

    def wait_for_end(self, name: str, partition: int, offset: int) -> None:
        """Wait until the high watermark has reached this offset."""
        leader = self.leader(name, partition)
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
        self.wait_for(
            f"{name}-{partition} ends at {offset}",
            lambda: self.look(request, to=leader).topics[0].partitions[0].offset == offset,
        )

    def _connection(self, actor: str, node: int) -> Connection:
        key = (actor, node)
        if key not in self._connections:
            self._connections[key] = Connection(self._ports[node])
        return self._connections[key]

    def _forget(self, connection: Connection) -> None:
        connection.close()
        self._connections = {key: one for key, one in self._connections.items() if one is not connection}


def _api(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")


_LEFT_OUT = frozenset({"error_message", "batch_index_error_message", "throttle_time_ms", "documentation"})
_ORDERED = frozenset({"replica_nodes", "replicas", "broker_ids"})
# Which of several brokers has this role is random.
_BY_CHANCE = frozenset({"controller_id", "total_bytes", "usable_bytes", "log_dir", "finalized_features_epoch"})
_OF_THE_QUORUM = frozenset({"leader_id", "leader_epoch", "high_watermark", "log_end_offset"})
_TIMES = ("timestamp", "timestamp_ms", "_time_ms")
_NAMED = {"port": "port", "cluster_id": "cluster", "producer_id": "producer", "session_id": "session"}


class Words:
    """Turns responses into lines. Ids get names in the order in which they appear in the session."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, object], str] = {}
        self._is_quorum = False
        # While a list is sorted no names are given, or they would depend on the list's order.
        self._is_sorting = False

    def lines(self, response: Struct) -> list[str]:
        self._is_quorum = isinstance(response, DescribeQuorumResponse)
        return list(self._struct(response, "", "answer"))

    def _struct(self, value: Struct, indent: str, label: str) -> Iterator[str]:
        words: list[str] = []
        parts: list[str] = []
        for field in value.fields:
            name, inner = field.name, getattr(value, field.name)
            if name in _LEFT_OUT:
                continue
            if isinstance(inner, Struct):
                parts += self._struct(inner, indent + "  ", name)
            elif isinstance(inner, list) and inner and isinstance(inner[0], Struct):
                for each in self._sorted(inner):
                    parts += self._struct(each, indent + "  ", name)
            elif name == "records":
                parts += self._records(inner or b"", indent + "  ")
            else:
                words.append(f"{name}={self._word(inner, name)}")
        if value.unknown_tagged_fields:
            words.append(f"unknown tags {sorted(value.unknown_tagged_fields)}")
        yield f"{indent}{label}: {' '.join(words)}"
        yield from parts

    def _sorted(self, values: list[Struct]) -> list[Struct]:
        was, self._is_sorting = self._is_sorting, True
        keyed = [("\n".join(self._struct(value, "", "")), value) for value in values]
        self._is_sorting = was
        return [value for _, value in sorted(keyed, key=lambda pair: pair[0])]

    def _word(self, value: Any, field: str) -> str:
        if isinstance(value, list):
            words = [self._word(each, field) for each in value]
            return f"[{' '.join(words if field in _ORDERED else sorted(words))}]"
        if isinstance(value, Uuid):
            return "-" if value == ZERO_UUID else self._name("id", value)
        if field.endswith("error_code"):
            return ErrorCode.of(value).name
        if field in _BY_CHANCE or (self._is_quorum and field in _OF_THE_QUORUM):
            return "..."
        if field in _NAMED:
            return str(value) if value in (-1, 0, None) else self._name(_NAMED[field], value)
        if field in ("member_id", "leader") and value and not value.startswith(MINE):
            return self._name("member", value)
        if field.endswith(_TIMES) and isinstance(value, int):
            return str(value) if value <= 0 or abs(value - NOW_MS) < GIVEN_TIMES_MS else "<time>"
        return repr(value)

    def _name(self, kind: str, value: object) -> str:
        if self._is_sorting:
            return self._names.get((kind, value), f"<{kind}>")
        number = 1 + sum(1 for each, _ in self._names if each == kind)
        return self._names.setdefault((kind, value), f"<{kind} {number}>")

    def _records(self, data: bytes | memoryview, indent: str) -> Iterator[str]:
        for batch in batches(data):
            yield f"{indent}batch: {self._batch(batch)}"

    def _batch(self, batch: RecordBatch) -> str:
        kind = ("control " if batch.is_control else "") + ("transactional " if batch.is_transactional else "")
        producer = self._word(batch.producer_id, "producer_id")
        # The batches of these tests have the number of their producer in each value.
        number = b"p%d-" % batch.producer_id
        values = [
            (
                record.offset,
                record.key if batch.is_control else (record.value or b"").replace(number, b"p-"),
                self._word(record.timestamp, "timestamp"),
            )
            for record in records(batch)
        ]
        return (
            f"{kind}{batch.base_offset}-{batch.last_offset} epoch={batch.partition_leader_epoch} {batch.codec.name} "
            f"{producer}/{batch.producer_epoch}/{batch.base_sequence} {values}"
        )

"""Every API in every advertised version, on the listeners of brokers and of controllers: each request gets a response.

Requests are made from a seed, of values that exist in this cluster (its topics, groups, nodes, ids) and of random
values, and are sent over sockets to a controller that is no broker and to a broker that is no controller. A handler
that raises, or a response that cannot be encoded in the version of its request, is a bug of ours and closes the
connection: `Broker.on_bug` is called. Refusals by the controller client when no controller answers are tested in the
same way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker.api_row import ApiRow
from pessoa.broker.api_table import broker_rows, controller_rows, row_of
from pessoa.net.channel import Channel
from pessoa.net.network import SystemNetwork
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.errors import ErrorCode, ProtocolViolation, Refusal
from pessoa.wire.frames import request_frame, response_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Field, Message
from tests.cluster.test_roles import node
from tests.support.api_rows import is_decided_by_controller
from tests.support.controller_listeners import bootstrap_controllers
from tests.support.wire_values import INTEGERS, Generator, random_message
from tests.unit.controller.test_controller import codes_of

TIMEOUT_S = 120.0
# A request that waits for others (a fetch, a group that is about to form) is left alone after that.
PATIENCE_S = 0.5
# A version of which nothing was answered within that (the machine was busy, a broker registered anew) is asked again.
LAST_PATIENCE_S = 15.0
REQUESTS_OF_A_VERSION = 12
AT_A_TIME = 24
SIZE_BYTES = 4
ONE_REPLICA = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
               "transaction.state.log.min.isr": "1", "offsets.topic.num.partitions": "1",
               "transaction.state.log.num.partitions": "1"}  # fmt: skip
BROKER, CONTROLLER = "broker", "controller"


def rows() -> Iterator[tuple[str, ApiRow[Any]]]:
    for row in broker_rows():
        yield BROKER, row
    for row in controller_rows():
        yield CONTROLLER, row


Case = tuple[str, ApiRow[Any], int]


def every_case() -> list[Case]:
    return [(where, row, version) for where, row in rows() for version in row.versions.each()]


# Refusals.

REFUSED = sorted(
    {
        (row.key, version)
        for _, row in rows()
        if is_decided_by_controller(row) or row.is_forwarded
        for version in row.versions.each()
    }
)


@pytest.mark.parametrize(("key", "version"), REFUSED, ids=lambda one: getattr(one, "title", str(one)))
def test_a_request_that_no_controller_answers_is_refused_in_its_version(key: ApiKey, version: int) -> None:
    rng = Random(crc32(f"{key} {version}".encode()))
    for _ in range(20):
        request = random_message(key.request, version, rng)
        for refusal in (Refusal(ErrorCode.REQUEST_TIMED_OUT, "no controller has answered"), Refusal(ErrorCode.NONE)):
            response = row_of(key).refuse(request, refusal, version)
            data = b"".join(response_frame(response, version, 7))[SIZE_BYTES:]
            _, position = ResponseHeader.decoder(response_header_version(key.request, version))(data, 0, len(data))
            assert key.response.decoder(version)(data, position, len(data))[1] == len(data)


# Answers.


@dataclass
class Known:
    """The topics, groups and ids of the cluster that gets the requests."""

    cluster_id: str
    topic_id: Uuid
    directory_id: Uuid

    def strings(self, name: str) -> list[str]:
        if "topic" in name or name == "name":
            return ["t", "t", "t", "fresh", "__cluster_metadata"]
        if "cluster_id" in name:
            return [self.cluster_id]
        if "regex" in name or "pattern" in name:
            return ["t.*"]
        return _STRINGS.get(name, _ANY_STRING)

    def integers(self, name: str) -> tuple[int, ...]:
        if name.endswith("_ms"):
            return (100, 6_000)
        if "epoch" in name:
            return (-1, 0, 1)
        return next((values for part, values in _INTEGERS.items() if part in name), _ANY_INTEGER)


_ANY_STRING = ["t", "g", "1", "", "range", "consumer"]
_STRINGS = {
    "mechanism": ["PLAIN"],
    "entity_type": ["user", "client-id"],
    "feature": ["group.version", "metadata.version"],
    "protocol_type": ["consumer"],
    "resource_name": ["t", "1", "g", "100"],
    "value": ["1000"],
    "group_id": ["g"],
    "group_ids": ["g"],
    "client_software_name": ["tester"],
    "client_software_version": ["1"],
    "host": ["127.0.0.1"],
}
_ANY_INTEGER = (-1, 0, 1, 2, 100)
# By a part of the name; the first that fits.
_INTEGERS = {
    "partition": (0, 0, 0, 1),
    "index": (0,),
    "broker": (1,),
    "replica_id": (-1, 1),
    "replicas": (1,),
    "node": (1, 100),
    "voter": (100, 101),
    "count": (3,),
    "level": (1, 30),
    "endpoint_type": (1, 2),
    "resource_type": (2, 4, 8, 16, 32),
    "port": (9092,),
    "bytes": (1_000_000,),
    "timestamp": (-1, -2),
    "offset": (0,),
    "acks": (-1, 1),
    "factor": (1,),
}


class PlausibleRequests(Generator):
    """Makes messages of values that a client might send; `is_strange` mixes in random values."""

    def __init__(self, layout: Layout, rng: Random, known: Known, *, is_strange: bool) -> None:
        super().__init__(layout, rng, unknown_tags=False)
        self._known = known
        self._is_strange = is_strange

    def field(self, field: Field) -> Any:
        if self._is_strange and self.rng.random() < 0.25:
            return super().field(field)
        kind = field.item if field.kind == "array" else field.kind
        value: Any
        if kind == "string":
            value = self.rng.choice(self._known.strings(field.name))
        elif kind == "uuid":
            is_directory = "directory" in field.name or "dir" in field.name
            value = self._known.directory_id if is_directory else self._known.topic_id
        elif kind in INTEGERS:
            low, high = INTEGERS[kind]
            value = min(max(self.rng.choice(self._known.integers(field.name)), low), high)
        else:
            return super().field(field)
        return [value] if field.kind == "array" else value

    def count(self, most: int) -> int:
        return self.rng.choice((0, 1, 2)) if self._is_strange else 1


@dataclass
class Findings:
    answered: set[tuple[str, ApiKey, int]] = field(default_factory=set)
    # Answered at least once without any error in it.
    done: set[tuple[str, ApiKey, int]] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)

    def silent(self, cases: list[Case]) -> list[Case]:
        return [case for case in cases if (case[0], case[1].key, case[2]) not in self.answered]


def test_every_api_in_every_version_answers_on_brokers_and_on_controllers() -> None:
    bugs: list[str] = []
    findings = Findings()

    async def scenario() -> None:
        controller = node(100, CONTROLLER, "100@127.0.0.1:0")
        controller.on_bug = lambda bug: bugs.append(f"controller: {bug!r}")
        await controller.start()
        broker = node(1, BROKER, f"100@{bootstrap_controllers(controller)}", more=ONE_REPLICA)
        broker.on_bug = lambda bug: bugs.append(f"broker: {bug!r}")
        await broker.start()
        known = Known(controller.cluster_id, await _create_topic(broker.bootstrap_servers), Uuid.of(7))
        places = {BROKER: broker.bootstrap_servers, CONTROLLER: bootstrap_controllers(controller)}
        gate = asyncio.Semaphore(AT_A_TIME)

        async def ask(where: str, row: ApiRow[Any], version: int, seed: int, patience_s: float) -> None:
            async with gate:
                rng = Random(crc32(f"{where} {row.key} {version} {seed}".encode()))
                layout = Layout(row.key.request, version)
                request = PlausibleRequests(layout, rng, known, is_strange=seed % 2 == 1).struct(row.key.request)
                before = len(bugs)
                answer = await _answer(places[where], request, version, patience_s)
                if len(bugs) > before:
                    bugs[-1] += f" after {row.key.title} {version}: {request!r}"
                if answer is None:
                    return
                findings.answered.add((where, row.key, version))
                try:
                    response = _decoded(row.key, version, answer)
                except (ProtocolViolation, AssertionError) as problem:
                    findings.unreadable.append(f"{where} {row.key.title} {version}: {problem!r}")
                else:
                    if codes_of(response) <= {ErrorCode.NONE}:
                        findings.done.add((where, row.key, version))

        async def ask_all(cases: list[Case], patience_s: float) -> None:
            seeds = range(REQUESTS_OF_A_VERSION)
            await asyncio.gather(*(ask(*case, seed, patience_s) for case in cases for seed in seeds))

        # The quorum's own requests may take the lead from the controller; others should find it in place.
        for is_of_quorum in (False, True):
            cases = [case for case in every_case() if _is_of_quorum(*case) is is_of_quorum]
            await ask_all(cases, PATIENCE_S)
            await ask_all(findings.silent(cases), LAST_PATIENCE_S)
        assert not broker.failed.done(), broker.failed.exception()
        assert not controller.failed.done(), controller.failed.exception()
        broker.abandon()
        controller.abandon()

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(main())
    assert not bugs, "\n".join(bugs)
    assert not findings.unreadable, "\n".join(findings.unreadable)
    silent = [f"{where} {row.key.title} {version}" for where, row, version in findings.silent(every_case())]
    assert not silent, f"never answered: {silent}"
    # So that it is seen that requests of this kind do reach what they ask for.
    quorum = {(where, ApiKey.DESCRIBE_QUORUM, version) for where in (BROKER, CONTROLLER) for version in range(3)}
    assert quorum <= findings.done


def _is_of_quorum(where: str, row: ApiRow[Any], _version: int) -> bool:
    return where == CONTROLLER and row.serve_in_quorum is not None


async def _create_topic(servers: str) -> Uuid:
    host, _, port = servers.partition(":")
    channel = Channel(SystemNetwork(), host, int(port), "tester")
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    response = await channel.send(request, request.versions.last, int(TIMEOUT_S * 1000))
    channel.close()
    assert isinstance(response, CreateTopicsResponse)
    return response.topics[0].topic_id


async def _answer(servers: str, request: Message, version: int, patience_s: float) -> bytes | None:
    """Return the response frame without its size, or None if none came."""
    host, _, port = servers.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(request_frame(request, version, 7, "tester")))
        async with asyncio.timeout(patience_s):
            size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
            return await reader.readexactly(size)
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _decoded(key: ApiKey, version: int, data: bytes) -> Message:
    header, position = ResponseHeader.decoder(response_header_version(key.request, version))(data, 0, len(data))
    response, position = key.response.decoder(version)(data, position, len(data))
    assert header.correlation_id == 7
    assert position == len(data)
    return response  # type: ignore[no-any-return]

"""Two sides for a script about groups: Apache Kafka over sockets, and our coordinator without a broker.

The script sends each request as an actor: each actor has a connection of its own, since a JoinGroup waits for others.
Responses are written down in words that are the same on both sides: member ids and topic ids get names in the order in
which they appear, lists are sorted where Kafka takes them from a hash table, and of an error message only its presence
counts.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any, Protocol

from pessoa.base.clock import SystemClock
from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest
from pessoa.wire.api.metadata import MetadataRequest
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Message, Struct
from tests.apache.broker import HOST
from tests.support.coordinators import group_coordinator, submit
from tests.support.frame_reader import FrameReader
from tests.support.memory_coordinator_log import MemoryLog
from tests.unit.coordinator.groups.bench import Context
from tests.unit.coordinator.images import FakeImage, image

TOPICS = {"orders": 3, "payments": 2}
PATIENCE_S = 120.0
CLIENT_ID = "test"


class Side(Protocol):
    topic_ids: dict[str, Uuid]

    async def ask(self, actor: str, request: Message, version: int) -> Any: ...


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader()
        self.ids = count()


class ApacheSide:
    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: dict[str, _Connection] = {}
        self.topic_ids: dict[str, Uuid] = {}

    async def ask(self, actor: str, request: Message, version: int) -> Any:
        connection = self._connections.get(actor)
        if connection is None:
            connection = self._connections[actor] = _Connection(*await asyncio.open_connection(HOST, self._port))
        correlation_id = next(connection.ids)
        connection.writer.writelines(request_frame(request, version, correlation_id, CLIENT_ID))
        while (view := connection.frames.next_frame()) is None:
            connection.frames.feed(await asyncio.wait_for(connection.reader.read(65536), PATIENCE_S))
        frame = bytes(view)
        kind = type(request)
        header, pos = ResponseHeader.decoder(response_header_version(kind, version))(frame, 0, len(frame))
        assert header.correlation_id == correlation_id
        response, end = ApiKey(kind.api_key).response.decoder(version)(frame, pos, len(frame))
        assert end == len(frame)
        return response

    async def prepare(self) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=size, replication_factor=1, assignments=[], configs=[])
            for name, size in TOPICS.items()
        ]
        await self.ask("admin", CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False), 7)
        # __consumer_offsets is created by the first FindCoordinator.
        deadline = time.monotonic() + PATIENCE_S
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["first"])
        while (await self.ask("admin", find, 4)).coordinators[0].error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="first", topics=None)])
        while (await self.ask("admin", fetch, 9)).groups[0].error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        metadata = await self.ask("admin", MetadataRequest(topics=None), 12)
        self.topic_ids = {topic.name: topic.topic_id for topic in metadata.topics}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.writer.close()


class OurSide:
    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self.log = MemoryLog()
        self.image: FakeImage = image(**TOPICS)
        self.topic_ids = {name: topic.id for name, topic in self.image.topics.by_name.items()}
        self.coordinator = group_coordinator(config, self.log, SystemClock(), self.image)

    async def prepare(self) -> None:
        loading = self.coordinator.elect(0, 0)
        assert loading is not None
        await loading

    async def ask(self, actor: str, request: Message, version: int) -> Any:
        # Encoded and decoded, since a client sees only the fields that the version has.
        asked = type(request).decode(request.encode(version), version)
        answer = submit(self.coordinator, asked, Context(version, CLIENT_ID, HOST))
        answer = answer if isinstance(answer, Message) else await answer
        return type(answer).decode(answer.encode(version), version)

    def close(self) -> None:
        self.coordinator.close()


class Words:
    """Turns messages into words. Ids get names in the order in which they appear in the script."""

    def __init__(self, topic_ids: dict[str, Uuid]) -> None:
        self._topics = {topic_id: f"<{name}>" for name, topic_id in topic_ids.items()} | {ZERO_UUID: "<none>"}
        self.members: dict[str, str] = {}

    def name(self, member_id: str) -> str:
        """Return the name of a member, `member <number>`, which it gets when it first appears."""
        return self.members.setdefault(member_id, f"member {len(self.members)}")

    def of(self, value: Any, field: str = "") -> Any:
        if isinstance(value, Struct):
            return {each.name: self.of(getattr(value, each.name), each.name) for each in value.fields}
        if isinstance(value, Uuid):
            return self._topics.get(value, "<another>")
        if isinstance(value, list):
            return sorted((self.of(each, field) for each in value), key=repr)
        if field in ("error_message", "metadata_hash") and value:
            return "..."
        if field.endswith("error_code"):
            return ErrorCode.of(value).name
        if field.endswith(("timestamp", "timestamp_ms")):
            return "..."
        return self.members.get(value, value) if isinstance(value, str) else value

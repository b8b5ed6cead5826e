"""/consumers: instances from creation to deletion, and what is asked of them in between.

Each handler takes its body apart and says which method of the instance is to run; `Consumers.call` runs it in a worker
thread when it is this request's turn.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec
from confluent_kafka import Message, TopicPartition
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.consumer_instances import Key, Wanted
from pessoa.rest_proxy.embedded import to_json
from pessoa.rest_proxy.instance import Instance, Limits, Partition
from pessoa.rest_proxy.media import MEDIA_TYPES, Format, format_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import (
    config_out_of_bounds,
    format_mismatch,
    instance_not_found,
    partition_not_found,
    unprocessable,
)
from pessoa.rest_proxy.request_values import body_of, decoder, optional_body_of, whole_number
from pessoa.rest_proxy.v2.v2_bodies import (
    CreateConsumer,
    CreatedConsumer,
    OffsetOfPartition,
    Offsets,
    Partitions,
    Positions,
    ReadRecord,
    Subscribed,
    Subscription,
    TimeOfPartition,
    TopicAndPartition,
)
from pessoa.serde.patterns import BadPattern, Pattern, compile_pattern
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import json_response, media_type
from pessoa.web.problems import HttpProblem

T = TypeVar("T")

NO_CONTENT = 204
# What the JVM proxy allows for fetch.min.bytes.
MIN_BYTES_RANGE = range(-1, 10_000_001)
MAX_INT32 = 2**31 - 1
MAX_TOPIC_NAME = 249
MAX_INT64 = 2**63 - 1
_TIMEOUT_RANGE = range(MAX_INT32 + 1)

_CREATE = decoder(CreateConsumer)
_SUBSCRIPTION = decoder(Subscription)
_PARTITIONS = decoder(Partitions)
_POSITIONS = decoder(Positions)
_OFFSETS = decoder(Offsets)
_ENCODE = msgspec.json.Encoder().encode


class ConsumerEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    # From creation to deletion.

    async def create(self, request: Request) -> Response:
        group = request.path_params["group"]
        body = await optional_body_of(request, _CREATE) or CreateConsumer()
        wanted = wanted_of(group, body, self._proxy.config.server_id)
        await self._proxy.consumers.create(wanted, clients_of(request).identity)
        base = self._proxy.base_url(request)
        uri = f"{base}/consumers/{quote(group, safe='')}/instances/{quote(wanted.name, safe='')}"
        return json_response(request, CreatedConsumer(wanted.name, uri))

    async def delete(self, request: Request) -> Response:
        await self._proxy.consumers.delete(_key(request))
        return Answer(status=NO_CONTENT)

    # Which partitions.

    async def subscribe(self, request: Request) -> Response:
        body = await body_of(request, _SUBSCRIPTION)
        topics = body.topics or []
        if any(not self._proxy.is_topic_name(topic) for topic in topics):
            raise unprocessable("topics must be names of topics: letters, digits, '.', '_' and '-'")
        if not topics and not body.topic_pattern:
            raise unprocessable("topics or topic_pattern must be given")
        pattern = None if topics else _pattern(body.topic_pattern or "")
        await self._call(request, lambda instance: instance.subscribe(topics, pattern))
        return Answer(status=NO_CONTENT)

    async def subscription(self, request: Request) -> Response:
        return json_response(request, Subscribed(await self._call(request, Instance.subscription)))

    async def unsubscribe(self, request: Request) -> Response:
        await self._call(request, Instance.unsubscribe)
        return Answer(status=NO_CONTENT)

    async def assign(self, request: Request) -> Response:
        partitions = self._places(await body_of(request, _PARTITIONS))
        await self._call(request, lambda instance: instance.assign(partitions))
        return Answer(status=NO_CONTENT)

    async def assignment(self, request: Request) -> Response:
        found = await self._call(request, Instance.assignment)
        return json_response(request, Partitions([TopicAndPartition(*each) for each in found]))

    # Reading.

    async def records(self, request: Request) -> Response:
        consumers = self._proxy.consumers
        kind = format_of(media_type(request))
        # One turn for all of it: what was polled is read, or put back, before another request reads.
        async with consumers.turn(_key(request)) as instance:
            if kind is not instance.format:
                raise format_mismatch()
            limits = self._limits(request, instance)
            messages = await consumers.in_thread(lambda: instance.read(limits))
            try:
                body = _ENCODE(await self._render(kind, messages))
            except HttpProblem:
                instance.put_back(messages)
                raise
            instance.returned(messages)
        return Answer(body, content_type=MEDIA_TYPES[kind])

    def _limits(self, request: Request, instance: Instance) -> Limits:
        config = self._proxy.config
        timeout_ms = _query_number(request, "timeout")
        max_bytes = _query_number(request, "max_bytes")
        return Limits(
            timeout_ms=min(timeout_ms, instance.request_timeout_ms) if timeout_ms >= 0 else instance.request_timeout_ms,
            max_bytes=min(max_bytes, config.consumer_request_max_bytes)
            if max_bytes >= 0
            else config.consumer_request_max_bytes,
            min_bytes=instance.min_bytes,
        )

    async def _render(self, kind: Format, messages: list[Message]) -> list[ReadRecord]:
        if kind.has_schema:
            schemas = self._proxy.schemas
            return [
                _record(each, await schemas.to_json(kind, each.key()), await schemas.to_json(kind, each.value()))
                for each in messages
            ]
        return [_record(each, to_json(kind, each.key()), to_json(kind, each.value())) for each in messages]

    # Positions and offsets.

    async def seek(self, request: Request) -> Response:
        body = await body_of(request, _POSITIONS)
        offsets = [(self._place(each), _offset(each)) for each in body.offsets or []]
        times = [(self._place(each), _time_ms(each)) for each in body.timestamps or []]

        def work(instance: Instance) -> None:
            instance.seek(offsets)
            instance.seek_to_times(times)

        await self._call(request, work)
        return Answer(status=NO_CONTENT)

    async def seek_to_beginning(self, request: Request) -> Response:
        return await self._seek_to_edge(request, end=False)

    async def seek_to_end(self, request: Request) -> Response:
        return await self._seek_to_edge(request, end=True)

    async def _seek_to_edge(self, request: Request, *, end: bool) -> Response:
        partitions = self._places(await body_of(request, _PARTITIONS))
        await self._call(request, lambda instance: instance.seek_to_edge(partitions, end=end))
        return Answer(status=NO_CONTENT)

    async def commit(self, request: Request) -> Response:
        body = await optional_body_of(request, _OFFSETS)
        is_async = request.query_params.get("async", "false").lower() == "true"
        offsets = None
        if body is not None and body.offsets is not None:
            # What a caller names is the last record that it has done with; what is committed is the next one to read.
            offsets = [
                TopicPartition(*self._place(each), _offset(each) + 1, each.metadata)
                if each.metadata is not None
                else TopicPartition(*self._place(each), _offset(each) + 1)
                for each in body.offsets
            ]
        await self._call(request, lambda instance: instance.commit(offsets, is_async=is_async and offsets is None))
        return json_response(request, [])

    async def committed(self, request: Request) -> Response:
        """Return the committed offsets of the partitions in the body. It is a GET with a body, which HTTP
        discourages; without one the response is that of a missing partition."""
        body = await optional_body_of(request, _PARTITIONS)
        if body is None:
            self._proxy.consumers.find(_key(request))
            raise partition_not_found()
        partitions = self._places(body)
        found = await self._call(request, lambda instance: instance.committed(partitions))
        offsets = [OffsetOfPartition(each.topic, each.partition, each.offset, each.metadata or "") for each in found]
        return json_response(request, Offsets(offsets))

    # Inside.

    async def _call(self, request: Request, work: Callable[[Instance], T]) -> T:
        return await self._proxy.consumers.call(_key(request), work)

    def _places(self, body: Partitions) -> list[Partition]:
        return [self._place(each) for each in body.partitions or []]

    def _place(self, each: TopicAndPartition | OffsetOfPartition | TimeOfPartition) -> Partition:
        if not self._proxy.is_topic_name(each.topic):
            raise unprocessable(f"{each.topic!r} is not the name of a topic")
        if not 0 <= each.partition <= MAX_INT32:
            raise unprocessable("partition must be greater than or equal to 0")
        return each.topic, each.partition


def wanted_of(group: str, body: CreateConsumer, server_id: str) -> Wanted:
    """Return the checked settings of a create request."""
    name = body.id or body.name
    if not name:
        name = f"rest-consumer-{server_id + '-' if server_id else ''}{uuid4()}"
    if "\0" in group + name:
        raise unprocessable("names must not contain the character NUL")
    kinds = {kind.value: kind for kind in MEDIA_TYPES}
    kind = kinds.get((body.format or "binary").lower())
    if kind is None:
        raise unprocessable("Invalid format type.")
    min_bytes = whole_number(
        body.response_min_bytes if body.fetch_min_bytes is None else body.fetch_min_bytes, "fetch.min.bytes"
    )
    if min_bytes is not None and min_bytes not in MIN_BYTES_RANGE:
        raise config_out_of_bounds(
            f"fetch.min.bytes must be between {MIN_BYTES_RANGE[0]} and {MIN_BYTES_RANGE[-1]}, not {min_bytes}"
        )
    timeout_ms = whole_number(
        body.request_wait_ms if body.request_timeout_ms is None else body.request_timeout_ms,
        "consumer.request.timeout.ms",
    )
    if timeout_ms is not None and timeout_ms not in _TIMEOUT_RANGE:
        raise config_out_of_bounds(f"consumer.request.timeout.ms must not be negative, nor {timeout_ms}")
    return Wanted(
        group,
        name,
        kind,
        body.auto_offset_reset,
        _flag(body.auto_commit_enable),
        min_bytes,
        timeout_ms,
    )


def _flag(value: str | bool | None) -> bool | None:
    return value if value is None or isinstance(value, bool) else value.lower() == "true"


def _key(request: Request) -> Key:
    group, name = request.path_params["group"], request.path_params["instance"]
    if "\0" in group + name:
        raise instance_not_found()
    return Key(clients_of(request).identity.owner, group, name)


def _pattern(text: str) -> Pattern:
    try:
        found = compile_pattern(text)
        # Try the longest possible name: a pattern that can match it in time can match any name.
        found.matches_whole("x" * MAX_TOPIC_NAME)
    except BadPattern as wrong:
        raise unprocessable(f"topic_pattern cannot be used: {wrong}") from None
    return found


def _query_number(request: Request, name: str) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return -1
    try:
        return int(text)
    except ValueError:
        # What JAX-RS answers to a query parameter that does not convert.
        raise HttpProblem(404, "HTTP 404 Not Found") from None


def _offset(each: OffsetOfPartition) -> int:
    if not 0 <= each.offset < MAX_INT64:
        raise unprocessable("offset must be greater than or equal to 0")
    return each.offset


def _time_ms(each: TimeOfPartition) -> int:
    """Return the time in milliseconds since 1970; it is given as such, or in ISO 8601."""
    if isinstance(each.timestamp, int):
        if not 0 <= each.timestamp < MAX_INT64:
            raise unprocessable("timestamp must be greater than or equal to 0")
        return each.timestamp
    try:
        moment = datetime.fromisoformat(each.timestamp)
    except ValueError:
        raise HttpProblem(400, f"Bad Request: {each.timestamp!r} is not a time such as 2026-01-31T12:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _record(message: Message, key: msgspec.Raw, value: msgspec.Raw) -> ReadRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return ReadRecord(topic, key, value, partition, offset)

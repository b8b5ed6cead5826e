"""POST …/topics/{topic}/records: one record, or a stream of them; and POST …/records:batch.

A stream stays open as long as the caller sends. Each record is answered with a report in the same order, as soon as it
is written; the next records do not wait for that. A record that cannot be written is reported with its error and the
stream goes on; only what cannot be cut into records ends it. The status is 200 from the first report on.

        body ──json_stream.py──► record ──► schemas, partition ──► SharedProducer.send ──┐
        answer ◄── report ◄── in order ◄── Queue of reports to come ◄────────────────────┘

The queue is bounded, so a caller that does not read its reports is read from no further.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from confluent_kafka import KafkaError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pessoa.rest_proxy.caller_clients import Clients, StreamedResponse, clients_of, life_ms
from pessoa.rest_proxy.embedded import from_base64, to_bytes
from pessoa.rest_proxy.json_stream import JsonCutter, NotAnObject, TooLong
from pessoa.rest_proxy.media import JSON, Format
from pessoa.rest_proxy.producing import Outgoing, Written
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import (
    bad_request,
    from_kafka,
    invalid_batch,
    invalid_payload,
    partition_not_found,
    unknown_topic,
)
from pessoa.rest_proxy.record_schemas import SchemaCodec, SchemaWanted
from pessoa.rest_proxy.request_values import body_of, decoded, decoder
from pessoa.rest_proxy.v3.resource_links import links_of
from pessoa.rest_proxy.v3.topic_endpoints import topic_name
from pessoa.web.asgi_app import json_response
from pessoa.web.json_charset import Utf8Stream
from pessoa.web.problems import HttpProblem

MULTI_STATUS = 207
# Reports that may be owed to a caller at one time.
MAX_OWED = 1000
MAX_INT32 = 2**31 - 1
_SECONDS = re.compile(r"-?[0-9]{1,12}(\.[0-9]+)?")
STRATEGIES = frozenset({"TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"})


class Header(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: str | None = None


class Data(msgspec.Struct, forbid_unknown_fields=True):
    """A key or a value, and how it is to be written."""

    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    type: str | None = None
    subject: str | None = None
    subject_name_strategy: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None


class Record(msgspec.Struct, forbid_unknown_fields=True):
    partition_id: int | None = None
    headers: list[Header] | None = None
    key: Data | None = None
    value: Data | None = None
    timestamp: str | None = None


class BatchEntry(Record, forbid_unknown_fields=True, kw_only=True):
    id: str


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[BatchEntry]


class WrittenData(msgspec.Struct, omit_defaults=True):
    size: int
    type: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None


class Report(msgspec.Struct, omit_defaults=True):
    error_code: int
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str | None = None
    key: WrittenData | None = None
    value: WrittenData | None = None


class BatchSuccess(msgspec.Struct, omit_defaults=True):
    id: str
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str | None = None
    key: WrittenData | None = None
    value: WrittenData | None = None


class Failure(msgspec.Struct):
    error_code: int
    message: str


class BatchFailure(msgspec.Struct):
    id: str
    error_code: int
    message: str


class BatchAnswer(msgspec.Struct):
    successes: list[BatchSuccess]
    failures: list[BatchFailure]


_RECORD = decoder(Record)
_BATCH = decoder(Batch)
STREAM_TOO_LONG = "Streaming connection open for longer than allowed"
_ENCODE = msgspec.json.Encoder().encode


class RecordEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def produce(self, request: Request) -> Response:
        clients = clients_of(request)
        links = await links_of(self._proxy, request)
        topic = topic_name(self._proxy, request)
        await _check(clients, topic, -1)

        async def send(text: bytes) -> Awaitable[Report]:
            return await self._send(clients, links.cluster_id, topic, decoded(text, _RECORD))

        config = self._proxy.config
        cutter = JsonCutter(config.http.request_max_bytes)
        values = _values(request.stream(), cutter)
        timeout_s = min(config.stream_timeout_ms, life_ms(request, self._proxy.clock.now_ms())) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                first = await anext(values, None)
        except TimeoutError:
            raise HttpProblem(408, STREAM_TOO_LONG) from None
        if first is None:
            raise invalid_payload("Null input provided. Data is required.")
        return RecordStream(send, first, values, timeout_s)

    async def produce_batch(self, request: Request) -> Response:
        clients = clients_of(request)
        links = await links_of(self._proxy, request)
        topic = topic_name(self._proxy, request)
        body = await body_of(request, _BATCH)
        limit = self._proxy.config.batch_maximum_entries
        if not body.entries:
            raise invalid_batch("The batch of records has no entries.")
        if len(body.entries) > limit:
            raise invalid_batch(f"The batch of records has more than {limit} entries.")
        if len({entry.id for entry in body.entries}) != len(body.entries):
            raise invalid_batch("The ids of the entries are not distinct.")
        await _check(clients, topic, -1)
        answer = BatchAnswer([], [])
        sent: list[tuple[str, Awaitable[Report]]] = []
        for entry in body.entries:
            try:
                sent.append((entry.id, await self._send(clients, links.cluster_id, topic, entry)))
            except HttpProblem as problem:
                answer.failures.append(BatchFailure(entry.id, problem.code, problem.message))
        for entry_id, report in sent:
            try:
                answer.successes.append(_success(entry_id, await report))
            except HttpProblem as problem:
                answer.failures.append(BatchFailure(entry_id, problem.code, problem.message))
        return json_response(request, answer, MULTI_STATUS)

    async def _send(self, clients: Clients, cluster_id: str, topic: str, record: Record) -> Awaitable[Report]:
        """Produce one record; return an awaitable for its report."""
        partition = -1 if record.partition_id is None else record.partition_id
        if not -1 <= partition <= MAX_INT32 or (partition == -1 and record.partition_id is not None):
            raise partition_not_found()
        key_codec = await self._codec(topic, record.key, is_key=True)
        value_codec = await self._codec(topic, record.value, is_key=False)
        key = _serialise(record.key, key_codec)
        value = _serialise(record.value, value_codec)
        headers: list[tuple[str, str | bytes | None]] = [
            (each.name, None if each.value is None else from_base64(each.value)) for each in record.headers or []
        ]
        outgoing = Outgoing(key, value, partition, _time_ms(record.timestamp), headers or None)
        await _check(clients, topic, partition)
        written = clients.producer.send(topic, [outgoing])

        async def report() -> Report:
            [outcome] = await written
            if isinstance(outcome, KafkaError):
                clients.topics.forget(topic)
                raise from_kafka(outcome)
            key_data = _describe(record.key, key_codec, key)
            value_data = _describe(record.value, value_codec, value)
            return _report(cluster_id, topic, outcome, key_data, value_data)

        return report()

    async def _codec(self, topic: str, data: Data | None, *, is_key: bool) -> SchemaCodec | None:
        if data is None:
            return None
        kind = _format(data)
        if kind is not None and not kind.has_schema:
            return None
        wanted = SchemaWanted(
            topic=topic,
            is_key=is_key,
            format=kind,
            subject=data.subject,
            strategy=data.subject_name_strategy,
            schema_id=data.schema_id,
            version=data.schema_version,
            text=data.schema,
        )
        return await self._proxy.schemas.codec(wanted)


async def _check(clients: Clients, topic: str, partition: int) -> None:
    if not clients.topics.is_known(topic, partition):
        try:
            await clients.topics.check(topic, partition)
        except HttpProblem as problem:
            raise unknown_topic() if problem.code == 40401 else problem from None


async def _values(chunks: AsyncIterator[bytes], cutter: JsonCutter) -> AsyncIterator[bytes]:
    """Yield the text of each record. Raises the problem 400 where the rest of the body has no valid record."""
    text = Utf8Stream()
    try:
        async for chunk in chunks:
            for value in cutter.feed(text.feed(chunk)):
                yield value
        for value in cutter.feed(text.end()):
            yield value
    except (NotAnObject, TooLong, UnicodeDecodeError) as wrong:
        raise bad_request(str(wrong)) from None
    if not cutter.is_between_values:
        raise bad_request("the body ends in the middle of a record")


class RecordStream(StreamedResponse):
    """The response to a stream of records: it is sent while the request is still being read."""

    def __init__(
        self,
        send_record: Callable[[bytes], Awaitable[Awaitable[Report]]],
        first: bytes,
        values: AsyncIterator[bytes],
        timeout_s: float,
    ) -> None:
        super().__init__(media_type=JSON)
        del self.headers["content-length"]
        self._send_record = send_record
        self._first = first
        self._values = values
        self._timeout_s = timeout_s
        self._reports: asyncio.Queue[Awaitable[Report] | HttpProblem | None] = asyncio.Queue(MAX_OWED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = asyncio.create_task(self._read())
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while (report := await self._reports.get()) is not None:
                body = _ENCODE(await _await_report(report)) + b"\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            self.on_end()
            while not self._reports.empty():
                unread = self._reports.get_nowait()
                if asyncio.iscoroutine(unread):
                    unread.close()

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._take(self._first)
                async for value in self._values:
                    await self._take(value)
        except HttpProblem as problem:
            await self._reports.put(problem)
        except TimeoutError:
            await self._reports.put(HttpProblem(408, STREAM_TOO_LONG))
        except ClientDisconnect:
            # A caller that has disconnected reads no reports; records that were sent are written all the same.
            pass
        await self._reports.put(None)

    async def _take(self, value: bytes) -> None:
        report: Awaitable[Report] | HttpProblem
        try:
            report = await self._send_record(value)
        except HttpProblem as problem:
            report = problem
        await self._reports.put(report)


async def _await_report(report: Awaitable[Report] | HttpProblem) -> Report | Failure:
    try:
        if isinstance(report, HttpProblem):
            return Failure(report.code, report.message)
        return await report
    except HttpProblem as problem:
        return Failure(problem.code, problem.message)


def _format(data: Data) -> Format | None:
    """Return the format that the request names. Raises the problem 400 for fields that exclude each other."""
    if data.subject is not None and data.subject_name_strategy is not None:
        raise bad_request("Only one of 'subject' or 'subject_name_strategy' can be used.")
    if data.subject_name_strategy is not None and data.subject_name_strategy not in STRATEGIES:
        raise bad_request(f"'subject_name_strategy' can be {', '.join(sorted(STRATEGIES))}.")
    if sum(each is not None for each in (data.schema_id, data.schema_version, data.schema)) > 1:
        raise bad_request("Only one of 'schema_id', 'schema_version' or 'schema' can be used.")
    if data.type is None:
        if data.schema is not None:
            raise bad_request("'schema' can only be used with 'type'.")
        return None
    kinds = {kind.name: kind for kind in Format}
    kind = kinds.get(data.type.upper())
    if kind is None:
        raise bad_request(f"'type' can be {', '.join(sorted(kinds))}.")
    schema_fields = (data.schema_id, data.schema_version, data.schema, data.subject, data.subject_name_strategy)
    if not kind.has_schema and any(each is not None for each in schema_fields):
        raise bad_request(f"'type={kind.name}' cannot be used with a schema or a subject.")
    if kind.has_schema and data.schema is None:
        raise bad_request(f"'type={kind.name}' can only be used with 'schema'.")
    return kind


def _serialise(data: Data | None, codec: SchemaCodec | None) -> bytes | None:
    if data is None:
        return None
    if codec is not None:
        return codec.to_bytes(data.data)
    kind = _format(data)
    assert kind is not None, "what has no type has a schema"
    return to_bytes(kind, data.data)


def _describe(data: Data | None, codec: SchemaCodec | None, written: bytes | None) -> WrittenData | None:
    if data is None:
        return None
    size = len(written or b"")
    if codec is not None:
        return WrittenData(size, codec.format.name, codec.subject, codec.schema_id, codec.version)
    kind = _format(data)
    return WrittenData(size, None if kind is None else kind.name)


def _report(
    cluster_id: str, topic: str, written: Written, key: WrittenData | None, value: WrittenData | None
) -> Report:
    moment = None
    if written.timestamp_ms > 0:
        moment = datetime.fromtimestamp(written.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
        moment = moment.replace("+00:00", "Z")
    return Report(200, cluster_id, topic, written.partition, written.offset, moment, key, value)


def _success(entry_id: str, report: Report) -> BatchSuccess:
    return BatchSuccess(
        entry_id,
        report.cluster_id,
        report.topic_name,
        report.partition_id,
        report.offset,
        report.timestamp,
        report.key,
        report.value,
    )


def _time_ms(text: str | None) -> int:
    """Return milliseconds since 1970; 0, which means now, without a time. A number is seconds, as Jackson reads it."""
    if text is None:
        return 0
    try:
        if _SECONDS.fullmatch(text):
            time_ms = int(Decimal(text) * 1000)
        else:
            moment = datetime.fromisoformat(text)
            time_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise bad_request(f"{text!r} is not a time such as 2026-01-31T12:00:00Z") from None
    if time_ms < 0:
        raise bad_request("a record cannot be older than 1970")
    return time_ms

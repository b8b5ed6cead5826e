"""POST /topics/{topic} and POST /topics/{topic}/partitions/{partition}: writing records.

The order matters: the whole body is decoded, every record serialised and every partition looked up before the first
record goes to the producer, so a body that is wrong anywhere writes nothing. What fails after that fails for its record
alone, and stands at its place in the answer; the status says 200 unless the proxy may not write at all (401, 403).
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from confluent_kafka import KafkaError
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.embedded import is_null, to_bytes
from pessoa.rest_proxy.media import FORMATS, GENERAL, Format
from pessoa.rest_proxy.producing import Outgoing, Written
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import (
    AUTHENTICATION,
    AUTHORIZATION,
    key_schema_missing,
    partition_not_found,
    record_code,
    topic_not_found,
    unprocessable,
    value_schema_missing,
)
from pessoa.rest_proxy.record_schemas import SchemaCodec, SchemaWanted
from pessoa.rest_proxy.request_values import body_of, decoder, path_number
from pessoa.rest_proxy.v2.v2_bodies import Produce, Produced, ProduceRecord, RecordOffset
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import content_type

MAX_INT32 = 2**31 - 1
_PRODUCE = decoder(Produce)
_ENCODE = msgspec.json.Encoder().encode


class ProduceEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def to_topic(self, request: Request) -> Response:
        return await self._produce(request, request.path_params["topic"], -1)

    async def to_partition(self, request: Request) -> Response:
        return await self._produce(request, request.path_params["topic"], partition_number(request))

    async def _produce(self, request: Request, topic: str, partition: int) -> Response:
        clients = clients_of(request)
        body = await body_of(request, _PRODUCE)
        if not body.records:
            raise unprocessable("records must not be empty")
        kind = FORMATS[content_type(request)]
        if kind.has_schema:
            records, key_id, value_id = await self._with_schemas(topic, partition, kind, body)
        else:
            records = [
                Outgoing(to_bytes(kind, each.key), to_bytes(kind, each.value), _partition_of(each, partition))
                for each in body.records
            ]
            key_id = value_id = None
        if not clients.topics.is_known(topic, max(each.partition for each in records)):
            if not self._proxy.is_topic_name(topic):
                raise topic_not_found()
            await clients.topics.check(topic, max(each.partition for each in records))
        outcomes = await clients.producer.send(topic, records)
        offsets = [_offset_of(each) for each in outcomes]
        if any(isinstance(each, KafkaError) for each in outcomes):
            clients.topics.forget(topic)
        return Answer(_ENCODE(Produced(offsets, key_id, value_id)), _status(offsets), GENERAL)

    async def _with_schemas(
        self, topic: str, partition: int, kind: Format, body: Produce
    ) -> tuple[list[Outgoing], int | None, int | None]:
        key_codec = await self._codec(topic, kind, body.key_schema, body.key_schema_id, is_key=True)
        value_codec = await self._codec(topic, kind, body.value_schema, body.value_schema_id, is_key=False)
        records = []
        for each in body.records:
            if key_codec is None and not is_null(each.key):
                raise key_schema_missing()
            if value_codec is None and not is_null(each.value):
                raise value_schema_missing()
            key = None if key_codec is None else key_codec.to_bytes(each.key)
            value = None if value_codec is None else value_codec.to_bytes(each.value)
            records.append(Outgoing(key, value, _partition_of(each, partition)))
        return (
            records,
            None if key_codec is None else key_codec.schema_id,
            None if value_codec is None else value_codec.schema_id,
        )

    async def _codec(
        self, topic: str, kind: Format, text: str | None, schema_id: int | None, *, is_key: bool
    ) -> SchemaCodec | None:
        if text is None and schema_id is None:
            return None
        wanted = SchemaWanted(
            topic=topic, is_key=is_key, format=kind if text is not None else None, text=text, schema_id=schema_id
        )
        return await self._proxy.schemas.codec(wanted)


def partition_number(request: Request) -> int:
    number = path_number(request, "partition")
    if number < 0:
        raise partition_not_found()
    return number


def _partition_of(record: ProduceRecord, default: int) -> int:
    if record.partition is None:
        return default
    if not 0 <= record.partition <= MAX_INT32:
        raise unprocessable("records[].partition must be greater than or equal to 0")
    return record.partition


def _offset_of(outcome: Written | KafkaError) -> RecordOffset:
    if isinstance(outcome, Written):
        return RecordOffset(outcome.partition, outcome.offset)
    return RecordOffset(None, None, record_code(outcome), outcome.str())


def _status(offsets: list[RecordOffset]) -> int:
    codes = {each.error_code for each in offsets}
    if AUTHENTICATION in codes:
        return HTTPStatus.UNAUTHORIZED
    if AUTHORIZATION in codes:
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.OK

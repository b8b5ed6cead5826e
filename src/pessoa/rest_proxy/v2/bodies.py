"""The bodies of API v2, and how a wrong one is answered.

Three kinds of wrong are told apart, as callers know them: what is not JSON or has a value of another type is 400; a
field that nobody knows, or a required one that is missing, is 422.

Keys and values of records stay raw: only their format knows what to make of them (embedded.py).
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from pessoa.rest_proxy.embedded import NULL
from pessoa.rest_proxy.problems import unprocessable
from pessoa.web.bodies import read_body
from pessoa.web.problems import HttpProblem

T = TypeVar("T")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`")
_MISSING_FIELD = re.compile(r"Object missing required field `(.*?)`")


class ProduceRecord(msgspec.Struct, forbid_unknown_fields=True):
    key: msgspec.Raw = NULL
    value: msgspec.Raw = NULL
    partition: int | None = None


class Produce(msgspec.Struct, forbid_unknown_fields=True):
    records: list[ProduceRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class RecordOffset(msgspec.Struct):
    """Where a record was written, or why it was not."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class Produced(msgspec.Struct):
    offsets: list[RecordOffset]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class CreateConsumer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    id: str | None = None
    name: str | None = None
    format: str | None = None
    auto_offset_reset: str | None = msgspec.field(name="auto.offset.reset", default=None)
    # A string by tradition; people write booleans all the same.
    auto_commit_enable: str | bool | None = msgspec.field(name="auto.commit.enable", default=None)
    fetch_min_bytes: int | str | None = msgspec.field(name="fetch.min.bytes", default=None)
    response_min_bytes: int | str | None = msgspec.field(name="responseMinBytes", default=None)
    request_timeout_ms: int | str | None = msgspec.field(name="consumer.request.timeout.ms", default=None)
    request_wait_ms: int | str | None = msgspec.field(name="requestWaitMs", default=None)


class CreatedConsumer(msgspec.Struct):
    instance_id: str
    base_uri: str


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str] | None = None
    topic_pattern: str | None = None


class Subscribed(msgspec.Struct):
    topics: list[str]


class TopicAndPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int


class Partitions(msgspec.Struct, forbid_unknown_fields=True):
    partitions: list[TopicAndPartition] | None = None


class OffsetOfPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class TimeOfPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    timestamp: str | int
    metadata: str | None = None


class Positions(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[OffsetOfPartition] | None = None
    timestamps: list[TimeOfPartition] | None = None


class Offsets(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[OffsetOfPartition] | None = None


class ReadRecord(msgspec.Struct):
    topic: str
    key: msgspec.Raw
    value: msgspec.Raw
    partition: int
    offset: int


class ReplicaOfPartition(msgspec.Struct):
    broker: int
    leader: bool
    in_sync: bool


class PartitionOfTopic(msgspec.Struct):
    partition: int
    leader: int
    replicas: list[ReplicaOfPartition]


class Topic(msgspec.Struct):
    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionOfTopic]


class Bounds(msgspec.Struct):
    beginning_offset: int
    end_offset: int


class Brokers(msgspec.Struct):
    brokers: list[int]


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def decoded(body: bytes, using: msgspec.json.Decoder[T]) -> T:
    try:
        return using.decode(body)
    except msgspec.ValidationError as wrong:
        raise _mapping_problem(str(wrong)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise HttpProblem(400, f"Malformed JSON: {wrong}") from None
    except RecursionError:
        raise HttpProblem(400, "Malformed JSON: nested too deeply") from None


async def body_of(request: Request, using: msgspec.json.Decoder[T]) -> T:
    """The body, which must be there."""
    body = await read_body(request)
    if not body.strip():
        raise unprocessable("Request body must not be empty")
    return decoded(body, using)


async def optional_body_of(request: Request, using: msgspec.json.Decoder[T]) -> T | None:
    body = await read_body(request)
    text = body.strip()
    return decoded(body, using) if text and text != b"null" else None


def _mapping_problem(text: str) -> HttpProblem:
    if match := _UNKNOWN_FIELD.search(text):
        return unprocessable(f"Unrecognized field: {match[1]}")
    if match := _MISSING_FIELD.search(text):
        return unprocessable(f"{match[1]} must not be null")
    return HttpProblem(400, f"Bad Request: {text}")


def whole_number(value: Any, name: str) -> int | None:
    """A number that may have come as text."""
    if value is None or isinstance(value, int):
        return value
    try:
        return int(value)
    except ValueError:
        raise HttpProblem(400, f"Bad Request: {name} is {value!r}; it must be a whole number") from None

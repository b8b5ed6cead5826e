"""Records that were written with schemas of AWS Glue: their frame, and the schemas, which Glue's API is asked for.

    03 | compression: 00 none, 05 zlib | id of the schema version, 16 bytes | payload

An Avro payload is binary Avro, a JSON payload is JSON. A Protobuf payload begins with the place of its message among
all messages of the file, nested ones too, sorted by their full names, as a plain varint; after it comes the message.
(Glue's Java serializers are the reference.)

A version of a schema never changes, so it is asked for once and kept. An id that Glue does not know is remembered for a
while: bytes that begin so by chance cost one question.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import msgspec

from pessoa.base.json_value import JsonValue
from pessoa.base.weighted_cache import WeightedCache
from pessoa.control_center.aws_signature import AwsKeys, signed_headers
from pessoa.serde.codecs import PROTOBUF, codec_for
from pessoa.serde.framing import encode_message_indexes
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

HEADER_VERSION = 3
_HEADER_BYTES = 18
_NO_COMPRESSION, _ZLIB = 0, 5
# What a record may unpack to; more than Kafka's largest usual records, and less than would hurt.
MAX_UNPACKED_BYTES = 64 << 20
_ASK_S = 5.0
_UNKNOWN_S = 30.0
_SCHEMA_BYTES = 8 << 20


class GlueFrame(NamedTuple):
    version_id: UUID
    payload: bytes


class GlueDecoded(NamedTuple):
    """A decoded record; `kind` is avro, json or protobuf."""

    kind: str
    value: JsonValue


class _Answer(msgspec.Struct, rename="pascal"):
    """The response of Glue's GetSchemaVersion."""

    schema_definition: str
    data_format: str


def unframe(data: bytes) -> GlueFrame | None:
    """Return the parts of a framed record; None for other bytes. Raises a `DataProblem` for a payload that cannot be
    decompressed."""
    if len(data) < _HEADER_BYTES or data[0] != HEADER_VERSION or data[1] not in (_NO_COMPRESSION, _ZLIB):
        return None
    payload = data[_HEADER_BYTES:]
    if data[1] == _ZLIB:
        packed = zlib.decompressobj()
        try:
            payload = packed.decompress(payload, MAX_UNPACKED_BYTES)
        except zlib.error as wrong:
            raise DataProblem(f"the payload is not zlib: {wrong}") from None
        if not packed.eof:
            raise DataProblem(f"the payload is cut short, or unpacks to more than {MAX_UNPACKED_BYTES >> 20} MB")
    return GlueFrame(UUID(bytes=bytes(data[2:_HEADER_BYTES])), payload)


class GlueSchemas:
    """The decoder of records with schemas of AWS Glue. It blocks while it requests a schema, so it is for threads
    that read messages."""

    def __init__(self, region: str, keys: AwsKeys, endpoint: str = "") -> None:
        self._region = region
        self._keys = keys
        self._endpoint = endpoint or f"https://glue.{region}.amazonaws.com"
        self._readers: WeightedCache[tuple[str, Callable[[bytes], JsonValue]]] = WeightedCache(_SCHEMA_BYTES)
        # Why an id cannot be read, and until when it is not requested again.
        self._refusals: dict[UUID, tuple[float, str]] = {}

    def __repr__(self) -> str:
        return f"<GlueSchemas of {self._endpoint}>"

    def decode(self, data: bytes) -> GlueDecoded | None:
        """Return the decoded record; None for bytes of another format. Raises a `DataProblem` or `SchemaProblem`."""
        frame = unframe(data)
        if frame is None:
            return None
        kind, read = self._reader(frame.version_id)
        return GlueDecoded(kind.lower(), read(frame.payload))

    def _reader(self, version_id: UUID) -> tuple[str, Callable[[bytes], JsonValue]]:
        known = self._readers.get(version_id)
        if known is not None:
            return known
        until_s, reason = self._refusals.get(version_id, (0.0, ""))
        if until_s > time.monotonic():
            raise SchemaProblem(reason)
        try:
            answer = self._ask(version_id)
            found = (answer.data_format, reader_of(answer.data_format, answer.schema_definition))
        except SchemaProblem as problem:
            if len(self._refusals) > 1000:
                self._refusals.clear()
            self._refusals[version_id] = (time.monotonic() + _UNKNOWN_S, str(problem))
            raise
        self._readers.put(version_id, found, len(answer.schema_definition))
        return found

    def _ask(self, version_id: UUID) -> _Answer:
        body = msgspec.json.encode({"SchemaVersionId": str(version_id)})
        headers = {
            "Host": urlsplit(self._endpoint).netloc, "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": "AWSGlue.GetSchemaVersion",
        }  # fmt: skip
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        all_headers = signed_headers(self._keys, self._region, "glue", at, headers, body)
        try:
            answer = httpx.post(self._endpoint, content=body, headers=all_headers, timeout=_ASK_S)
        except httpx.HTTPError as failure:
            raise SchemaProblem(f"Glue cannot be asked: {str(failure) or type(failure).__name__}") from None
        if answer.status_code != 200:
            raise SchemaProblem(f"Glue answers {answer.status_code}: {_reason(answer.content)}")
        try:
            return msgspec.json.decode(answer.content, type=_Answer)
        except msgspec.DecodeError as wrong:
            raise SchemaProblem(f"Glue's answer cannot be read: {wrong}") from None


def reader_of(kind: str, text: str) -> Callable[[bytes], JsonValue]:
    """Return the decoder for the payloads of a schema. Raises a `SchemaProblem`."""
    codec = codec_for(kind, text)
    if kind != PROTOBUF:
        return codec.to_json
    paths = list(message_paths(text).values())

    def read(payload: bytes) -> JsonValue:
        place, begins = _varint(payload)
        if place >= len(paths):
            raise DataProblem(f"the schema has no message {place}: it has {len(paths)}")
        return codec.to_json(encode_message_indexes(paths[place]) + payload[begins:])

    return read


def message_paths(text: str, imports: Mapping[str, str] | None = None) -> dict[str, tuple[int, ...]]:
    """Return the indexes that lead to each message of a Protobuf file, in the order of the messages' full names."""
    from pessoa.serde.protobuf.linking import link, read_proto

    found: dict[str, tuple[int, ...]] = {}

    def add(messages: list[Descriptor], above: tuple[int, ...]) -> None:
        for at, one in enumerate(messages):
            found[one.full_name] = (*above, at)
            add(list(one.nested_types), (*above, at))

    known = {name: read_proto(each, name) for name, each in (imports or {}).items()}
    add(list(link(read_proto(text), known).descriptor.message_types_by_name.values()), ())
    return dict(sorted(found.items()))


def _varint(data: bytes) -> tuple[int, int]:
    """Return the number at the beginning, and the position after it."""
    value = 0
    # A number of 32 bits has five bytes at most.
    for at, byte in enumerate(data[:5]):
        value |= (byte & 127) << (7 * at)
        if byte < 128:
            return value, at + 1
    raise DataProblem("the payload does not begin with the place of a message")


def _reason(content: bytes) -> str:
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content[:200].decode("utf-8", "replace")
    if not isinstance(body, dict):
        return str(body)[:200]
    kind = str(body.get("__type", "")).rpartition("#")[2]
    return f"{kind} {body.get('Message') or body.get('message') or ''}".strip()[:300]

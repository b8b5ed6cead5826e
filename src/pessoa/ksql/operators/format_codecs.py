"""Keys and values as bytes: a codec for each side of a source.

    decode(bytes) → values of the columns, in their order; None for null
    encode(values) → bytes; None for null

What cannot be read or written is a `CodecFailure`: a record that is read is skipped, one that is written is left out.

| format | file | one column stands |
|---|---|---|
| NONE | here | there is none |
| KAFKA | here | bare |
| DELIMITED | delimited_format.py | bare |
| JSON, JSON_SR | json_format.py | bare in keys, in an object in values unless WRAP_SINGLE_VALUE says otherwise |
| AVRO | avro_format.py | as JSON |
| PROTOBUF, PROTOBUF_NOSR | protobuf_format.py | in a message |

A windowed key has the window behind it: 8 bytes of its start; of a session, 8 of its end and 8 of its start.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from pessoa.ksql.analysis.source_catalogue import PLAIN_OPTIONS, FormatOptions, SchemaColumn, Source, SourceWindow
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.syntax.query_nodes import WindowKind
from pessoa.ksql.types.sql_types import BIGINT, DOUBLE, INTEGER, STRING, Value
from pessoa.serde.primitive_codecs import SERDES
from pessoa.serde.schema_problems import DataProblem


class CodecFailure(Exception):
    """Bytes cannot be decoded as the columns, or the format cannot hold the values."""


class Codec(Protocol):
    def decode(self, data: bytes | None) -> list[Value] | None:
        """Return the values of the columns; None if the key or value is null as a whole."""

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        """Return the bytes of the values; None if the key or value is null as a whole."""


@dataclass(frozen=True)
class Side:
    """The key or the value of a topic, for which a codec is made: its format and columns."""

    topic: str
    is_key: bool
    format: str
    columns: tuple[SchemaColumn, ...]
    options: FormatOptions = PLAIN_OPTIONS
    # Whether a single value column is wrapped if the options do not set it.
    wraps: bool = True

    @property
    def wrapped(self) -> bool:
        """Whether the columns are fields of an object, with their names."""
        if len(self.columns) != 1:
            return True
        if self.is_key:
            return False
        return self.wraps if self.options.wrap is None else self.options.wrap

    @property
    def subject(self) -> str:
        return f"{self.topic}-{'key' if self.is_key else 'value'}"


def side_codec(side: Side, schemas: SchemaSource) -> Codec:
    """Return the codec of a side; formats with a registry register their schema at the first write."""
    if side.format == "NONE" or not side.columns:
        return NoneCodec()
    if side.format == "KAFKA":
        return KafkaCodec(side)
    if side.format == "DELIMITED":
        from pessoa.ksql.operators.delimited_format import DelimitedCodec

        return DelimitedCodec(side)
    if side.format == "JSON":
        from pessoa.ksql.operators.json_format import JsonCodec

        return JsonCodec(side)
    if side.format == "JSON_SR":
        from pessoa.ksql.operators.json_format import RegistryJsonCodec

        return RegistryJsonCodec(side, schemas)
    if side.format == "AVRO":
        from pessoa.ksql.operators.avro_format import RegistryAvroCodec

        return RegistryAvroCodec(side, schemas)
    from pessoa.ksql.operators.protobuf_format import ProtobufColumnsCodec, RegistryProtobufCodec

    if side.format == "PROTOBUF":
        return RegistryProtobufCodec(side, schemas)
    assert side.format == "PROTOBUF_NOSR", side.format
    return ProtobufColumnsCodec(side)


def key_side(source: Source, wraps: bool = True) -> Side:
    return Side(source.topic, True, source.key_format, source.key, source.key_options, wraps)


def value_side(source: Source, wraps: bool = True) -> Side:
    return Side(source.topic, False, source.value_format, source.value, source.value_options, wraps)


class NoneCodec:
    """The codec for no columns: it ignores the bytes that it reads, and writes none."""

    def decode(self, data: bytes | None) -> list[Value] | None:
        return None if data is None else []

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        return None


_KAFKA_SERDES = {INTEGER: "integer", BIGINT: "long", DOUBLE: "double", STRING: "string"}


class KafkaCodec:
    """One column as Kafka's own serialisers write it."""

    def __init__(self, side: Side) -> None:
        (column,) = side.columns
        self._serde = SERDES[_KAFKA_SERDES[column.type]]  # type: ignore[index]

    def decode(self, data: bytes | None) -> list[Value] | None:
        if data is None:
            return None
        try:
            return [cast("Value", self._serde.decode(data))]
        except DataProblem as problem:
            raise CodecFailure(str(problem)) from None

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        if values is None or values[0] is None:
            return None
        try:
            return self._serde.encode(values[0])
        except DataProblem as problem:
            raise CodecFailure(str(problem)) from None


class TimeWindow(NamedTuple):
    start_ms: int
    end_ms: int


class DecodedKey(NamedTuple):
    # None: the key is null.
    values: tuple[Value, ...] | None
    window: TimeWindow | None


class EncodedKey(NamedTuple):
    key: bytes | None
    # What decides about the partition.
    inner: bytes | None


_TIME = struct.Struct(">q")
_SESSION = struct.Struct(">qq")
_LAST_MS = 2**63 - 1


class KeyCodec:
    """The codec of a key with its window."""

    def __init__(self, codec: Codec, window: SourceWindow | None) -> None:
        self._codec = codec
        self._window = window

    def decode(self, data: bytes | None) -> DecodedKey:
        if self._window is None or data is None:
            values = self._codec.decode(data)
            return DecodedKey(None if values is None else tuple(values), None)
        tail = _SESSION.size if self._window.kind is WindowKind.SESSION else _TIME.size
        if len(data) < tail:
            raise CodecFailure(f"{len(data)} bytes are too few for a windowed key")
        inner = self._codec.decode(data[:-tail])
        if self._window.kind is WindowKind.SESSION:
            end, start = _SESSION.unpack(data[-tail:])
        else:
            assert self._window.size_ms is not None
            (start,) = _TIME.unpack(data[-tail:])
            # As Java's windows: what would not fit into 64 bits ends at the last millisecond.
            end = min(start + self._window.size_ms, _LAST_MS)
        return DecodedKey(None if inner is None else tuple(inner), TimeWindow(start, end))

    def encode(self, values: Sequence[Value] | None, window: TimeWindow | None) -> EncodedKey:
        inner = self._codec.encode(values)
        if self._window is None or window is None or inner is None:
            return EncodedKey(inner, inner)
        if self._window.kind is WindowKind.SESSION:
            return EncodedKey(inner + _SESSION.pack(window.end_ms, window.start_ms), inner)
        return EncodedKey(inner + _TIME.pack(window.start_ms), inner)

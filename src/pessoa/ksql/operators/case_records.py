"""Records of cases as bytes, and bytes as the JSON that a case expects: by the formats of the topic's source."""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from typing import cast

import msgspec

from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.case_files import CaseBytes, CaseRecord, Payload
from pessoa.ksql.operators.format_codecs import (
    CodecFailure,
    KeyCodec,
    Side,
    TimeWindow,
    key_side,
    side_codec,
    value_side,
)
from pessoa.ksql.operators.json_format import Json, json_reader, json_writer, read_fields
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.records import KafkaRecord
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.types.sql_types import Value
from pessoa.serde.codecs import codec_for
from pessoa.serde.framing import frame

# As JSON is compared: numbers by their value, text and truths by themselves.
_DECODER = msgspec.json.Decoder(float_hook=decimal.Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class CaseCodec:
    """The codec of a topic's key and value, between JSON and bytes."""

    def __init__(self, source: Source, schemas: SchemaSource, wraps: bool = True) -> None:
        self.source = source
        self._schemas = schemas
        self._sides = {"key": key_side(source, wraps), "value": value_side(source, wraps)}
        self._codecs = {name: side_codec(side, schemas) for name, side in self._sides.items()}
        self._keys = KeyCodec(self._codecs["key"], source.window)

    def record(self, case: CaseRecord, offset: int, timestamp_ms: int, partitions: int) -> KafkaRecord:
        """Return the input record of a case; its partition is computed from its key, unless the case names it."""
        inner = self._bytes("key", case.key, case.key_schema_id)
        key = inner
        if case.window is not None and inner is not None:
            start, end = case.window
            # The inner key is bytes already: only the window is put behind it.
            window = TimeWindow(start, start if end is None else end)
            key = inner + KeyCodec(_Bytes(), self.source.window).encode([b""], window).key  # type: ignore[operator]
        value = self._bytes("value", case.value, case.schema_id)
        partition = case.partition
        if partition is None:
            partition = 0 if inner is None else partition_of(inner, partitions)
        headers = tuple((name, None if text is None else text.encode()) for name, text in case.headers or ())
        return KafkaRecord(self.source.topic, partition, offset, timestamp_ms, key, value, headers)

    def _bytes(self, name: str, payload: Payload, schema_id: int | None) -> bytes | None:
        if payload is None:
            return None
        if isinstance(payload, CaseBytes):
            return payload.data
        side = self._sides[name]
        if schema_id is not None:
            schema = self._schemas.by_id(schema_id)
            assert schema is not None, f"no schema {schema_id}"
            value = json.loads(payload)
            return frame(schema_id, codec_for(schema.type, schema.text, schema.references).from_json(value))
        if side.format == "JSON":
            return payload.encode()
        if side.format in ("NONE", "DELIMITED") or not side.columns:
            return str(json.loads(payload)).encode()
        return self._codecs[name].encode(_values(_DECODER.decode(payload), side))

    def decode(self, record: KafkaRecord) -> tuple[Json, TimeWindow | None, Json]:
        """Return the key, its window and the value as JSON."""
        inner, window = record.key, None
        if self.source.window is not None and record.key is not None:
            tail = 16 if self.source.window.size_ms is None else 8
            inner, window = record.key[:-tail], self._keys.decode(record.key).window
        return self._json("key", inner), window, self._json("value", record.value)

    def _json(self, name: str, data: bytes | None) -> Json:
        if data is None:
            return None
        side = self._sides[name]
        if side.format == "JSON":
            return cast("Json", _DECODER.decode(data))
        if side.format in ("NONE", "DELIMITED") or not side.columns:
            return data.decode()
        values = self._codecs[name].decode(data)
        return None if values is None else shown_values(values, side)


class _Bytes:
    """A codec of bytes that are encoded already."""

    def decode(self, data: bytes | None) -> list[Value] | None:
        return None if data is None else [data]

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        return None if values is None else cast("bytes", values[0])


def _values(value: Json, side: Side) -> list[Value]:
    """Return the values of columns that a case gives as JSON."""
    readers = [json_reader(column.type) for column in side.columns]
    if len(side.columns) == 1 and (not side.wrapped or side.format == "KAFKA"):
        return [readers[0](value)]
    try:
        return read_fields(value, [column.name for column in side.columns], readers)
    except CodecFailure as failure:
        raise CodecFailure(f"{side.topic}: {failure}") from None


def shown_values(values: Sequence[Value], side: Side) -> Json:
    """Return columns as JSON: an object, or the bare value if the format writes a single column so."""
    shown: list[object] = []
    for column, value in zip(side.columns, values, strict=True):
        writer = json_writer(column.type)
        shown.append(value if writer is None else writer(value))
    if len(shown) == 1 and (not side.wrapped or side.format == "KAFKA"):
        return cast("Json", _DECODER.decode(_ENCODER.encode(shown[0])))
    names = [column.name for column in side.columns]
    return cast("Json", _DECODER.decode(_ENCODER.encode(dict(zip(names, shown, strict=True)))))


def expected_json(payload: Payload) -> Json:
    """Return the expected payload of a case in the form in which it is compared."""
    if isinstance(payload, CaseBytes):
        return payload.data.hex()
    return None if payload is None else cast("Json", _DECODER.decode(payload))


def same_json(first: Json, second: Json) -> bool:
    """Return whether two values are the same: 1 and 1.0 are, true and 1 are not; the order of fields does not count."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_json(one, second[name]) for name, one in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_json, first, second))
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    numbers = (int, float, decimal.Decimal)
    if isinstance(first, numbers) and isinstance(second, numbers):
        return decimal.Decimal(str(first)) == decimal.Decimal(str(second))
    return first == second

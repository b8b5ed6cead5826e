"""AVRO: a record of the registry, by name without regard to case; every field may be null.

Of what others wrote, any schema whose values fit the columns is read: enums as STRING, maps also as arrays of entries,
smaller numbers where larger ones are declared. We write `KsqlDataSourceSchema`, or what *_SCHEMA_FULL_NAME says.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from pessoa.ksql.operators.format_codecs import CodecFailure, Side
from pessoa.ksql.operators.schema_source import AVRO, SchemaSource
from pessoa.ksql.types.number_arithmetic import fit_decimal
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    EvaluationFailure,
    Map,
    SqlType,
    Struct,
    Value,
)
from pessoa.serde.avro.codec import AvroCodec
from pessoa.serde.avro.parsing import parse_avro
from pessoa.serde.framing import frame, unframe
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

Convert: TypeAlias = Callable[[object], Value]

DEFAULT_NAME = "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def avro_schema_text(side: Side) -> str:
    """Return the schema under which the columns are registered."""
    name = side.options.schema_name or DEFAULT_NAME
    if side.wrapped:
        tree: object = _record(name, [(column.name, column.type) for column in side.columns])
    else:
        tree = _type(side.columns[0].type, name)
    return json.dumps(tree)


def _record(name: str, fields: Sequence[tuple[str, SqlType]]) -> dict[str, object]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field, "type": ["null", _type(kind, f"{name}_{field}")], "default": None}
            for field, kind in fields
        ],
    }  # fmt: skip


def _type(kind: SqlType, name: str) -> object:
    match kind:
        case Array(element):
            return {"type": "array", "items": ["null", _type(element, name)]}
        case Map(key, value) if key == STRING:
            return {"type": "map", "values": ["null", _type(value, name)]}
        case Map(key, value):
            return {"type": "array", "items": _record(f"{name}_entry", [("key", key), ("value", value)])}
        case Struct(fields):
            return _record(name, fields)
        case Decimal(precision, scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return _TYPES[kind]


_TYPES: dict[SqlType, object] = {
    BOOLEAN: "boolean",
    INTEGER: "int",
    BIGINT: "long",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
    DATE: {"type": "int", "logicalType": "date"},
    TIME: {"type": "int", "logicalType": "time-millis"},
    TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
}


def _from_avro(kind: SqlType) -> Convert:
    found = _converter(kind)
    return lambda value: None if value is None else found(value)


def _converter(kind: SqlType) -> Convert:
    match kind:
        case Array(element):
            inner = _from_avro(element)
            return lambda value: [inner(one) for one in _check_type(value, list, kind)]
        case Map(key, item):
            return _map(_from_avro(key), _from_avro(item), kind)
        case Struct(fields):
            names, readers = [name for name, _ in fields], [_from_avro(one) for _, one in fields]
            return lambda value: cast("Value", dict(zip(names, _fields(value, names, readers), strict=True)))
        case Decimal():
            return lambda value: _decimal(value, kind)
    return lambda value: _primitive(value, kind)


def _check_type(value: object, wanted: type[list[object]], kind: SqlType) -> list[object]:
    if not isinstance(value, wanted):
        raise CodecFailure(f"{type(value).__name__} is no {kind}")
    return value


def _fields(value: object, names: list[str], readers: list[Convert]) -> list[Value]:
    if not isinstance(value, dict):
        raise CodecFailure("a record is needed")
    upper = {str(key).upper(): one for key, one in value.items()}
    return [reader(value.get(name, upper.get(name.upper()))) for name, reader in zip(names, readers, strict=True)]


def _map(key: Convert, item: Convert, kind: SqlType) -> Convert:
    def read(value: object) -> Value:
        if isinstance(value, dict):
            return {key(name): item(one) for name, one in value.items()}
        entries = [one for one in _check_type(value, list, kind) if isinstance(one, dict)]
        return {key(one.get("key")): item(one.get("value")) for one in entries}

    return read


def _decimal(value: object, kind: Decimal) -> Value:
    if not isinstance(value, decimal.Decimal):
        raise CodecFailure(f"{type(value).__name__} is no {kind}")
    try:
        return fit_decimal(value, kind)
    except EvaluationFailure as failure:
        raise CodecFailure(str(failure)) from None


def _primitive(value: object, kind: SqlType) -> Value:
    """Return the value converted to the column's type: numbers widen, times become numbers, a STRING takes any
    primitive."""
    match value:
        case datetime.datetime():
            value = (value - _EPOCH) // datetime.timedelta(milliseconds=1)
        case datetime.date():
            value = value.toordinal() - _EPOCH.toordinal()
        case datetime.time():
            value = ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if kind == STRING and isinstance(value, str):
        return value
    if kind == BOOLEAN and isinstance(value, bool):
        return value
    if kind == BYTES and isinstance(value, bytes):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if kind in (BIGINT, TIMESTAMP) or (kind in (INTEGER, DATE, TIME) and -(2**31) <= value < 2**31):
            return value
        if kind == DOUBLE:
            return float(value)
    if kind == DOUBLE and isinstance(value, float):
        return value
    if kind == STRING and isinstance(value, int | float):
        from pessoa.ksql.types.value_text import plain_text

        return plain_text(value)
    raise CodecFailure(f"{type(value).__name__} is no {kind}")


def _to_avro(kind: SqlType) -> Callable[[Value], object] | None:
    match kind:
        case Array(element):
            each = _to_avro(element)
            if each is None:
                return None
            return lambda value: None if value is None else [each(one) for one in cast("list[Value]", value)]
        case Map(key, item):
            inner = _to_avro(item) or (lambda value: value)
            if key == STRING:
                return lambda value: None if value is None else {k: inner(v) for k, v in value.items()}  # type: ignore[union-attr]
            return lambda value: None if value is None else [
                {"key": k, "value": inner(v)} for k, v in value.items()  # type: ignore[union-attr]
            ]  # fmt: skip
        case Struct(fields):
            writers = [(name, _to_avro(one) or (lambda value: value)) for name, one in fields]
            return lambda value: None if value is None else {
                name: writer(value.get(name)) for name, writer in writers  # type: ignore[union-attr]
            }  # fmt: skip
    if kind == DATE:
        return lambda value: None if value is None else _EPOCH.date() + datetime.timedelta(days=cast("int", value))
    if kind == TIME:
        return lambda value: (
            None if value is None else (_EPOCH + datetime.timedelta(milliseconds=cast("int", value))).time()
        )
    if kind == TIMESTAMP:
        return lambda value: None if value is None else _EPOCH + datetime.timedelta(milliseconds=cast("int", value))
    return None


class RegistryAvroCodec:
    def __init__(self, side: Side, schemas: SchemaSource) -> None:
        self._side = side
        self._schemas = schemas
        self._names = [column.name for column in side.columns]
        self._readers = [_from_avro(column.type) for column in side.columns]
        self._writers = [_to_avro(column.type) for column in side.columns]
        self._known: dict[int, AvroCodec] = {}
        self._writer: tuple[int, AvroCodec, list[str]] | None = None

    def decode(self, data: bytes | None) -> list[Value] | None:
        if data is None:
            return None
        try:
            schema_id, payload = unframe(data)
            value = self._codec(cast("int", schema_id)).decode(bytes(payload))
        except (DataProblem, SchemaProblem) as problem:
            raise CodecFailure(str(problem)) from None
        # A single column may stand bare or in a record, whatever we would write.
        if not self._side.wrapped and not isinstance(value, dict):
            return [self._readers[0](value)]
        if value is None:
            return None
        if not self._side.wrapped and not _has_field(value, self._names[0]):
            return [self._readers[0](value)]
        return _fields(value, self._names, self._readers)

    def _codec(self, schema_id: int) -> AvroCodec:
        found = self._known.get(schema_id)
        if found is None:
            schema = self._schemas.by_id(schema_id)
            if schema is None:
                raise DataProblem(f"the registry has no schema {schema_id}")
            known: dict[str, object] = {}
            for text in schema.references.values():
                known.update(parse_avro(text, known)[1])  # type: ignore[arg-type]
            found = self._known[schema_id] = AvroCodec(parse_avro(schema.text, known)[0])  # type: ignore[arg-type]
        return found

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        if values is None or (not self._side.wrapped and values[0] is None):
            return None
        schema_id, codec, names = self._open_writer()
        shown = [one if writer is None else writer(one) for one, writer in zip(values, self._writers, strict=True)]
        value = dict(zip(names, shown, strict=True)) if self._side.wrapped else shown[0]
        try:
            return frame(schema_id, codec.encode(value))
        except DataProblem as problem:
            raise CodecFailure(str(problem)) from None

    def _open_writer(self) -> tuple[int, AvroCodec, list[str]]:
        if self._writer is None:
            given = self._side.options.schema_id
            if given is None:
                text = avro_schema_text(self._side)
                schema_id = self._schemas.register(self._side.subject, AVRO, text)
                self._writer = schema_id, AvroCodec(parse_avro(text)[0]), self._names
            else:
                self._writer = given, self._codec(given), self._given_names(given)
        return self._writer

    def _given_names(self, schema_id: int) -> list[str]:
        """Return the names of the columns in the schema, which may differ in case."""
        schema = self._schemas.by_id(schema_id)
        assert schema is not None
        tree = json.loads(schema.text)
        fields = {str(one["name"]).upper(): str(one["name"]) for one in tree.get("fields", [])}
        return [fields.get(name.upper(), name) for name in self._names]


def _has_field(value: object, name: str) -> bool:
    return isinstance(value, dict) and any(str(key).upper() == name.upper() for key in value)

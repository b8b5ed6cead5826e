"""JSON and JSON_SR: objects of columns.

Reading forgives what ksqlDB forgives: numbers as text, fields in another case, unknown fields; a STRING takes anything.
A value of another type is a failure of the whole record. Writing gives every column, null or not.
"""

from __future__ import annotations

import decimal
import json
import math
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from pessoa.ksql.operators.format_codecs import CodecFailure, Side
from pessoa.ksql.operators.schema_source import JSON, SchemaSource
from pessoa.ksql.types.explicit_casts import caster
from pessoa.ksql.types.number_arithmetic import fit_decimal, wrap_bigint, wrap_integer
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
from pessoa.ksql.types.value_text import double_text, plain_text
from pessoa.serde.framing import frame, unframe
from pessoa.serde.schema_problems import DataProblem

# What JSON gives; the value of a float is kept as it was written.
Json: TypeAlias = "bool | int | float | decimal.Decimal | str | list[Json] | dict[str, Json] | None"
Reader: TypeAlias = Callable[[Json], Value]
Writer: TypeAlias = Callable[[Value], object]

_MISSING = object()
# Of a number for a whole column: 1e999999999 is short text, and its digits would fill the memory.
_MOST_DIGITS = 400


def json_reader(kind: SqlType) -> Reader:
    """Return the function that converts JSON to a column's value; null is null in every type."""
    found = _reader(kind)
    return lambda value: None if value is None else found(value)


def _reader(kind: SqlType) -> Reader:
    match kind:
        case Array(element):
            return _array(json_reader(element), kind)
        case Map(key, value):
            return _map(caster(STRING, key) or (lambda text: text), json_reader(value), kind)
        case Struct(fields):
            names, readers = [name for name, _ in fields], [json_reader(one) for _, one in fields]
            return lambda value: cast("Value", dict(zip(names, read_fields(value, names, readers), strict=True)))
        case Decimal():
            return lambda value: _decimal(value, kind)
    return _PRIMITIVES[kind]


def read_fields(value: Json, names: list[str], readers: list[Reader]) -> list[Value]:
    """Return the values of an object's fields: by their names, else by their names in upper case."""
    if not isinstance(value, dict):
        raise CodecFailure(f"an object is needed, but this is {_kind(value)}")
    upper: dict[str, Json] | None = None
    found: list[Value] = []
    for name, reader in zip(names, readers, strict=True):
        own: object = value.get(name, _MISSING)
        if own is _MISSING:
            if upper is None:
                upper = {key.upper(): one for key, one in value.items()}
            own = upper.get(name)
        try:
            found.append(None if own is None else reader(cast("Json", own)))
        except CodecFailure as failure:
            raise CodecFailure(f"{name}: {failure}") from None
    return found


def _kind(value: Json) -> str:
    match value:
        case bool():
            return "a truth"
        case int() | float() | decimal.Decimal():
            return "a number"
        case str():
            return "text"
        case list():
            return "an array"
        case dict():
            return "an object"
    return "null"


def _refuse(value: Json, wanted: SqlType) -> CodecFailure:
    return CodecFailure(f"Can't convert type. {_kind(value)} is no {wanted}")


def _array(element: Reader, kind: SqlType) -> Reader:
    def read(value: Json) -> Value:
        if not isinstance(value, list):
            raise _refuse(value, kind)
        return [element(one) for one in value]

    return read


def _map(key: Callable[[Value], Value], item: Reader, kind: SqlType) -> Reader:
    def read(value: Json) -> Value:
        if not isinstance(value, dict):
            raise _refuse(value, kind)
        return {key(name): item(one) for name, one in value.items()}

    return read


def _boolean(value: Json) -> Value:
    if isinstance(value, bool):
        return value
    raise _refuse(value, BOOLEAN)


def _integer_reader(kind: SqlType, wrap: Callable[[int], int]) -> Reader:
    parse = caster(STRING, kind)
    assert parse is not None

    def read(value: Json) -> Value:
        if isinstance(value, int) and not isinstance(value, bool):
            return wrap(value)
        if isinstance(value, decimal.Decimal):
            if value.adjusted() > _MOST_DIGITS:
                raise CodecFailure(f"{value} is no {kind}")
            return wrap(int(value))
        if isinstance(value, str):
            try:
                return parse(value)
            except EvaluationFailure as failure:
                raise CodecFailure(str(failure)) from None
        raise _refuse(value, kind)

    return read


def _double(value: Json) -> Value:
    if isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        parse = caster(STRING, DOUBLE)
        assert parse is not None
        try:
            return parse(value)
        except EvaluationFailure as failure:
            raise CodecFailure(str(failure)) from None
    raise _refuse(value, DOUBLE)


def _decimal(value: Json, kind: Decimal) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal | str):
        raise _refuse(value, kind)
    try:
        exact = decimal.Decimal(repr(value) if isinstance(value, float) else value)
        found = fit_decimal(exact, kind)
    except (decimal.InvalidOperation, EvaluationFailure) as failure:
        raise CodecFailure(f"{value} is no {kind}: {failure}") from None
    if found != exact:
        raise CodecFailure(f"{value} has more digits than {kind}")
    return found


def json_text(value: Json) -> str:
    """Return any JSON as the value of a STRING column."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case decimal.Decimal():
            return str(value)
        case dict():
            return json.dumps(_with_floats(value), ensure_ascii=False, separators=(",", ":"))
        case list():
            return "[" + ", ".join("null" if one is None else json_text(one) for one in value) + "]"
    return str(value)


def _with_floats(value: Json) -> Json:
    match value:
        case decimal.Decimal():
            return float(value)
        case dict():
            return {name: _with_floats(one) for name, one in value.items()}
        case list():
            return [_with_floats(one) for one in value]
    return value


def _bytes(value: Json) -> Value:
    if not isinstance(value, str):
        raise _refuse(value, BYTES)
    try:
        return b64decode(value, validate=True)
    except BadBase64 as wrong:
        raise CodecFailure(f"no base64: {wrong}") from None


_PRIMITIVES: dict[SqlType, Reader] = {
    BOOLEAN: _boolean,
    INTEGER: _integer_reader(INTEGER, wrap_integer),
    BIGINT: _integer_reader(BIGINT, wrap_bigint),
    DOUBLE: _double,
    STRING: json_text,
    BYTES: _bytes,
    DATE: _integer_reader(INTEGER, wrap_integer),
    TIME: _integer_reader(INTEGER, wrap_integer),
    TIMESTAMP: _integer_reader(BIGINT, wrap_bigint),
}


def json_writer(kind: SqlType) -> Writer | None:
    """Return the function that converts a value to what msgspec can write; None if no conversion is needed."""
    match kind:
        case Array(element):
            each = json_writer(element)
            if each is None:
                return None
            return lambda value: None if value is None else [each(one) for one in cast("list[Value]", value)]
        case Map(key, item):
            inner = json_writer(item)
            if inner is None and key == STRING:
                return None
            return lambda value: None if value is None else {
                "null" if name is None else plain_text(name): one if inner is None else inner(one)
                for name, one in cast("dict[Value, Value]", value).items()
            }  # fmt: skip
        case Struct(fields):
            writers = [(name, json_writer(one)) for name, one in fields]
            return lambda value: None if value is None else {
                name: value.get(name) if writer is None else writer(value.get(name))  # type: ignore[union-attr]
                for name, writer in writers
            }  # fmt: skip
    return _double_or_name if kind == DOUBLE else None


def _double_or_name(value: Value) -> object:
    """Return a double, or its name if it is infinite or NaN: JSON has no such numbers, and Jackson writes their
    names."""
    return value if value is None or math.isfinite(cast("float", value)) else double_text(cast("float", value))


_ENCODER = msgspec.json.Encoder(decimal_format="number")
_DECODER = msgspec.json.Decoder(float_hook=decimal.Decimal)


class JsonCodec:
    def __init__(self, side: Side) -> None:
        self._wrapped = side.wrapped
        self._names = [column.name for column in side.columns]
        self._readers = [json_reader(column.type) for column in side.columns]
        self._writers = [json_writer(column.type) for column in side.columns]
        self._plain = all(writer is None for writer in self._writers)

    def decode(self, data: bytes | None) -> list[Value] | None:
        if data is None:
            return None
        try:
            value: Json = _DECODER.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as wrong:
            raise CodecFailure(f"no JSON: {wrong}") from None
        if not self._wrapped:
            return [self._readers[0](value)]
        return None if value is None else read_fields(value, self._names, self._readers)

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        if values is None:
            return None
        shown: Sequence[object] = values
        if not self._plain:
            shown = [one if writer is None else writer(one) for one, writer in zip(values, self._writers, strict=True)]
        if not self._wrapped:
            return None if values[0] is None else _ENCODER.encode(shown[0])
        return _ENCODER.encode(dict(zip(self._names, shown, strict=True)))


def json_schema_text(side: Side) -> str:
    """Return the JSON Schema under which the columns are registered."""
    if side.wrapped:
        tree = _object_schema([(column.name, column.type) for column in side.columns])
    else:
        tree = _type_schema(side.columns[0].type)
    return json.dumps(tree)


def _object_schema(fields: Sequence[tuple[str, SqlType]]) -> dict[str, object]:
    properties = {
        name: {"connect.index": index, "oneOf": [{"type": "null"}, _type_schema(kind)]}
        for index, (name, kind) in enumerate(fields)
    }
    return {"type": "object", "properties": properties}


def _type_schema(kind: SqlType) -> dict[str, object]:
    match kind:
        case Array(element):
            return {"type": "array", "items": {"oneOf": [{"type": "null"}, _type_schema(element)]}}
        case Map(_, value):
            return {
                "type": "object",
                "connect.type": "map",
                "additionalProperties": {"oneOf": [{"type": "null"}, _type_schema(value)]},
            }
        case Struct(fields):
            return _object_schema(fields)
        case Decimal(precision, scale):
            return {
                "type": "number",
                "title": "org.apache.kafka.connect.data.Decimal",
                "connect.type": "bytes",
                "connect.parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)},
            }
    return dict(_SCHEMAS[kind])


_SCHEMAS: dict[SqlType, dict[str, object]] = {
    BOOLEAN: {"type": "boolean"},
    INTEGER: {"type": "integer", "connect.type": "int32"},
    BIGINT: {"type": "integer", "connect.type": "int64"},
    DOUBLE: {"type": "number", "connect.type": "float64"},
    STRING: {"type": "string"},
    BYTES: {"type": "string", "connect.type": "bytes"},
    DATE: {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"},
    TIME: {"type": "integer", "title": "org.apache.kafka.connect.data.Time", "connect.type": "int32"},
    TIMESTAMP: {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp", "connect.type": "int64"},
}


class RegistryJsonCodec:
    """JSON behind the magic byte and the id of its schema; the data is not validated against the schema, as in the
    JVM."""

    def __init__(self, side: Side, schemas: SchemaSource) -> None:
        self._side = side
        self._schemas = schemas
        self._json = JsonCodec(side)
        self._id = side.options.schema_id

    def decode(self, data: bytes | None) -> list[Value] | None:
        if data is None:
            return None
        try:
            return self._json.decode(unframe(data).payload)
        except DataProblem as problem:
            raise CodecFailure(str(problem)) from None

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        payload = self._json.encode(values)
        if payload is None:
            return None
        if self._id is None:
            self._id = self._schemas.register(self._side.subject, JSON, json_schema_text(self._side))
        return frame(self._id, payload)

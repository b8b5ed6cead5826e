"""PROTOBUF and PROTOBUF_NOSR: a message with a field for each column; fields are found without regard to case.

proto3 has no null for numbers and text: it is written as 0 or "", and read back so, unless
*_PROTOBUF_NULLABLE_REPRESENTATION is OPTIONAL (fields that say whether they are there) or WRAPPER (messages around
them). Arrays and maps cannot be null either; messages can. Enums are read as STRING.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from datetime import date
from typing import Any, TypeAlias, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from pessoa.ksql.operators.format_codecs import CodecFailure, Side
from pessoa.ksql.operators.schema_source import PROTOBUF, SchemaSource
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
from pessoa.ksql.types.time_text import date_day, day_date
from pessoa.serde.framing import encode_message_indexes, frame, unframe
from pessoa.serde.protobuf.codec import ProtobufCodec
from pessoa.serde.protobuf.linking import link, read_proto
from pessoa.serde.protobuf.plain_values import Field, map_entry
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

MESSAGE = "ConnectDefault1"
_DECIMAL, _DATE = "confluent.type.Decimal", "google.type.Date"
_TIME, _TIMESTAMP = "google.type.TimeOfDay", "google.protobuf.Timestamp"
_IMPORTS = {
    _DECIMAL: "confluent/type/decimal.proto",
    _DATE: "google/type/date.proto",
    _TIME: "google/type/timeofday.proto",
    _TIMESTAMP: "google/protobuf/timestamp.proto",
}
_SCALARS: dict[SqlType, str] = {
    BOOLEAN: "bool",
    INTEGER: "int32",
    BIGINT: "int64",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
}
_MESSAGES: dict[SqlType, str] = {DATE: _DATE, TIME: _TIME, TIMESTAMP: _TIMESTAMP}
_WRAPPERS = {"bool": "Bool", "int32": "Int32", "int64": "Int64", "double": "Double", "string": "String"} | {
    "bytes": "Bytes"
}

# A thousand digits, as arithmetic has room for; what a number costs to read grows with the square of its length.
_MOST_DECIMAL_BYTES = 400

# What protobuf's library gives and takes for a field: a number, text, a message, or its own containers.
Plain: TypeAlias = Any


class _Schema:
    """Writes a .proto file for columns."""

    def __init__(self, nullable: str | None) -> None:
        self._nullable = nullable
        self._imports: set[str] = set()
        self._count = 1

    def text(self, side: Side) -> str:
        name = (side.options.schema_name or MESSAGE).rpartition(".")[2]
        package = (side.options.schema_name or "").rpartition(".")[0]
        body = self._message(name, [(column.name, column.type) for column in side.columns], "")
        head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
        return "\n".join([*head, *(f'import "{path}";' for path in sorted(self._imports)), *body, ""])

    def _message(self, name: str, fields: Sequence[tuple[str, SqlType]], indent: str) -> list[str]:
        lines: list[str] = []
        for number, (field, kind) in enumerate(fields, 1):
            text = self._field(field, kind, lines, indent + "  ")
            lines.append(f"{indent}  {text} {field} = {number};")
        return [f"{indent}message {name} {{", *lines, f"{indent}}}"]

    def _field(self, name: str, kind: SqlType, lines: list[str], indent: str) -> str:
        match kind:
            case Array(element):
                return "repeated " + self._item_type(name, element, lines, indent)
            case Map(key, value):
                return (
                    f"map<{self._item_type(name, key, lines, indent)}, {self._item_type(name, value, lines, indent)}>"
                )
        single = self._item_type(name, kind, lines, indent)
        if kind in _SCALARS and self._nullable == "OPTIONAL":
            return f"optional {single}"
        if kind in _SCALARS and self._nullable == "WRAPPER":
            self._imports.add("google/protobuf/wrappers.proto")
            return f"google.protobuf.{_WRAPPERS[single]}Value"
        return single

    def _item_type(self, name: str, kind: SqlType, lines: list[str], indent: str) -> str:
        if isinstance(kind, Struct):
            self._count += 1
            nested = f"ConnectDefault{self._count}"
            lines += self._message(nested, kind.fields, indent)
            return nested
        if isinstance(kind, Array | Map):
            raise CodecFailure(f"{name}: Protobuf has no {kind} inside of an array or a map")
        message = _DECIMAL if isinstance(kind, Decimal) else _MESSAGES.get(kind)
        if message is not None:
            self._imports.add(_IMPORTS[message])
            return message
        return _SCALARS[kind]


def proto_text(side: Side) -> str:
    """Return the .proto file under which the columns are registered."""
    return _Schema(side.options.nullable).text(side)


def _fields(message: Message, columns: Sequence[tuple[str, SqlType]]) -> list[Value]:
    fields = {field.name.upper(): field for field in message.DESCRIPTOR.fields}
    exact = {field.name: field for field in message.DESCRIPTOR.fields}
    found: list[Value] = []
    for name, kind in columns:
        field = exact.get(name) or fields.get(name.upper())
        found.append(None if field is None else _read(message, field, kind))
    return found


def _read(message: Message, field: Field, kind: SqlType) -> Value:
    value = getattr(message, field.name)
    entry = map_entry(field)
    match kind:
        case Map(key, item) if entry is not None:
            of_key, of_value = entry.fields_by_name["key"], entry.fields_by_name["value"]
            return {_value(of_key, one, key): _value(of_value, value[one], item) for one in value}
        case Array(element) if field.is_repeated and entry is None:
            return [_value(field, one, element) for one in value]
    if field.is_repeated:
        raise CodecFailure(f"the repeated field {field.name} is no {kind}")
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, value, kind)


def _value(field: Field, value: Plain, kind: SqlType) -> Value:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        value = named.name if named is not None else str(value)
    if field.message_type is not None:
        return _message_value(field.message_type.full_name, value, kind)
    if kind == DOUBLE and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    wanted = _PYTHON.get(kind)
    if wanted is None or not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise CodecFailure(f"the field {field.name} is no {kind}")
    return cast("Value", value)


_PYTHON: dict[SqlType, type] = {BOOLEAN: bool, INTEGER: int, BIGINT: int, STRING: str, BYTES: bytes}


def _message_value(name: str, value: Plain, kind: SqlType) -> Value:
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return _value(value.DESCRIPTOR.fields_by_name["value"], value.value, kind)
    if isinstance(kind, Struct):
        names = [one for one, _ in kind.fields]
        return cast("Value", dict(zip(names, _fields(value, kind.fields), strict=True)))
    if isinstance(kind, Decimal) and name == _DECIMAL:
        if len(value.value) > _MOST_DECIMAL_BYTES:
            raise CodecFailure(f"a DECIMAL of {len(value.value)} bytes is no {kind}")
        unscaled = int.from_bytes(value.value, "big", signed=True)
        try:
            return fit_decimal(decimal.Decimal(unscaled).scaleb(-value.scale, decimal.Context(prec=1000)), kind)
        except (EvaluationFailure, decimal.DecimalException) as failure:
            raise CodecFailure(f"no {kind}: {failure}") from None
    if kind == TIMESTAMP and name == _TIMESTAMP:
        return int(value.seconds) * 1000 + int(value.nanos) // 1_000_000
    if kind == TIME and name == _TIME:
        return ((int(value.hours) * 60 + int(value.minutes)) * 60 + int(value.seconds)) * 1000 + int(
            value.nanos
        ) // 10**6
    if kind == DATE and name == _DATE:
        try:
            return date_day(date(value.year, value.month, value.day))
        except ValueError as wrong:
            raise CodecFailure(str(wrong)) from None
    raise CodecFailure(f"the message {name} is no {kind}")


def _fill(message: Message, columns: Sequence[tuple[str, SqlType]], values: Sequence[Value]) -> None:
    fields = {field.name.upper(): field for field in message.DESCRIPTOR.fields}
    for (name, kind), value in zip(columns, values, strict=True):
        field = fields.get(name.upper())
        if field is None or value is None:
            continue
        _set(message, field, kind, value)


def _set(message: Message, field: Field, kind: SqlType, value: Value) -> None:
    match kind:
        case Array(element):
            target = getattr(message, field.name)
            for one in cast("list[Value]", value):
                if field.message_type is not None:
                    _fill_message(target.add(), element, one)
                else:
                    # A list has no place for a null: it is the type's zero.
                    target.append(_zero(element) if one is None else one)
            return
        case Map(_, item):
            target = getattr(message, field.name)
            for key, one in cast("dict[Value, Value]", value).items():
                if isinstance(item, Struct | Decimal) or item in _MESSAGES:
                    _fill_message(target[key], item, one)
                else:
                    target[key] = _zero(item) if one is None else one
            return
    if field.message_type is not None:
        _fill_message(getattr(message, field.name), kind, value)
    else:
        setattr(message, field.name, value)


def _zero(kind: SqlType) -> Value:
    zeros: dict[SqlType, Value] = {BOOLEAN: False, STRING: "", BYTES: b"", DOUBLE: 0.0}
    return zeros.get(kind, 0)


def _fill_message(target: Plain, kind: SqlType, value: Value) -> None:
    target.SetInParent()
    if value is None:
        return
    match kind:
        case Struct(fields):
            assert isinstance(value, dict)
            _fill(target, fields, [value.get(name) for name, _ in fields])
        case Decimal(precision, scale):
            assert isinstance(value, decimal.Decimal)
            unscaled = int(value.scaleb(scale, decimal.Context(prec=1000)))
            size = (unscaled.bit_length() + 8) // 8
            target.value = unscaled.to_bytes(size, "big", signed=True)
            target.precision, target.scale = precision, scale
        case _ if kind in _MESSAGES:
            _fill_time(target, kind, cast("int", value))
        case _:
            target.value = value


def _fill_time(target: Plain, kind: SqlType, value: int) -> None:
    if kind == TIMESTAMP:
        target.seconds, target.nanos = value // 1000, value % 1000 * 1_000_000
    elif kind == TIME:
        target.hours, target.minutes = value // 3_600_000, value // 60_000 % 60
        target.seconds, target.nanos = value // 1000 % 60, value % 1000 * 1_000_000
    else:
        try:
            day = day_date(value)
        except EvaluationFailure as failure:
            raise CodecFailure(str(failure)) from None
        target.year, target.month, target.day = day.year, day.month, day.day


class ProtobufColumnsCodec:
    """PROTOBUF_NOSR: bare messages of the schema that follows from the columns."""

    def __init__(self, side: Side, text: str | None = None) -> None:
        self._columns = [(column.name, column.type) for column in side.columns]
        file = link(read_proto(text or proto_text(side)))
        self._class = GetMessageClass(next(iter(file.descriptor.message_types_by_name.values())))

    def decode(self, data: bytes | None) -> list[Value] | None:
        if data is None:
            return None
        try:
            return _fields(self._class.FromString(bytes(data)), self._columns)
        except DecodeError as wrong:
            raise CodecFailure(f"no message {self._class.DESCRIPTOR.full_name}: {wrong}") from None

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        if values is None:
            return None
        message = self._class()
        try:
            _fill(message, self._columns, values)
        except (TypeError, ValueError) as wrong:
            raise CodecFailure(str(wrong)) from None
        return message.SerializeToString(deterministic=True)


class RegistryProtobufCodec:
    """PROTOBUF: messages behind the magic byte, the id of their schema and the path to the message in it."""

    def __init__(self, side: Side, schemas: SchemaSource) -> None:
        self._side = side
        self._schemas = schemas
        self._columns = [(column.name, column.type) for column in side.columns]
        self._known: dict[int, ProtobufCodec] = {}
        self._writer: tuple[int, ProtobufColumnsCodec] | None = None

    def decode(self, data: bytes | None) -> list[Value] | None:
        if data is None:
            return None
        try:
            schema_id, payload = unframe(data)
            message = self._codec(cast("int", schema_id)).read(payload)
        except (DataProblem, SchemaProblem) as problem:
            raise CodecFailure(str(problem)) from None
        return _fields(message, self._columns)

    def _codec(self, schema_id: int) -> ProtobufCodec:
        found = self._known.get(schema_id)
        if found is None:
            schema = self._schemas.by_id(schema_id)
            if schema is None:
                raise DataProblem(f"the registry has no schema {schema_id}")
            imports = {name: read_proto(text, name) for name, text in schema.references.items()}
            found = self._known[schema_id] = ProtobufCodec(link(read_proto(schema.text), imports))
        return found

    def encode(self, values: Sequence[Value] | None) -> bytes | None:
        if values is None:
            return None
        if self._writer is None:
            self._writer = self._open_writer()
        schema_id, codec = self._writer
        payload = codec.encode(values)
        assert payload is not None
        return frame(schema_id, encode_message_indexes((0,)) + payload)

    def _open_writer(self) -> tuple[int, ProtobufColumnsCodec]:
        given = self._side.options.schema_id
        if given is None:
            text = proto_text(self._side)
            return self._schemas.register(self._side.subject, PROTOBUF, text), ProtobufColumnsCodec(self._side, text)
        schema = self._schemas.by_id(given)
        if schema is None:
            raise CodecFailure(f"the registry has no schema {given}")
        return given, ProtobufColumnsCodec(self._side, schema.text)

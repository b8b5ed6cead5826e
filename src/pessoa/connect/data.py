"""Connect's values: a schema beside a Python value, and the records that carry both.

A schema has one of twelve types. Three of them contain others: an array its elements, a map its keys and values, a
struct its fields. A name gives a type a meaning of its own; four names are known to every connector (the logical
types):

    org.apache.kafka.connect.data.Decimal     bytes, parameter `scale`       decimal.Decimal
    org.apache.kafka.connect.data.Date        int32, days since 1970         datetime.date
    org.apache.kafka.connect.data.Time        int32, milliseconds of a day   datetime.time
    org.apache.kafka.connect.data.Timestamp   int64, milliseconds            datetime.datetime in UTC

A struct's value is a dict by field name, with or without a schema; so is a map's. Data without a schema (JSON that
brings none) has the schema None, and its values are what JSON knows.
"""

from __future__ import annotations

import base64
import math
import struct as binary
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pessoa.base.config_values import render
from pessoa.base.json_value import JsonValue

if TYPE_CHECKING:
    from pessoa.pipelines.python_sink import KafkaRow


Binary: TypeAlias = bytes | bytearray | memoryview
Scalar: TypeAlias = bool | int | float | str | Binary | Decimal | date | time
# A value of Connect, with or without a schema. A struct and a map are dicts. The keys of a map may be other scalars
# than strings, and no type of keys stands for both: only the schema tells.
ConnectValue: TypeAlias = "Scalar | list[ConnectValue] | tuple[ConnectValue, ...] | dict[Any, ConnectValue] | None"
Struct: TypeAlias = dict[str, ConnectValue]


class DataFailure(Exception):
    """A value does not fit its schema, its converter or its transform."""


# What a value raises that does not fit where it is put: a number beyond 64 bits, half a character (JSON may have
# "\ud800"), a zero byte. It is a fault of its record, and never of the records beside it.
MISFITS = (DataFailure, ArithmeticError, LookupError, TypeError, ValueError)


class Type(StrEnum):
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
SCALE = "scale"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1)
_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: ConnectValue = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    # Of a map.
    keys: Schema | None = None
    # Of a map and of an array.
    values: Schema | None = None

    def __hash__(self) -> int:
        # Defaults and parameters may be unhashable; they count for equality alone.
        return hash((self.type, self.optional, self.name, self.version, self.fields, self.keys, self.values))

    def field(self, name: str) -> Schema | None:
        for each in self.fields:
            if each.name == name:
                return each.schema
        return None

    @property
    def as_optional(self) -> Schema:
        return self if self.optional else replace(self, optional=True)

    def __repr__(self) -> str:
        inside = ", ".join(each.name for each in self.fields)
        return f"<Schema {self.name or self.type}{'?' if self.optional else ''}{f'({inside})' if inside else ''}>"


def struct(
    fields: Mapping[str, Schema],
    name: str | None = None,
    *,
    optional: bool = False,
    version: int | None = None,
    doc: str | None = None,
    default: Struct | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Schema:
    inside = tuple(Field(key, each) for key, each in fields.items())
    return Schema(Type.STRUCT, optional, name, version, doc, default, parameters or {}, inside)


def with_facts(schema: Schema, name: object, version: object, doc: object, parameters: object) -> Schema:
    """Return the schema with the name, version and so on of a JSON document; values of a wrong type are left out."""
    return replace(
        schema,
        name=name if isinstance(name, str) else None,
        version=version if isinstance(version, int) else None,
        doc=doc if isinstance(doc, str) else None,
        parameters={key: str(text) for key, text in parameters.items()} if isinstance(parameters, dict) else {},
    )


STRING = Schema(Type.STRING)
BYTES = Schema(Type.BYTES)
BOOLEAN = Schema(Type.BOOLEAN)
INT8, INT16 = Schema(Type.INT8), Schema(Type.INT16)
INT32, INT64 = Schema(Type.INT32), Schema(Type.INT64)
FLOAT32, FLOAT64 = Schema(Type.FLOAT32), Schema(Type.FLOAT64)
OPTIONAL_STRING = STRING.as_optional
DATE_SCHEMA = Schema(Type.INT32, name=DATE, version=1)
TIME_SCHEMA = Schema(Type.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA = Schema(Type.INT64, name=TIMESTAMP, version=1)


def decimal_schema(scale: int, precision: int | None = None) -> Schema:
    parameters = {SCALE: str(scale)}
    if precision is not None:
        parameters["connect.decimal.precision"] = str(precision)
    return Schema(Type.BYTES, name=DECIMAL, version=1, parameters=parameters)


def as_single(number: float) -> float:
    """Return the shortest decimal that means the same number of 32 bits: 1.1, and not 1.100000023841858."""
    try:
        data = binary.pack(">f", number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    exact: float = binary.unpack(">f", data)[0]
    for digits in range(6, 9):
        short = float(f"{exact:.{digits}g}")
        if binary.pack(">f", short) == data:
            return short
    return float(f"{exact:.9g}")


# Logical values as the plain values beneath them, and back.


def to_plain(schema: Schema, value: ConnectValue) -> ConnectValue:
    """Return the int or bytes for a logical value (decimal, date, time, timestamp), and every other value unchanged."""
    if schema.name is None:
        return value
    match value:
        case Decimal() if schema.name == DECIMAL:
            return decimal_to_bytes(value, scale_of(schema))
        case date() if schema.name == DATE:
            return (value - EPOCH_DAY).days
        case time() if schema.name == TIME:
            return time_to_millis(value)
        case datetime() if schema.name == TIMESTAMP:
            return to_millis(value)
    return value


def from_plain(schema: Schema, value: ConnectValue) -> ConnectValue:
    """Return the logical value (decimal, date, …) for an int or bytes if the schema is logical, else the value
    unchanged. TypeError if the value is of another type."""
    if value is None or schema.name not in LOGICAL:
        return value
    if schema.name == DECIMAL and isinstance(value, Binary):
        return decimal_from_bytes(value, scale_of(schema))
    if schema.name != DECIMAL and isinstance(value, int | float):
        if schema.name == DATE:
            return EPOCH_DAY + timedelta(days=value)
        moment = from_millis(value)
        return moment.time() if schema.name == TIME else moment
    raise TypeError(f"{schema.name} is never made of {type(value).__name__}")


def scale_of(schema: Schema) -> int:
    """Return the scale of a decimal's schema: the count of digits behind the point."""
    return int(schema.parameters.get(SCALE, "0"))


def decimal_to_bytes(value: Decimal, scale: int) -> bytes:
    unscaled = int(value.scaleb(scale).to_integral_exact()) if value.is_finite() else _refuse_decimal(value)
    # Java's BigInteger: two's complement, big-endian, as few bytes as will do.
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _refuse_decimal(value: Decimal) -> int:
    raise DataFailure(f"{value} is no number that a decimal can hold")


def decimal_from_bytes(data: Binary, scale: int) -> Decimal:
    # Built from text: arithmetic would round to the context's precision.
    return Decimal(f"{int.from_bytes(data, 'big', signed=True)}E{-scale}")


def to_millis(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(milliseconds=1)


def from_millis(millis: float) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def time_to_millis(moment: time) -> int:
    return ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1000 + moment.microsecond // 1000


def check(schema: Schema, value: ConnectValue, place: str = "value") -> None:
    """Raise DataFailure if the value does not fit the schema."""
    if value is None:
        if not schema.optional and schema.default is None:
            raise DataFailure(f"{place} is null, and its schema ({schema.type}) does not allow that")
        return
    if not _fits(schema, value):
        kind = schema.name or schema.type
        raise DataFailure(f"{place} is {type(value).__name__} {_shorten(value)}, and its schema demands {kind}")
    if schema.type is Type.STRUCT and isinstance(value, dict):
        for each in schema.fields:
            check(each.schema, value.get(each.name), f"{place}.{each.name}")
    elif isinstance(value, list | tuple) and schema.values is not None:
        for index, element in enumerate(value):
            check(schema.values, element, f"{place}[{index}]")
    elif isinstance(value, dict) and schema.values is not None:
        for key, element in value.items():
            check(schema.values, element, f"{place}[{key!r}]")


def _fits(schema: Schema, value: ConnectValue) -> bool:
    if schema.name in LOGICAL:
        return isinstance(value, LOGICAL[schema.name])
    match schema.type:
        case Type.INT8 | Type.INT16 | Type.INT32 | Type.INT64:
            limit = 1 << (_BITS[schema.type] - 1)
            return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
        case Type.FLOAT32 | Type.FLOAT64:
            return isinstance(value, float)
        case Type.BOOLEAN:
            return isinstance(value, bool)
        case Type.STRING:
            return isinstance(value, str)
        case Type.BYTES:
            return isinstance(value, Binary)
        case Type.ARRAY:
            return isinstance(value, list | tuple)
        case _:
            return isinstance(value, dict)


LOGICAL: dict[str | None, type] = {DECIMAL: Decimal, DATE: date, TIME: time, TIMESTAMP: datetime}


def connect_value(value: object) -> ConnectValue:
    """Return Connect's value for a value that a library has decoded; a type that Connect lacks (UUID) becomes text."""
    if value is None or isinstance(value, Scalar):
        return value
    if isinstance(value, dict):
        return {key: connect_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [connect_value(one) for one in value]
    return str(value)


def infer_schema(value: ConnectValue) -> Schema | None:
    """Return the schema that Connect's `Values` infers for a value without one; None for a struct, map or array."""
    match value:
        case bool():
            return BOOLEAN
        case int():
            return INT64
        case float():
            return FLOAT64
        case str():
            return STRING
        case bytes():
            return BYTES
        case Decimal():
            exponent = value.as_tuple().exponent
            return decimal_schema(-exponent if isinstance(exponent, int) else 0)
        case datetime():
            return TIMESTAMP_SCHEMA
        case date():
            return DATE_SCHEMA
        case time():
            return TIME_SCHEMA
    return None


def java_text(schema: Schema | None, value: ConnectValue) -> str:
    """Return the text that Java's toString gives: `Struct{a=1,b=x}`, `{a=1, b=x}`, `[1, 2]`, `true`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        if schema is not None and schema.type is Type.STRUCT:
            inside = [
                f"{each.name}={java_text(each.schema, value.get(each.name))}"
                for each in schema.fields
                if value.get(each.name) is not None
            ]
            return "Struct{" + ",".join(inside) + "}"
        keys = schema.keys if schema is not None else None
        values = schema.values if schema is not None else None
        return "{" + ", ".join(f"{java_text(keys, key)}={java_text(values, one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        values = schema.values if schema is not None else None
        return "[" + ", ".join(java_text(values, one) for one in value) + "]"
    if isinstance(value, Binary):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return str(render(value))
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    return str(value)


def _shorten(value: ConnectValue) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# Records.


@dataclass(frozen=True, slots=True)
class Header:
    key: str
    schema: Schema | None
    value: ConnectValue


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a source or of a sink, as transforms see it. Only records of a sink have an `offset`, Kafka's."""

    topic: str
    partition: int | None = None
    key_schema: Schema | None = None
    key: ConnectValue = None
    value_schema: Schema | None = None
    value: ConnectValue = None
    headers: tuple[Header, ...] = ()
    # Milliseconds since 1970, UTC.
    timestamp: int | None = None
    offset: int | None = None
    # Where a source found it: the partition of the source, and the offset there.
    source_partition: Mapping[str, JsonValue] | None = None
    source_offset: Mapping[str, JsonValue] | None = None
    # The record as a sink's topic has it, for the dead-letter topic.
    origin: KafkaRow | None = field(default=None, compare=False, repr=False)

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)

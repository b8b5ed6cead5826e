"""Columns of PostgreSQL as Debezium maps them: the schema of a column, and its value from the text of a cell. Pure.

    date                 io.debezium.time.Date             days since 1970
    time(0..3), time     io.debezium.time.Time, MicroTime  milliseconds, microseconds of the day
    timestamp            io.debezium.time.Timestamp, …     milliseconds for (0..3), MicroTimestamp otherwise
    timestamptz, timetz  io.debezium.time.ZonedTimestamp   text of ISO 8601, in UTC
    interval             io.debezium.time.MicroDuration    microseconds; a month has 30.4375 days
    numeric(p, s)        Connect's Decimal; without (p, s) io.debezium.data.VariableScaleDecimal
    json, uuid, xml, enum  text with a name of io.debezium.data
    arrays               an array of the element's schema

`time.precision.mode=connect` uses Connect's own types of time, `decimal.handling.mode` and `binary.handling.mode` say
what becomes of numbers and bytes. A type that is not in the table is its text.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from pessoa.connect.data import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    EPOCH,
    EPOCH_DAY,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectValue,
    DataFailure,
    Schema,
    Type,
    decimal_schema,
    decimal_to_bytes,
    struct,
)

_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
_DAY_US = 86_400_000_000
# 365.25 / 12, as Debezium counts.
_MONTH_US = int(30.4375 * _DAY_US)
VARIABLE_DECIMAL = struct({"scale": INT32, "value": BYTES}, name=f"{_DATA}VariableScaleDecimal", version=1)
_PLAIN = {
    "bool": BOOLEAN, "int2": INT16, "int4": INT32, "int8": INT64, "oid": INT64, "float4": FLOAT32, "float8": FLOAT64,
    "json": Schema(Type.STRING, name=f"{_DATA}Json", version=1),
    "jsonb": Schema(Type.STRING, name=f"{_DATA}Json", version=1),
    "uuid": Schema(Type.STRING, name=f"{_DATA}Uuid", version=1),
    "xml": Schema(Type.STRING, name=f"{_DATA}Xml", version=1),
    "timestamptz": Schema(Type.STRING, name=f"{_TIME}ZonedTimestamp", version=1),
    "timetz": Schema(Type.STRING, name=f"{_TIME}ZonedTime", version=1),
}  # fmt: skip
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)


@dataclass(frozen=True, slots=True)
class Handling:
    """How values are converted: the settings `time.precision.mode` and `decimal|binary|interval.handling.mode`."""

    times: str = "adaptive"
    decimals: str = "precise"
    binaries: str = "bytes"
    intervals: str = "numeric"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type in PostgreSQL's catalogue: name and modifier (of `numeric`), an enum's labels, an array's element type."""

    name: str
    modifier: int = -1
    labels: tuple[str, ...] = ()
    element: ColumnType | None = None


def schema_of(kind: ColumnType, handling: Handling) -> Schema:
    """Return the schema of a column of this type that may not be null."""
    if kind.element is not None:
        return Schema(Type.ARRAY, values=schema_of(kind.element, handling).as_optional)
    if kind.labels:
        return Schema(Type.STRING, name=f"{_DATA}Enum", version=1, parameters={"allowed": ",".join(kind.labels)})
    if kind.name in _PLAIN:
        return _PLAIN[kind.name]
    match kind.name:
        case "bytea":
            return BYTES if handling.binaries == "bytes" else STRING
        case "numeric":
            return _numeric_schema(kind, handling)
        case "money":
            return (
                STRING
                if handling.decimals == "string"
                else FLOAT64
                if handling.decimals == "double"
                else decimal_schema(2)
            )
        case "date":
            return DATE_SCHEMA if handling.times == "connect" else Schema(Type.INT32, name=f"{_TIME}Date", version=1)
        case "time":
            return _time_schema(kind, handling)
        case "timestamp":
            if handling.times == "connect":
                return TIMESTAMP_SCHEMA
            name = "Timestamp" if 0 <= kind.modifier <= 3 else "MicroTimestamp"
            return Schema(Type.INT64, name=_TIME + name, version=1)
        case "interval":
            name = "Interval" if handling.intervals == "string" else "MicroDuration"
            kind_of = Type.STRING if handling.intervals == "string" else Type.INT64
            return Schema(kind_of, name=_TIME + name, version=1)
    return STRING


def _time_schema(kind: ColumnType, handling: Handling) -> Schema:
    if handling.times == "connect":
        return TIME_SCHEMA
    if 0 <= kind.modifier <= 3 and handling.times == "adaptive":
        return Schema(Type.INT32, name=f"{_TIME}Time", version=1)
    return Schema(Type.INT64, name=f"{_TIME}MicroTime", version=1)


def _numeric_schema(kind: ColumnType, handling: Handling) -> Schema:
    if handling.decimals != "precise":
        return STRING if handling.decimals == "string" else FLOAT64
    if kind.modifier < 4:
        return VARIABLE_DECIMAL
    # precision << 16 | scale, four more than that.
    precision, scale = (kind.modifier - 4) >> 16, (kind.modifier - 4) & 0xFFFF
    return replace(decimal_schema(scale), parameters={"scale": str(scale), "connect.decimal.precision": str(precision)})


def value_of(kind: ColumnType, schema: Schema, handling: Handling, text: str) -> ConnectValue:
    """Return the value of a cell. DataFailure if its text cannot be one of the column's type."""
    try:
        return _value(kind, schema, handling, text)
    except (ValueError, ArithmeticError, LookupError) as wrong:
        raise DataFailure(f"{text[:80]!r} is no {kind.name} that can be read: {wrong}") from None


def _value(kind: ColumnType, schema: Schema, handling: Handling, text: str) -> ConnectValue:
    if kind.element is not None:
        assert schema.values is not None
        return _array(kind.element, schema.values, handling, text)
    match kind.name:
        case "bool":
            return text in ("t", "true")
        case "int2" | "int4" | "int8" | "oid":
            return int(text)
        case "float4" | "float8":
            return float(text)
        case "bytea":
            return _bytes(handling, bytes.fromhex(text.removeprefix("\\x")))
        case "numeric" | "money":
            return _number(schema, text)
        case "date":
            day = _days(text)
            return EPOCH_DAY + timedelta(days=day) if schema is DATE_SCHEMA or schema.name == DATE_SCHEMA.name else day
        case "time":
            return _time(schema, text)
        case "timetz":
            return _zoned_time(text)
        case "timestamp":
            return _timestamp(schema, text)
        case "timestamptz":
            return _zoned_timestamp(text)
        case "interval":
            return text if handling.intervals == "string" else interval_us(text)
    return text


def _bytes(handling: Handling, data: bytes) -> ConnectValue:
    match handling.binaries:
        case "base64":
            return base64.b64encode(data).decode()
        case "base64-url-safe":
            return base64.urlsafe_b64encode(data).decode()
        case "hex":
            return data.hex()
    return data


def _number(schema: Schema, text: str) -> ConnectValue:
    if schema.type is Type.STRING:
        return text
    if schema.type is Type.FLOAT64:
        return float(text.replace("$", "").replace(",", ""))
    number = Decimal(text.replace("$", "").replace(",", ""))
    if not number.is_finite():
        raise ValueError("decimal.handling.mode=precise has no NaN and no infinity; set it to double or string")
    if schema.type is Type.STRUCT:
        exponent = number.as_tuple().exponent
        scale = max(0, -exponent if isinstance(exponent, int) else 0)
        return {"scale": scale, "value": decimal_to_bytes(number, scale)}
    return number


# Times. PostgreSQL knows `infinity`, years with more than four digits, and years before Christ (`0044-03-15 BC`).


def _days(text: str) -> int:
    if text in ("infinity", "-infinity"):
        return 2**31 - 1 if text == "infinity" else -(2**31)
    year, month, day = _date_parts(text)
    return _civil_days(year, month, day)


def _date_parts(text: str) -> tuple[int, int, int]:
    is_before_christ = text.endswith(" BC")
    year, month, day = text.removesuffix(" BC").split("-")
    return (1 - int(year) if is_before_christ else int(year)), int(month), int(day)


def _civil_days(year: int, month: int, day: int) -> int:
    """Return the days since 1970 in the Gregorian calendar, also of years that `datetime` does not have."""
    if 1 <= year <= 9999:
        return (date(year, month, day) - EPOCH_DAY).days
    # The calendar repeats itself every 400 years, which have 146,097 days.
    cycles = (year - 2000) // 400
    return (date(year - 400 * cycles, month, day) - EPOCH_DAY).days + 146_097 * cycles


def _day_us(text: str) -> int:
    """Return the microseconds of a time of day since midnight; 24:00:00 is allowed."""
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    micros = int(fraction.ljust(6, "0")[:6]) if fraction else 0
    return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + micros


def _time(schema: Schema, text: str) -> ConnectValue:
    micros = _day_us(text)
    if schema.name == TIME_SCHEMA.name:
        return (EPOCH + timedelta(microseconds=micros % _DAY_US)).time()
    return micros // 1000 if schema.type is Type.INT32 else micros


def _timestamp(schema: Schema, text: str) -> ConnectValue:
    if schema.name == TIMESTAMP_SCHEMA.name:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    micros = timestamp_us(text)
    return micros // 1000 if schema.name == f"{_TIME}Timestamp" else micros


def timestamp_us(text: str) -> int:
    """Return the microseconds since 1970 of a timestamp without a zone."""
    if text in ("infinity", "-infinity"):
        # As Debezium's: the last and the first that 64 bits of milliseconds in Java can show.
        return 9_223_372_036_825_200_000 if text == "infinity" else -9_223_372_036_832_400_000
    suffix = " BC" if text.endswith(" BC") else ""
    day, _, clock = text.removesuffix(" BC").partition(" ")
    return _days(day + suffix) * _DAY_US + _day_us(clock)


def _zoned_timestamp(text: str) -> str:
    """Return the timestamp in UTC as ISO 8601. Sessions print times in UTC (`+00`), so that the digits are copied."""
    if text in ("infinity", "-infinity"):
        return text
    suffix = " BC" if text.endswith(" BC") else ""
    plain = text.removesuffix(" BC")
    if not plain.endswith("+00"):
        moment = datetime.fromisoformat(plain).astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    day, _, clock = plain.removesuffix("+00").partition(" ")
    year, month, number = _date_parts(day + suffix)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{number:02d}T{clock}Z"


def _zoned_time(text: str) -> str:
    """Return the time of day in UTC: `10:15:30+02` is `08:15:30Z`."""
    match = re.fullmatch(r"([\d:.]+)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?", text)
    if match is None:
        raise ValueError("a time with a zone is expected")
    clock, sign, hours, minutes, seconds = match.groups()
    shift = (int(hours) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    micros = (_day_us(clock) + (-shift if sign == "+" else shift) * 1_000_000) % _DAY_US
    moment: time = (EPOCH + timedelta(microseconds=micros)).time()
    return f"{moment.isoformat()}Z"


def interval_us(text: str) -> int:
    """Return the microseconds of an interval in the style iso_8601: `P1Y2M3DT4H5M6.7S`."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError("an interval of ISO 8601 is expected")
    years, months, weeks, days, hours, minutes = (int(each or 0) for each in match.groups()[:6])
    seconds = Decimal(match[7] or 0)
    whole = (years * 12 + months) * _MONTH_US + (weeks * 7 + days) * _DAY_US
    return whole + (hours * 60 + minutes) * 60_000_000 + int(seconds * 1_000_000)


# Arrays: `{1,NULL,"a \"b\" c"}`. Those of more than one dimension can be read if their elements are text.


def _array(element: ColumnType, schema: Schema, handling: Handling, text: str) -> list[ConnectValue]:
    # Bounds that do not begin with 1 stand before it: `[0:1]={a,b}`.
    body = text.partition("=")[2] if text.startswith("[") else text
    return [None if one is None else _value(element, schema, handling, one) for one in split_array(body)]


def split_array(text: str) -> list[str | None]:
    """Return the elements of an array's text."""
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError("an array is expected")
    found: list[str | None] = []
    position, end = 1, len(text) - 1
    while position < end:
        read = _read_quoted if text[position] == '"' else _read_nested if text[position] == "{" else _read_bare
        one, position = read(text, position, end)
        found.append(one)
        position += 1
    return found


def _read_quoted(text: str, position: int, _: int) -> tuple[str | None, int]:
    found = []
    position += 1
    while text[position] != '"':
        position += text[position] == "\\"
        found.append(text[position])
        position += 1
    return "".join(found), position + 1


def _read_nested(text: str, position: int, end: int) -> tuple[str | None, int]:
    depth, at, is_quoted = 0, position, False
    while at < end:
        letter = text[at]
        if letter == "\\":
            at += 1
        elif letter == '"':
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (letter == "{") - (letter == "}")
            if not depth:
                return text[position : at + 1], at + 1
        at += 1
    raise ValueError("an array within an array has no end")


def _read_bare(text: str, position: int, end: int) -> tuple[str | None, int]:
    comma = text.find(",", position, end)
    stop = end if comma < 0 else comma
    one = text[position:stop]
    return (None if one == "NULL" else one), stop

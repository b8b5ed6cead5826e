"""Text as a value of the smallest type that it could be meant as: Connect's `Values`.

`12` is an int8, `1200` an int16, `1.5` a float32, `true` a boolean, `2024-01-01` a date, `[1,2]` an array, `{"a":1}` a
map; every other text is a string. Headers without a converter of their own are written and read this way.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal

from pessoa.connect.data import (
    BOOLEAN,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectValue,
    Schema,
    Struct,
    Type,
    as_single,
    decimal_schema,
    java_text,
    to_millis,
)

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d\d:\d\d:\d\d\.\d{3}Z")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_FLOAT32_MAX = 3.4028234663852886e38
_DAY_MS = 86_400_000


def parse_text(text: str | None) -> tuple[Schema | None, ConnectValue]:
    """Return the schema and value that a text stands for; (None, None) for None and for the text null."""
    if text is None:
        return None, None
    if not text:
        return STRING, text
    stripped = text.strip()
    if stripped == "null":
        return None, None
    if stripped.lower() in ("true", "false"):
        return BOOLEAN, stripped.lower() == "true"
    if _NUMBER.fullmatch(stripped):
        return _parse_number(stripped)
    moment = _parse_moment(stripped)
    if moment is not None:
        return moment
    if len(stripped) > 1 and stripped[0] in '[{"':
        structured = _parse_structure(stripped)
        if structured is not None:
            return structured
    return STRING, text


def _parse_number(text: str) -> tuple[Schema, ConnectValue]:
    number = Decimal(text)
    if number == number.to_integral_value():
        whole = int(number)
        for schema, bits in ((INT8, 8), (INT16, 16), (INT32, 32), (INT64, 64)):
            if -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
                return schema, whole
        return decimal_schema(0), Decimal(whole)
    if abs(number) <= _FLOAT32_MAX:
        return FLOAT32, as_single(float(number))
    return FLOAT64, float(number)


def _parse_moment(text: str) -> tuple[Schema, ConnectValue] | None:
    try:
        if _DATE.fullmatch(text):
            return DATE_SCHEMA, date.fromisoformat(text)
        if _TIME.fullmatch(text):
            return TIME_SCHEMA, time.fromisoformat(text[:-1])
        if _TIMESTAMP.fullmatch(text):
            return TIMESTAMP_SCHEMA, datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    return None


def _parse_structure(text: str) -> tuple[Schema, ConnectValue] | None:
    try:
        value: str | list[ConnectValue] | Struct = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, str):
        return STRING, value
    if isinstance(value, list):
        return Schema(Type.ARRAY, values=_common_schema([_schema_of(one) for one in value])), value
    return Schema(Type.MAP, keys=STRING, values=_common_schema([_schema_of(one) for one in value.values()])), value


def _schema_of(value: ConnectValue) -> Schema | None:
    if isinstance(value, str):
        return STRING
    return parse_text(json.dumps(value))[0]


_WIDTHS = [INT8, INT16, INT32, INT64, FLOAT32, FLOAT64]


def _common_schema(schemas: list[Schema | None]) -> Schema | None:
    """Return one schema for all elements: their own if equal, or the widest number's; None if there is no common
    one."""
    found = set(schemas)
    if len(found) == 1:
        return schemas[0]
    if found and all(each in _WIDTHS for each in found):
        return max((each for each in schemas if each is not None), key=_WIDTHS.index)
    return None


def to_text(schema: Schema | None, value: ConnectValue) -> str | None:
    """Return the text that `parse_text` parses back to the value; a string that is not nested is returned unquoted."""
    if value is None:
        return None
    if isinstance(value, str):
        return value
    return _write_embedded(schema, value)


def _write_embedded(schema: Schema | None, value: ConnectValue) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case datetime():
            return moment_text(value)
        case date():
            return value.isoformat()
        case time():
            return value.strftime("%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return "[" + ",".join(_write_embedded(schema and schema.values, one) for one in value) + "]"
        case dict():
            pairs = (
                f"{_write_embedded(STRING, str(key))}:{_write_embedded(_schema_of_member(schema, key), one)}"
                for key, one in value.items()
            )
            return "{" + ",".join(pairs) + "}"
    return java_text(schema, value)


def moment_text(moment: datetime) -> str:
    """Return a timestamp as short as Java writes it: only a time if on the first day or before, only a date if at
    midnight."""
    millis = to_millis(moment)
    if millis < _DAY_MS:
        return moment.astimezone(UTC).strftime("%H:%M:%S.") + f"{millis % 1000:03d}Z"
    if millis % _DAY_MS == 0:
        return moment.astimezone(UTC).strftime("%Y-%m-%d")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{millis % 1000:03d}Z"


def _schema_of_member(schema: Schema | None, name: str) -> Schema | None:
    if schema is None:
        return None
    return schema.field(name) if schema.type is Type.STRUCT else schema.values

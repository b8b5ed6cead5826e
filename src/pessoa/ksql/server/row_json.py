"""Values of rows as the REST interface shows them: BYTES in base64, times as text, numbers as numbers."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence

import msgspec

from pessoa.ksql.types.sql_types import BYTES, DATE, TIME, TIMESTAMP, Array, Map, SqlType, Struct, Value
from pessoa.ksql.types.value_text import text_of

# Decimals are numbers of JSON, all digits of them.
_encoder = msgspec.json.Encoder(decimal_format="number")


def json_value(value: Value, kind: SqlType) -> object:
    """Return a value that JSON can hold."""
    if value is None:
        return None
    match kind:
        case Array(element):
            assert isinstance(value, list)
            return [json_value(one, element) for one in value]
        case Map(_, inner):
            assert isinstance(value, dict)
            return {_key(key): json_value(one, inner) for key, one in value.items()}
        case Struct(fields):
            assert isinstance(value, dict)
            return {name: json_value(value.get(name), one) for name, one in fields}
    if kind == BYTES:
        assert isinstance(value, bytes)
        return base64.b64encode(value).decode("ascii")
    if kind in (DATE, TIME, TIMESTAMP):
        return text_of(kind)(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _key(key: Value) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    return key if isinstance(key, str) else str(key)


def json_row(values: Sequence[Value], kinds: Sequence[SqlType]) -> list[object]:
    return [json_value(value, kind) for value, kind in zip(values, kinds, strict=True)]


def encode_json(value: object) -> bytes:
    return _encoder.encode(value)

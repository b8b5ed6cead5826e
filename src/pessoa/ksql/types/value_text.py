"""Values as text, as Java prints them: CAST(x AS STRING), and string literals made of other literals."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import TypeAlias, cast

from pessoa.ksql.types import time_text
from pessoa.ksql.types.sql_types import (
    DATE,
    TIME,
    TIMESTAMP,
    Array,
    Map,
    SqlType,
    Struct,
    Value,
)

ToText: TypeAlias = Callable[[Value], str]


def double_text(value: float) -> str:
    """Return a double as Java's Double.toString: 1.0, 1.0E10, 1.0E-5, Infinity, NaN."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(decimal.Decimal(repr(value)), "f")
        return text if "." in text else text + ".0"
    sign, digits, exponent = decimal.Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = exponent + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def text_of(kind: SqlType) -> ToText:
    """Return the function that prints a value of the type; None inside of a collection prints `null`."""
    match kind:
        case Array(element):
            inner = text_of(element)
            return lambda value: f"[{', '.join(_or_null(inner, one) for one in value)}]"  # type: ignore[union-attr]
        case Map(key, item):
            keys, items = text_of(key), text_of(item)
            return lambda value: "{" + ", ".join(
                f"{_or_null(keys, one)}={_or_null(items, other)}" for one, other in value.items()  # type: ignore[union-attr]
            ) + "}"  # fmt: skip
        case Struct(fields):
            printed = [(name, text_of(field)) for name, field in fields]
            # As Connect prints its structs: fields that are null are left out.
            return lambda value: "Struct{" + ",".join(
                f"{name}={inner(value[name])}" for name, inner in printed if value.get(name) is not None  # type: ignore[union-attr, index, call-overload]
            ) + "}"  # fmt: skip
    return cast("ToText", _TIMES.get(kind, plain_text))


def plain_text(value: Value) -> str:
    """Return as text a value that is neither a time nor a collection."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            from base64 import b64encode

            return b64encode(value).decode()
    return str(value)


def _or_null(inner: ToText, value: Value) -> str:
    return "null" if value is None else inner(value)


_TIMES: dict[SqlType, Callable[[int], str]] = {
    DATE: time_text.format_date,
    TIME: time_text.format_time,
    TIMESTAMP: time_text.format_timestamp,
}

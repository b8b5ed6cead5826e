"""CAST(x AS t): which casts there are, and what each does to a value; it may be an EvaluationFailure.

- To a whole number: truncated toward zero; BIGINT and DECIMAL wrap, DOUBLE stops at the ends.
- To DECIMAL: rounded half up; too large is a failure.
- From text: blanks around it do not count. To BOOLEAN: `t`, `tr`, `true`, `y`, `yes` … in any case is true, else false.
- ARRAY, MAP, STRUCT: element by element; fields that the source has not are null.
"""

from __future__ import annotations

import decimal
import math
import re
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable
from typing import TypeAlias, cast

from pessoa.ksql.types import time_text
from pessoa.ksql.types.number_arithmetic import fit_decimal, wrap_bigint, wrap_integer
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL_TYPE,
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
    is_number,
)
from pessoa.ksql.types.value_text import text_of

# Takes and gives None for null.
Caster: TypeAlias = Callable[[Value], Value]

_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_REAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?)", re.ASCII)
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_LONGEST_NUMBER = 1_000


def caster(source: SqlType, target: SqlType) -> Caster | None:
    """Return the function that casts; None if there is no such cast."""
    if source in (target, NULL_TYPE):
        return lambda value: value
    found = _scalar_caster(source, target) or _nested_caster(source, target)
    if found is None:
        return None
    return lambda value: None if value is None else found(value)


def _scalar_caster(source: SqlType, target: SqlType) -> Caster | None:
    if target == STRING:
        return None if source == BYTES else text_of(source)
    if source == STRING:
        return _from_text(target)
    if is_number(source) and is_number(target):
        return _number_caster(source, target)
    return _TIMES.get((source, target))


def _number_caster(source: SqlType, target: SqlType) -> Caster:
    if target == DOUBLE:
        return _to_double
    if isinstance(target, Decimal):
        if source == DOUBLE:
            return lambda value: fit_decimal(_to_decimal(value), target)
        return lambda value: fit_decimal(decimal.Decimal(value), target)  # type: ignore[arg-type]
    wrap, bits = (wrap_integer, 31) if target == INTEGER else (wrap_bigint, 63)
    if source == DOUBLE:
        return lambda value: _saturate(value, bits)  # type: ignore[arg-type]
    return lambda value: wrap(int(value))  # type: ignore[arg-type]


def _to_double(value: Value) -> Value:
    assert isinstance(value, (int, decimal.Decimal, float))
    return float(value)


def _to_decimal(value: Value) -> decimal.Decimal:
    assert isinstance(value, float)
    if not math.isfinite(value):
        raise EvaluationFailure(f"{value} is no DECIMAL")
    return decimal.Decimal(repr(value))


def _saturate(value: float, bits: int) -> int:
    if math.isnan(value):
        return 0
    limit = 2**bits
    return limit - 1 if value >= limit else -limit if value <= -limit else int(value)


def _from_text(target: SqlType) -> Caster | None:
    if isinstance(target, Decimal):
        return lambda value: fit_decimal(parse_decimal(value), target)  # type: ignore[arg-type]
    return cast("Caster | None", _FROM_TEXT.get(target))


def _parse_whole(text: str, bits: int) -> int:
    text = text.strip()
    if not _WHOLE.fullmatch(text) or not -(2**bits) <= int(text) < 2**bits:
        raise EvaluationFailure(f'For input string: "{text}"')
    return int(text)


def parse_integer(text: str) -> int:
    return _parse_whole(text, 31)


def parse_bigint(text: str) -> int:
    return _parse_whole(text, 63)


def parse_double(text: str) -> float:
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not _REAL.fullmatch(text):
        raise EvaluationFailure(f'For input string: "{text}"')
    if "N" in text or "I" in text:
        return float(text.lower())
    return float(text.rstrip("dDfF"))


def parse_decimal(text: str) -> decimal.Decimal:
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not _PLAIN.fullmatch(text):
        raise EvaluationFailure(f"'{text}' is no number")
    return decimal.Decimal(text)


def parse_boolean(text: str) -> bool:
    """Return True if the text is a prefix of `true` or `yes`; everything else is false."""
    text = text.strip().lower()
    return bool(text) and ("true".startswith(text) or "yes".startswith(text))


def parse_bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError):
        raise EvaluationFailure(f"'{text}' is not base64") from None


def _nested_caster(source: SqlType, target: SqlType) -> Caster | None:
    match source, target:
        case Array(from_element), Array(to_element):
            element = caster(from_element, to_element)
            return None if element is None else lambda value: [element(one) for one in value]  # type: ignore[union-attr]
        case Map(from_key, from_value), Map(to_key, to_value):
            keys, values = caster(from_key, to_key), caster(from_value, to_value)
            if keys is None or values is None:
                return None
            return lambda value: {keys(key): values(one) for key, one in value.items()}  # type: ignore[union-attr]
        case Struct(), Struct(fields):
            found: list[tuple[str, Caster | None]] = []
            for name, kind in fields:
                own = source.field(name)
                inner = None if own is None else caster(own, kind)
                if own is not None and inner is None:
                    return None
                found.append((name, inner))
            return lambda value: {
                name: None if inner is None else inner(value.get(name))  # type: ignore[union-attr]
                for name, inner in found
            }
    return None


_FROM_TEXT: dict[SqlType, Callable[[str], Value]] = {
    INTEGER: parse_integer,
    BIGINT: parse_bigint,
    DOUBLE: parse_double,
    BOOLEAN: parse_boolean,
    DATE: time_text.parse_date,
    TIME: time_text.parse_time,
    TIMESTAMP: time_text.parse_timestamp,
    BYTES: parse_bytes,
}
_TIMES: dict[tuple[SqlType, SqlType], Caster] = {
    (TIMESTAMP, DATE): lambda value: value // time_text.DAY_MS,  # type: ignore[operator]
    (TIMESTAMP, TIME): lambda value: value % time_text.DAY_MS,  # type: ignore[operator]
    (DATE, TIMESTAMP): lambda value: value * time_text.DAY_MS,  # type: ignore[operator]
}

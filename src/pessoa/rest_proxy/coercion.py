"""Scalars of another kind than the field that they stand in, as Jackson takes them. Pure.

    number   ← "7", " 7 "; "" and "null" mean null; 7.9 is 7 where a whole number is wanted
    boolean  ← "true", "True", "TRUE" and the same of false; "" and "null" mean null; 0 is false, other numbers are true
    string   ← 7 is "7", 1.50 is "1.50", true is "true"

Callers write `"partition": "0"` and `"value": 1000`, and proxies of the JVM take it. Records stay as they are: what is
raw is no field of any body.

A body that fits is never looked at here. One that does not is written anew, with its scalars turned into what their
fields want (`coerced`), and decoded once more; what is still wrong then is the caller's mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

import msgspec
from msgspec import inspect

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NULL = b"null"
_BOOLEANS = {
    "true": b"true",
    "True": b"true",
    "TRUE": b"true",
    "false": b"false",
    "False": b"false",
    "FALSE": b"false",
}
# No real number is longer, and one that is must not be written out digit by digit.
_MAX_EXPONENT = 30
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_ENCODE = msgspec.json.Encoder().encode


def coerced(body: bytes, kind: type) -> bytes:
    """Return the same JSON with its scalars converted to what the type needs. The body must be JSON."""
    return _coerce(body, _shape(kind))


@lru_cache(maxsize=64)
def _shape(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _coerce(raw: bytes, shape: inspect.Type) -> bytes:
    raw = raw.strip()
    match shape:
        case inspect.UnionType():
            return _coerce_union(raw, shape)
        case inspect.StructType() if raw.startswith(b"{"):
            return _coerce_members(raw, {field.encode_name: field.type for field in shape.fields})
        case inspect.DictType() if raw.startswith(b"{"):
            return _coerce_members(raw, {}, shape.value_type)
        case inspect.ListType() if raw.startswith(b"["):
            return _ENCODE([msgspec.Raw(_coerce(bytes(item), shape.item_type)) for item in _ITEMS.decode(raw)])
        case inspect.IntType():
            return _as_whole_number(raw)
        case inspect.BoolType():
            return _as_boolean(raw)
        case inspect.StrType():
            return _as_string(raw)
    return raw


def _coerce_members(raw: bytes, shapes: Mapping[str, inspect.Type], others: inspect.Type | None = None) -> bytes:
    found = {}
    for name, value in _MEMBERS.decode(raw).items():
        shape = shapes.get(name, others)
        found[name] = value if shape is None else msgspec.Raw(_coerce(bytes(value), shape))
    return _ENCODE(found)


def _coerce_union(raw: bytes, union: inspect.UnionType) -> bytes:
    """Return the value as it is if it fits a member of the union; else converted to the first scalar member that it
    can be converted to."""
    shapes = [shape for shape in union.types if not isinstance(shape, inspect.NoneType)]
    if any(_fits(raw, shape) for shape in shapes if isinstance(shape, _SCALARS)):
        return raw
    for shape in shapes:
        found = _coerce(raw, shape)
        if found != raw:
            return found
    return raw


_SCALARS = (inspect.IntType, inspect.BoolType, inspect.StrType)


def _fits(raw: bytes, shape: inspect.Type) -> bool:
    if isinstance(shape, inspect.StrType):
        return raw.startswith(b'"')
    if isinstance(shape, inspect.BoolType):
        return raw in (b"true", b"false")
    return _WHOLE.fullmatch(raw.decode()) is not None


def _as_whole_number(raw: bytes) -> bytes:
    if raw.startswith(b'"'):
        text = _TEXT.decode(raw).strip()
        if text in ("", "null"):
            return _NULL
        return str(int(text)).encode() if _WHOLE.fullmatch(text) and len(text) <= _MAX_EXPONENT else raw
    if raw[:1] in b"-0123456789":
        number = Decimal(raw.decode())
        if number.is_finite() and number.adjusted() <= _MAX_EXPONENT:
            return str(int(number)).encode()
    return raw


def _as_boolean(raw: bytes) -> bytes:
    if raw.startswith(b'"'):
        text = _TEXT.decode(raw).strip()
        return _NULL if text in ("", "null") else _BOOLEANS.get(text, raw)
    if _WHOLE.fullmatch(raw.decode()):
        return b"false" if int(raw) == 0 else b"true"
    return raw


def _as_string(raw: bytes) -> bytes:
    is_scalar = raw in (b"true", b"false") or raw[:1] in b"-0123456789"
    return _ENCODE(raw.decode()) if is_scalar else raw

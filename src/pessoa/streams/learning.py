"""The columns of JSON records without a schema, learnt from some of them.

Enough for a first look at a topic, and for short examples. A field has the widest type that was seen, BIGINT or DOUBLE
for numbers and STRING for what does not agree; one that was always null is a STRING. A pipeline that is to last should
be told its schema, since a field that the sample lacks does not exist for it.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeAlias

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.pipelines.columns import struct_of, write_columns

# What the type of a field is when two records disagree.
_WIDER = {frozenset(("BIGINT", "DOUBLE")): "DOUBLE"}
UNKNOWN = "VOID"
# A type: text, a dict of fields for an object, a list of one type for an array.
Kind: TypeAlias = "str | dict[str, Kind] | list[Kind]"


def learn_columns(samples: Iterable[bytes | None]) -> str:
    """Return the columns of JSON samples in Spark's notation; "" if no sample is a JSON object."""
    found: dict[str, Kind] = {}
    for sample in samples:
        try:
            value: JsonValue = None if sample is None else json.loads(sample)
        except ValueError:
            continue
        if isinstance(value, dict):
            _merge(found, value)
    return _columns(found)


def _merge(found: dict[str, Kind], value: JsonObject) -> None:
    for name, each in value.items():
        found[name] = _widen(found.get(name, UNKNOWN), _kind(each))


def _kind(value: JsonValue) -> Kind:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, str):
        return "STRING"
    if isinstance(value, dict):
        fields: dict[str, Kind] = {}
        _merge(fields, value)
        return fields
    element: Kind = UNKNOWN
    for each in value:
        element = _widen(element, _kind(each))
    return [element]


def _widen(one: Kind, other: Kind) -> Kind:
    if one in (UNKNOWN, other):
        return other
    if other == UNKNOWN:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _widen(one.get(name, UNKNOWN), other.get(name, UNKNOWN)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [_widen(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str):
        return _WIDER.get(frozenset((one, other)), "STRING")
    return "STRING"


def _columns(fields: dict[str, Kind]) -> str:
    return write_columns((name, _text(kind)) for name, kind in fields.items())


def _text(kind: Kind) -> str:
    if kind == UNKNOWN or kind == {}:
        return "STRING"
    if isinstance(kind, dict):
        return struct_of(_columns(kind))
    if isinstance(kind, list):
        return f"ARRAY<{_text(kind[0])}>"
    return str(kind)

"""The types that the formats of keys and values can hold.

| format | key | value | several columns | nested types | schema registry |
|---|---|---|---|---|---|
| NONE | yes | no | none at all | | |
| KAFKA | yes | yes | no | no | |
| DELIMITED | yes | yes | yes | no | |
| JSON | yes | yes | yes | yes | |
| JSON_SR, AVRO, PROTOBUF | yes | yes | yes | yes | yes |
| PROTOBUF_NOSR | yes | yes | yes | yes | |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pessoa.ksql.analysis.source_catalogue import SchemaColumn
from pessoa.ksql.ksql_errors import NOWHERE, Position, SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.types.sql_types import BIGINT, DOUBLE, INTEGER, STRING, Array, Map, SqlType, Struct


@dataclass(frozen=True)
class Format:
    name: str
    several: bool = True
    nested: bool = True
    registry: bool = False
    # Whether WRAP_SINGLE_VALUE can be chosen.
    wrapping: bool = False


FORMATS = {
    one.name: one
    for one in (
        Format("NONE", several=False),
        Format("KAFKA", several=False, nested=False),
        Format("DELIMITED", nested=False),
        Format("JSON", wrapping=True),
        Format("JSON_SR", registry=True, wrapping=True),
        Format("AVRO", registry=True, wrapping=True),
        Format("PROTOBUF", registry=True),
        Format("PROTOBUF_NOSR"),
    )
}
_KAFKA_TYPES = (INTEGER, BIGINT, DOUBLE, STRING)


def find_format(name: str, at: Position = NOWHERE) -> Format:
    found = FORMATS.get(name.upper())
    if found is None:
        raise SemanticFailure(
            f"Unknown format: {name.upper()}",
            at,
            hint=did_you_mean(name, FORMATS) or f"Formats are {', '.join(FORMATS)}.",
        )
    return found


def has_map(kind: SqlType) -> bool:
    match kind:
        case Map():
            return True
        case Array(element):
            return has_map(element)
        case Struct(fields):
            return any(has_map(one) for _, one in fields)
    return False


def _can_hold(found: Format, allowed: tuple[SqlType, ...] | None, kind: SqlType) -> bool:
    if allowed is not None:
        return kind in allowed
    return found.nested or not isinstance(kind, (Array, Map, Struct))


def _nested_twice(column: SchemaColumn) -> str:
    """Return the column if an array or a map in it has one inside; "" if not. Protobuf has no such fields."""

    def bad(kind: SqlType) -> bool:
        match kind:
            case Array(inner) | Map(_, inner):
                return isinstance(inner, (Array, Map)) or bad(inner)
            case Struct(fields):
                return any(bad(one) for _, one in fields)
        return False

    return str(column) if bad(column.type) else ""


def _base_name(kind: SqlType) -> str:
    """Return a type's name without its parameters: ARRAY, DECIMAL."""
    return re.split(r"[<(]", str(kind))[0]


def check_columns(format_name: str, columns: tuple[SchemaColumn, ...], side: str, at: Position = NOWHERE) -> None:
    """Raise if the format cannot hold the columns. `side` is Key or Value."""
    found = find_format(format_name, at)
    shown = ", ".join(map(str, columns))
    if side == "Key":
        for column in columns:
            if has_map(column.type):
                raise SemanticFailure(
                    f"Map keys, including types that contain maps, are not supported as keys: {column}", at
                )
    if not columns:
        return
    if found.name == "NONE":
        raise SemanticFailure(f"{side} format NONE cannot have columns: {shown}", at)
    problem = ""
    if found.name.startswith("PROTOBUF") and (bad_name := next(filter(None, map(_nested_twice, columns)), "")):
        problem = f"The '{found.name}' format does not support arrays or maps in arrays or maps: {bad_name}"
    elif not found.several and len(columns) > 1:
        problem = f"The '{found.name}' format only supports a single field. Got: {shown}"
    else:
        allowed = _KAFKA_TYPES if found.name == "KAFKA" else None
        bad = [one.type for one in columns if not _can_hold(found, allowed, one.type)]
        if bad:
            problem = f"The '{found.name}' format does not support type '{_base_name(bad[0])}'"
    if problem:
        raise SemanticFailure(f"{side} format does not support schema.\nformat: {found.name}\nreason: {problem}", at)

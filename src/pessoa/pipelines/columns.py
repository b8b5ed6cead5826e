"""Columns as Spark writes them down: "id BIGINT, itens ARRAY<STRUCT<nome: STRING, preco: DECIMAL(10,2)>>".

Only as much of that notation as the plan needs: which columns there are, and the text of each one's type. Whether a
type exists is for Spark to say. Names with odd characters stand in backticks, doubled within a name.

`columns_of` and `type_of` write the notation for Python's own types, so that a dataclass can stand for a schema.

Pure.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pessoa.pipelines.plan import PlanRefused

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:<>,`]+))\s*:?\s*")
_TRAILER = re.compile(r"\s+(?:NOT\s+NULL|COMMENT\s+'(?:[^'\\]|\\.)*')\s*\Z", re.IGNORECASE)
_SHALLOW_TYPES = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BINARY",
    datetime.datetime: "TIMESTAMP",
    datetime.date: "DATE",
    decimal.Decimal: "DECIMAL(38,18)",
}
# What a user may say for a schema.
Schema = str | Mapping[str, object] | type


class Named(NamedTuple):
    name: str
    type: str


def quote_name(name: str) -> str:
    """Return a column name quoted for use in an expression."""
    return name if _PLAIN.match(name) else "`" + name.replace("`", "``") + "`"


def read_columns(text: str) -> list[Named]:
    columns = [_read_column(part, text) for part in _split(text) if part.strip()]
    names = [column.name.lower() for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise PlanRefused(f"the column {name} stands twice in: {text}")
    return columns


def write_columns(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{quote_name(name)} {type_}" for name, type_ in columns)


def struct_of(columns: str) -> str:
    """Return the STRUCT type of a value that has these columns."""
    return "STRUCT<" + ", ".join(f"{quote_name(name)}: {type_}" for name, type_ in read_columns(columns)) + ">"


def struct_fields(type_: str) -> str | None:
    """Return the columns of a STRUCT type; None for any other type."""
    trimmed = type_.strip()
    if not trimmed.upper().startswith("STRUCT") or not trimmed.endswith(">"):
        return None
    return write_columns(read_columns(trimmed[trimmed.index("<") + 1 : -1]))


def array_element(type_: str) -> str | None:
    trimmed = type_.strip()
    if not trimmed.upper().startswith("ARRAY") or not trimmed.endswith(">"):
        return None
    return trimmed[trimmed.index("<") + 1 : -1].strip()


def columns_of(schema: Schema) -> str:
    """Return the columns of a schema: a dataclass, a mapping of names to types, or Spark's own notation."""
    if isinstance(schema, str):
        return write_columns(read_columns(schema))
    if isinstance(schema, Mapping):
        return write_columns((name, _type_or_text(each, name)) for name, each in schema.items())
    if dataclasses.is_dataclass(schema):
        return write_columns((field, type_of(hint, field)) for field, hint in _fields(schema))
    raise PlanRefused(
        f"{schema!r} is no schema: give a dataclass, a mapping of names to types, or columns as Spark writes them"
    )


def type_of(hint: object, where: str = "") -> str:
    """Return Spark's type for a Python type. Everything may be null, so `X | None` is X."""
    if hint in _SHALLOW_TYPES:
        return _SHALLOW_TYPES[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return struct_of(columns_of(hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        members = [each for each in arguments if each is not type(None)]
        if len(members) == 1:
            return type_of(members[0], where)
    if origin in (list, tuple, set) and arguments:
        return f"ARRAY<{type_of(arguments[0], where)}>"
    if origin is dict:
        return f"MAP<{type_of(arguments[0], where)}, {type_of(arguments[1], where)}>"
    if origin is typing.Annotated:
        # The way to say DECIMAL(10,2) or INT: Annotated[int, "INT"].
        texts = [each for each in typing.get_args(hint)[1:] if isinstance(each, str)]
        return texts[0] if texts else type_of(arguments[0], where)
    place = f"{where}: " if where else ""
    raise PlanRefused(f'{place}{hint!r} has no type in Spark; Annotated[…, "DECIMAL(10,2)"] names one')


def _fields(schema: type) -> list[tuple[str, object]]:
    hints = typing.get_type_hints(schema, include_extras=True)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(schema)]


def _type_or_text(each: object, name: str) -> str:
    return each if isinstance(each, str) else type_of(each, name)


def _split(text: str) -> list[str]:
    """Return the parts of the text between the commas that are in no bracket, backtick or quote."""
    parts, depth, start, quote = [], 0, 0, ""
    for position, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'":
            quote = letter
        elif letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth or quote:
        raise PlanRefused(f"brackets or quotes are left open in the columns: {text}")
    return [*parts, text[start:]]


def _read_column(part: str, whole: str) -> Named:
    match = _NAME.match(part)
    type_ = part[match.end() :].strip() if match else ""
    while trailer := _TRAILER.search(" " + type_):
        type_ = (" " + type_)[: trailer.start()].strip()
    if match is None or not type_:
        raise PlanRefused(f"{part.strip()!r} is no column with a type (a STRING, b DOUBLE, …), in: {whole}")
    return Named(match[1].replace("``", "`") if match[1] else match[2], type_)

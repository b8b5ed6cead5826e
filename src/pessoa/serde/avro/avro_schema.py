"""An Avro schema as values: what parsing.py makes, what printing.py and the compatibility rules read.

Named types (record, enum, fixed) carry their full name and are compared by identity; a recursive record simply contains
itself. `properties` are the attributes that the specification does not know (logicalType among them), in the order of
the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from pessoa.base.json_value import JsonObject, JsonValue

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Missing(Enum):
    """Stands for the default of a field that has none; null is a default like any other."""

    MISSING = "missing"


MISSING = Missing.MISSING


@dataclass(slots=True, eq=False)
class Primitive:
    kind: str
    properties: JsonObject = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Array:
    items: AvroType
    properties: JsonObject = field(default_factory=dict)
    kind: str = "array"


@dataclass(slots=True, eq=False)
class Map:
    values: AvroType
    properties: JsonObject = field(default_factory=dict)
    kind: str = "map"


@dataclass(slots=True, eq=False)
class Union:
    branches: list[AvroType]
    kind: str = "union"


@dataclass(slots=True, eq=False)
class Fixed:
    name: str
    size: int
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)
    properties: JsonObject = field(default_factory=dict)
    kind: str = "fixed"


@dataclass(slots=True, eq=False)
class EnumType:
    name: str
    symbols: list[str]
    default: str | None = None
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)
    properties: JsonObject = field(default_factory=dict)
    kind: str = "enum"


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: AvroType
    default: JsonValue | Missing = MISSING
    order: str = "ascending"
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)
    properties: JsonObject = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Record:
    name: str
    fields: list[Field] = field(default_factory=list)
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)
    properties: JsonObject = field(default_factory=dict)
    # "error" is a record that a protocol throws.
    kind: str = "record"


NamedType: TypeAlias = Record | EnumType | Fixed
AvroType: TypeAlias = Primitive | Array | Map | Union | Record | EnumType | Fixed


def namespace_of(full_name: str) -> str:
    return full_name.rpartition(".")[0]


def simple_name(full_name: str) -> str:
    return full_name.rpartition(".")[2]

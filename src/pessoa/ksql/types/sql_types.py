"""The types of columns and expressions, as values.

| SQL | class | a value in Python |
|---|---|---|
| BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, BYTES | `Primitive` | bool, int, int, float, str, bytes |
| DATE, TIME, TIMESTAMP | `Primitive` | days since 1970, milliseconds of the day, milliseconds since 1970: int |
| DECIMAL(p, s) | `Decimal` | decimal.Decimal with s digits behind the point |
| ARRAY<t>, MAP<k, v>, STRUCT<f t, …> | `Array`, `Map`, `Struct` | list, dict, dict by field name |
| a name given by CREATE TYPE | `CustomType` | resolved by analysis, has no values |

NULL is None in every type; the type of a bare NULL is `NULL_TYPE`, which fits everywhere.
"""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass
from typing import TypeAlias

# What a value of any SQL type is in Python.
Value: TypeAlias = "bool | int | float | decimal.Decimal | str | bytes | list[Value] | dict[Value, Value] | None"


class EvaluationFailure(Exception):
    """An expression cannot be computed for a value: the selected column becomes null and the row is kept.

    The message goes to the processing log.
    """


class SqlType:
    """An SQL type; equal types are equal values. `str()` gives SQL."""


@dataclass(frozen=True)
class Primitive(SqlType):
    name: str

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal(SqlType):
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True)
class Array(SqlType):
    element: SqlType

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True)
class Map(SqlType):
    key: SqlType
    value: SqlType

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True)
class Struct(SqlType):
    fields: tuple[tuple[str, SqlType], ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(f'{quoted(name)} {kind}' for name, kind in self.fields)}>"

    def field(self, name: str) -> SqlType | None:
        return next((kind for own, kind in self.fields if own == name), None)


@dataclass(frozen=True)
class CustomType(SqlType):
    name: str

    def __str__(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True)
class Lambda(SqlType):
    """The type of an argument such as `(x, y) => x + y`; no column has it."""

    arguments: tuple[SqlType, ...]
    result: SqlType

    def __str__(self) -> str:
        return f"LAMBDA ({', '.join(map(str, self.arguments))}) => {self.result}"


BOOLEAN = Primitive("BOOLEAN")
INTEGER = Primitive("INTEGER")
BIGINT = Primitive("BIGINT")
DOUBLE = Primitive("DOUBLE")
STRING = Primitive("STRING")
BYTES = Primitive("BYTES")
DATE = Primitive("DATE")
TIME = Primitive("TIME")
TIMESTAMP = Primitive("TIMESTAMP")
NULL_TYPE = Primitive("NULL")
# The first argument of DATEADD and its like: DAYS, HOURS, …
INTERVAL_UNIT = Primitive("INTERVALUNIT")

PRIMITIVES = {
    kind.name: kind for kind in (BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, BYTES, DATE, TIME, TIMESTAMP)
} | {"INT": INTEGER, "VARCHAR": STRING}  # fmt: skip

TIMES = (DATE, TIME, TIMESTAMP)

_PLAIN = re.compile(r"[A-Z_][A-Z0-9_@]*")


def quoted(name: str) -> str:
    """Return the name in back-quotes, as schemas are printed."""
    return "`" + name.replace("`", "``") + "`"


def is_number(kind: SqlType) -> bool:
    return kind in (INTEGER, BIGINT, DOUBLE) or isinstance(kind, Decimal)


def as_decimal(kind: SqlType) -> Decimal | None:
    """Return the DECIMAL that holds every value of an exact number; None for other types."""
    if kind == INTEGER:
        return Decimal(10, 0)
    if kind == BIGINT:
        return Decimal(19, 0)
    return kind if isinstance(kind, Decimal) else None

"""Formats of keys and values, with the Python type that a function gets to see.

    json(Venda)                  a dataclass; functions get its instances, and mypy knows
    json("produto STRING, valor DOUBLE"), json({"produto": str, "valor": float})
    avro(), protobuf()           what the schema registry has for the topic; to a topic: made of the columns
    delimited("a INT, b STRING", delimiter=";")
    string, integer, long, double, floating, short, boolean, raw, nothing

`serde(…)` makes one of what a user may write in its place: a dataclass, a mapping, columns as text, or the name of a
primitive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, overload

from pessoa.pipelines.columns import Schema, columns_of
from pessoa.pipelines.plan import NOTHING, PRIMITIVES, Format

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
# What a function gets for a value of several columns; what each column holds is for the function to know.
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Serde(Generic[T_co]):
    format: Format
    # The dataclass of its values, if they are of one.
    type: type[T_co] | None = None


string: Serde[str] = Serde(Format("string"))
short: Serde[int] = Serde(Format("short"))
integer: Serde[int] = Serde(Format("int"))
long: Serde[int] = Serde(Format("long"))
floating: Serde[float] = Serde(Format("float"))
double: Serde[float] = Serde(Format("double"))
boolean: Serde[bool] = Serde(Format("boolean"))
raw: Serde[bytes] = Serde(Format("bytes"))
nothing: Serde[None] = Serde(Format(NOTHING))
# JSON whose columns are learnt from the topic's first records, where no schema is at hand.
learnt: Serde[Row] = Serde(Format("json"))


@overload
def json(schema: type[T]) -> Serde[T]: ...
@overload
def json(schema: str | Mapping[str, object] | None = None) -> Serde[Row]: ...
def json(schema: Schema | None = None) -> Serde[object]:
    return learnt if schema is None else Serde(Format("json", columns_of(schema)), _dataclass(schema))


@overload
def delimited(schema: type[T], delimiter: str = ",") -> Serde[T]: ...
@overload
def delimited(schema: str | Mapping[str, object] = "", delimiter: str = ",") -> Serde[Row]: ...
def delimited(schema: Schema = "", delimiter: str = ",") -> Serde[object]:
    columns = columns_of(schema) if schema else ""
    return Serde(Format("delimited", columns, delimiter=delimiter), _dataclass(schema))


def avro(schema: str = "", *, subject: str = "") -> Serde[Row]:
    """Return the serde for Avro with the schema registry: the latest schema of the subject, or the given one."""
    return Serde(Format("avro", schema=schema, subject=subject))


def protobuf(schema: str = "", *, message: str = "", subject: str = "") -> Serde[Row]:
    return Serde(Format("protobuf", schema=schema, subject=subject, message=message))


def serde(given: Serde[object] | Schema | None) -> Serde[object]:
    if given is None:
        return learnt
    if isinstance(given, Serde):
        return given
    if isinstance(given, str) and (given in PRIMITIVES or given == NOTHING):
        return Serde(Format(given))
    return json(given)


def _dataclass(schema: Schema) -> type | None:
    return schema if isinstance(schema, type) else None

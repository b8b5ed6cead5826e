"""Pairs of Avro schemas: old, new, whether the new one reads the old one's data, whether the old one reads the new
one's, and why. From the resolution rules of the Avro specification."""

from __future__ import annotations

import json
from typing import Any

Pair = tuple[str, str, bool, bool, str]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Return a record schema; fields are (name, type) or (name, type, default)."""
    written = [{"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {}) for each in fields]
    return {"type": "record", "name": name, "fields": written, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def values(of: Any) -> dict[str, Any]:
    return {"type": "map", "values": of}


def aliased(name: str, kind: Any, *aliases: str) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind, "aliases": list(aliases)}]}


X = ("x", "int")
NODE = record(("v", "int"), ("next", ["null", "R"], None))
TREE = record(("v", "long"), ("next", ["null", "R"], None))

_PAIRS: list[tuple[Any, Any, bool, bool, str]] = [
    # Primitives and promotion.
    *((kind, kind, True, True, f"{kind} is {kind}") for kind in
      ("null", "boolean", "int", "long", "float", "double", "bytes", "string")),
    ("int", "long", True, False, "int is promoted to long, never the other way"),
    ("int", "float", True, False, "int is promoted to float"),
    ("int", "double", True, False, "int is promoted to double"),
    ("long", "float", True, False, "long is promoted to float"),
    ("long", "double", True, False, "long is promoted to double"),
    ("float", "double", True, False, "float is promoted to double"),
    ("string", "bytes", True, True, "string and bytes are read as each other"),
    ("int", "string", False, False, "numbers are no strings"),
    ("int", "boolean", False, False, "numbers are no booleans"),
    ("null", "int", False, False, "null is no number"),
    ("boolean", "string", False, False, "booleans are no strings"),
    ("double", "bytes", False, False, "numbers are no bytes"),
    ({"type": "int", "logicalType": "date"}, "int", True, True, "a logical type does not change the bytes"),
    ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"}, True,
     True, "resolution does not look at logical types"),
    ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}, True, False,
     "promotion holds under logical types"),
    # Records.
    (record(X), record(X), True, True, "the same record"),
    (record(X), record(X, doc="said"), True, True, "documentation does not matter"),
    (record(X), record(X, ("y", "int", 0)), True, True, "a new field has a default; the old reader skips it"),
    (record(X), record(X, ("y", "int")), False, True, "a new field without default is missing in old data"),
    (record(X, ("y", "int", 0)), record(X), True, True, "a field that goes is skipped, and had a default"),
    (record(X, ("y", "int")), record(X), True, False, "the old reader misses a field that has no default"),
    (record(X), record(("y", "int")), False, False, "renaming without alias is removing and adding"),
    (record(X), record(("y", "int", 0)), True, False, "renamed with default: the new side fills it in"),
    (record(X), aliased("y", "int", "x"), True, False, "an alias of the reader finds the old name; not backwards"),
    (record(X), aliased("y", "int", "z"), False, False, "an alias that is not the old name does not help"),
    (record(X), record(("x", "long")), True, False, "the field is promoted"),
    (record(X), record(("x", "string")), False, False, "the type of the field has changed"),
    (record(X), record(("x", "int", 5)), True, True, "a default may be added"),
    (record(("x", "int", 5)), record(("x", "int", 6)), True, True, "a default may change"),
    (record(X, ("y", "int")), record(("y", "int"), X), True, True, "fields are found by name, not by place"),
    (record(), record(X), False, True, "old data has no such field"),
    (record(), record(("x", "int", 0)), True, True, "old data has none, the default is used"),
    (record(("x", ["null", "int"], None)), record(X), False, True, "old nulls cannot be read as int"),
    (record(X), record(("x", ["null", "int"], None)), True, False, "int is a branch; the old side cannot read null"),
    (record(X), record(("x", ["int", "null"], 0)), True, False, "the order of branches does not matter for reading"),
    (record(X), record(("x", ["null", "string"], None)), False, False, "int is no branch of the union"),
    (record(X, name="A"), record(X, name="B"), False, False, "another name is another record"),
    (record(X, name="A"), record(X, name="B", aliases=["A"]), True, False, "the alias of the reader is the old name"),
    (record(X, name="a.R"), record(X, name="b.R"), True, True, "only the unqualified name counts"),
    (record(X), enum("A", name="R"), False, False, "a record is no enum"),
    (record(X), "int", False, False, "a record is no number"),
    (record(X), values("int"), False, False, "a record is no map"),
    (record(("r", record(X, name="I"))), record(("r", record(X, ("y", "int", 0), name="I"))), True, True,
     "a nested record follows the same rules"),
    (record(("r", record(X, name="I"))), record(("r", record(X, ("y", "int"), name="I"))), False, True,
     "a nested record misses a default"),
    (record(("r", record(X, name="I"))), record(("r", record(X, name="J"))), False, False,
     "a nested record has another name"),
    # Enums.
    (enum("A", "B"), enum("A", "B"), True, True, "the same symbols"),
    (enum("A", "B"), enum("B", "A"), True, True, "symbols are found by name"),
    (enum("A", "B"), enum("A", "B", "C"), True, False, "the old side does not know C"),
    (enum("A", "B", "C"), enum("A", "B"), False, True, "the new side does not know C"),
    (enum("A", "B", "C"), enum("A", "B", default="A"), True, True, "an unknown symbol becomes the reader's default"),
    (enum("A", "B", default="A"), enum("A", "B", "C"), True, True, "the old side has a default for C"),
    (enum("A"), enum("B"), False, False, "no symbol in common"),
    (enum("A", name="E"), enum("A", name="D"), False, False, "another name is another enum"),
    (enum("A", name="E"), enum("A", name="D", aliases=["E"]), True, False, "the alias is the old name"),
    (enum("A"), "string", False, False, "an enum is no string in the bytes"),
    (record(("e", enum("A"))), record(("e", enum("A", "B"))), True, False, "the same within a field"),
    # Fixed.
    (fixed(4), fixed(4), True, True, "the same size"),
    (fixed(4), fixed(8), False, False, "another size"),
    (fixed(4, "F"), fixed(4, "G"), False, False, "another name"),
    (fixed(4, "F"), fixed(4, "G", aliases=["F"]), True, False, "the alias is the old name"),
    (fixed(4), "bytes", False, False, "fixed has no length in front, bytes do"),
    # Arrays and maps.
    (array("int"), array("int"), True, True, "the same items"),
    (array("int"), array("long"), True, False, "items are promoted"),
    (array("int"), array("string"), False, False, "items of another type"),
    (array("int"), array(["null", "int"]), True, False, "items may now be null"),
    (array(record(X)), array(record(X, ("y", "int", 0))), True, True, "records within follow their rules"),
    (array("int"), "int", False, False, "an array is no number"),
    (array("int"), values("int"), False, False, "an array is no map"),
    (values("int"), values("int"), True, True, "the same values"),
    (values("int"), values("double"), True, False, "values are promoted"),
    (values("int"), values("boolean"), False, False, "values of another type"),
    (values(array("int")), values(array("long")), True, False, "however deep it is"),
    # Unions.
    (["int", "string"], ["int", "string"], True, True, "the same branches"),
    (["int", "string"], ["string", "int"], True, True, "in another order"),
    (["int"], ["int", "string"], True, False, "the old side cannot read strings"),
    (["int", "string"], ["int"], False, True, "the new side cannot read strings"),
    ("int", ["int", "string"], True, False, "a branch fits; the old side cannot read strings"),
    (["int", "string"], "int", False, True, "strings cannot be read as int"),
    ("int", ["long", "string"], True, False, "a branch fits by promotion"),
    (["int", "long"], "long", True, True, "every branch is promoted; long is a branch of the old union"),
    (["null"], ["null", "int"], True, False, "more branches"),
    ("null", ["null", "int"], True, False, "null is a branch"),
    ("int", ["null", "string"], False, False, "no branch fits"),
    (["string"], ["bytes"], True, True, "strings are read as bytes in a union too"),
    (["null", record(X)], ["null", record(X, ("y", "int", 0))], True, True, "a record branch follows its rules"),
    (["null", record(X)], ["null", record(X, ("y", "int"))], False, True, "a record branch misses a default"),
    (["null", record(X, name="A")], ["null", record(X, name="B")], False, False, "a branch of another name"),
    (["null", enum("A")], ["null", enum("A", "B")], True, False, "an enum branch follows its rules"),
    (array(["int", "null"]), array(["null", "int", "string"]), True, False, "a union of items grows"),
    # Recursion.
    (NODE, NODE, True, True, "a recursive record reads itself"),
    (NODE, TREE, True, False, "a recursive record is promoted all the way down"),
    (NODE, record(("v", "int"), ("next", ["null", "R"], None), ("more", "int", 0)), True, True,
     "a recursive record gains a default"),
    (NODE, record(("v", "string"), ("next", ["null", "R"], None)), False, False, "a recursive record changes a type"),
]  # fmt: skip

PAIRS: list[Pair] = [
    (json.dumps(old), json.dumps(new), backward, forward, why) for old, new, backward, forward, why in _PAIRS
]

"""The text of an Avro schema into values, with every rule of the specification that a registry must enforce.

Names are resolved while reading: a name without dots belongs to the enclosing namespace. `known` are the named types of
schemas that this one refers to; it may use them and not define them again.

Defaults are checked against their types, since a default that does not fit breaks a reader years later. A union's
default may fit any of its branches, as Avro has it since 1.11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TypeGuard

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.serde.avro.avro_schema import (
    MISSING,
    PRIMITIVES,
    Array,
    AvroType,
    EnumType,
    Field,
    Fixed,
    Map,
    NamedType,
    Primitive,
    Record,
    Union,
    namespace_of,
)
from pessoa.serde.json_text import read_json
from pessoa.serde.schema_problems import SchemaProblem

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ORDERS = ("ascending", "descending", "ignore")
_RECORD_KEYS = {"type", "name", "namespace", "doc", "aliases", "fields"}
_FIELD_KEYS = {"name", "type", "doc", "default", "order", "aliases"}
_ENUM_KEYS = {"type", "name", "namespace", "doc", "aliases", "symbols", "default"}
_FIXED_KEYS = {"type", "name", "namespace", "doc", "aliases", "size"}
_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
# By the identity of a record and of a value, both of which live as long as the schema.
Verdicts = dict[tuple[int, int], bool]


def parse_avro(text: str, known: Mapping[str, NamedType] | None = None) -> tuple[AvroType, dict[str, NamedType]]:
    """Return the schema, and the named types that it defines itself."""
    try:
        tree = read_json(text)
    except ValueError as wrong:
        raise SchemaProblem(f"not JSON: {wrong}") from None
    except RecursionError:
        raise SchemaProblem("nested too deeply") from None
    parser = _Parser(dict(known or {}))
    try:
        parsed = parser.type_of(tree, "")
        parser.check_defaults()
    except RecursionError:
        raise SchemaProblem("nested too deeply") from None
    return parsed, parser.defined


class _Parser:
    def __init__(self, known: dict[str, NamedType]) -> None:
        self._known_types = known
        self.defined: dict[str, NamedType] = {}
        # Checked at the end: a default may need a type that is defined further down.
        self._defaults: list[tuple[str, AvroType, JsonValue]] = []

    def type_of(self, tree: JsonValue, namespace: str) -> AvroType:
        if isinstance(tree, str):
            return self._by_name(tree, namespace)
        if isinstance(tree, list):
            return self._union(tree, namespace)
        if not isinstance(tree, dict):
            raise SchemaProblem(f"a schema is a name, a list or an object, and not {json.dumps(tree)}")
        if "type" not in tree:
            raise SchemaProblem(f"there is no type in {_short(tree)}")
        kind = tree["type"]
        if isinstance(kind, dict | list):
            return self.type_of(kind, namespace)
        match kind:
            case "record" | "error":
                return self._record(tree, kind, namespace)
            case "enum":
                return self._enum(tree, namespace)
            case "fixed":
                return self._fixed(tree, namespace)
            case "array":
                return Array(self._element_type(tree, "items", namespace), _other_properties(tree, {"type", "items"}))
            case "map":
                return Map(self._element_type(tree, "values", namespace), _other_properties(tree, {"type", "values"}))
        if kind in PRIMITIVES:
            return Primitive(kind, _other_properties(tree, {"type"}))
        if isinstance(kind, str):
            return self._by_name(kind, namespace)
        raise SchemaProblem(f"{json.dumps(kind)} is no type")

    def _element_type(self, tree: JsonObject, key: str, namespace: str) -> AvroType:
        if key not in tree:
            raise SchemaProblem(f'an {tree["type"]} needs "{key}": {_short(tree)}')
        return self.type_of(tree[key], namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.defined.get(full) or self._known_types.get(full)
        if found is None and "." not in name:
            # Java's parser falls back to the null namespace.
            found = self.defined.get(name) or self._known_types.get(name)
        if found is None:
            raise SchemaProblem(f"nothing is called {name} here")
        return found

    def _union(self, tree: list[JsonValue], namespace: str) -> Union:
        branches = [self.type_of(each, namespace) for each in tree]
        seen = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise SchemaProblem("a union may not contain another union directly")
            key = branch.name if isinstance(branch, Record | EnumType | Fixed) else branch.kind
            if key in seen:
                raise SchemaProblem(f"the union has {key} twice")
            seen.add(key)
        return Union(branches)

    # Named types.

    def _name_of(self, tree: JsonObject, namespace: str) -> str:
        name = tree.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaProblem(f"there is no name in {_short(tree)}")
        if "." not in name:
            space = tree.get("namespace", namespace)
            if space is None:
                space = ""
            if not isinstance(space, str):
                raise SchemaProblem(f"the namespace of {name} is not a string")
            name = f"{space}.{name}" if space else name
        for part in name.split("."):
            if not _NAME.match(part):
                raise SchemaProblem(f"{name} is no name: a name is made of letters, digits and _, no digit first")
        if name in PRIMITIVES:
            raise SchemaProblem(f"{name} is the name of a primitive type")
        return name

    def _define(self, named: NamedType) -> None:
        if named.name in self.defined or named.name in self._known_types:
            raise SchemaProblem(f"{named.name} is defined twice")
        self.defined[named.name] = named

    def _record(self, tree: JsonObject, kind: str, namespace: str) -> Record:
        name = self._name_of(tree, namespace)
        space = namespace_of(name)
        record = Record(name, [], _doc(tree), _aliases(tree, space), _other_properties(tree, _RECORD_KEYS), kind)
        self._define(record)
        fields = tree.get("fields")
        if not isinstance(fields, list):
            raise SchemaProblem(f"the record {name} has no list of fields")
        seen: set[str] = set()
        for each in fields:
            field = self._field(each, name, space)
            if field.name in seen:
                raise SchemaProblem(f"the record {name} has two fields {field.name}")
            seen.add(field.name)
            record.fields.append(field)
        return record

    def _field(self, tree: JsonValue, record: str, namespace: str) -> Field:
        name = tree.get("name") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(name, str):
            raise SchemaProblem(f"a field of {record} has no name: {_short(tree)}")
        if not _NAME.match(name):
            raise SchemaProblem(f"{name} cannot be the name of a field, in {record}")
        if "type" not in tree:
            raise SchemaProblem(f"the field {record}.{name} has no type")
        order = tree.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise SchemaProblem(f"the order of {record}.{name} is not one of {', '.join(_ORDERS)}")
        kind = self.type_of(tree["type"], namespace)
        if "default" in tree:
            self._defaults.append((f"{record}.{name}", kind, tree["default"]))
        return Field(
            name,
            kind,
            tree.get("default", MISSING),
            order.lower(),
            _doc(tree),
            _aliases(tree, ""),
            _other_properties(tree, _FIELD_KEYS),
        )

    def _enum(self, tree: JsonObject, namespace: str) -> EnumType:
        name = self._name_of(tree, namespace)
        symbols = tree.get("symbols")
        if not isinstance(symbols, list):
            raise SchemaProblem(f"the enum {name} has no list of symbols")
        names: list[str] = []
        for symbol in symbols:
            if not isinstance(symbol, str) or not _NAME.match(symbol):
                raise SchemaProblem(f"{json.dumps(symbol)} cannot be a symbol, in the enum {name}")
            names.append(symbol)
        if len(set(names)) != len(names):
            raise SchemaProblem(f"the enum {name} has a symbol twice")
        default = tree.get("default")
        if default is not None and (not isinstance(default, str) or default not in names):
            raise SchemaProblem(f"the default {json.dumps(default)} is none of the symbols of the enum {name}")
        space = namespace_of(name)
        enum = EnumType(name, names, default, _doc(tree), _aliases(tree, space), _other_properties(tree, _ENUM_KEYS))
        self._define(enum)
        return enum

    def _fixed(self, tree: JsonObject, namespace: str) -> Fixed:
        name = self._name_of(tree, namespace)
        size = tree.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _INT[1]:
            raise SchemaProblem(f"the fixed {name} needs a size in bytes")
        space = namespace_of(name)
        fixed = Fixed(name, size, _doc(tree), _aliases(tree, space), _other_properties(tree, _FIXED_KEYS))
        self._define(fixed)
        return fixed

    def check_defaults(self) -> None:
        known: Verdicts = {}
        for place, kind, default in self._defaults:
            if not fits(kind, default, known):
                raise SchemaProblem(f"the default of {place} is no {_kind_name(kind)}: {json.dumps(default)}")


def fits(kind: AvroType, value: JsonValue, known: Verdicts) -> bool:
    """Whether a default in the JSON of a schema fits this type.

    `known` caches the verdicts for records: each may fill in defaults of others, and twenty of them would take a
    million checks otherwise.
    """
    match kind:
        case Union():
            return any(fits(branch, value, known) for branch in kind.branches)
        case Array():
            return isinstance(value, list) and all(fits(kind.items, each, known) for each in value)
        case Map():
            return isinstance(value, dict) and all(fits(kind.values, each, known) for each in value.values())
        case Record():
            pair = (id(kind), id(value))
            if pair not in known:
                known[pair] = isinstance(value, dict) and all(
                    fits(field.type, value.get(field.name, None if field.default is MISSING else field.default), known)
                    for field in kind.fields
                )
            return known[pair]
        case EnumType() | Fixed():
            return isinstance(value, str)
        case Primitive():
            return _fits_primitive(kind.kind, value)


def _fits_primitive(kind: str, value: JsonValue) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("bytes", "string"):
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind in ("float", "double"):
        return True
    low, high = _INT if kind == "int" else _LONG
    return value == int(value) and low <= value <= high if isinstance(value, int) else False


def _kind_name(kind: AvroType) -> str:
    if isinstance(kind, Union):
        return "union of " + ", ".join(_kind_name(branch) for branch in kind.branches)
    return kind.name if isinstance(kind, Record | EnumType | Fixed) else kind.kind


def _doc(tree: JsonObject) -> str | None:
    doc = tree.get("doc")
    return doc if isinstance(doc, str) else None


def _aliases(tree: JsonObject, namespace: str) -> list[str]:
    aliases = tree.get("aliases", [])
    if not _is_names(aliases):
        raise SchemaProblem(f"aliases are a list of names: {_short(tree)}")
    return [each if "." in each or not namespace else f"{namespace}.{each}" for each in aliases]


def _is_names(value: JsonValue) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _other_properties(tree: JsonObject, known: set[str]) -> JsonObject:
    return {key: value for key, value in tree.items() if key not in known}


def _short(tree: JsonValue) -> str:
    text = json.dumps(tree)
    return text if len(text) <= 200 else text[:200] + "…"

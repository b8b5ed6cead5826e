"""An Avro schema as text, in the order and the spelling of Java's `Schema.toString()`.

That spelling is the identity of a schema in a registry: two texts that differ in blanks, in the order of attributes or
in where they write a namespace are one schema. So it must be Java's, or a topic written by one registry would look full
of duplicates to the other.

A named type is written out where it is first used and by its name afterwards. Types of other schemas (references) are
written by name only, unless `resolve` is set, which inlines them.

With `normalize`, what has no meaning in its order is sorted, as the JVM registry does it: properties, the names within
their values and within defaults, and aliases. A description that is empty goes.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import TypeAlias

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.serde.avro.avro_schema import (
    MISSING,
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
    simple_name,
)

# A schema in JSON: a name, a union, or an object.
AvroTree: TypeAlias = str | list[JsonValue] | JsonObject


def print_avro(
    schema: AvroType, own: Container[str] | None = None, *, resolve: bool = False, normalize: bool = False
) -> str:
    """Return the schema's text. `own` are the names that this schema defines; with None, all of them."""
    return json.dumps(
        avro_tree(schema, own, resolve=resolve, normalize=normalize), ensure_ascii=False, separators=(",", ":")
    )


def avro_tree(
    schema: AvroType, own: Container[str] | None = None, *, resolve: bool = False, normalize: bool = False
) -> AvroTree:
    """Return the schema as a value of JSON; the arguments are those of `print_avro`."""
    return _Printer(None if resolve else own, normalize).tree(schema, "")


class _Printer:
    def __init__(self, own: Container[str] | None, normalize: bool) -> None:
        self._own_names = own
        self._normalize = normalize
        self._written_names: set[str] = set()

    def tree(self, kind: AvroType, namespace: str) -> AvroTree:
        match kind:
            case Primitive():
                return {"type": kind.kind, **self._sort_properties(kind.properties)} if kind.properties else kind.kind
            case Array():
                return {
                    "type": "array",
                    "items": self.tree(kind.items, namespace),
                    **self._sort_properties(kind.properties),
                }
            case Map():
                return {
                    "type": "map",
                    "values": self.tree(kind.values, namespace),
                    **self._sort_properties(kind.properties),
                }
            case Union():
                return [self.tree(branch, namespace) for branch in kind.branches]
            case Record() | EnumType() | Fixed():
                if kind.name in self._written_names or (
                    self._own_names is not None and kind.name not in self._own_names
                ):
                    space = namespace_of(kind.name)
                    return kind.name if space and space != namespace else simple_name(kind.name)
                self._written_names.add(kind.name)
                return self._named_type(kind, namespace)

    def _named_type(self, kind: NamedType, enclosing: str) -> JsonObject:
        space = namespace_of(kind.name)
        tree: JsonObject = {"type": kind.kind, "name": simple_name(kind.name)}
        if space != enclosing:
            tree["namespace"] = space
        if kind.doc is not None and (kind.doc or not self._normalize):
            tree["doc"] = kind.doc
        match kind:
            case Record():
                tree["fields"] = [self._field(field, space) for field in kind.fields]
            case EnumType():
                tree["symbols"] = [*kind.symbols]
                if kind.default is not None:
                    tree["default"] = kind.default
            case Fixed():
                tree["size"] = kind.size
        tree.update(self._sort_properties(kind.properties))
        if kind.aliases:
            tree["aliases"] = [_relative_name(alias, space) for alias in self._sort_aliases(kind.aliases)]
        return tree

    def _field(self, field: Field, namespace: str) -> JsonObject:
        tree: JsonObject = {"name": field.name, "type": self.tree(field.type, namespace)}
        if field.doc is not None:
            tree["doc"] = field.doc
        if field.default is not MISSING:
            tree["default"] = _sort_keys(field.default) if self._normalize else field.default
        if field.order != "ascending":
            tree["order"] = field.order
        if field.aliases:
            tree["aliases"] = [*self._sort_aliases(field.aliases)]
        return {**tree, **self._sort_properties(field.properties)}

    def _sort_properties(self, properties: JsonObject) -> JsonObject:
        if not self._normalize:
            return properties
        return {name: _sort_keys(each) for name, each in sorted(properties.items())}

    def _sort_aliases(self, aliases: Sequence[str]) -> Sequence[str]:
        return sorted(aliases) if self._normalize else aliases


def _sort_keys(value: JsonValue) -> JsonValue:
    """Return the value with the names of every object within it sorted."""
    if isinstance(value, dict):
        return {name: _sort_keys(each) for name, each in sorted(value.items())}
    return [_sort_keys(each) for each in value] if isinstance(value, list) else value


def _relative_name(name: str, namespace: str) -> str:
    return simple_name(name) if namespace_of(name) == namespace else name

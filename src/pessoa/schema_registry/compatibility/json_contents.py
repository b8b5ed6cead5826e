"""The comparison of the contents of objects and arrays, for that of JSON Schemas.

An object has a schema for every possible property name, and an array for every position: a declared one has its own
schema, and all others share one, which is called the content model:

    open             true     additionalProperties absent or true
    closed           false    additionalProperties: false
    partially open   a schema, or patternProperties

Since 2019-09 `unevaluatedProperties` is the content model if `additionalProperties` is absent; `additionalItems` and
`unevaluatedItems` are the same for arrays.

So one rule holds for all names: the old side's schema for a name must fit into the new side's. If only one side
declares the name, the other side's content model takes its place, and the finding is named after the model. So an open
model, which is the default, refuses a new property: `true` does not fit into its type.

Where the JVM registry checks less, so does this one: `required` counts for properties that the new side declares, and
`propertyNames` is ignored.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pessoa.schema_registry.compatibility.json_facets import Node
from pessoa.serde.patterns import BadPattern, compile_pattern


class SchemaComparison(Protocol):
    """The comparison of two schemas that compares the contents of objects and arrays as a part of itself."""

    def refuse(self, kind: str, path: str) -> None:
        """Add a finding."""

    def fits(self, old: Node, new: Node) -> bool:
        """Whether `new` accepts every value that `old` accepts."""

    def compare(self, old: Node, new: Node, path: str) -> None:
        """Add a finding for every reason why `new` does not accept all values that `old` accepts."""


# By the type of the model: its part of the name of a finding, for what came and for what went. What comes into a closed
# model or goes from an open one fits by itself.
_MODELS = {
    "open": ("ADDED_TO_OPEN", "REMOVED_FROM_OPEN"),
    "closed": ("ADDED_TO_CLOSED", "REMOVED_FROM_CLOSED"),
    "partially open": ("ADDED_NOT_COVERED_BY_PARTIALLY_OPEN", "REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN"),
}


def _compare_undeclared(
    comparison: SchemaComparison, word: str, old: Node, new: Node, path: str, *, is_added: bool
) -> None:
    """Compare a property or item that one side alone declares with the content model of the other side."""
    if comparison.fits(old, new):
        return
    model = (old if is_added else new).tree
    if isinstance(model, bool):
        kind = "open" if model else "closed"
    else:
        # What keeps the one from fitting into the other stays incompatible, however lenient the policy is.
        kind = "partially open"
        comparison.compare(old, new, path)
    comparison.refuse(f"{word}_{_MODELS[kind][0 if is_added else 1]}_CONTENT_MODEL", path)


def _compare_models(comparison: SchemaComparison, stem: str, old: Node, new: Node, path: str) -> None:
    """Compare the content models of both sides: the schemas for properties or items that are not declared."""
    if isinstance(old.tree, dict) and isinstance(new.tree, dict):
        comparison.compare(old, new, path)
    elif not comparison.fits(old, new):
        comparison.refuse(f"{stem}_{'REMOVED' if new.tree is False else 'NARROWED'}", path)


class ObjectContents:
    def __init__(self, comparison: SchemaComparison, old: Node, new: Node, path: str) -> None:
        self._comparison = comparison
        self._old = old
        self._new = new
        self._path = path
        self._before = _children(old, "properties")
        self._after = _children(new, "properties")

    def compare(self) -> None:
        comparison, path = self._comparison, self._path
        for name in dict.fromkeys((*self._before, *self._after)):
            self._compare_property(name, f"{path}/properties/{name}")
        self._compare_required()
        self._compare_dependencies()
        old, new = (_children(node, "patternProperties") for node in (self._old, self._new))
        for pattern in [each for each in old if each in new]:
            comparison.compare(old[pattern], new[pattern], f"{path}/patternProperties/{pattern}")
        _compare_models(
            comparison,
            "ADDITIONAL_PROPERTIES",
            _content_model(self._old, "additionalProperties"),
            _content_model(self._new, "additionalProperties"),
            f"{path}/additionalProperties",
        )
        _compare_models(
            comparison,
            "UNEVALUATED_PROPERTIES",
            _unevaluated_model(self._old, "unevaluatedProperties"),
            _unevaluated_model(self._new, "unevaluatedProperties"),
            f"{path}/unevaluatedProperties",
        )

    def _compare_property(self, name: str, path: str) -> None:
        old, new = self._before.get(name), self._after.get(name)
        if old is not None and new is not None:
            self._comparison.compare(old, new, path)
        elif new is not None:
            _compare_undeclared(
                self._comparison, "PROPERTY", _undeclared_property(self._old, name), new, path, is_added=True
            )
        elif old is not None:
            _compare_undeclared(
                self._comparison, "PROPERTY", old, _undeclared_property(self._new, name), path, is_added=False
            )

    def _compare_required(self) -> None:
        before, after = (_required_names(node) for node in (self._old, self._new))
        for name in after:
            declared = self._after.get(name)
            if name in before or declared is None or _has_default(declared):
                continue
            if name not in self._before and _undeclared_property(self._old, name).tree is not True:
                self._comparison.refuse(
                    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", f"{self._path}/properties/{name}"
                )
            else:
                self._comparison.refuse("REQUIRED_ATTRIBUTE_ADDED", f"{self._path}/required/{name}")

    def _compare_dependencies(self) -> None:
        old, new = (_dependencies(node) for node in (self._old, self._new))
        for (name, kind), after in new.items():
            before, path = old.get((name, kind)), f"{self._path}/dependencies/{name}"
            if before is None:
                self._comparison.refuse(f"DEPENDENCY_{kind}_ADDED", path)
            elif isinstance(before, Node) and isinstance(after, Node):
                self._comparison.compare(before, after, path)
            elif isinstance(before, frozenset) and isinstance(after, frozenset) and after - before:
                self._comparison.refuse(f"DEPENDENCY_ARRAY_{'EXTENDED' if before < after else 'CHANGED'}", path)


class ArrayContents:
    """The comparison of the items of two arrays: one schema for all items, or one for each position and a content model
    for the items after these.

    A list that becomes a tuple, or a tuple that becomes a list, is compared as in the JVM registry: the one schema for
    all items is removed (which is compatible) or added (which is not), and positions are added to, or removed from, the
    content model of the rest.
    """

    def __init__(self, comparison: SchemaComparison, old: Node, new: Node, path: str) -> None:
        self._comparison = comparison
        self._old = old
        self._new = new
        self._path = path

    def compare(self) -> None:
        comparison, path = self._comparison, self._path
        self._compare_items()
        if self._new.tree.get("uniqueItems") is True and self._old.tree.get("uniqueItems") is not True:
            comparison.refuse("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")
        self._compare_optional(
            "contains", _optional_child(self._old, "contains"), _optional_child(self._new, "contains")
        )
        old, new = (_unevaluated_model(node, "unevaluatedItems") for node in (self._old, self._new))
        _compare_models(comparison, "UNEVALUATED_ITEMS", old, new, f"{path}/unevaluatedItems")

    def _compare_items(self) -> None:
        old, new = _items(self._old), _items(self._new)
        self._compare_optional("items", old.all, new.all)
        places = [f"{self._path}/items/{index}" for index in range(max(len(old.positions), len(new.positions)))]
        common = min(len(old.positions), len(new.positions))
        for before, after, path in zip(old.positions, new.positions, places, strict=False):
            self._comparison.compare(before, after, path)
        for before, path in zip(old.positions[common:], places[common:], strict=False):
            _compare_undeclared(
                self._comparison, "ITEM", before, _undeclared_item(self._new, new), path, is_added=False
            )
        for after, path in zip(new.positions[common:], places[common:], strict=False):
            _compare_undeclared(self._comparison, "ITEM", _undeclared_item(self._old, old), after, path, is_added=True)
        _compare_models(self._comparison, "ADDITIONAL_ITEMS", old.rest, new.rest, f"{self._path}/additionalItems")

    def _compare_optional(self, keyword: str, old: Node | None, new: Node | None) -> None:
        """Compare a keyword's schema, which either side may lack."""
        if new is None:
            return
        if old is not None:
            self._comparison.compare(old, new, f"{self._path}/{keyword}")
        elif keyword == "contains" or not self._comparison.fits(self._old.child(True), new):
            self._comparison.refuse("SCHEMA_ADDED", f"{self._path}/{keyword}")


def _optional_child(node: Node, keyword: str) -> Node | None:
    return node.child(node.tree[keyword]) if keyword in node.tree else None


def _content_model(node: Node, keyword: str) -> Node:
    return node.child(node.tree.get(keyword, True))


def _unevaluated_model(node: Node, keyword: str) -> Node:
    return _content_model(node, keyword) if node.is_new_draft else node.child(True)


def _children(node: Node, keyword: str) -> dict[str, Node]:
    return {name: node.child(tree) for name, tree in node.tree.get(keyword, {}).items()}


def _undeclared_property(node: Node, name: str) -> Node:
    """Return the schema that an object has for a property which it does not declare."""
    patterns = node.tree.get("patternProperties") or {}
    for pattern, tree in patterns.items():
        try:
            if compile_pattern(pattern).is_found_in(name):
                return node.child(tree)
        except BadPattern:
            continue  # a pattern that cannot be matched covers nothing that we know of
    rest = _content_model(node, "additionalProperties")
    if "additionalProperties" not in node.tree:
        rest = _unevaluated_model(node, "unevaluatedProperties")
    # Patterns that do not match: the JVM registry counts such an object as closed to the name.
    return node.child(False) if patterns and rest.tree is True else rest


def _has_default(node: Node) -> bool:
    return isinstance(node.tree, dict) and "default" in node.tree


def _required_names(node: Node) -> list[str]:
    # In draft 3 `required` was a boolean; some schemas still have it.
    names = node.tree.get("required")
    return names if isinstance(names, list) else []


def _dependencies(node: Node) -> dict[tuple[str, str], Node | frozenset[str]]:
    """Return the dependencies by name and kind, ARRAY or SCHEMA: the old keyword has both kinds, and there is a new
    keyword for each."""
    found: dict[tuple[str, str], Node | frozenset[str]] = {}
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        for name, each in node.tree.get(keyword, {}).items():
            found[name, "ARRAY" if isinstance(each, list) else "SCHEMA"] = (
                frozenset(each) if isinstance(each, list) else node.child(each)
            )
    return found


class _Items(NamedTuple):
    positions: list[Node]
    # The schema of every item, if positions have no schemas of their own.
    all: Node | None
    # The schema of items after the positions. Without positions it applies to no item, and is compared all the same.
    rest: Node


def _items(node: Node) -> _Items:
    items = node.tree.get("items", True)
    if node.draft == "2020-12":
        positions = [node.child(each) for each in node.tree.get("prefixItems", ())]
        if positions or isinstance(items, bool):
            return _Items(positions, None, node.child(items))
        return _Items([], node.child(items), node.child(True))
    rest = _content_model(node, "additionalItems")
    if isinstance(items, list):
        return _Items([node.child(each) for each in items], None, rest)
    return _Items([], _optional_child(node, "items"), rest)


def _undeclared_item(node: Node, items: _Items) -> Node:
    """Return the schema that an array has for a position which it does not declare."""
    return items.rest if items.rest.tree is not True else _unevaluated_model(node, "unevaluatedItems")

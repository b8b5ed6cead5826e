"""JSON Schema: is every value that the writer's schema allows also allowed by the reader's?

That question has no general answer, so it is asked keyword by keyword. Each difference has a kind; the kinds in
`COMPATIBLE` only ever allow more, and everything else counts as incompatible. What surprises people is the content
model of objects:

    open             additionalProperties absent or true    a writer may have put anything under any name, so a reader
                                                            must not give a new name a type of its own
    closed           additionalProperties: false            a new optional property is safe; one that goes is not
    partially open   a schema, or patternProperties         safe as far as that schema covers it

`LENIENT` is the policy that forgives exactly this, for those whose writers write only what is declared.

Subschemas of allOf, anyOf and oneOf have no names: each of one side is matched with a compatible one of the other, as
many as can be (a maximum matching).
"""

from __future__ import annotations

import json
import re
from typing import Any

from referencing.exceptions import Unresolvable

from pessoa.schema_registry.compatibility.differences import Difference
from pessoa.schema_registry.compatibility.json_facets import (
    Combined,
    Condition,
    Empty,
    Facet,
    Never,
    Node,
    Not,
    Simple,
    Values,
    facet_of,
)
from pessoa.serde.json_schema import JsonSchema
from pessoa.serde.problems import SchemaProblem

COMPATIBLE = frozenset(
    """
    TYPE_EXTENDED SCHEMA_REMOVED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED
    MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED UNIQUE_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
    ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
    """.split()
)
LENIENT = COMPATIBLE | frozenset(
    """
    ADDITIONAL_PROPERTIES_NARROWED ADDITIONAL_PROPERTIES_REMOVED
    UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_PROPERTIES_REMOVED
    PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    """.split()
)

# Keyword → the stem of its kinds. Of an upper bound more is allowed when it grows; of a lower bound, when it falls.
_UPPER = {
    "maxLength": "MAX_LENGTH", "maximum": "MAXIMUM", "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "maxProperties": "MAX_PROPERTIES", "maxItems": "MAX_ITEMS", "maxContains": "MAX_CONTAINS",
}  # fmt: skip
_LOWER = {
    "minLength": "MIN_LENGTH", "minimum": "MINIMUM", "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "minProperties": "MIN_PROPERTIES", "minItems": "MIN_ITEMS", "minContains": "MIN_CONTAINS",
}  # fmt: skip
_BOUNDS = {
    "string": ("maxLength", "minLength"),
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"),
    "object": ("maxProperties", "minProperties"),
    "array": ("maxItems", "minItems", "maxContains", "minContains"),
}
_MISSING = object()
# Some seconds of work; schemas that people write take hundreds.
_MAX_STEPS = 200_000


def check_json(reader: JsonSchema, writer: JsonSchema, *, is_lenient: bool = False) -> list[Difference]:
    """Every difference that may keep the reader from accepting what the writer wrote."""
    comparison = Comparison(LENIENT if is_lenient else COMPATIBLE)
    try:
        comparison.compare(Node(writer.tree, writer.resolver()), Node(reader.tree, reader.resolver()), "#")
    except RecursionError:
        comparison.add("TOO_COMPLEX", "#")
    except (SchemaProblem, Unresolvable, AttributeError, TypeError, ValueError):
        # The draft's own schema does not look behind references: what stands there may be no schema at all.
        comparison.add("UNREADABLE_REFERENCE", "#")
    return comparison.incompatible()


class Comparison:
    """`old` is the writer's side, `new` the reader's, throughout."""

    def __init__(self, compatible: frozenset[str], parent: Comparison | None = None) -> None:
        self._compatible = compatible
        self._found: list[tuple[str, str]] = []
        # Pairs being compared further up: schemas refer to themselves.
        self._seen: set[tuple[int, int]] = set(parent._seen) if parent else set()
        # Shared by all comparisons on the side: matching subschemas with each other grows with every level of nesting.
        self._steps: list[None] = parent._steps if parent else []

    def incompatible(self) -> list[Difference]:
        return [
            Difference(kind, path, f"{kind.replace('_', ' ').capitalize()} at path '{path}' in the {{reader}} schema")
            for kind, path in dict.fromkeys(self._found)
            if kind not in self._compatible
        ]

    @property
    def is_compatible(self) -> bool:
        return all(kind in self._compatible for kind, _ in self._found)

    def add(self, kind: str, path: str) -> None:
        self._found.append((kind, path))

    def attempt(self, old: Node | Facet, new: Node | Facet, path: str) -> Comparison:
        """A comparison on the side, whose findings count only if its caller says so."""
        side = Comparison(self._compatible, self)
        side.compare(old, new, path)
        return side

    def adopt(self, side: Comparison) -> None:
        self._found += side._found

    def compare(self, old: Node | Facet, new: Node | Facet, path: str) -> None:
        self._steps.append(None)
        if len(self._steps) > _MAX_STEPS:
            raise RecursionError("too many subschemas to compare")
        if isinstance(old, Node) and isinstance(new, Node):
            pair = (id(old.tree), id(new.tree))
            # Booleans and small literals are shared by Python itself.
            if isinstance(old.tree, dict) and pair in self._seen:
                return
            self._seen.add(pair)
            try:
                self._facets(facet_of(old), facet_of(new), path)
            finally:
                self._seen.discard(pair)
            return
        self._facets(
            facet_of(old) if isinstance(old, Node) else old, facet_of(new) if isinstance(new, Node) else new, path
        )

    def _facets(self, old: Facet, new: Facet, path: str) -> None:
        if isinstance(new, Empty) or isinstance(old, Never):
            return
        if isinstance(new, Combined) and not isinstance(old, Combined) and self._became_combined(old, new, path):
            return
        if isinstance(old, Combined) and not isinstance(new, Combined) and self._was_combined(old, new, path):
            return
        match old, new:
            case Simple(), Simple() if old.name == new.name:
                self._simple(old, new, path)
            case Values(), Values():
                self._values(old.values, new.values, path)
            case Combined(), Combined():
                self._combined(old, new, path)
            case Not(), Not():
                reverse = self.attempt(new.node, old.node, f"{path}/not")
                self.add("NOT_TYPE_NARROWED" if reverse.is_compatible else "NOT_TYPE_EXTENDED", f"{path}/not")
            case Condition(), Condition():
                if old.tree != new.tree:
                    self.add("CONDITION_CHANGED", path)
            case _:
                self.add("TYPE_CHANGED", path)

    # allOf, anyOf, oneOf.

    def _became_combined(self, old: Facet, new: Combined, path: str) -> bool:
        if len(new.parts) > 1 and new.name == "allOf":
            return False
        for part in new.parts:
            side = self.attempt(old, part, path)
            if side.is_compatible:
                self.adopt(side)
                if len(new.parts) > 1:
                    self.add("SUM_TYPE_EXTENDED", path)
                return True
        return False

    def _was_combined(self, old: Combined, new: Facet, path: str) -> bool:
        if len(old.parts) > 1 and old.name != "allOf":
            return False
        # A value that follows all of them follows each: one that fits is enough.
        for part in old.parts:
            side = self.attempt(part, new, path)
            if side.is_compatible:
                self.adopt(side)
                if len(old.parts) > 1:
                    self.add("PRODUCT_TYPE_NARROWED", path)
                return True
        return False

    def _combined(self, old: Combined, new: Combined, path: str) -> None:
        if old.name != new.name:
            is_single = len(old.parts) == 1
            if not (
                new.name == "anyOf"
                or (new.name == "oneOf" and is_single)
                or (new.name == "allOf" and is_single and len(new.parts) == 1)
            ):
                self.add("COMBINED_TYPE_CHANGED", path)
                return
            self.add("COMBINED_TYPE_EXTENDED", path)
        kind = "PRODUCT" if new.name == "allOf" else "SUM"
        if len(old.parts) < len(new.parts):
            self.add(f"{kind}_TYPE_EXTENDED", path)
        elif len(old.parts) > len(new.parts):
            self.add(f"{kind}_TYPE_NARROWED", path)
        edges: list[list[int]] = []
        sides: dict[tuple[int, int], Comparison] = {}
        for index, mine in enumerate(old.parts):
            fitting = []
            for other, theirs in enumerate(new.parts):
                side = self.attempt(mine, theirs, f"{path}/{old.name}/{index}")
                if side.is_compatible:
                    fitting.append(other)
                    sides[index, other] = side
            edges.append(fitting)
        matching = maximum_matching(edges)
        for index, other in matching.items():
            self.adopt(sides[index, other])
        if len(matching) < min(len(old.parts), len(new.parts)):
            self.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)

    # One type.

    def _simple(self, old: Simple, new: Simple, path: str) -> None:
        before, after = old.node.tree, new.node.tree
        for keyword in _BOUNDS.get(old.name, ()):
            self._bound(keyword, _bound_of(before, keyword), _bound_of(after, keyword), f"{path}/{keyword}")
        if old.name == "string":
            self._changed("PATTERN", before.get("pattern"), after.get("pattern"), f"{path}/pattern")
        elif old.name == "number":
            if old.is_integer != new.is_integer:
                self.add("TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED", path)
            self._multiple_of(before.get("multipleOf"), after.get("multipleOf"), f"{path}/multipleOf")
        elif old.name == "object":
            ObjectComparison(self, old.node, new.node, path).run()
        elif old.name == "array":
            ArrayComparison(self, old.node, new.node, path).run()

    def _bound(self, keyword: str, old: Any, new: Any, path: str) -> None:
        stem = _UPPER.get(keyword) or _LOWER[keyword]
        if old == new:
            return
        if old is None:
            self.add(f"{stem}_ADDED", path)
        elif new is None:
            self.add(f"{stem}_REMOVED", path)
        else:
            self.add(f"{stem}_{'INCREASED' if new > old else 'DECREASED'}", path)

    def _changed(self, stem: str, old: Any, new: Any, path: str) -> None:
        if old == new:
            return
        if old is None:
            self.add(f"{stem}_ADDED", path)
        else:
            self.add(f"{stem}_{'REMOVED' if new is None else 'CHANGED'}", path)

    def _multiple_of(self, old: Any, new: Any, path: str) -> None:
        if old is None or new is None or old == new:
            self._changed("MULTIPLE_OF", old, new, path)
        elif old % new == 0:
            self.add("MULTIPLE_OF_REDUCED", path)
        elif new % old == 0:
            self.add("MULTIPLE_OF_EXPANDED", path)
        else:
            self.add("MULTIPLE_OF_CHANGED", path)

    def _values(self, old: list[Any], new: list[Any], path: str) -> None:
        before, after = ({json.dumps(each, sort_keys=True) for each in values} for values in (old, new))
        if before == after:
            return
        if before < after:
            self.add("ENUM_ARRAY_EXTENDED", f"{path}/enum")
        else:
            self.add("ENUM_ARRAY_NARROWED" if after < before else "ENUM_ARRAY_CHANGED", f"{path}/enum")

    def rest(self, stem: str, old: Node, new: Node, path: str) -> None:
        """additionalProperties and its kin: what is allowed beyond what is named."""
        before, after = old.tree, new.tree
        if (before is False) != (after is False):
            self.add(f"{stem}_{'ADDED' if before is False else 'REMOVED'}", path)
        elif before is True and after is not True:
            self.add(f"{stem}_NARROWED", path)
        elif after is True and before is not True:
            self.add(f"{stem}_EXTENDED", path)
        elif before is not False:
            self.compare(old, new, path)


class ObjectComparison:
    def __init__(self, comparison: Comparison, old: Node, new: Node, path: str) -> None:
        self._comparison = comparison
        self._old = old
        self._new = new
        self._path = path
        self._before = _properties(old)
        self._after = _properties(new)

    def run(self) -> None:
        for name in dict.fromkeys((*self._before, *self._after)):
            place = f"{self._path}/properties/{name}"
            if name not in self._after:
                self._removed(name, place)
            elif name not in self._before:
                self._added(name, place)
            else:
                self._comparison.compare(self._before[name], self._after[name], place)
        self._required()
        self._dependencies()
        for keyword, stem in (
            ("additionalProperties", "ADDITIONAL_PROPERTIES"),
            ("unevaluatedProperties", "UNEVALUATED_PROPERTIES"),
        ):
            old, new = (node.child(node.tree.get(keyword, True)) for node in (self._old, self._new))
            self._comparison.rest(stem, old, new, f"{self._path}/{keyword}")
        self._schemas("patternProperties")
        old, new = (node.child(node.tree.get("propertyNames", True)) for node in (self._old, self._new))
        self._comparison.compare(old, new, f"{self._path}/propertyNames")

    def _removed(self, name: str, path: str) -> None:
        if _is_open(self._new):
            self._comparison.add("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
            return
        covering = _covering(self._new, name)
        if covering is not None:
            side = self._comparison.attempt(self._before[name], covering, path)
            covered = "IS" if side.is_compatible else "NOT"
            self._comparison.add(f"PROPERTY_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        elif isinstance(facet_of(self._before[name]), Never):
            self._comparison.add("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        else:
            self._comparison.add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)

    def _added(self, name: str, path: str) -> None:
        added = self._after[name]
        is_required = name in self._new.tree.get("required", ())
        if _is_open(self._old):
            is_empty = isinstance(facet_of(added), Empty)
            kind = "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN" if is_empty else "PROPERTY_ADDED_TO_OPEN"
            self._comparison.add(f"{kind}_CONTENT_MODEL", path)
            if is_required and name not in self._old.tree.get("required", ()) and not _has_default(added):
                self._comparison.add("REQUIRED_ATTRIBUTE_ADDED", path)
            return
        covering = _covering(self._old, name)
        if covering is not None:
            side = self._comparison.attempt(covering, added, path)
            covered = "IS" if side.is_compatible else "NOT"
            self._comparison.add(f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        if not is_required:
            self._comparison.add("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)
        elif _has_default(added):
            self._comparison.add("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", path)
        else:
            self._comparison.add("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)

    def _required(self) -> None:
        before, after = (node.tree.get("required", ()) for node in (self._old, self._new))
        # In draft 3 `required` was a boolean; some schemas still have it.
        before, after = (each if isinstance(each, list) else [] for each in (before, after))
        for name in dict.fromkeys((*before, *after)):
            if name in self._after and name not in self._before:
                continue  # a new property: judged where it was added
            place = f"{self._path}/required/{name}"
            if name not in after:
                self._comparison.add("REQUIRED_ATTRIBUTE_REMOVED", place)
            elif name not in before:
                has_default = name in self._after and _has_default(self._after[name])
                self._comparison.add(f"REQUIRED_ATTRIBUTE_{'WITH_DEFAULT_' if has_default else ''}ADDED", place)

    def _dependencies(self) -> None:
        old, new = (_dependencies(node) for node in (self._old, self._new))
        for name in dict.fromkeys((*old, *new)):
            place = f"{self._path}/dependencies/{name}"
            before, after = old.get(name), new.get(name)
            if before is None or after is None or isinstance(before, Node) != isinstance(after, Node):
                for each, change in ((before, "REMOVED"), (after, "ADDED")):
                    if each is not None:
                        self._comparison.add(
                            f"DEPENDENCY_{'SCHEMA' if isinstance(each, Node) else 'ARRAY'}_{change}", place
                        )
            elif isinstance(before, Node) and isinstance(after, Node):
                self._comparison.compare(before, after, place)
            elif isinstance(before, frozenset) and isinstance(after, frozenset) and before != after:
                change = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
                self._comparison.add(f"DEPENDENCY_ARRAY_{change}", place)

    def _schemas(self, keyword: str) -> None:
        """Schemas under the same key on both sides."""
        old, new = (node.tree.get(keyword, {}) for node in (self._old, self._new))
        for name in old.keys() & new.keys():
            place = f"{self._path}/{keyword}/{name}"
            self._comparison.compare(self._old.child(old[name]), self._new.child(new[name]), place)


class ArrayComparison:
    """Items by position, and the schema of all others: tuples of the older drafts and `prefixItems` are the same."""

    def __init__(self, comparison: Comparison, old: Node, new: Node, path: str) -> None:
        self._comparison = comparison
        self._old = old
        self._new = new
        self._path = path

    def run(self) -> None:
        before, old_rest = _items(self._old)
        after, new_rest = _items(self._new)
        for index in range(max(len(before), len(after))):
            place = f"{self._path}/items/{index}"
            if index >= len(after):
                self._removed(before[index], new_rest, place)
            elif index >= len(before):
                self._added(after[index], old_rest, place)
            else:
                self._comparison.compare(before[index], after[index], place)
        if before or after:
            self._comparison.rest("ADDITIONAL_ITEMS", old_rest, new_rest, f"{self._path}/additionalItems")
        elif new_rest.tree is not True and old_rest.tree is True and not isinstance(facet_of(new_rest), Empty):
            self._comparison.add("SCHEMA_ADDED", f"{self._path}/items")
        else:
            self._comparison.compare(old_rest, new_rest, f"{self._path}/items")
        old_unique, new_unique = (node.tree.get("uniqueItems") is True for node in (self._old, self._new))
        if old_unique != new_unique:
            self._comparison.add(f"UNIQUE_ITEMS_{'ADDED' if new_unique else 'REMOVED'}", f"{self._path}/uniqueItems")
        self._contains()
        old, new = (node.child(node.tree.get("unevaluatedItems", True)) for node in (self._old, self._new))
        self._comparison.rest("UNEVALUATED_ITEMS", old, new, f"{self._path}/unevaluatedItems")

    def _contains(self) -> None:
        old, new = (node.tree.get("contains", _MISSING) for node in (self._old, self._new))
        place = f"{self._path}/contains"
        if new is _MISSING:
            if old is not _MISSING:
                self._comparison.add("SCHEMA_REMOVED", place)
        elif old is _MISSING:
            self._comparison.add("SCHEMA_ADDED", place)
        else:
            self._comparison.compare(self._old.child(old), self._new.child(new), place)

    def _removed(self, item: Node, rest: Node, path: str) -> None:
        if rest.tree is True:
            self._comparison.add("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", path)
        elif rest.tree is not False:
            side = self._comparison.attempt(item, rest, path)
            covered = "IS" if side.is_compatible else "NOT"
            self._comparison.add(f"ITEM_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        elif isinstance(facet_of(item), Never):
            self._comparison.add("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        else:
            self._comparison.add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)

    def _added(self, item: Node, rest: Node, path: str) -> None:
        if rest.tree is True:
            is_empty = isinstance(facet_of(item), Empty)
            kind = "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN" if is_empty else "ITEM_ADDED_TO_OPEN"
            self._comparison.add(f"{kind}_CONTENT_MODEL", path)
        elif rest.tree is False:
            self._comparison.add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)
        else:
            side = self._comparison.attempt(rest, item, path)
            covered = "IS" if side.is_compatible else "NOT"
            self._comparison.add(f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)


def maximum_matching(edges: list[list[int]]) -> dict[int, int]:
    """As many pairs as can be, left index → right index: augmenting paths."""
    taken: dict[int, int] = {}

    def place(left: int, tried: set[int]) -> bool:
        for right in edges[left]:
            if right not in tried:
                tried.add(right)
                if right not in taken or place(taken[right], tried):
                    taken[right] = left
                    return True
        return False

    for left in range(len(edges)):
        place(left, set())
    return {left: right for right, left in taken.items()}


def _bound_of(tree: dict[str, Any], keyword: str) -> Any:
    value = tree.get(keyword)
    # Draft 4: `exclusiveMaximum: true` says that `maximum` itself is excluded.
    if keyword in ("exclusiveMaximum", "exclusiveMinimum") and isinstance(value, bool):
        return tree.get(keyword.replace("exclusiveM", "m")) if value else None
    if keyword in ("maximum", "minimum") and tree.get(f"exclusiveM{keyword[1:]}") is True:
        return None
    return value


def _properties(node: Node) -> dict[str, Node]:
    return {name: node.child(tree) for name, tree in node.tree.get("properties", {}).items()}


def _is_open(node: Node) -> bool:
    return node.tree.get("additionalProperties", True) is True and not node.tree.get("patternProperties")


def _covering(node: Node, name: str) -> Node | None:
    """The schema that a partially open object has for a name that it does not declare."""
    for pattern, tree in node.tree.get("patternProperties", {}).items():
        try:
            if re.search(pattern, name):
                return node.child(tree)
        except re.error:
            continue  # a pattern of another dialect than Python's covers nothing that we know of
    rest = node.tree.get("additionalProperties", True)
    return node.child(rest) if isinstance(rest, dict) else None


def _has_default(node: Node) -> bool:
    return isinstance(node.tree, dict) and "default" in node.tree


def _dependencies(node: Node) -> dict[str, Node | frozenset[str]]:
    found: dict[str, Node | frozenset[str]] = {}
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        for name, each in node.tree.get(keyword, {}).items():
            found[name] = frozenset(each) if isinstance(each, list) else node.child(each)
    return found


def _items(node: Node) -> tuple[list[Node], Node]:
    tree = node.tree
    if isinstance(tree.get("prefixItems"), list):
        return [node.child(each) for each in tree["prefixItems"]], node.child(tree.get("items", True))
    items = tree.get("items", True)
    if isinstance(items, list):
        return [node.child(each) for each in items], node.child(tree.get("additionalItems", True))
    return [], node.child(items)

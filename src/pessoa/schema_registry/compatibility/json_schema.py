"""JSON Schema: is every value that the writer's schema allows also allowed by the reader's?

Schemas are sets of values, and the question is whether one set lies inside the other. That has no general answer, so it
is asked piece by piece, and only a piece that may *refuse* something leaves a finding: whatever widens is silent. The
pieces are the facets of json_facets.py here, and the contents of objects and arrays in json_contents.py.

Sets of sets follow from logic. A value of `anyOf` is in one of its parts, nobody knows in which; a value of `allOf` is
in each. So, with one side that is made of parts:

                     writer's side has parts              reader's side has parts
    allOf            one part that fits is enough          every part has to fit
    anyOf, oneOf     every part has to fit                 one part that fits is enough

With parts on both sides, each part on the side where every one has to fit gets a partner of its own on the other.
oneOf is treated as anyOf, though a reader's second choice may spoil its first; everybody does so.

`FORGIVEN_LENIENTLY` is what the policy LENIENT adds: for those whose writers write only what is declared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from referencing.exceptions import Unresolvable

from pessoa.schema_registry.compatibility.differences import Difference
from pessoa.schema_registry.compatibility.json_contents import ArrayContents, ObjectContents
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

FORGIVEN_LENIENTLY = frozenset(
    f"{model}_PROPERTIES_{change}" for model in ("ADDITIONAL", "UNEVALUATED") for change in ("NARROWED", "REMOVED")
) | {
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
}

# Which keywords bound a type: an upper bound refuses more when it falls, a lower one when it rises.
_BOUNDS = {
    "string": ("maxLength", "minLength"),
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"),
    "object": ("maxProperties", "minProperties"),
    "array": ("maxItems", "minItems", "maxContains", "minContains"),
}
# To change the word of a combination is safe while these sides have one part alone: one part is the same in any word.
_SINGLE: dict[str, tuple[str, ...]] = {"anyOf": (), "oneOf": ("old",), "allOf": ("old", "new")}
# A fraction of a second of work; schemas that people write take hundreds.
_MAX_STEPS = 50_000


class TooComplex(Exception):
    """More subschemas to hold against each other than anybody should wait for."""


def check_json(reader: JsonSchema, writer: JsonSchema, *, is_lenient: bool = False) -> list[Difference]:
    """Every difference that may keep the reader from accepting what the writer wrote."""
    comparison = Comparison(FORGIVEN_LENIENTLY if is_lenient else frozenset())
    try:
        comparison.compare(Node(writer.tree, writer.resolver()), Node(reader.tree, reader.resolver()), "#")
    except (RecursionError, TooComplex):
        comparison.refuse("TOO_COMPLEX", "#")
    except (SchemaProblem, Unresolvable, AttributeError, TypeError, ValueError, ArithmeticError):
        # The draft's own schema does not look behind references: what stands there may be no schema at all.
        comparison.refuse("UNREADABLE_REFERENCE", "#")
    return [
        Difference(kind, path, f"{kind.replace('_', ' ').capitalize()} at path '{path}' in the {{reader}} schema")
        for kind, path in comparison.refusals
    ]


class Comparison:
    """`old` is the writer's side, `new` the reader's, throughout."""

    def __init__(self, forgiven: frozenset[str], parent: Comparison | None = None) -> None:
        self._forgiven = forgiven
        # Kind and path, in the order in which they were met.
        self.refusals: dict[tuple[str, str], None] = {}
        # Pairs being compared further up: schemas refer to themselves.
        self._seen: set[tuple[int, int]] = set(parent._seen) if parent else set()
        # Shared by all comparisons on the side: pairing parts with each other grows with every level of nesting.
        self._steps: list[None] = parent._steps if parent else []

    def refuse(self, kind: str, path: str) -> None:
        if kind not in self._forgiven:
            self.refusals[kind, path] = None

    def fits(self, old: Node | Facet, new: Node | Facet) -> bool:
        """Whether a comparison of these two would find nothing; it leaves no trace."""
        side = Comparison(self._forgiven, self)
        side.compare(old, new, "")
        return not side.refusals

    def compare(self, old: Node | Facet, new: Node | Facet, path: str) -> None:
        self._steps.append(None)
        if len(self._steps) > _MAX_STEPS:
            raise TooComplex
        if isinstance(old, Node) and isinstance(new, Node) and isinstance(old.tree, dict):
            pair = (id(old.tree), id(new.tree))
            if pair in self._seen:
                return
            self._seen.add(pair)
            try:
                self._facets(facet_of(old), facet_of(new), path)
            finally:
                self._seen.discard(pair)
        else:
            self._facets(
                facet_of(old) if isinstance(old, Node) else old, facet_of(new) if isinstance(new, Node) else new, path
            )

    def _facets(self, old: Facet, new: Facet, path: str) -> None:
        match old, new:
            case (_, Empty()) | (Never(), _):
                pass
            case Combined(), Combined():
                self._two_combinations(old, new, path)
            case (Combined(), _) | (_, Combined()):
                if not self._one_combination(old, new):
                    self.refuse("TYPE_CHANGED", path)
            case Simple(), Simple() if old.name == new.name:
                self._simple(old, new, path)
            case Values(), Values():
                self._values(old.values, new.values, f"{path}/enum")
            case Not(), Not():
                # What is refused has to shrink.
                if not self.fits(new.node, old.node):
                    self.refuse("NOT_TYPE_EXTENDED", f"{path}/not")
            case Condition(), Condition():
                if old.tree != new.tree:
                    self.refuse("CONDITION_CHANGED", path)
            case _:
                self.refuse("TYPE_CHANGED", path)

    # allOf, anyOf, oneOf.

    def _one_combination(self, old: Facet, new: Facet) -> bool:
        """The table at the head of this file."""
        if isinstance(old, Combined):
            verdicts = (self.fits(part, new) for part in old.parts)
            return any(verdicts) if old.name == "allOf" else all(verdicts)
        assert isinstance(new, Combined)
        verdicts = (self.fits(old, part) for part in new.parts)
        return all(verdicts) if new.name == "allOf" else any(verdicts)

    def _two_combinations(self, old: Combined, new: Combined, path: str) -> None:
        sides = {"old": old.parts, "new": new.parts}
        if old.name != new.name and any(len(sides[side]) != 1 for side in _SINGLE[new.name]):
            self.refuse("COMBINED_TYPE_CHANGED", path)
            return
        if new.name == "allOf":
            demanding, offering, too_many = new.parts, old.parts, "PRODUCT_TYPE_EXTENDED"
        else:
            demanding, offering, too_many = old.parts, new.parts, "SUM_TYPE_NARROWED"
        if len(demanding) > len(offering):
            self.refuse(too_many, path)
            return

        def suits(mine: int, other: int) -> bool:
            if new.name == "allOf":
                return self.fits(offering[other], demanding[mine])
            return self.fits(demanding[mine], offering[other])

        if not can_pair_off(len(demanding), len(offering), suits):
            self.refuse("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)

    # One type.

    def _simple(self, old: Simple, new: Simple, path: str) -> None:
        before, after = old.node.tree, new.node.tree
        for keyword in _BOUNDS.get(old.name, ()):
            self._bound(keyword, _bound_of(before, keyword), _bound_of(after, keyword), f"{path}/{keyword}")
        if old.name == "string":
            wanted = after.get("pattern")
            if wanted is not None and wanted != before.get("pattern"):
                self.refuse("PATTERN_CHANGED" if "pattern" in before else "PATTERN_ADDED", f"{path}/pattern")
        elif old.name == "number":
            if new.is_integer and not old.is_integer:
                self.refuse("TYPE_NARROWED", path)
            self._multiple_of(before.get("multipleOf"), after.get("multipleOf"), f"{path}/multipleOf")
        elif old.name == "object":
            ObjectContents(self, old.node, new.node, path).compare()
        elif old.name == "array":
            ArrayContents(self, old.node, new.node, path).compare()

    def _bound(self, keyword: str, old: Any, new: Any, path: str) -> None:
        if new is None or new == old:
            return
        stem = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in keyword)
        is_upper = "max" in keyword.lower()
        if old is None:
            self.refuse(f"{stem}_ADDED", path)
        elif (new < old) == is_upper:
            self.refuse(f"{stem}_{'DECREASED' if is_upper else 'INCREASED'}", path)

    def _multiple_of(self, old: Any, new: Any, path: str) -> None:
        if new is None or new == old:
            return
        if old is None:
            self.refuse("MULTIPLE_OF_ADDED", path)
        elif old % new != 0:
            self.refuse("MULTIPLE_OF_EXPANDED" if new % old == 0 else "MULTIPLE_OF_CHANGED", path)

    def _values(self, old: list[Any], new: list[Any], path: str) -> None:
        before, after = ({json.dumps(each, sort_keys=True) for each in values} for values in (old, new))
        if before - after:
            self.refuse("ENUM_ARRAY_NARROWED" if after < before else "ENUM_ARRAY_CHANGED", path)


def can_pair_off(demanding: int, offering: int, suits: Callable[[int, int], bool]) -> bool:
    """Whether everyone on the one side gets a partner of their own on the other.

    Whoever finds all that suit them taken asks their partners to look elsewhere first. `suits` is dear: it is asked as
    late as can be, once per pair, and for the same place in the list first, where an unchanged part still is.
    """
    known: dict[tuple[int, int], bool] = {}
    partner_of: dict[int, int] = {}

    def likes(mine: int, other: int) -> bool:
        if (mine, other) not in known:
            known[mine, other] = suits(mine, other)
        return known[mine, other]

    def settle(mine: int, asked: set[int]) -> bool:
        for other in sorted(range(offering), key=lambda each: (each != mine, each in partner_of, each)):
            if other in asked or not likes(mine, other):
                continue
            asked.add(other)
            if other not in partner_of or settle(partner_of[other], asked):
                partner_of[other] = mine
                return True
        return False

    return all(settle(each, set()) for each in range(demanding))


def _bound_of(tree: dict[str, Any], keyword: str) -> Any:
    value = tree.get(keyword)
    # Draft 4: `exclusiveMaximum: true` says that `maximum` itself is excluded.
    if keyword in ("exclusiveMaximum", "exclusiveMinimum") and isinstance(value, bool):
        return tree.get(keyword.replace("exclusiveM", "m")) if value else None
    if keyword in ("maximum", "minimum") and tree.get(f"exclusiveM{keyword[1:]}") is True:
        return None
    return value

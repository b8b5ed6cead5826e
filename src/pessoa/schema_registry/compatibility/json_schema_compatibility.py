"""JSON Schema: is every value that the writer's schema allows also allowed by the reader's?

Schemas are sets of values, and the question is whether one set lies inside the other. That has no general answer, so it
is asked piece by piece, and only a piece that may *refuse* something leaves a finding: one that widens is silent. The
pieces are the facets of json_facets.py here, and the contents of objects and arrays in json_contents.py.

Sets of sets follow from logic. A value of `anyOf` is in one of its parts, unknown in which; a value of `allOf` is
in each. So, with one side that is made of parts:

                     writer's side has parts              reader's side has parts
    allOf            one part that fits is enough          every part has to fit
    anyOf, oneOf     every part has to fit                 one part that fits is enough

With parts on both sides, each part on the side that has fewer gets a partner of its own on the other; an `allOf` may
not grow, an `anyOf` or `oneOf` may not shrink, and parts that are said twice count once. That is how the JVM registry
pairs them. oneOf is treated as anyOf, though a reader's second choice may spoil its first, as in other registries.

Schemas refer to themselves, and in long circles. So a pair is compared once, and what was found is remembered. A pair
that is met again while it is being compared is taken to fit. If it turns out not to, what was found with its help is
forgotten, and everything is compared again with that known (`_PairResults`). What does not fit even though too much was
taken to fit never fits: so this comes to an end, at the largest set of pairs of which each fits if the others do.

`FORGIVEN_LENIENTLY` is what the policy LENIENT adds: for those whose writers write only what is declared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from referencing.exceptions import Unresolvable

from pessoa.base.json_value import JsonValue
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
    resolve,
)
from pessoa.serde.json_schema import JsonSchema
from pessoa.serde.schema_problems import SchemaProblem
from pessoa.serde.stack_room import is_stack_nearly_full

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
# A fraction of a second of work; schemas that people write take hundreds.
_MAX_STEPS = 50_000


class TooComplex(Exception):
    """There are more pairs of subschemas to compare than a caller should wait for."""


def check_json(reader: JsonSchema, writer: JsonSchema, *, is_lenient: bool = False) -> list[Difference]:
    """Return every difference that may keep the reader from accepting data that the writer wrote."""
    forgiven = FORGIVEN_LENIENTLY if is_lenient else frozenset()
    old, new = (Node(each.tree, each.resolver(), each.draft) for each in (writer, reader))
    try:
        findings = _findings(old, new, forgiven)
    except (RecursionError, TooComplex):
        findings = [("TOO_COMPLEX", "")]
    except (SchemaProblem, Unresolvable, AttributeError, TypeError, ValueError, ArithmeticError):
        # The draft's own schema does not look behind references: what stands there may be no schema at all.
        findings = [("UNREADABLE_REFERENCE", "")]
    return [
        Difference(kind, path, f"{kind.replace('_', ' ').capitalize()} at path '{path}' in the {{reader}} schema")
        for kind, path in ((kind, f"#{place}") for kind, place in findings)
    ]


# What was found, and where below the pair that was compared.
Findings = Sequence[tuple[str, str]]


def _findings(old: Node, new: Node, forgiven: frozenset[str]) -> Findings:
    known = _PairResults(forgiven)
    while True:
        known.begin()
        comparison = Comparison(known)
        comparison.compare(old, new, "")
        if not known.was_misled:
            return list(comparison.refusals)


class _Side(NamedTuple):
    """One side of a comparison: the identity of a schema (after its references) or of a facet, and its facet."""

    key: int
    facet: Facet


class _PairResults:
    """The results for pairs of schemas, by the identity of both; shared by a comparison and the trial comparisons
    that it makes."""

    def __init__(self, forgiven: frozenset[str]) -> None:
        self.forgiven = forgiven
        self.steps = 0
        # By the identity of a tree: where its references lead is not asked twice. Facets live as long as this does, so
        # that their identity is their own.
        self._sides: dict[int, _Side] = {}
        self._parts: dict[int, list[Node | Facet]] = {}
        # Pairs that do not fit under any assumption, with what was found last.
        self.refuted: dict[tuple[int, int], Findings] = {}
        # Pairs that are being compared or were found to fit; those of them that something else relies on.
        self.assumed: set[tuple[int, int]] = set()
        self.relied_on: set[tuple[int, int]] = set()
        self.was_misled = False

    def begin(self) -> None:
        """Delete the results that rest on assumptions."""
        self.assumed.clear()
        self.relied_on.clear()
        self.was_misled = False

    def step(self) -> None:
        """Count a comparison. Raises TooComplex if there are too many, or if the stack is nearly full."""
        self.steps += 1
        if self.steps > _MAX_STEPS or is_stack_nearly_full():
            raise TooComplex

    def side(self, side: Node | Facet) -> _Side:
        if not isinstance(side, Node):
            return _Side(id(side), side)
        known = self._sides.get(id(side.tree))
        if known is None:
            node = resolve(side)
            known = self._sides.get(id(node.tree)) or _Side(id(node.tree), facet_of(node))
            self._sides[id(side.tree)] = self._sides[id(node.tree)] = known
        return known

    def distinct_parts(self, combined: Combined) -> list[Node | Facet]:
        """Return the parts without those whose text is equal to another's."""
        if id(combined) not in self._parts:
            by_text = {
                json.dumps(part.tree, sort_keys=True) if isinstance(part, Node) else index: part
                for index, part in enumerate(combined.parts)
            }
            self._parts[id(combined)] = list(by_text.values())
        return self._parts[id(combined)]

    def refute(self, pair: tuple[int, int], findings: Findings) -> None:
        self.assumed.discard(pair)
        self.refuted[pair] = findings
        self.was_misled = self.was_misled or pair in self.relied_on


class Comparison:
    """A comparison of two JSON schemas. `old` is the writer's side, `new` the reader's, throughout."""

    def __init__(self, known: _PairResults) -> None:
        self._results = known
        # Kind and path, in the order in which they were met.
        self.refusals: dict[tuple[str, str], None] = {}

    def refuse(self, kind: str, path: str) -> None:
        if kind not in self._results.forgiven:
            self.refusals[kind, path] = None

    def fits(self, old: Node | Facet, new: Node | Facet) -> bool:
        """Whether a comparison of these two would find nothing; no finding is added."""
        side = Comparison(self._results)
        side.compare(old, new, "")
        return not side.refusals

    def compare(self, old: Node | Facet, new: Node | Facet, path: str) -> None:
        known = self._results
        known.step()
        before, after = known.side(old), known.side(new)
        pair = (before.key, after.key)
        if pair in known.assumed:
            known.relied_on.add(pair)
            return
        if pair not in known.refuted:
            known.assumed.add(pair)
            subcomparison = Comparison(known)
            subcomparison._facets(before.facet, after.facet, "")
            if not subcomparison.refusals:
                return
            known.refute(pair, list(subcomparison.refusals))
        for kind, place in known.refuted[pair]:
            self.refuse(kind, path + place)

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
                self._compare_simple(old, new, path)
            case Simple(), Simple() if _is_connect_bytes(old.node) and _is_connect_bytes(new.node):
                pass
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
        """Whether the sides fit, where one of them is a combination: see the table at the head of this file."""
        if isinstance(old, Combined):
            verdicts = (self.fits(part, new) for part in old.parts)
            return any(verdicts) if old.name == "allOf" else all(verdicts)
        assert isinstance(new, Combined)
        verdicts = (self.fits(old, part) for part in new.parts)
        return all(verdicts) if new.name == "allOf" else any(verdicts)

    def _two_combinations(self, old: Combined, new: Combined, path: str) -> None:
        if not _can_change_word(old, new):
            self.refuse("COMBINED_TYPE_CHANGED", path)
            return
        before, after = self._results.distinct_parts(old), self._results.distinct_parts(new)
        if len(before) < len(after) and new.name == "allOf":
            self.refuse("PRODUCT_TYPE_EXTENDED", path)
        elif len(before) > len(after) and old.name != "allOf":
            self.refuse("SUM_TYPE_NARROWED", path)
        elif len(before) <= len(after):
            if not can_pair_off(len(before), len(after), lambda mine, other: self.fits(before[mine], after[other])):
                self.refuse("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)
        elif not can_pair_off(len(after), len(before), lambda mine, other: self.fits(before[other], after[mine])):
            self.refuse("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)

    # One type.

    def _compare_simple(self, old: Simple, new: Simple, path: str) -> None:
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

    def _bound(self, keyword: str, old: float | None, new: float | None, path: str) -> None:
        if new is None or new == old:
            return
        stem = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in keyword)
        is_upper = "max" in keyword.lower()
        if old is None:
            self.refuse(f"{stem}_ADDED", path)
        elif (new < old) == is_upper:
            self.refuse(f"{stem}_{'DECREASED' if is_upper else 'INCREASED'}", path)

    def _multiple_of(self, old: float | None, new: float | None, path: str) -> None:
        if new is None or new == old:
            return
        if old is None:
            self.refuse("MULTIPLE_OF_ADDED", path)
            return
        # As it is written: 0.3 is a multiple of 0.1, though not in binary.
        before, after = Fraction(str(old)), Fraction(str(new))
        if before % after != 0:
            self.refuse("MULTIPLE_OF_EXPANDED" if after % before == 0 else "MULTIPLE_OF_CHANGED", path)

    def _values(self, old: list[JsonValue], new: list[JsonValue], path: str) -> None:
        before, after = ({json.dumps(each, sort_keys=True) for each in values} for values in (old, new))
        if before - after:
            self.refuse("ENUM_ARRAY_NARROWED" if after < before else "ENUM_ARRAY_CHANGED", path)


def _can_change_word(old: Combined, new: Combined) -> bool:
    """Whether `new` may combine its parts with another keyword (allOf, anyOf, oneOf) than `old`: for a single part
    all three mean the same."""
    if old.name == new.name or new.name == "anyOf":
        return True
    was_single, is_single = len(old.parts) == 1, len(new.parts) == 1
    return (was_single and (is_single or new.name == "oneOf")) or (is_single and old.name == "allOf")


def _is_connect_bytes(node: Node) -> bool:
    # A Decimal of Connect's was written as a string once, and is a number since; its type is bytes either way.
    return isinstance(node.tree, dict) and node.tree.get("connect.type") == "bytes"


def can_pair_off(demanding: int, offering: int, suits: Callable[[int, int], bool]) -> bool:
    """Whether every part on one side gets a partner of its own on the other. A part whose possible partners are all
    taken makes the parts that took them look for others first. `suits` is expensive: it is called as late as
    possible, once per pair, and first for the same position in the list, where an unchanged part still is."""
    known: dict[tuple[int, int], bool] = {}
    partner_of: dict[int, int] = {}

    def can_pair(mine: int, other: int) -> bool:
        if (mine, other) not in known:
            known[mine, other] = suits(mine, other)
        return known[mine, other]

    def find_partner(mine: int, tried: set[int]) -> bool:
        for other in sorted(range(offering), key=lambda each: (each != mine, each in partner_of, each)):
            if other in tried or not can_pair(mine, other):
                continue
            tried.add(other)
            if other not in partner_of or find_partner(partner_of[other], tried):
                partner_of[other] = mine
                return True
        return False

    return all(find_partner(each, set()) for each in range(demanding))


def _bound_of(tree: dict[str, Any], keyword: str) -> float | None:
    value = tree.get(keyword)
    # Draft 4: `exclusiveMaximum: true` says that `maximum` itself is excluded.
    if keyword in ("exclusiveMaximum", "exclusiveMinimum") and isinstance(value, bool):
        return tree.get(keyword.replace("exclusiveM", "m")) if value else None
    return value

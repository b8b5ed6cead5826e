"""The keys that a pull query reads: found from the conditions of WHERE on key columns and windows.

`K = 1`, `K IN (1, 2)` and their conjunctions name keys, which are looked up; anything else is a scan, of which every
row is tried. Conditions are always evaluated on the rows as well, so that a bound which is too wide does no harm.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from pessoa.ksql.analysis.pseudo_columns import WINDOWSTART
from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.types.sql_types import EvaluationFailure, Value

# More keys than this are found faster by reading all.
_MOST_KEYS = 10_000


@dataclass(frozen=True)
class Lookup:
    # Values of the key columns; None is a scan.
    keys: tuple[tuple[Value, ...], ...] | None
    # Windows that begin before these are not wanted.
    start_ms: int = 0
    end_ms: int | None = None


def plan_lookup(condition: Typed | None, source: Source, around: EvaluationContext) -> Lookup:
    """Return the keys and the bounds of windows that can hold rows for which the condition is true."""
    parts = list(_conjuncts(condition)) if condition is not None else []
    named = [_values_of(column.name, parts, around) for column in source.key]
    start_ms, end_ms = _bounds(parts, around)
    found = [one for one in named if one is not None]
    if len(found) < len(source.key) or not source.key:
        return Lookup(None, start_ms, end_ms)
    count = 1
    for one in found:
        count *= len(one)
    return Lookup(None if count > _MOST_KEYS else tuple(product(*found)), start_ms, end_ms)


def _conjuncts(condition: Typed) -> Iterator[Typed]:
    if isinstance(condition.node, nodes.Logical) and condition.node.operator == "AND":
        for child in condition.children:
            yield from _conjuncts(child)
    else:
        yield condition


def _values_of(column: str, parts: list[Typed], around: EvaluationContext) -> list[Value] | None:
    """Return the values that a key column may have; None if the condition does not restrict it."""
    for part in parts:
        match part.node:
            case nodes.Comparison("="):
                left, right = part.children
                for own, other in ((left, right), (right, left)):
                    if own.column == column and isinstance(own.node, nodes.Column):
                        value = _constant(other, around)
                        if value is not None:
                            return [value]
            case nodes.InList(negated=False):
                operand, *items = part.children
                if operand.column == column and isinstance(operand.node, nodes.Column):
                    values = [_constant(item, around) for item in items]
                    if all(value is not None for value in values):
                        return list(dict.fromkeys(values))
    return None


def _bounds(parts: list[Typed], around: EvaluationContext) -> tuple[int, int | None]:
    """Return the range of window starts that the condition allows: from (inclusive), to (exclusive, or None)."""
    start, end = 0, None
    for part in parts:
        if isinstance(part.node, nodes.Between) and not part.node.negated:
            operand, low, _, high = part.children
            if _is_start(operand):
                first, last = _constant(low, around), _constant(high, around)
                if isinstance(first, int):
                    start = max(start, first)
                if isinstance(last, int):
                    end = last + 1 if end is None else min(end, last + 1)
        elif isinstance(part.node, nodes.Comparison) and _is_start(part.children[0]):
            value = _constant(part.children[1], around)
            if not isinstance(value, int):
                continue
            operator = part.node.operator
            if operator in (">=", "=", ">"):
                start = max(start, value)
            if operator in ("<=", "=", "<"):
                end = value + 1 if end is None else min(end, value + 1)
    return start, end


def _is_start(typed: Typed) -> bool:
    return isinstance(typed.node, nodes.Column) and typed.column == WINDOWSTART


def _constant(typed: Typed, around: EvaluationContext) -> Value:
    """Return the value of an expression without columns; None if it has columns or cannot be computed."""
    if _has_columns(typed):
        return None
    try:
        return compile_expression(typed, around)({})
    except EvaluationFailure:
        return None


def _has_columns(typed: Typed) -> bool:
    return isinstance(typed.node, nodes.Column) or any(_has_columns(child) for child in typed.children)

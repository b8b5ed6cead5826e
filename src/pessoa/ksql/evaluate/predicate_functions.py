"""Comparisons and logic, which know true and false only: a comparison with a null is false, also <>.

So NOT (a = b) is true when a is null. IS DISTINCT FROM counts null as a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.evaluate.expression_functions import Row, RowFunction, compile_expression
from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.types.sql_types import EvaluationFailure, Value
from pessoa.ksql.types.value_order import is_greater, is_less


def _equal(first: Value, second: Value) -> bool:
    # Java's equals: NaN equals itself.
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second):
        return True
    return first == second


_ORDERS: dict[str, Callable[[Value, Value], bool]] = {
    "=": _equal,
    "<>": lambda first, second: not _equal(first, second),
    "<": is_less,
    "<=": lambda first, second: is_less(first, second) or first == second,
    ">": is_greater,
    ">=": lambda first, second: is_greater(first, second) or first == second,
}


def compile_predicate(typed: Typed, around: EvaluationContext) -> RowFunction:
    """Return the function that decides the condition for a row."""
    parts = [compile_expression(child, around) for child in typed.children]
    match typed.node:
        case nodes.Comparison(operator):
            return _comparison(operator, *parts)
        case nodes.Logical(operator):
            return _logical(operator == "OR", parts)
        case nodes.Not():
            (operand,) = parts
            return lambda row: not _truth(operand(row))
        case nodes.IsNull(_, negated):
            (operand,) = parts
            return lambda row: (operand(row) is None) is not negated
        case nodes.Between(_, _, _, negated):
            above, below = _comparison(">=", *parts[:2]), _comparison("<=", *parts[2:])
            return lambda row: bool(above(row) and below(row)) is not negated
        case nodes.InList(_, _, negated):
            return _in_list(parts[0], parts[1:], negated)
        case nodes.Like(_, _, escape, negated):
            return _like(parts[0], parts[1], escape, negated)
    raise AssertionError(f"no function for {type(typed.node).__name__}")


def _truth(value: Value) -> bool:
    if value is None:
        raise EvaluationFailure("a condition is null")
    return bool(value)


def _comparison(operator: str, left: RowFunction, right: RowFunction) -> RowFunction:
    if operator.startswith("IS "):
        same = "NOT" in operator

        def distinct(row: Row) -> Value:
            first, second = left(row), right(row)
            if first is None or second is None:
                return (first is second) is same
            return _equal(first, second) is same

        return distinct
    decide = _ORDERS[operator]

    def compared(row: Row) -> Value:
        first, second = left(row), right(row)
        return first is not None and second is not None and decide(first, second)

    return compared


def _logical(disjunction: bool, parts: list[RowFunction]) -> RowFunction:
    def decided(row: Row) -> Value:
        for part in parts:
            if _truth(part(row)) is disjunction:
                return disjunction
        return not disjunction

    return decided


def _in_list(operand: RowFunction, items: list[RowFunction], negated: bool) -> RowFunction:
    def contained(row: Row) -> Value:
        value = operand(row)
        found = value is not None and any(_equal(value, item(row)) for item in items)
        return found is not negated

    return contained


def _like(operand: RowFunction, pattern: RowFunction, escape: str | None, negated: bool) -> RowFunction:
    def alike(row: Row) -> Value:
        text, wanted = operand(row), pattern(row)
        if not isinstance(text, str) or not isinstance(wanted, str):
            raise EvaluationFailure("LIKE with a null")
        return matches_like(text, wanted, escape) is not negated

    return alike


def matches_like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Return whether the text matches the LIKE pattern: % stands for any text, _ for one character. Time: text times
    pattern."""
    signs = _signs(pattern, escape)
    position = index = 0
    star, resume = -1, 0
    while position < len(text):
        if index < len(signs) and signs[index] == (True, "%"):
            star, resume = index, position
            index += 1
        elif index < len(signs) and (signs[index] == (True, "_") or signs[index] == (False, text[position])):
            position += 1
            index += 1
        elif star >= 0:
            # The last % takes one character more.
            resume += 1
            position, index = resume, star + 1
        else:
            return False
    return all(sign == (True, "%") for sign in signs[index:])


def _signs(pattern: str, escape: str | None) -> list[tuple[bool, str]]:
    """Return the pattern as (is a wildcard, character)."""
    found: list[tuple[bool, str]] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            found.append((False, next(characters, character)))
        else:
            found.append((character in "%_", character))
    return found

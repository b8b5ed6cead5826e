"""Arithmetic: whole numbers wrap as Java's do, decimals are exact or fail, doubles have infinities."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import TypeAlias

from pessoa.ksql.types.sql_types import DOUBLE, INTEGER, Decimal, EvaluationFailure, SqlType, Value, is_number

Operation: TypeAlias = Callable[[Value, Value], Value]

# Results are exact or fail; the precision is bounded only by that of the types.
_ROOM = 1_000
_EXACT = decimal.Context(
    prec=_ROOM,
    rounding=decimal.ROUND_HALF_UP,
    traps=[decimal.Inexact, decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow],
)
_ROUNDING = decimal.Context(prec=_ROOM, rounding=decimal.ROUND_HALF_UP, traps=[decimal.InvalidOperation])


def wrap_integer(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def wrap_bigint(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def operation(operator: str, left: SqlType, right: SqlType, result: SqlType) -> Operation:
    """Return the function for an operator on numbers; its operands are never None."""
    assert is_number(left)
    assert is_number(right)
    if result == DOUBLE:
        doubles = _DOUBLES[operator]
        return lambda a, b: doubles(float(a), float(b))  # type: ignore[arg-type]
    if isinstance(result, Decimal):
        exact = _DECIMALS[operator]
        return lambda a, b: _compute_exactly(exact, a, b, result)
    wrap = wrap_integer if result == INTEGER else wrap_bigint
    whole = _INTEGERS[operator]
    return lambda a, b: wrap(whole(a, b))  # type: ignore[arg-type]


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationFailure("/ by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return left - right * _divide(left, right)


def _double_divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _double_remainder(left: float, right: float) -> float:
    if right == 0 or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.fmod(left, right)


def _compute_exactly(
    exact: Callable[..., decimal.Decimal], left: Value, right: Value, kind: Decimal
) -> decimal.Decimal:
    try:
        found = exact(decimal.Decimal(left), decimal.Decimal(right))  # type: ignore[arg-type]
        return found.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except decimal.DivisionByZero:
        raise EvaluationFailure("Division by zero") from None
    except decimal.DecimalException:
        raise EvaluationFailure(f"the result has no exact value in {kind}") from None


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": _divide,
    "%": _remainder,
}
_DOUBLES: dict[str, Callable[[float, float], float]] = {
    "+": float.__add__,
    "-": float.__sub__,
    "*": float.__mul__,
    "/": _double_divide,
    "%": _double_remainder,
}
_DECIMALS: dict[str, Callable[..., decimal.Decimal]] = {
    "+": _EXACT.add,
    "-": _EXACT.subtract,
    "*": _EXACT.multiply,
    "/": _EXACT.divide,
    "%": _EXACT.remainder,
}


def fit_decimal(value: decimal.Decimal, kind: Decimal) -> decimal.Decimal:
    """Return the value with the type's scale, rounded half up. Raises EvaluationFailure if it has too many digits."""
    try:
        found = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_ROUNDING)
    except decimal.InvalidOperation:
        raise EvaluationFailure(f"{value} is not a {kind}") from None
    if found and found.adjusted() >= kind.precision - kind.scale:
        limit = f"must round to an absolute value less than 10^{kind.precision - kind.scale}. Got {value:f}"
        raise EvaluationFailure(
            f"Numeric field overflow: A field with precision {kind.precision} and scale {kind.scale} {limit}"
        )
    return found

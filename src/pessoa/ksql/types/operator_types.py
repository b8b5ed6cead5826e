"""The types that operators take and give.

| op | precision | scale | of DECIMAL(p1, s1) and DECIMAL(p2, s2); INTEGER is (10, 0), BIGINT is (19, 0) |
|---|---|---|---|
| + - | max(s) + max(p - s) + 1 | max(s) | |
| * | p1 + p2 + 1 | s1 + s2 | |
| / | p1 - s1 + s2 + scale | max(6, s1 + p2 + 1) | |
| % | min(p - s) + max(s) | max(s) | |

With a DOUBLE the result is DOUBLE; without decimals it is the wider of the two.
"""

from __future__ import annotations

from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIMES,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
    as_decimal,
    is_number,
)

EQUALITIES = ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def arithmetic_type(operator: str, left: SqlType, right: SqlType) -> SqlType | None:
    """Return the type of `left operator right`; None if the operator does not take these types."""
    if operator == "||":
        return left if left == right and left in (STRING, BYTES) else None
    if left == right == STRING:
        return STRING if operator == "+" else None
    if not (is_number(left) and is_number(right)):
        return None
    if DOUBLE in (left, right):
        return DOUBLE
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        first, second = as_decimal(left), as_decimal(right)
        assert first is not None
        assert second is not None
        return decimal_type(operator, first, second)
    return BIGINT if BIGINT in (left, right) else INTEGER


def decimal_type(operator: str, left: Decimal, right: Decimal) -> Decimal:
    scale = max(left.scale, right.scale)
    whole = (left.precision - left.scale, right.precision - right.scale)
    match operator:
        case "+" | "-":
            return Decimal(scale + max(whole) + 1, scale)
        case "*":
            return Decimal(left.precision + right.precision + 1, left.scale + right.scale)
        case "/":
            scale = max(6, left.scale + right.precision + 1)
            return Decimal(left.precision - left.scale + right.scale + scale, scale)
        case "%":
            return Decimal(min(whole) + scale, scale)
    raise AssertionError(f"{operator} is no arithmetic")


def can_compare(operator: str, left: SqlType, right: SqlType) -> bool:
    """Return whether values of these types can be compared with the operator."""
    if is_number(left) and is_number(right):
        return True
    if left == right and left in (STRING, BYTES, *TIMES):
        return True
    if STRING in (left, right) and (left in TIMES or right in TIMES):
        return True
    if {left, right} == {DATE, TIMESTAMP}:
        return True
    nested = (Array, Map, Struct)
    same_kind = left == right == BOOLEAN or any(isinstance(left, kind) and isinstance(right, kind) for kind in nested)
    return operator in EQUALITIES and same_kind


def wider_number(left: SqlType, right: SqlType) -> SqlType:
    """Return the number type that both can be turned into: INTEGER → BIGINT → DECIMAL → DOUBLE."""
    if DOUBLE in (left, right):
        return DOUBLE
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        first, second = as_decimal(left), as_decimal(right)
        assert first is not None
        assert second is not None
        scale = max(first.scale, second.scale)
        return Decimal(max(first.precision - first.scale, second.precision - second.scale) + scale, scale)
    return BIGINT if BIGINT in (left, right) else INTEGER

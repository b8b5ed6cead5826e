"""The order of values of one type. Values of a union cannot be compared for a type checker; those of one column can."""

from __future__ import annotations

from pessoa.ksql.types.sql_types import Value


def is_less(first: Value, second: Value) -> bool:
    """Return whether the first value comes before the second; both are of one type that has an order, and not null."""
    return first < second  # type: ignore[operator]


def is_greater(first: Value, second: Value) -> bool:
    return first > second  # type: ignore[operator]

"""The result of a failed expression: a selected column is null, a condition false, a group's key drops the row.

Each failure is told to `log`, which an engine makes the processing log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pessoa.ksql.evaluate.expression_functions import Row, RowFunction
from pessoa.ksql.types.sql_types import EvaluationFailure, Value

Log = Callable[[str], None]


def or_null(compute: RowFunction, log: Log) -> RowFunction:
    """Return the function that gives null, and logs it, if `compute` fails: for a selected column, a new key of
    PARTITION BY."""

    def computed(row: Row) -> Value:
        try:
            return compute(row)
        except EvaluationFailure as failure:
            log(str(failure))
            return None

    return computed


def condition(compute: RowFunction, log: Log) -> Callable[[Row], bool]:
    """Return the function that decides whether a row passes WHERE or HAVING; null and a failure do not pass."""

    def passes(row: Row) -> bool:
        try:
            return bool(compute(row))
        except EvaluationFailure as failure:
            log(str(failure))
            return False

    return passes


def group_key(parts: Sequence[RowFunction], log: Log) -> Callable[[Row], tuple[Value, ...] | None]:
    """Return the function that gives the key of a row's group; None, so that the row is skipped, if a part is null
    or fails."""

    def key(row: Row) -> tuple[Value, ...] | None:
        try:
            found = tuple(part(row) for part in parts)
        except EvaluationFailure as failure:
            log(str(failure))
            return None
        if any(value is None for value in found):
            log("Group-by column with null value")
            return None
        return found

    return key

"""Functions that make several rows of one: EXPLODE and CUBE_EXPLODE."""

from __future__ import annotations

from functools import cache
from itertools import product

from pessoa.ksql.functions.function_rows import Function, function, variant
from pessoa.ksql.types.sql_types import EvaluationFailure, Value

# A cube has two rows for each column, multiplied.
_MOST_CUBED = 16


def _explode(values: list[Value] | None) -> list[Value]:
    return [] if values is None else list(values)


def _cube(values: list[Value] | None) -> list[Value]:
    """Return every combination in which each value is kept or replaced by null; a null stays null."""
    if not values:
        return []
    if len(values) > _MOST_CUBED:
        raise EvaluationFailure(f"CUBE_EXPLODE takes at most {_MOST_CUBED} columns")
    return [list(row) for row in product(*([None] if value is None else [None, value] for value in values))]


@cache
def table_functions() -> dict[str, Function]:
    """Return the table functions by name; a variant computes the list of the values of the new rows."""
    rows = [
        function("EXPLODE", "TABLE", "A row for each element of an array; none for null or an empty one.",
                 ["EXPLODE(ARRAY[1, 2]) = ARRAY[1, 2]"], variant("(ARRAY<T>) T", _explode, sees_null=True)),
        function("CUBE_EXPLODE", "TABLE", "A row for each combination of the values and nulls.",
                 ["CUBE_EXPLODE(ARRAY[1]) = ARRAY[ARRAY[CAST(NULL AS INT)], ARRAY[1]]"],
                 variant("(ARRAY<T>) ARRAY<T>", _cube, sees_null=True)),
    ]  # fmt: skip
    return {row.name: row for row in rows}

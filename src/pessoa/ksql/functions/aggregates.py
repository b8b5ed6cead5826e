"""The table of aggregate functions: names, signatures, documentation, examples, and the aggregate that each makes.

Arguments behind the columns are literals: the k of TOPK, the n and the ignoreNulls of LATEST_BY_OFFSET.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal as Exact
from functools import cache
from typing import TypeAlias

from pessoa.ksql.functions import aggregate_states as states
from pessoa.ksql.functions.aggregate_states import Aggregate, AggregationFailure
from pessoa.ksql.functions.function_table import refusal
from pessoa.ksql.functions.signatures import Signature, parse_signature
from pessoa.ksql.ksql_errors import NOWHERE, Position, SemanticFailure
from pessoa.ksql.types.number_arithmetic import fit_decimal, wrap_bigint, wrap_integer
from pessoa.ksql.types.sql_types import DOUBLE, INTEGER, Decimal, EvaluationFailure, SqlType, Value
from pessoa.ksql.types.value_order import is_greater, is_less

_HISTOGRAM_KEYS = 1_000
# The types of the columns, the literals behind them.
Make: TypeAlias = Callable[[tuple[SqlType, ...], tuple[Value, ...]], Aggregate]


@dataclass(frozen=True)
class AggregateVariant:
    signature: Signature
    # How many of the arguments are columns; the others are literals.
    columns: int
    make: Make


@dataclass(frozen=True)
class AggregateFunction:
    name: str
    doc: str
    # The call, its columns as arrays in SQL, and the result.
    examples: tuple[tuple[str, tuple[str, ...], str], ...]
    variants: tuple[AggregateVariant, ...]


@dataclass(frozen=True)
class ResolvedAggregate:
    """The aggregate variant of a call: the types that its columns are cast to, and its result type."""

    name: str
    parameters: tuple[SqlType, ...]
    result: SqlType
    aggregate: Aggregate

    @property
    def can_undo(self) -> bool:
        return self.aggregate.undo is not None


def _row(
    name: str, doc: str, examples: list[tuple[str, str | tuple[str, ...], str]], *variants: tuple[str, int, Make]
) -> AggregateFunction:
    shown = tuple(
        (call, (columns,) if isinstance(columns, str) else columns, result) for call, columns, result in examples
    )
    made = tuple(AggregateVariant(parse_signature(text), columns, make) for text, columns, make in variants)
    return AggregateFunction(name, doc, shown, made)


def _arithmetic(kind: SqlType) -> tuple[Value, Callable[[Value, Value], Value], Callable[[Value, Value], Value]]:
    """Return zero, plus and minus of a type: whole numbers wrap, a DECIMAL that overflows fails the query."""
    if isinstance(kind, Decimal):

        def fitted(value: Exact) -> Value:
            try:
                return fit_decimal(value, kind)
            except EvaluationFailure as failure:
                raise AggregationFailure(str(failure)) from None

        return (
            fit_decimal(Exact(0), kind),
            lambda a, b: fitted(operator.add(a, b)),
            lambda a, b: fitted(operator.sub(a, b)),
        )
    if kind == DOUBLE:
        return 0.0, operator.add, operator.sub
    wrap = wrap_integer if kind == INTEGER else wrap_bigint
    return 0, lambda a, b: wrap(operator.add(a, b)), lambda a, b: wrap(operator.sub(a, b))


def _sum(types: tuple[SqlType, ...], _: tuple[Value, ...]) -> Aggregate:
    return states.summing(*_arithmetic(types[0]))


def _average(types: tuple[SqlType, ...], _: tuple[Value, ...]) -> Aggregate:
    return states.averaging(*_arithmetic(types[0]))


def _positive_count(literals: tuple[Value, ...], name: str) -> int:
    count = literals[0]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SemanticFailure(f"{name}: the number must be at least 1, but it is {count!r}")
    return count


def _offset(name: str, latest: bool) -> list[tuple[str, int, Make]]:
    def plain(_: tuple[SqlType, ...], literals: tuple[Value, ...]) -> Aggregate:
        return states.by_offset(latest, None, literals[0] is not False if literals else True)

    def several(_: tuple[SqlType, ...], literals: tuple[Value, ...]) -> Aggregate:
        return states.by_offset(
            latest, _positive_count(literals, name), literals[1] is not False if len(literals) > 1 else True
        )

    return [
        ("(T) T", 1, plain),
        ("(T, BOOLEAN) T", 1, plain),
        ("(T, INTEGER) ARRAY<T>", 1, several),
        ("(T, INTEGER, BOOLEAN) ARRAY<T>", 1, several),
    ]


def _numbers(make: Make) -> list[tuple[str, int, Make]]:
    return [
        ("(INTEGER) INTEGER", 1, make),
        ("(BIGINT) BIGINT", 1, make),
        ("(DOUBLE) DOUBLE", 1, make),
        ("(DECIMAL) DECIMAL", 1, make),
    ]


def _to_double(make: Make) -> list[tuple[str, int, Make]]:
    return [("(INTEGER) DOUBLE", 1, make), ("(BIGINT) DOUBLE", 1, make), ("(DOUBLE) DOUBLE", 1, make)]


_ROWS = [
    _row(
        "COUNT",
        "The number of rows, or of values that are not null.",
        [("COUNT(x)", "ARRAY[1, NULL, 2]", "2")],
        ("() BIGINT", 0, lambda _, __: states.counting(True)),
        ("(T) BIGINT", 1, lambda _, __: states.counting(False)),
    ),
    _row(
        "SUM",
        "The sum; whole numbers wrap.",
        [("SUM(x)", "ARRAY[1, NULL, 2]", "3"), ("SUM(x)", "ARRAY[2147483647, 1]", "-2147483648")],
        *_numbers(_sum),
    ),
    _row(
        "AVG",
        "The average; 0 of nothing.",
        [("AVG(x)", "ARRAY[1, NULL, 2]", "1.5e0"), ("AVG(x)", "ARRAY[CAST(NULL AS INT)]", "0e0")],
        *_to_double(_average),
    ),
    _row(
        "MIN",
        "The smallest value.",
        [("MIN(x)", "ARRAY[3, NULL, 2]", "2")],
        ("(T) T", 1, lambda _, __: states.extreme(is_less)),
    ),
    _row(
        "MAX",
        "The largest value.",
        [("MAX(x)", "ARRAY['a', NULL, 'b']", "'b'")],
        ("(T) T", 1, lambda _, __: states.extreme(is_greater)),
    ),
    _row(
        "COLLECT_LIST",
        "All values, nulls too, in the order of arrival.",
        [("COLLECT_LIST(x)", "ARRAY[1, NULL, 1]", "ARRAY[1, NULL, 1]")],
        ("(T) ARRAY<T>", 1, lambda _, __: states.listing(None)),
    ),
    _row(
        "COLLECT_SET",
        "Every value once, null too, in the order of arrival.",
        [("COLLECT_SET(x)", "ARRAY[1, NULL, 1]", "ARRAY[1, NULL]")],
        ("(T) ARRAY<T>", 1, lambda _, __: states.distinct_listing(None)),
    ),
    _row(
        "TOPK",
        "The k largest values, in descending order; with further columns, as structs.",
        [
            ("TOPK(x, 2)", "ARRAY[1, 3, NULL, 3, 2]", "ARRAY[3, 3]"),
            ("TOPK(x, y, 1)", ("ARRAY[1, 2]", "ARRAY['a', 'b']"), "ARRAY[STRUCT(`sort_col` := 2, `col0` := 'b')]"),
        ],
        ("(T, INTEGER) ARRAY<T>", 1, lambda _, literals: states.top(_positive_count(literals, "TOPK"), False, 1)),
        (
            "(T, U, INTEGER) ARRAY<STRUCT<sort_col T, col0 U>>",
            2,
            lambda _, literals: states.top(_positive_count(literals, "TOPK"), False, 2),
        ),
        (
            "(T, U, V, INTEGER) ARRAY<STRUCT<sort_col T, col0 U, col1 V>>",
            3,
            lambda _, literals: states.top(_positive_count(literals, "TOPK"), False, 3),
        ),
        (
            "(T, U, V, W, INTEGER) ARRAY<STRUCT<sort_col T, col0 U, col1 V, col2 W>>",
            4,
            lambda _, literals: states.top(_positive_count(literals, "TOPK"), False, 4),
        ),
    ),
    _row(
        "TOPKDISTINCT",
        "The k largest values, each once, in descending order.",
        [("TOPKDISTINCT(x, 2)", "ARRAY[1, 3, 3, 2]", "ARRAY[3, 2]")],
        (
            "(T, INTEGER) ARRAY<T>",
            1,
            lambda _, literals: states.top(_positive_count(literals, "TOPKDISTINCT"), True, 1),
        ),
    ),
    _row(
        "LATEST_BY_OFFSET",
        "The last value, or the last n; nulls are ignored unless a last argument is FALSE.",
        [
            ("LATEST_BY_OFFSET(x)", "ARRAY[1, 2, NULL]", "2"),
            ("LATEST_BY_OFFSET(x, 2)", "ARRAY[1, 2, 3]", "ARRAY[2, 3]"),
            ("LATEST_BY_OFFSET(x, 2, FALSE)", "ARRAY[1, 2, NULL]", "ARRAY[2, NULL]"),
        ],
        *_offset("LATEST_BY_OFFSET", True),
    ),
    _row(
        "EARLIEST_BY_OFFSET",
        "The first value, or the first n; nulls are ignored unless a last argument is FALSE.",
        [
            ("EARLIEST_BY_OFFSET(x)", "ARRAY[NULL, 1, 2]", "1"),
            ("EARLIEST_BY_OFFSET(x, 2)", "ARRAY[1, 2, 3]", "ARRAY[1, 2]"),
        ],
        *_offset("EARLIEST_BY_OFFSET", False),
    ),
    _row(
        "HISTOGRAM",
        "How often each text came; at most 1000 different ones.",
        [("HISTOGRAM(x)", "ARRAY['a', 'b', 'a']", "MAP('a' := CAST(2 AS BIGINT), 'b' := CAST(1 AS BIGINT))")],
        ("(STRING) MAP<STRING, BIGINT>", 1, lambda _, __: states.histogram(_HISTOGRAM_KEYS)),
    ),
    _row(
        "COUNT_DISTINCT",
        "About how many different values there are (1 % off).",
        [("COUNT_DISTINCT(x)", "ARRAY[1, 2, 1, NULL]", "2")],
        ("(T) BIGINT", 1, lambda _, __: states.approximately_distinct()),
    ),
    _row(
        "STDDEV_SAMP",
        "The sample variance (it takes no square root; STDDEV_SAMPLE does).",
        [("STDDEV_SAMP(x)", "ARRAY[1, 3]", "2e0")],
        *_to_double(lambda _, __: states.deviation(root=False)),
    ),
    _row(
        "STDDEV_SAMPLE",
        "The sample standard deviation.",
        [("STDDEV_SAMPLE(x)", "ARRAY[1, 5, 5, 9, 5]", "SQRT(8)")],
        *_to_double(lambda _, __: states.deviation(root=True)),
    ),
    _row(
        "CORRELATION",
        "The correlation of two columns.",
        [("CORRELATION(x, y)", ("ARRAY[1, 2, 3]", "ARRAY[2, 4, 6]"), "1e0")],
        ("(DOUBLE, DOUBLE) DOUBLE", 2, lambda _, __: states.correlation()),
    ),
    _row(
        "ATTR",
        "The value that all rows have; null if there are several.",
        [("ATTR(x)", "ARRAY['a', 'a']", "'a'"), ("ATTR(x)", "ARRAY['a', 'b']", "CAST(NULL AS STRING)")],
        ("(T) T", 1, lambda _, __: states.single_value()),
    ),
]


@cache
def aggregate_functions() -> dict[str, AggregateFunction]:
    """Return every aggregate function by its name."""
    return {row.name: row for row in _ROWS}


def resolve_aggregate(
    name: str, types: Sequence[SqlType], literals: Sequence[Value], at: Position = NOWHERE
) -> ResolvedAggregate:
    """Return the aggregate variant for these argument types; `literals` are the values of the trailing constant
    arguments."""
    row = aggregate_functions()[name]
    best: tuple[int, AggregateVariant, tuple[SqlType, ...], SqlType] | None = None
    for variant in row.variants:
        match = variant.signature.match(types)
        if match is None or len(types) - variant.columns > len(literals):
            continue
        if best is None or match.cost < best[0]:
            best = match.cost, variant, match.parameters, match.result
    if best is None:
        raise refusal(name, [str(variant.signature) for variant in row.variants], types, at)
    _, variant, parameters, result = best
    if isinstance(parameters[0] if parameters else None, Decimal) and name == "SUM":
        result = parameters[0]
    own = tuple(literals[len(literals) - (len(types) - variant.columns) :]) if len(types) > variant.columns else ()
    kinds = parameters[: variant.columns]
    return ResolvedAggregate(name, kinds, result, variant.make(kinds, own))

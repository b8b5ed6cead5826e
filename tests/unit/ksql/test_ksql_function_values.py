"""Every function takes every value of its types: it gives a value of its own type, or fails as the log expects."""

from __future__ import annotations

import decimal
from random import Random

import pytest

from pessoa.ksql.analysis.expression_scopes import ColumnScope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.functions.function_rows import Function
from pessoa.ksql.functions.function_table import scalar_functions
from pessoa.ksql.functions.signatures import AnyDecimal, Variable
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Call, Column, Expression, IntervalUnit
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL_TYPE,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    EvaluationFailure,
    Lambda,
    Map,
    SqlType,
    Struct,
    Value,
)
from tests.unit.ksql.ksql_evaluation import SeededEvaluationContext

DECIMAL = Decimal(6, 2)
POOLS: dict[SqlType, list[Value]] = {
    INTEGER: [0, 1, -1, 2, 5, -7, 100, 2**31 - 1, -(2**31)],
    BIGINT: [0, 1, -1, 3, 2**31, 1_600_000_000_000, 2**63 - 1, -(2**63)],
    DOUBLE: [0.0, -0.0, 1.5, -2.5, 0.1, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan")],
    STRING: [
        "", " ", "a", "A b", "é😀", "\ud800", "2026-11-17", "23:59", '{"a": [1, null]}', "[1, 2]", "nul", "0x41",
        "YQ==",
        "http://u@a:80/b?c=d&e#f", "http://[::1", "$.a[0]", "yyyy-MM-dd HH:mm:ss.SSS", "dd.MM", "(", "(a)", "%", "true",
        "UTC",
        "Asia/Tokyo", "../etc", "hex", "base64", "ASC", "LITTLE_ENDIAN", "KM", "x" * 60, "\\u004b", "\x00", "-1", "1e5",
    ],
    BYTES: [b"", b"\x00", b"1234", b"12345678", b"\xff" * 16],
    BOOLEAN: [True, False],
    DATE: [0, -1, 20_000, -719_162, 2_932_896, 10**7, -(10**7)],
    TIME: [0, 1, 86_399_999],
    TIMESTAMP: [0, -1, 1_600_000_000_123, 253_402_300_799_999, 2**63 - 1, -(2**63)],
    DECIMAL: [decimal.Decimal(text) for text in ("0.00", "-9999.99", "12.34", "0.01", "9999.99", "-0.50")],
    Decimal(60, 30): [decimal.Decimal("1" * 30 + "." + "2" * 30), decimal.Decimal("-0." + "3" * 30)],
}  # fmt: skip
SCALARS = [INTEGER, STRING, DOUBLE, BOOLEAN, DECIMAL, TIMESTAMP, BYTES]
UNITS = ["DAYS", "HOURS", "MILLISECONDS"]


def concrete(kind: SqlType, bound: dict[str, SqlType], random: Random) -> SqlType:
    match kind:
        case Variable(name):
            return bound.setdefault(name, random.choice(SCALARS))
        case AnyDecimal():
            return random.choice([DECIMAL, Decimal(60, 30)])
        case Array(element):
            return Array(concrete(element, bound, random))
        case Map(key, value):
            return Map(concrete(key, bound, random), concrete(value, bound, random))
    return kind


def draw(kind: SqlType, random: Random) -> Value:
    if random.random() < 0.15:
        return None
    match kind:
        case Array(element):
            return [draw(element, random) for _ in range(random.choice([0, 1, 3]))]
        case Map(key, value):
            keys = [one for one in (draw(key, random) for _ in range(random.choice([0, 1, 2]))) if one is not None]
            return {one: draw(value, random) for one in keys}
    return random.choice(POOLS[kind])


def conforms(value: Value, kind: SqlType) -> bool:
    match kind:
        case _ if value is None:
            return True
        case Array(element):
            return isinstance(value, list) and all(conforms(one, element) for one in value)
        case Map(key, item):
            return isinstance(value, dict) and all(
                conforms(one, key) and conforms(other, item) for one, other in value.items()
            )
        case Struct(fields):
            return isinstance(value, dict) and all(conforms(value[name], one) for name, one in fields)
        case Decimal(precision, scale):
            return (
                isinstance(value, decimal.Decimal)
                and value.as_tuple().exponent == -scale
                and (not value or value.adjusted() < precision - scale)
            )
    limits: dict[SqlType, int] = {INTEGER: 2**31, BIGINT: 2**63}
    if kind in limits:
        return type(value) is int and -limits[kind] <= value < limits[kind]
    types: dict[SqlType, type] = {
        DOUBLE: float,
        STRING: str,
        BYTES: bytes,
        BOOLEAN: bool,
        DATE: int,
        TIME: int,
        TIMESTAMP: int,
    }
    return type(value) is types[kind]


@pytest.mark.parametrize("row", scalar_functions().values(), ids=lambda row: row.name)
def test_a_function_returns_a_value_of_its_type_or_raises_evaluation_failure(row: Function) -> None:
    random = Random(row.name)
    around = SeededEvaluationContext()
    evaluated = 0
    for variant in row.variants:
        wanted = list(variant.signature.parameters)
        if any(isinstance(one, Lambda) for one in wanted):
            continue
        for _ in range(25):
            more = wanted[-1:] * random.choice([0, 1, 2]) if variant.signature.variadic else []
            bound: dict[str, SqlType] = {}
            kinds = [concrete(one, bound, random) for one in [*wanted, *more]]
            arguments: list[Expression] = [
                IntervalUnit(random.choice(UNITS)) if kind == INTERVAL_UNIT else Column(f"X{index}")
                for index, kind in enumerate(kinds)
            ]
            scope = ColumnScope({f"X{index}": kind for index, kind in enumerate(kinds)})
            try:
                typed = type_expression(Call(row.name, tuple(arguments)), scope)
            except SemanticFailure:
                continue
            values = {f"X{index}": draw(kind, random) for index, kind in enumerate(kinds) if kind != INTERVAL_UNIT}
            try:
                found = compile_expression(typed, around)(values)
            except EvaluationFailure as failure:
                # With a cause, it is an exception that the function did not foresee.
                assert failure.__cause__ is None, (kinds, values)  # noqa: PT017
                continue
            evaluated += 1
            assert typed.type == NULL_TYPE or conforms(found, typed.type), (kinds, values, found, typed.type)
    assert evaluated or any(isinstance(one, Lambda) for one in row.variants[0].signature.parameters)

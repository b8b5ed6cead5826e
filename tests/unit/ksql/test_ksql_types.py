"""The rules of types: results of operators, comparisons, implicit casts, CAST, and values as text."""

from __future__ import annotations

import decimal
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.ksql.types import time_text
from pessoa.ksql.types.explicit_casts import caster
from pessoa.ksql.types.implicit_casts import can_cast_implicitly, common_type, fits_column, literal_fits, number_type_of
from pessoa.ksql.types.number_arithmetic import operation
from pessoa.ksql.types.operator_types import arithmetic_type, can_compare
from pessoa.ksql.types.sql_types import BIGINT, DOUBLE, INTEGER, NULL_TYPE, EvaluationFailure, Value
from pessoa.ksql.types.value_text import double_text
from tests.support.ksql_texts import parse_type_text as t

D = decimal.Decimal


@pytest.mark.parametrize(
    ("operator", "left", "right", "result"),
    [
        ("+", "INT", "INT", "INT"),
        ("*", "INT", "BIGINT", "BIGINT"),
        ("/", "BIGINT", "DOUBLE", "DOUBLE"),
        ("+", "DECIMAL(4,2)", "DECIMAL(6,1)", "DECIMAL(8,2)"),
        ("-", "DECIMAL(4,2)", "INT", "DECIMAL(13,2)"),
        ("*", "DECIMAL(4,2)", "DECIMAL(5,3)", "DECIMAL(10,5)"),
        ("/", "DECIMAL(4,2)", "DECIMAL(5,3)", "DECIMAL(13,8)"),
        ("/", "DECIMAL(2,1)", "DECIMAL(2,1)", "DECIMAL(8,6)"),
        ("%", "DECIMAL(4,2)", "DECIMAL(5,3)", "DECIMAL(5,3)"),
        ("*", "DECIMAL(30,2)", "BIGINT", "DECIMAL(50,2)"),
        ("+", "STRING", "STRING", "STRING"),
        ("||", "BYTES", "BYTES", "BYTES"),
        ("-", "STRING", "STRING", None),
        ("+", "STRING", "INT", None),
        ("+", "BOOLEAN", "BOOLEAN", None),
        ("||", "INT", "INT", None),
        ("+", "DATE", "INT", None),
    ],
)
def test_the_result_type_of_an_operator_follows_its_rule(
    operator: str, left: str, right: str, result: str | None
) -> None:
    assert arithmetic_type(operator, t(left), t(right)) == (None if result is None else t(result))


@pytest.mark.parametrize(
    ("operator", "left", "right", "allowed"),
    [
        ("=", "INT", "DECIMAL(3,1)", True),
        ("<", "STRING", "TIMESTAMP", True),
        ("<", "DATE", "TIMESTAMP", True),
        ("<", "TIME", "TIMESTAMP", False),
        ("<", "BYTES", "BYTES", True),
        ("=", "STRING", "INT", False),
        ("=", "BOOLEAN", "BOOLEAN", True),
        ("<", "BOOLEAN", "BOOLEAN", False),
        ("IS DISTINCT FROM", "ARRAY<INT>", "ARRAY<INT>", True),
        (">", "MAP<STRING, INT>", "MAP<STRING, INT>", False),
        ("=", "STRUCT<A INT>", "STRUCT<A INT>", True),
        ("=", "BOOLEAN", "STRING", False),
    ],
)
def test_types_are_comparable_or_not(operator: str, left: str, right: str, allowed: bool) -> None:
    assert can_compare(operator, t(left), t(right)) is allowed
    assert can_compare(operator, t(right), t(left)) is allowed


def compute(operator: str, left: Value, right: Value, kinds: tuple[str, str]) -> Value:
    one, other = t(kinds[0]), t(kinds[1])
    result = arithmetic_type(operator, one, other)
    assert result is not None
    return operation(operator, one, other, result)(left, right)


def test_whole_numbers_wrap_and_divide_towards_zero() -> None:
    ints = ("INT", "INT")
    assert compute("+", 2**31 - 1, 1, ints) == -(2**31)
    assert compute("*", 2**62, 4, ("BIGINT", "INT")) == 0
    assert compute("/", -7, 2, ints) == -3
    assert compute("%", -7, 2, ints) == -1
    assert compute("%", 7, -2, ints) == 1
    with pytest.raises(EvaluationFailure, match="by zero"):
        compute("/", 1, 0, ints)


def test_doubles_have_infinities_and_nan() -> None:
    doubles = ("DOUBLE", "INT")
    assert compute("/", 1.0, 0, doubles) == math.inf
    assert compute("/", -1.0, 0, doubles) == -math.inf
    assert math.isnan(compute("/", 0.0, 0, doubles))  # type: ignore[arg-type]
    assert math.isnan(compute("%", 1.0, 0, doubles))  # type: ignore[arg-type]
    assert compute("%", -7.5, 2, doubles) == -1.5


def test_decimals_are_exact_or_fail() -> None:
    kinds = ("DECIMAL(2,1)", "DECIMAL(2,1)")
    assert str(compute("+", D("1.5"), D("2.5"), kinds)) == "4.0"
    assert str(compute("/", D("1.0"), D("8.0"), kinds)) == "0.125000"
    with pytest.raises(EvaluationFailure, match="no exact value"):
        compute("/", D("1.0"), D("3.0"), kinds)
    with pytest.raises(EvaluationFailure):
        compute("/", D("1.0"), D("0.0"), kinds)
    long = "DECIMAL(60,0)"
    assert compute("*", D(10**59), D(10**59), (long, long)) == D(10**118)


@settings(max_examples=100)
@given(st.decimals(-999, 999, places=2), st.decimals(-999, 999, places=3), st.sampled_from(["+", "-", "*", "%"]))
def test_a_decimal_result_fits_its_type(left: D, right: D, operator: str) -> None:
    one, other = t("DECIMAL(5,2)"), t("DECIMAL(6,3)")
    result = arithmetic_type(operator, one, other)
    assert result is not None
    if operator == "%" and right == 0:
        return
    found = operation(operator, one, other, result)(left, right)
    assert isinstance(found, D)
    with decimal.localcontext() as context:
        context.prec = 50
        expected = {"+": left + right, "-": left - right, "*": left * right}.get(operator)
    assert expected is None or found == expected
    cast = caster(result, result)
    assert cast is not None
    assert cast(found) == found


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("INT", "BIGINT", True),
        ("BIGINT", "INT", False),
        ("INT", "DECIMAL(10,0)", True),
        ("INT", "DECIMAL(9,0)", False),
        ("BIGINT", "DECIMAL(19,0)", True),
        ("DECIMAL(4,2)", "DECIMAL(5,3)", True),
        ("DECIMAL(4,2)", "DECIMAL(4,3)", False),
        ("DECIMAL(4,2)", "DOUBLE", True),
        ("DOUBLE", "DECIMAL(38,10)", False),
        ("STRING", "TIMESTAMP", True),
        ("STRING", "BYTES", True),
        ("STRING", "INT", False),
        ("INT", "STRING", False),
        ("ARRAY<INT>", "ARRAY<BIGINT>", True),
        ("MAP<STRING, INT>", "MAP<STRING, DOUBLE>", True),
        ("STRUCT<A INT>", "STRUCT<A BIGINT, B STRING>", True),
        ("STRUCT<A INT, C INT>", "STRUCT<A BIGINT>", False),
    ],
)
def test_a_type_is_implicitly_convertible_to_another_or_not(source: str, target: str, allowed: bool) -> None:
    assert can_cast_implicitly(t(source), t(target)) is allowed


def test_a_decimal_column_accepts_any_exact_number() -> None:
    assert fits_column(INTEGER, t("DECIMAL(5,2)"))
    assert not fits_column(DOUBLE, t("DECIMAL(5,2)"))


def test_the_common_type_is_the_wider() -> None:
    assert common_type(INTEGER, NULL_TYPE) == INTEGER
    assert common_type(INTEGER, t("DECIMAL(4,2)")) == t("DECIMAL(12,2)")
    assert common_type(BIGINT, DOUBLE) == DOUBLE
    assert common_type(t("STRUCT<A INT, B INT>"), t("STRUCT<B BIGINT, C STRING>")) == t(
        "STRUCT<A INT, B BIGINT, C STRING>"
    )
    assert common_type(t("ARRAY<INT>"), t("ARRAY<STRING>")) is None


def test_numeric_text_is_convertible_to_a_number() -> None:
    assert literal_fits(" 12 ", INTEGER)
    assert not literal_fits("x", INTEGER)
    assert literal_fits("Fal", t("BOOLEAN"))
    assert not literal_fits("maybe", t("BOOLEAN"))
    assert [number_type_of(text) for text in ("2e1", "3000000000", "1.50", "1.5e0", "x")] == [
        INTEGER, BIGINT, t("DECIMAL(3,2)"), DOUBLE, None,
    ]  # fmt: skip


DAY = 86_400_000
CASTS: list[tuple[Value, str, str, Value]] = [
    (1, "INT", "STRING", "1"),
    (1.0, "DOUBLE", "STRING", "1.0"),
    (1e10, "DOUBLE", "STRING", "1.0E10"),
    (D("1.50"), "DECIMAL(3,2)", "STRING", "1.50"),
    (True, "BOOLEAN", "STRING", "true"),
    ([1, None], "ARRAY<INT>", "STRING", "[1, null]"),
    ({"a": 1}, "MAP<STRING, INT>", "STRING", "{a=1}"),
    ({"A": 1, "B": "x"}, "STRUCT<A INT, B STRING>", "STRING", "Struct{A=1,B=x}"),
    (1.9, "DOUBLE", "INT", 1),
    (-1.9, "DOUBLE", "BIGINT", -1),
    (1e300, "DOUBLE", "INT", 2**31 - 1),
    (2**32 + 5, "BIGINT", "INT", 5),
    (D("2.7"), "DECIMAL(2,1)", "INT", 2),
    (5, "INT", "DOUBLE", 5.0),
    (1.125, "DOUBLE", "DECIMAL(3,2)", D("1.13")),
    (D("-1.125"), "DECIMAL(4,3)", "DECIMAL(3,2)", D("-1.13")),
    (12, "INT", "DECIMAL(4,2)", D("12.00")),
    (" 12 ", "STRING", "INT", 12),
    ("-1.5e1", "STRING", "DOUBLE", -15.0),
    ("1.005", "STRING", "DECIMAL(3,2)", D("1.01")),
    ("Tr", "STRING", "BOOLEAN", True),
    ("YES", "STRING", "BOOLEAN", True),
    ("no", "STRING", "BOOLEAN", False),
    ("whatever", "STRING", "BOOLEAN", False),
    ("1970-01-02", "STRING", "DATE", 1),
    ("00:00:01.5", "STRING", "TIME", 1500),
    ("1970-01-02T00:00:00.001", "STRING", "TIMESTAMP", DAY + 1),
    (DAY + 1, "TIMESTAMP", "DATE", 1),
    (-1, "TIMESTAMP", "DATE", -1),
    (DAY + 1, "TIMESTAMP", "TIME", 1),
    (2, "DATE", "TIMESTAMP", 2 * DAY),
    (0, "TIMESTAMP", "STRING", "1970-01-01T00:00:00.000"),
    (3_661_000, "TIME", "STRING", "01:01:01"),
    (0, "DATE", "STRING", "1970-01-01"),
    (["1", None], "ARRAY<STRING>", "ARRAY<INT>", [1, None]),
    ({"A": "1"}, "STRUCT<A STRING>", "STRUCT<A INT, B INT>", {"A": 1, "B": None}),
    ({"1": "2"}, "MAP<STRING, STRING>", "MAP<INT, BIGINT>", {1: 2}),
    (None, "INT", "STRING", None),
]


@pytest.mark.parametrize(("value", "source", "target", "expected"), CASTS)
def test_a_cast_has_the_value_that_ksqldb_documents(value: Value, source: str, target: str, expected: Value) -> None:
    cast = caster(t(source), t(target))
    assert cast is not None
    found = cast(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("source", "target"),
    [("BOOLEAN", "INT"), ("INT", "BOOLEAN"), ("BYTES", "STRING"), ("TIME", "INT"), ("DATE", "BIGINT"), ("TIME", "DATE"),
     ("ARRAY<BOOLEAN>", "ARRAY<INT>"), ("STRUCT<A BOOLEAN>", "STRUCT<A INT>"), ("INT", "ARRAY<INT>")],
)  # fmt: skip
def test_some_casts_do_not_exist(source: str, target: str) -> None:
    assert caster(t(source), t(target)) is None


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [("x", "STRING", "INT"), ("1.5", "STRING", "INT"), ("2147483648", "STRING", "INT"), ("1_0", "STRING", "DOUBLE"),
     (1000, "INT", "DECIMAL(4,2)"), (math.nan, "DOUBLE", "DECIMAL(4,2)"), ("2020-13-01", "STRING", "DATE"),
     ("25:00", "STRING", "TIME"), ("9" * 5000, "STRING", "DECIMAL(4,2)"),
     ("١", "STRING", "INT"), ("%", "STRING", "BYTES")],
)  # fmt: skip
def test_a_value_that_cannot_be_cast_raises_evaluation_failure(value: Value, source: str, target: str) -> None:
    cast = caster(t(source), t(target))
    assert cast is not None
    with pytest.raises(EvaluationFailure):
        cast(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020", "2020-01-01T00:00:00.000"),
        ("2020-05", "2020-05-01T00:00:00.000"),
        ("2020-05-26T23", "2020-05-26T23:00:00.000"),
        ("2020-05-26T23:59:58.1", "2020-05-26T23:59:58.100"),
        ("2020-05-26T23:59:58.123Z", "2020-05-26T23:59:58.123"),
        ("2020-05-26T23:59:58+0100", "2020-05-26T22:59:58.000"),
    ],
)
def test_a_timestamp_may_be_partial_and_have_a_zone(text: str, expected: str) -> None:
    assert time_text.format_timestamp(time_text.parse_timestamp(text)) == expected


@settings(max_examples=100)
@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_every_timestamp_parses_back_from_its_text(ms: int) -> None:
    assert time_text.parse_timestamp(time_text.format_timestamp(ms)) == ms


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (100.0, "100.0"), (0.001, "0.001"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"),
     (1e-4, "1.0E-4"), (-2.5e-10, "-2.5E-10"), (math.inf, "Infinity"), (math.nan, "NaN"), (1e21, "1.0E21")],
)  # fmt: skip
def test_doubles_are_printed_as_java_does(value: float, text: str) -> None:
    assert double_text(value) == text

"""Expressions over rows: nulls, failures, two-valued logic, subscripts, casts, lists."""

from __future__ import annotations

import decimal
from dataclasses import replace

import pytest

from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.evaluate.predicate_functions import matches_like
from pessoa.ksql.evaluate.row_functions import condition, group_key, or_null
from pessoa.ksql.functions.function_table import Resolved
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.types.sql_types import EvaluationFailure, Value
from tests.unit.ksql.ksql_evaluation import SeededEvaluationContext, evaluate, typed

COLUMNS = {
    "A": "INT", "B": "INT", "N": "INT", "S": "STRING", "T": "BOOLEAN", "F": "BOOLEAN", "X": "DOUBLE",
    "D": "DECIMAL(4,2)",
    "ARR": "ARRAY<INT>", "M": "MAP<STRING, INT>", "ST": "STRUCT<F INT, G STRUCT<H STRING>>", "NST": "STRUCT<F INT>",
    "NARR": "ARRAY<INT>", "TS": "TIMESTAMP", "DT": "DATE", "ROWTIME": "BIGINT", "RAW": "BYTES", "NS": "STRING",
}  # fmt: skip
ROW: dict[str, Value] = {
    "A": 7, "B": 2, "N": None, "S": "text", "T": True, "F": False, "X": 1.5, "D": decimal.Decimal("12.50"),
    "ARR": [10, 20, 30], "M": {"a": 1}, "ST": {"F": 5, "G": {"H": "deep"}}, "NST": None, "NARR": None,
    "TS": 1_590_537_598_000, "DT": 18_408, "ROWTIME": 1_590_537_598_000, "RAW": b"ab", "NS": None,
}  # fmt: skip

VALUES: list[tuple[str, Value]] = [
    ("a + b * 2", 11),
    ("a / b", 3),
    ("a % b", 1),
    ("-a", -7),
    ("a / x", 7 / 1.5),
    ("d + 1", decimal.Decimal("13.50")),
    ("s + '!' ", "text!"),
    ("s + ns", "textnull"),
    ("s || ns || '!'", "text!"),
    ("raw || raw", b"abab"),
    ("a = 7", True),
    ("n = 7", False),
    ("n <> 7", False),
    ("NOT (n = 7)", True),
    ("n IS NULL", True),
    ("a IS NOT NULL", True),
    ("n IS DISTINCT FROM 7", True),
    ("n IS NOT DISTINCT FROM n", True),
    ("n IS DISTINCT FROM NULL", False),
    ("a BETWEEN 7 AND 8", True),
    ("n BETWEEN 1 AND 8", False),
    ("n NOT BETWEEN 1 AND 8", True),
    ("a IN (1, 7)", True),
    ("a IN (1, '7')", True),
    ("s IN ('text', 1)", True),
    ("n IN (1, NULL)", False),
    ("n NOT IN (1)", True),
    ("s LIKE 't%t'", True),
    ("s NOT LIKE '_ext'", False),
    ("a = 7.0", True),
    ("d = 12.5e0", True),
    ("t AND f", False),
    ("f OR t", True),
    ("CASE WHEN n > 1 THEN 'x' WHEN a > 1 THEN 'y' END", "y"),
    ("CASE a WHEN 1 THEN 'one' ELSE 'other' END", "other"),
    ("CASE WHEN f THEN 1 END", None),
    ("CASE WHEN t THEN 1 ELSE a / 0 END", 1),
    ("CASE WHEN t THEN 1 ELSE 2.5 END", decimal.Decimal("1.0")),
    ("arr[1]", 10),
    ("arr[-1]", 30),
    ("arr[0]", None),
    ("arr[4]", None),
    ("arr[-4]", None),
    ("narr[1]", None),
    ("m['a']", 1),
    ("m['b']", None),
    ("st->g->h", "deep"),
    ("nst->f", None),
    ("ARRAY[1, '2']", [1, 2]),
    ("ARRAY['x', 1]", ["x", "1"]),
    ("ARRAY[NULL, 10, '2e1', a, CAST(b AS BIGINT)]", [None, 10, 20, 7, 2]),
    ("ARRAY[t, 'no', 'Y']", [True, False, True]),
    ("ARRAY[s, 1, TRUE]", ["text", "1", "true"]),
    ("a IN ('7e0', '8.5')", True),
    ("MAP(1 := '2', '3' := b)", {1: 2, 3: 2}),
    ("ARRAY[1, 2.5]", [decimal.Decimal("1.0"), decimal.Decimal("2.5")]),
    ("MAP('k' := a, 'l' := n)", {"k": 7, "l": None}),
    ("STRUCT(f := a)->f", 7),
    ("CAST('12' AS INT) + 1", 13),
    ("CAST(arr AS ARRAY<STRING>)", ["10", "20", "30"]),
    ("ts > '2020-05-26'", True),
    ("ts = '2020-05-26T23:59:58'", True),
    ("dt < ts", True),
    ("dt = '2020-05-26'", True),
    ("rowtime >= '2020-05-26T23:59:58'", True),
    ("rowtime BETWEEN '2020' AND '2021'", True),
    ("TRANSFORM(arr, x => x + a)", [17, 27, 37]),
    ("FILTER(arr, a => a > 10)", [20, 30]),
    ("TRANSFORM(ARRAY[arr, arr], r => REDUCE(r, 0, (s, x) => s + x))", [60, 60]),
    # A call that fails as an argument is null for the outer call alone; arithmetic fails the whole.
    ("COALESCE(PARSE_DATE('x', 'yyyy'), dt)", 18_408),
    ("IFNULL(CAST(PARSE_DATE('x', 'yyyy') AS STRING), 'none')", "none"),
    ("COALESCE(nst->f, 3)", 3),
    ("IFNULL(arr[9], 3)", 3),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), VALUES, ids=[text for text, _ in VALUES])
def test_an_expression_has_the_value_that_ksqldb_documents(text: str, expected: Value) -> None:
    found = evaluate(text, COLUMNS, ROW)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    ["a + n", "n - 1", "-n", "COALESCE(a + n, 0)", "a / 0", "ns LIKE 'x'", "CAST('x' AS INT)", "d / 3.0",
     "UCASE(s) = ns + CAST(a / 0 AS STRING)",
     "CAST(NULL AS BOOLEAN) AND t", "TRANSFORM(arr, x => x / 0)"],
)  # fmt: skip
def test_an_expression_with_an_error_raises_evaluation_failure(text: str) -> None:
    with pytest.raises(EvaluationFailure):
        evaluate(text, COLUMNS, ROW)


REFUSED = [
    ("s + 1", "Unsupported arithmetic types. STRING + INTEGER"),
    ("t * 2", "Unsupported arithmetic types"),
    ("-s", "Negation is not supported for type STRING"),
    ("s = 1", "Cannot compare S (STRING) to 1 (INTEGER) with EQUAL."),
    ("a = NULL", "Comparison with NULL not supported: A = NULL"),
    ("t < f", "Cannot compare"),
    ("nope", "SELECT column 'NOPE' cannot be resolved."),
    ("st->z", "Could not find field 'Z' in 'ST'."),
    ("a->z", "Expected STRUCT type, got: INTEGER"),
    ("a[1]", "Subscript expression is only supported on ARRAY or MAP"),
    ("arr['x']", "Array index must be an INTEGER"),
    ("m[1]", "Map key must be a STRING"),
    ("CAST(t AS INT)", "Cast of BOOLEAN to INTEGER is not supported"),
    ("CASE WHEN t THEN 1 ELSE 'x' END", "All branches must have one type"),
    ("CASE WHEN t THEN NULL END", "All case branches have NULL type"),
    ("CASE WHEN a THEN 1 END", "expected a BOOLEAN, but A is INTEGER"),
    ("ARRAY[]", "Array constructor cannot be empty"),
    ("MAP()", "Map constructor cannot be empty"),
    ("MAP(arr := 1)", "The key of a map cannot be of type ARRAY<INTEGER>"),
    ("ARRAY[a, s]", "Cannot construct an array with mismatching element types ([INTEGER, STRING])."),
    ("ARRAY[1, 'x']", 'invalid input syntax for type INTEGER: "x"'),
    ("a IN (1, 'x')", 'invalid input syntax for type INTEGER: "x"'),
    ("ARRAY[NULL]", "Cannot construct an array with all NULL elements"),
    ("MAP(1 := NULL)", "Cannot construct a map with all NULL values"),
    ("NOT a", "expected a BOOLEAN"),
    ("a LIKE 'x'", "LIKE compares texts"),
    ("DATE '2020-13-01'", "Failed to parse date"),
    ("rowtime > 'yesterday'", "Failed to parse timestamp"),
    ("FILTER(arr, (x, y) => x > 1)", "the lambda has 2 parameters, but the function gives 1"),
    ("FILTER(arr, x => x + 1)", "does not accept parameters"),
    ("UCASE(x => 1)", "does not accept parameters (LAMBDA)"),
    ("STRUCT(f := 1, f := 2)", "Duplicate field names"),
    ("ts AT TIME ZONE 'UTC'", "AT TIME ZONE is not supported"),
    ("UCASE(*)", "only COUNT takes a star"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_type_errors_in_expressions_are_refused_with_a_position(text: str, message: str) -> None:
    with pytest.raises(SemanticFailure) as caught:
        typed(text, COLUMNS)
    assert message in caught.value.message
    assert caught.value.at.line == 1


def test_a_misspelt_column_and_field_get_suggestions() -> None:
    with pytest.raises(SemanticFailure) as caught:
        typed("rowtme + 1", COLUMNS)
    assert caught.value.hint == "Did you mean ROWTIME?"
    with pytest.raises(SemanticFailure) as caught:
        typed("st->ff", COLUMNS)
    assert caught.value.hint in ("Did you mean F?", "Its fields are F, G.")


def test_an_exception_in_a_function_fails_the_row() -> None:
    call = typed("UCASE(s)", COLUMNS)
    assert isinstance(call.call, Resolved)

    def broken(text: str) -> str:
        raise KeyError(text)

    mended = replace(call, call=replace(call.call, variant=replace(call.call.variant, compute=broken)))
    with pytest.raises(EvaluationFailure, match="UCASE failed: KeyError"):
        compile_expression(mended, SeededEvaluationContext())(ROW)


def test_a_decimal_result_that_does_not_fit_its_type_is_a_failure() -> None:
    with pytest.raises(EvaluationFailure, match="Numeric field overflow"):
        evaluate("CEIL(9.9)")


def test_evaluation_failures_become_null_false_or_no_row_depending_on_the_clause() -> None:
    logged: list[str] = []
    around = SeededEvaluationContext()
    broken = compile_expression(typed("a / 0", COLUMNS), around)
    null = compile_expression(typed("n", COLUMNS), around)
    good = compile_expression(typed("a", COLUMNS), around)
    assert or_null(broken, logged.append)(ROW) is None
    assert condition(compile_expression(typed("a / 0 > 1", COLUMNS), around), logged.append)(ROW) is False
    assert group_key([good, broken], logged.append)(ROW) is None
    assert group_key([good, null], logged.append)(ROW) is None
    assert group_key([good, good], logged.append)(ROW) == (7, 7)
    assert logged == ["/ by zero", "/ by zero", "/ by zero", "Group-by column with null value"]


@pytest.mark.parametrize(
    ("text", "pattern", "escape", "expected"),
    [
        ("abc", "abc", None, True), ("abc", "a%", None, True), ("abc", "%b%", None, True), ("abc", "a_c", None, True),
        ("abc", "a_", None, False), ("", "%", None, True), ("", "_", None, False), ("a%c", "a!%c", "!", True),
        ("abc", "a!%c", "!", False), ("a\nb", "a%b", None, True), ("aaab", "%ab", None, True),
        ("ab", "%%%b", None, True),
        ("a!", "a!!", "!", True), ("[a]", "[_]", None, True),
    ],
)  # fmt: skip
def test_like_supports_percent_underscore_and_escapes(
    text: str, pattern: str, escape: str | None, expected: bool
) -> None:
    assert matches_like(text, pattern, escape) is expected

"""Compare chosen and random expressions in Spark and in ksql/evaluate, over the same rows.

The expressions are columns of a few DataFrames over one table of rows, so Spark runs only a few jobs.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from pessoa.ksql.analysis.expression_scopes import ColumnScope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.operators.query_settings import FixedEvaluationContext
from pessoa.ksql.spark.spark_expressions import SESSION_SETTINGS, SPARK_TYPES, NotNative, translate
from pessoa.ksql.types.sql_types import EvaluationFailure, SqlType, Value
from tests.support.ksql_texts import parse_expression_text, parse_type_text

COLUMNS = {
    "I": "INTEGER",
    "J": "INTEGER",
    "B": "BIGINT",
    "D": "DOUBLE",
    "E": "DOUBLE",
    "S": "STRING",
    "T": "STRING",
    "P": "BOOLEAN",
}
VALUES: dict[str, tuple[Value, ...]] = {
    "INTEGER": (None, 0, 1, -1, 7, 2**31 - 1, -(2**31)),
    "BIGINT": (None, 0, 3, -5, 2**63 - 1, -(2**63), 2**53 + 1),
    "DOUBLE": (None, 0.0, -0.0, 1.5, -2.25, 1e300, float("inf"), float("nan")),
    "STRING": (None, "", "a", "Abc", " 12 ", "-7", "1.5", "true", "Y", "ação", "😀x", "a%b", "99999999999", "NaN"),
    "BOOLEAN": (None, True, False),
}
ROWS = 60
CHOSEN = (
    "COALESCE(I + J, 0)",
    "COALESCE(I, J, 5)",
    "IFNULL(S, 'none')",
    "I / J",
    "I % J",
    "B / J",
    "D / E",
    "D % E",
    "-I",
    "-B",
    "I * I",
    "B + B",
    "CAST(D AS INT)",
    "CAST(B AS INT)",
    "CAST(S AS INT)",
    "CAST(S AS BIGINT)",
    "CAST(S AS DOUBLE)",
    "CAST(S AS BOOLEAN)",
    "CAST(I AS STRING)",
    "CAST(P AS STRING)",
    "CAST(D AS BIGINT)",
    "S + T",
    "S || T",
    "CONCAT(S, T, '!')",
    "UCASE(S)",
    "LCASE(S)",
    "LEN(S)",
    "ABS(I)",
    "ABS(B)",
    "ABS(D)",
    "S LIKE 'a%'",
    "S LIKE '%!%b' ESCAPE '!'",
    "S NOT LIKE '_'",
    "I BETWEEN 0 AND J",
    "I NOT BETWEEN J AND 7",
    "S IN ('a', 'Abc')",
    "I NOT IN (1, 7)",
    "NOT (I = J)",
    "I <> J",
    "D > E",
    "D = E",
    "D <= E",
    "S < T",
    "S >= T",
    "I IS DISTINCT FROM J",
    "P AND I > 0",
    "P OR I > 0",
    "NOT P",
    "CASE WHEN P THEN I WHEN I > 0 THEN J ELSE 9 END",
    "CASE I WHEN 1 THEN 'one' WHEN J THEN S END",
    "CASE WHEN I / J > 0 THEN 'plus' ELSE 'other' END",
    "I IS NULL",
    "S IS NOT NULL",
    "COALESCE(CAST(S AS INT), -1)",
    "COALESCE(ABS(CAST(S AS INT)), -1)",
    "P AND I / J > 0",
    "P OR I / J > 0",
    "CAST(ABS(I / J) AS STRING)",
    "AS_VALUE(S)",
    "SUBSTRING(S, I)",
    "SUBSTRING(S, J, I)",
    "SUBSTRING(S, -2)",
    "SUBSTRING(S, 2, 2)",
    "TRIM(S)",
    "CONCAT_WS(S, T, 'x', S)",
    "NULLIF(I, J)",
    "NULLIF(S, 'a')",
)
TEMPLATES: dict[str, tuple[str, ...]] = {
    "INTEGER": (
        "I",
        "J",
        "3",
        "({INTEGER} {op} {INTEGER})",
        "CAST({BIGINT} AS INT)",
        "CAST({STRING} AS INT)",
        "CAST({DOUBLE} AS INT)",
        "LEN({STRING})",
        "ABS({INTEGER})",
        "COALESCE({INTEGER}, {INTEGER})",
        "CASE WHEN {BOOLEAN} THEN {INTEGER} ELSE {INTEGER} END",
        "(-{INTEGER})",
    ),
    "BIGINT": (
        "B",
        "CAST({INTEGER} AS BIGINT)",
        "({BIGINT} {op} {INTEGER})",
        "ABS({BIGINT})",
        "CAST({DOUBLE} AS BIGINT)",
    ),
    "DOUBLE": ("D", "E", "1.5e0", "({DOUBLE} {op} {DOUBLE})", "CAST({BIGINT} AS DOUBLE)", "CAST({STRING} AS DOUBLE)"),
    "STRING": (
        "S",
        "T",
        "'x'",
        "({STRING} || {STRING})",
        "({STRING} + {STRING})",
        "UCASE({STRING})",
        "CONCAT({STRING}, {STRING})",
        "CAST({INTEGER} AS STRING)",
        "CAST({BOOLEAN} AS STRING)",
        "COALESCE({STRING}, {STRING})",
    ),
    "BOOLEAN": (
        "P",
        "({INTEGER} {cmp} {INTEGER})",
        "({DOUBLE} {cmp} {DOUBLE})",
        "({STRING} {cmp} {STRING})",
        "({BOOLEAN} AND {BOOLEAN})",
        "({BOOLEAN} OR {BOOLEAN})",
        "(NOT {BOOLEAN})",
        "({STRING} IS NULL)",
        "({INTEGER} BETWEEN {INTEGER} AND {INTEGER})",
        "({STRING} IN ('a', 'Abc'))",
        "({STRING} LIKE 'a%')",
        "CAST({STRING} AS BOOLEAN)",
    ),
}
RANDOM_COUNT = 240


def random_text(random: Random, kind: str, depth: int) -> str:
    choices = TEMPLATES[kind]
    plain = [one for one in choices if "{" not in one]
    text = random.choice(choices if depth > 0 else plain)
    while (start := text.find("{")) >= 0:
        end = text.index("}", start)
        name = text[start + 1 : end]
        if name == "op":
            part = random.choice("+-*/%")
        elif name == "cmp":
            part = random.choice(("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"))
        else:
            part = random_text(random, name, depth - 1)
        text = text[:start] + part + text[end + 1 :]
    return text


def typed_of(text: str) -> Typed:
    scope = ColumnScope({name: parse_type_text(kind) for name, kind in COLUMNS.items()})
    return type_expression(parse_expression_text(text), scope)


def rows() -> list[dict[str, Value]]:
    random = Random(4711)
    return [{name: random.choice(VALUES[kind]) for name, kind in COLUMNS.items()} for _ in range(ROWS)]


def evaluated(typed: Typed, row: dict[str, Value]) -> Value:
    try:
        return compile_expression(typed, FixedEvaluationContext())(row)
    except EvaluationFailure:
        return None


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


@pytest.fixture(scope="module")
def table(spark: Any) -> Any:
    for name, value in SESSION_SETTINGS.items():
        spark.conf.set(name, value)
    fields = ", ".join(f"{name} {SPARK_TYPES[parse_type_text(kind)]}" for name, kind in COLUMNS.items())
    given = [(number, *row.values()) for number, row in enumerate(rows())]
    return spark.createDataFrame(given, f"n INT, {fields}").orderBy("n")


def test_expressions_translated_to_spark_give_the_values_of_the_in_process_evaluator(table: Any) -> None:
    random = Random(19)
    texts = [*CHOSEN, *(random_text(random, random.choice(list(TEMPLATES)), 3) for _ in range(RANDOM_COUNT))]
    translated: list[tuple[str, Typed, str]] = []
    columns = {name: name for name in COLUMNS}
    refused: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        try:
            typed = typed_of(text)
        except KsqlError:
            # The random expression compares types that ksql does not compare.
            continue
        try:
            translated.append((text, typed, translate(typed, columns).or_null))
        except NotNative as why:
            refused[text] = str(why)
    assert not set(CHOSEN) & set(refused), refused
    assert len(translated) > RANDOM_COUNT // 2
    given = rows()
    differences = []
    for first in range(0, len(translated), 60):
        part = translated[first : first + 60]
        found = table.selectExpr(*(f"{sql} AS e{number}" for number, (_, _, sql) in enumerate(part))).collect()
        for row, answers in zip(given, found, strict=True):
            for (text, typed, sql), answer in zip(part, answers, strict=True):
                wanted = evaluated(typed, row)
                if not same(answer, wanted):
                    differences.append((text, row, answer, wanted, sql))
    told = {text: (row, answer, wanted, sql) for text, row, answer, wanted, sql in reversed(differences)}
    assert not told, "\n".join(f"{text}: {rest}" for text, rest in list(told.items())[:12])


def test_expressions_of_types_that_spark_represents_differently_are_refused_as_not_native() -> None:
    decimal: SqlType = parse_type_text("DECIMAL(4, 2)")
    scope = ColumnScope({"X": decimal, "A": parse_type_text("ARRAY<INT>")})
    for text in ("X + 1", "A[1]", "ROUND(X)", "CAST(X AS STRING)", "ARRAY_LENGTH(A)"):
        with pytest.raises(NotNative):
            translate(type_expression(parse_expression_text(text), scope), {"X": "X", "A": "A"})

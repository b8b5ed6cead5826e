"""Expressions are parsed by precedence, and literals have the types of the language."""

from __future__ import annotations

import decimal
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.ksql.ksql_errors import SyntaxFailure
from pessoa.ksql.syntax import expression_nodes as n
from pessoa.ksql.syntax.expression_text import expression_text
from pessoa.ksql.syntax.parser import parse_statements
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NULL_TYPE,
    STRING,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)
from tests.support.ksql_texts import parse_expression_text, parse_type_text

# The text, and the same with every bracket written out.
POWERS = [
    ("a + b * c", "a + (b * c)"),
    ("a - b - c", "(a - b) - c"),
    ("a || b + c", "a || (b + c)"),
    ("-a * b", "(-a) * b"),
    ("-a[1]", "-(a[1])"),
    ("a / b % c", "(a / b) % c"),
    ("NOT a = b", "NOT (a = b)"),
    ("NOT a AND b", "(NOT a) AND b"),
    ("a OR b AND c", "a OR (b AND c)"),
    ("a = b AND c <> d OR e", "((a = b) AND (c <> d)) OR e"),
    ("a BETWEEN 1 AND 2 AND b", "(a BETWEEN 1 AND 2) AND b"),
    ("a + 1 BETWEEN b AND c + 1", "(a + 1) BETWEEN b AND (c + 1)"),
    ("a AND (b AND c)", "a AND b AND c"),
    ("s->a->b[1]->c", "(((s->a)->b)[1])->c"),
    ("a LIKE b || '%'", "a LIKE (b || '%')"),
    ("a IS NOT NULL AND b", "(a IS NOT NULL) AND b"),
    ("-a AT TIME ZONE 'UTC'", "-(a AT TIME ZONE 'UTC')"),
    ("a != b", "a <> b"),
    ("f(x => x + 1 > 2 AND y)", "f(x => (((x + 1) > 2) AND y))"),
]


@pytest.mark.parametrize(("text", "bracketed"), POWERS)
def test_operators_have_the_precedence_of_the_grammar(text: str, bracketed: str) -> None:
    assert parse_expression_text(text) == parse_expression_text(bracketed)


LITERALS: list[tuple[str, object, SqlType]] = [
    ("1", 1, INTEGER),
    ("-2147483647", -2_147_483_647, INTEGER),
    ("2147483648", 2**31, BIGINT),
    ("9223372036854775807", 2**63 - 1, BIGINT),
    ("1.5", decimal.Decimal("1.5"), Decimal(2, 1)),
    ("-0.05", decimal.Decimal("-0.05"), Decimal(2, 2)),
    ("10.", decimal.Decimal(10), Decimal(2, 0)),
    (".5", decimal.Decimal("0.5"), Decimal(1, 1)),
    ("1e0", 1.0, DOUBLE),
    ("-2.5E-3", -0.0025, DOUBLE),
    ("'it''s'", "it's", STRING),
    ("''", "", STRING),
    ("true", True, BOOLEAN),
    ("NULL", None, NULL_TYPE),
]


@pytest.mark.parametrize(("text", "value", "kind"), LITERALS)
def test_a_literal_has_the_type_that_its_spelling_implies(text: str, value: object, kind: SqlType) -> None:
    found = parse_expression_text(text)
    assert isinstance(found, n.Literal)
    assert (found.value, found.type) == (value, kind)
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("abc", "ABC"),
        ("`aBc`", "aBc"),
        ('"aBc"', "aBc"),
        ("`a``b`", "a`b"),
        ("1e0x", "1E0X"),
        ("_a@1", "_A@1"),
        ("date", "DATE"),
    ],
)
def test_names_are_upper_cased_unless_quoted(text: str, name: str) -> None:
    assert parse_expression_text(text) == n.Column(name)


def test_every_form_of_expression_is_parsed() -> None:
    a, b = n.Column("A"), n.Column("B")
    one = n.Literal(1, INTEGER)
    cases: list[tuple[str, n.Expression]] = [
        ("s.a", n.Column("A", "S")),
        ("DATE '2026-01-01'", n.TypedLiteral(DATE, "2026-01-01")),
        ("CASE a WHEN 1 THEN b END", n.Case(a, (n.When(one, b),))),
        ("CASE WHEN a THEN 1 ELSE b END", n.Case(None, (n.When(a, one),), b)),
        ("CAST(a AS ARRAY<INT>)", n.Cast(a, Array(INTEGER))),
        ("ARRAY[1, a]", n.ArrayConstructor((one, a))),
        ("ARRAY[]", n.ArrayConstructor(())),
        ("MAP('x' := a, b := 1)", n.MapConstructor(((n.Literal("x", STRING), a), (b, one)))),
        ("STRUCT(x := a, `y` := 1)", n.StructConstructor((("X", a), ("y", one)))),
        ("a[1]", n.Subscript(a, one)),
        ("a->b", n.Dereference(a, "B")),
        ("count(*)", n.Call("COUNT", (), star=True)),
        ("f()", n.Call("F", ())),
        ("f(x => a)", n.Call("F", (n.LambdaFunction(("X",), a),))),
        ("f((x, y) => a)", n.Call("F", (n.LambdaFunction(("X", "Y"), a),))),
        ("f((a))", n.Call("F", (a,))),
        ("dateadd(day, 1, a)", n.Call("DATEADD", (n.IntervalUnit("DAYS"), one, a))),
        ("f(day, 1)", n.Call("F", (n.Column("DAY"), one))),
        ("a NOT IN (1, b)", n.InList(a, (one, b), negated=True)),
        ("a NOT LIKE 'x!%' ESCAPE '!'", n.Like(a, n.Literal("x!%", STRING), "!", negated=True)),
        ("a IS NOT DISTINCT FROM b", n.Comparison("IS NOT DISTINCT FROM", a, b)),
        ("a AT TIME ZONE 'America/Sao_Paulo'", n.AtTimeZone(a, "America/Sao_Paulo")),
        ("- -1", n.Negate(n.Literal(-1, INTEGER))),
    ]
    for text, expected in cases:
        assert parse_expression_text(text) == expected, text
        assert parse_expression_text(expression_text(expected)) == expected, text


NAMES = st.one_of(
    st.sampled_from(
        ["A", "B_1", "SELECT", "DATE", "ARRAY", "lower", "with space", "`", "DAYS", "1X", "TIME", "AT", "é"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\r$"), min_size=1, max_size=5),
)
TYPES: st.SearchStrategy[SqlType] = st.recursive(
    st.sampled_from([BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, TIMESTAMP, Decimal(5, 2)]),
    lambda inner: st.one_of(
        inner.map(Array),
        st.tuples(inner, inner).map(lambda pair: Map(*pair)),
        st.lists(st.tuples(NAMES, inner), max_size=3, unique_by=lambda field: field[0]).map(lambda f: Struct(tuple(f))),
    ),
    max_leaves=4,
)
LEAVES: st.SearchStrategy[n.Expression] = st.one_of(
    st.integers(-(2**31) + 1, 2**31 - 1).map(lambda value: n.Literal(value, INTEGER)),
    st.integers(2**31, 2**63 - 1).map(lambda value: n.Literal(value, BIGINT)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: n.Literal(value, DOUBLE)),
    st.text(st.characters(codec="utf-8", exclude_characters="$"), max_size=5).map(
        lambda value: n.Literal(value, STRING)
    ),
    st.sampled_from(["1.5", "-0.05", "12.", "100.00"]).map(parse_expression_text),
    st.booleans().map(lambda value: n.Literal(value, BOOLEAN)),
    st.just(n.Literal(None, NULL_TYPE)),
    st.builds(n.Column, NAMES),
    st.builds(n.Column, NAMES, NAMES),
    st.just(n.TypedLiteral(DATE, "it's")),
)


def logical(operator: str, operands: list[n.Expression]) -> n.Expression:
    flat = [
        part
        for one in operands
        for part in (one.operands if isinstance(one, n.Logical) and one.operator == operator else (one,))
    ]
    return n.Logical(operator, tuple(flat))


def larger(inner: st.SearchStrategy[n.Expression]) -> st.SearchStrategy[n.Expression]:
    some = st.lists(inner, max_size=3).map(tuple)
    whens = st.lists(st.builds(n.When, inner, inner), min_size=1, max_size=2).map(tuple)
    maybe = st.one_of(st.none(), inner)
    comparisons = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
    return st.one_of(
        st.builds(n.Arithmetic, st.sampled_from(["+", "-", "*", "/", "%", "||"]), inner, inner),
        st.builds(n.Comparison, st.sampled_from(comparisons), inner, inner),
        st.builds(logical, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
        st.builds(n.Not, inner),
        st.builds(n.Negate, inner),
        st.builds(n.AtTimeZone, inner, st.just("UTC")),
        st.builds(n.IsNull, inner, st.booleans()),
        st.builds(n.Between, inner, inner, inner, st.booleans()),
        st.builds(n.InList, inner, st.lists(inner, min_size=1, max_size=3).map(tuple), st.booleans()),
        st.builds(n.Like, inner, inner, st.one_of(st.none(), st.just("!")), st.booleans()),
        st.builds(n.Case, maybe, whens, maybe),
        st.builds(n.Cast, inner, TYPES),
        st.builds(n.ArrayConstructor, some),
        st.builds(n.MapConstructor, st.lists(st.tuples(inner, inner), max_size=2).map(tuple)),
        st.builds(n.StructConstructor, st.lists(st.tuples(NAMES, inner), max_size=2).map(tuple)),
        st.builds(n.Subscript, inner, inner),
        st.builds(n.Dereference, inner, NAMES),
        st.builds(n.Call, st.sampled_from(["F", "REPLACE", "LEN"]), some),
        st.builds(lambda arguments: n.Call("TIMEADD", (n.IntervalUnit("DAYS"), *arguments)), some),
        st.builds(
            lambda names, body: n.Call("F", (n.LambdaFunction(names, body),)),
            st.lists(NAMES, min_size=1, max_size=3).map(tuple), inner,
        ),
    )  # fmt: skip


@settings(max_examples=120)
@given(st.recursive(LEAVES, larger, max_leaves=10))
def test_every_expression_is_rendered_as_text_that_parses_to_the_same_expression(tree: n.Expression) -> None:
    assert parse_expression_text(expression_text(tree)) == tree


@settings(max_examples=50)
@given(TYPES)
def test_every_type_is_rendered_as_text_that_parses_to_the_same_type(kind: SqlType) -> None:
    assert parse_type_text(str(kind)) == kind


@settings(max_examples=150)
@given(st.text(alphabet="ab1.'\"`-/*()[]<>=:;,${} \nSELECTFROM", max_size=60))
def test_arbitrary_text_is_parsed_or_refused_with_a_syntax_failure(text: str) -> None:
    with suppress(SyntaxFailure):
        parse_statements(text)

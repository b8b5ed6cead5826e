"""Syntax errors have a message, a position and a suggestion, and are found in bounded time."""

from __future__ import annotations

import pytest

from pessoa.ksql.ksql_errors import Position, SyntaxFailure
from pessoa.ksql.syntax.parser import parse_statement, parse_statements


def failure(text: str) -> SyntaxFailure:
    with pytest.raises(SyntaxFailure) as caught:
        parse_statements(text)
    return caught.value


def test_an_error_shows_line_column_caret_and_suggestion() -> None:
    assert str(failure("SELECT *\n  FORM pageviews;")) == (
        "line 2:3: expected ',' or FROM, but found 'FORM'\n    FORM pageviews;\n    ^^^^\nDid you mean FROM?"
    )


def test_a_caret_stands_under_its_token_behind_tabs() -> None:
    assert "  \tSELECT a b\tc FROM s;\n  \t         \t^" not in str(failure("\tSELECT a, ,\tc FROM s;"))
    assert str(failure("\tSELECT ,;")).split("\n")[1:3] == ["  \tSELECT ,;", "  \t       ^"]


WRONG = [
    ("SELCT * FROM s;", "expected a statement, but found 'SELCT'", "Did you mean SELECT?"),
    ("CREATE STREM s;", "expected STREAM, TABLE, TYPE or", "Did you mean STREAM?"),
    ("SELECT * FROM s WHER a = 1;", "expected the end of the query, but found 'WHER'", "Did you mean WHERE?"),
    ("SELECT * FROM s x WHER a = 1;", "expected the end of the query, but found 'WHER'", "Did you mean WHERE?"),
    ("SELECT * FROM s", "expected ';', but found the end of the statement", "A statement ends with ;."),
    ("SELECT a FROM s GROUP BY a WHERE b;", "WHERE stands in the wrong place", "The order of a query is"),
    ("SELECT a FROM s ORDER BY a;", "ORDER BY is not possible", "TOPK"),
    ("SELECT a FROM s UNION SELECT b FROM t;", "UNION is not possible", "INSERT INTO"),
    ("SELECT DISTINCT a FROM s;", "SELECT DISTINCT is not possible", "GROUP BY"),
    ("SELECT COUNT(DISTINCT a) FROM s;", "COUNT(DISTINCT …) is not possible", "COUNT_DISTINCT"),
    ("SELECT * FROM (SELECT 1 FROM s);", "a query inside a query is not possible", ""),
    ("SELECT (SELECT 1 FROM s) FROM t;", "a query inside a query is not possible", ""),
    ("SELECT a FROM s WHERE a = b = c;", "expected ';', but found '='", ""),
    ("SELECT a FROM s WHERE NOT a = b = c;", "expected ';', but found '='", ""),
    ("SELECT select FROM s;", "a query inside a query", ""),
    ("SELECT from FROM s;", "from is a reserved word", "`from`"),
    ("CREATE STREAM left (a INT);", "left is a reserved word and cannot be the name of the stream", "`left`"),
    ("SELECT 'a FROM s;", "this quote is not closed", "End it with '."),
    ("SELECT `a FROM s;", "this quote is not closed", "End it with `."),
    ("SELECT a /* b FROM s;", "this comment is not closed", "*/"),
    ("SELECT a § b FROM s;", "unexpected character '§'", "back-quotes"),
    ("SELECT `` FROM s;", "a name cannot be empty", ""),
    ("SELECT 9223372036854775808 FROM s;", "too large for a BIGINT", "DECIMAL"),
    ("SELECT 1e999 FROM s;", "too large for a DOUBLE", ""),
    ("SELECT a FROM s WINDOW TUMBLNG (SIZE 1 DAY);", "expected TUMBLING, HOPPING or SESSION", "Did you mean TUMBLING?"),
    ("SELECT a FROM s WINDOW TUMBLING (SIZE 1 WEEK);", "expected a unit of time", ""),
    ("SELECT a FROM s WINDOW TUMBLING (SIZE 1 MINUTS);", "expected a unit of time", "Did you mean MINUTES?"),
    ("SELECT a FROM s WINDOW HOPPING (SIZE 1 DAY);", "a HOPPING window needs ADVANCE BY", "ADVANCE BY 10 SECONDS"),
    ("SELECT a FROM s WINDOW SESSION (1 DAY, ADVANCE BY 1 DAY);", "expected RETENTION or GRACE PERIOD", ""),
    ("SELECT a FROM s JOIN t;", "expected WITHIN or ON", ""),
    ("SELECT a FROM s EMIT CHANGE;", "expected CHANGES or FINAL", "Did you mean CHANGES?"),
    ("CREATE STREAM s (a DECIMAL(2, 3));", "DECIMAL precision must be >= scale", ""),
    ("CREATE STREAM s (a DECIMAL(0, 0));", "DECIMAL precision must be >= 1", ""),
    ("CREATE STREAM s (a STRUCT<x INT, x INT>);", "Duplicate field found in STRUCT: X", ""),
    ("CREATE STREAM s (a INT PRIMARI KEY);", "expected ',' or ')'", "Did you mean PRIMARY?"),
    ("CREATE STREAM s WITH (kafka_topic=x);", "expected a literal, but found 'x'", "Put the value into quotes: 'x'."),
    ("CREATE STREAM s WITH (a='x', A='y');", "the property A is given twice", ""),
    ("CREATE STREAM s (a INT) AS SELECT * FROM t;", "AS SELECT takes its columns from the query", ""),
    ("INSERT INTO s VALUES (1), (2);", "one INSERT has one row", "a statement for each row"),
    ("SHOW STREMS;", "expected one of TOPICS, STREAMS", "Did you mean STREAMS?"),
    ("ASSERT SCHEMA;", "expected SUBJECT or ID", ""),
    ("EXPLAIN EXPLAIN SELECT * FROM s;", "EXPLAIN cannot be explained", ""),
    ("SELECT * FROM ${nam};", "the variable nam is not defined", "DEFINE nam"),
    ("SELECT a LIKE b ESCAPE 'xx' FROM s;", "must be one character", ""),
    ("SELECT CASE END FROM s;", "END is a reserved word", ""),
    ("SELECT f( FROM s;", "FROM is a reserved word", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "hint"), WRONG, ids=[text for text, _, _ in WRONG])
def test_an_invalid_statement_is_refused_with_a_reason(text: str, message: str, hint: str) -> None:
    found = failure(text)
    assert message in found.message
    assert hint in found.hint
    assert found.at.line == 1


def test_the_position_of_an_error_counts_from_the_start_of_the_whole_text() -> None:
    assert failure("SHOW TABLES;\n\nSHOW  STREMS;").at == Position(3, 7)


HOSTILE = {
    "brackets": "SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " FROM s;",
    "brackets that stay open": "SELECT " + "(" * 40_000,
    "a chain of sums": "SELECT " + "+".join("a" for _ in range(5_000)) + " FROM s;",
    "signs": "SELECT " + "- " * 10_000 + "1 FROM s;",
    "negations": "SELECT " + "NOT " * 10_000 + "a FROM s;",
    "subscripts": "SELECT a" + "[1]" * 4_000 + " FROM s;",
    "types": "SELECT CAST(a AS " + "ARRAY<" * 5_000 + "INT" + ">" * 5_000 + ") FROM s;",
    "array suffixes": "SELECT CAST(a AS INT" + " ARRAY" * 5_000 + ") FROM s;",
    "calls": "SELECT " + "f(" * 10_000 + ")" * 10_000 + " FROM s;",
    "cases": "SELECT " + "CASE WHEN " * 9_000 + " FROM s;",
    "lambdas": "SELECT f(" + "x => f(" * 9_000 + " FROM s;",
    "a million characters": "SELECT '" + "x" * 1_000_000 + "' FROM s;",
    "a long statement": "SELECT '" + "x" * 200_000 + "' FROM s;",
    "a long number": "SELECT " + "1" * 50_000 + " FROM s;",
    "a long number with a point": "SELECT 1." + "1" * 50_000 + " FROM s;",
    "an open quote": "SELECT '" + "a" * 400_000,
    "quotes": "SELECT " + "'" * 99_999 + ";",
    "comments that stay open": "/*" * 100_000,
    "references": "${a" * 100_000,
    "a long limit": "SELECT * FROM s LIMIT " + "9" * 5_000 + ";",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_gets_a_clear_error(name: str) -> None:
    found = failure(HOSTILE[name])
    assert found.message
    assert len(str(found)) < 2_000


def test_a_condition_with_a_thousand_terms_is_parsed() -> None:
    conditions = " OR ".join(f"a = {number}" for number in range(1_000))
    assert parse_statement(f"SELECT * FROM s WHERE {conditions};").warnings == ()

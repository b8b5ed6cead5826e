"""Invalid queries are refused with the reference's reasons, a caret and a suggestion."""

from __future__ import annotations

import pytest

from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.expression_scopes import Found
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.logical_plan import explain_text
from pessoa.ksql.syntax.expression_nodes import Column
from pessoa.ksql.syntax.parser import parse_statement
from pessoa.ksql.types.sql_types import STRING, Array
from tests.support.ksql_texts import parse_expression_text
from tests.unit.ksql.ksql_catalogue import decide, failure

ERRORS = [
    (
        "CREATE STREAM x AS SELECT id, item FROM orders LIMIT 5;",
        "CREATE STREAM AS SELECT statements don't support LIMIT clause.",
    ),
    (
        "SELECT id FROM orders WHERE amount >= 'x' EMIT CHANGES;",
        "Error in WHERE expression: Cannot compare AMOUNT (INTEGER) to 'x' (STRING) with GREATER_THAN_OR_EQUAL.",
    ),
    (
        "SELECT id FROM orders WHERE 'x' EMIT CHANGES;",
        "Type error in WHERE expression: Should evaluate to boolean but is 'x' (STRING) instead.",
    ),
    (
        "SELECT item, COUNT(*) FROM orders GROUP BY item HAVING SUM(amount) > '1' EMIT CHANGES;",
        "Error in HAVING expression: Cannot compare SUM(AMOUNT) (INTEGER) to '1' (STRING) with GREATER_THAN.",
    ),
    (
        "SELECT item, SUM(amount) = 'x' FROM orders GROUP BY item EMIT CHANGES;",
        "Cannot compare SUM(AMOUNT) (INTEGER) to 'x'",
    ),
    (
        (
            "CREATE STREAM x AS SELECT url, name, email FROM clicks c JOIN users u ON c.user = u.uid "
            "JOIN more_users m ON u.uid = m.uid;"
        ),
        "must include the join expressions C.USER, U.UID or M.UID in its projection (eg, SELECT C.USER...).",
    ),
    (
        (
            "CREATE STREAM x AS SELECT url, email FROM clicks c JOIN users u ON c.user = u.uid JOIN "
            "more_users m ON u.name = m.uid;"
        ),
        "must include the join expressions U.NAME or M.UID in its projection",
    ),
    ("SELECT nope FROM orders EMIT CHANGES;", "SELECT column 'NOPE' cannot be resolved."),
    ("SELECT id FROM orders WHERE nope = 1 EMIT CHANGES;", "WHERE column 'NOPE' cannot be resolved."),
    ("SELECT x.id FROM orders o EMIT CHANGES;", "'X' is not a valid stream/table name or alias."),
    ("SELECT address.city FROM orders EMIT CHANGES;", "'ADDRESS' is not a valid stream/table name or alias."),
    ("SELECT o.nope FROM orders o EMIT CHANGES;", "SELECT column 'O.NOPE' cannot be resolved."),
    ("SELECT x.* FROM orders o EMIT CHANGES;", "'X' is not a valid stream/table name or alias."),
    ("SELECT item->* FROM orders EMIT CHANGES;", "->* takes the fields of a STRUCT"),
    ("SELECT * FROM order_s EMIT CHANGES;", "ORDER_S does not exist."),
    (
        "SELECT id FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id EMIT CHANGES;",
        "Column 'ID' is ambiguous. Could be O.ID or P.ID.",
    ),
    ("SELECT ROWTIME FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id EMIT CHANGES;", "is ambiguous"),
    ("SELECT id AS ROWTIME FROM orders EMIT CHANGES;", "`ROWTIME` is a reserved column name."),
    ("CREATE STREAM x AS SELECT id, ROWPARTITION FROM orders;", "Reserved column name in select: `ROWPARTITION`."),
    ("CREATE STREAM x AS SELECT item FROM orders;", "must include the key column ID in its projection"),
    (
        "CREATE STREAM x AS SELECT id AS a, id AS b, item FROM orders;",
        "The projection contains a key column (`ID`) more than once, aliased as: A and B.",
    ),
    ("CREATE STREAM x AS SELECT id FROM orders;", "The projection contains no value columns."),
    (
        "CREATE STREAM x AS SELECT id, item AS a, amount AS a FROM orders;",
        "Duplicate value columns found in schema: `A`",
    ),
    ("CREATE STREAM x AS SELECT id, NULL AS n FROM orders;", "has no type"),
    (
        "CREATE TABLE x AS SELECT id, item FROM orders;",
        "Your SELECT query produces a STREAM. Please use CREATE STREAM AS SELECT",
    ),
    ("CREATE STREAM x AS SELECT item, COUNT(*) FROM orders GROUP BY item;", "Your SELECT query produces a TABLE."),
    # Grouping.
    (
        "SELECT COUNT(*) FROM orders EMIT CHANGES;",
        "Use of aggregate functions requires a GROUP BY clause. Aggregate function(s): COUNT",
    ),
    ("SELECT item FROM orders GROUP BY item EMIT CHANGES;", "GROUP BY requires aggregate functions"),
    (
        "SELECT amount, COUNT(*) FROM orders GROUP BY item EMIT CHANGES;",
        "Non-aggregate SELECT expression(s) not part of GROUP BY: AMOUNT",
    ),
    ("SELECT amount - 1, COUNT(*) FROM orders GROUP BY 1 - amount EMIT CHANGES;", "not part of GROUP BY: AMOUNT"),
    (
        "SELECT item, COUNT(*) FROM orders GROUP BY item HAVING amount > 1 EMIT CHANGES;",
        "Non-aggregate HAVING expression(s) not part of GROUP BY: AMOUNT",
    ),
    ("SELECT SUM(COUNT(*)) FROM orders GROUP BY item EMIT CHANGES;", "Aggregate functions can not be nested"),
    ("SELECT item, COUNT(*) FROM orders GROUP BY item, item EMIT CHANGES;", "Duplicate GROUP BY expression: ITEM"),
    ("SELECT item, COUNT(*) FROM orders o GROUP BY item, o.item EMIT CHANGES;", "Duplicate GROUP BY expression"),
    ("SELECT COUNT(*) FROM orders GROUP BY 1 EMIT CHANGES;", "Cannot GROUP BY constant: 1"),
    ("SELECT COUNT(*) FROM orders GROUP BY props EMIT CHANGES;", "GROUP BY on a MAP is not supported"),
    (
        "SELECT COUNT(*) FROM orders GROUP BY COUNT(*) EMIT CHANGES;",
        "GROUP BY must not contain the aggregate function COUNT",
    ),
    ("SELECT id FROM orders WHERE COUNT(*) > 1 EMIT CHANGES;", "WHERE must not contain the aggregate function COUNT"),
    (
        "CREATE TABLE x AS SELECT COUNT(*) AS n FROM orders GROUP BY item;",
        "must include the grouping expression ITEM in its projection",
    ),
    (
        "CREATE TABLE x AS SELECT item, amount, COUNT(*) AS n FROM orders GROUP BY item, amount;",
        "Key format does not support schema",
    ),
    (
        "CREATE TABLE x AS SELECT region, MIN(name) AS n, MAX(name) AS m FROM users GROUP BY region;",
        "The aggregation function(s) (MIN, MAX) cannot be applied to a table source, only to a stream source.",
    ),
    ("SELECT k, COUNT(*) FROM raw GROUP BY k EMIT CHANGES;", "This format does not yet support GROUP BY."),
    (
        "SELECT item, SUM(item) FROM orders GROUP BY item EMIT CHANGES;",
        "Function 'SUM' does not accept parameters (STRING).",
    ),
    ("SELECT item, TOPK(amount, 0) FROM orders GROUP BY item EMIT CHANGES;", "the number must be at least 1"),
    ("SELECT id FROM orders HAVING id > 1 EMIT CHANGES;", "HAVING clause requires a GROUP BY clause."),
    # Windows.
    ("SELECT id FROM orders WINDOW TUMBLING (SIZE 1 HOUR) EMIT CHANGES;", "WINDOW clause requires a GROUP BY clause."),
    (
        "SELECT item, COUNT(*) FROM orders GROUP BY item EMIT FINAL;",
        "EMIT FINAL is only supported for windowed aggregations.",
    ),
    ("SELECT id FROM orders EMIT FINAL;", "EMIT FINAL is only supported for windowed aggregations."),
    (
        (
            "SELECT item, COUNT(*) FROM orders WINDOW TUMBLING (SIZE 1 HOUR) WHERE WINDOWSTART > 0 GROUP "
            "BY item EMIT CHANGES;"
        ),
        "can only be used in the SELECT clause of windowed aggregations",
    ),
    (
        (
            "SELECT item, COUNT(*) FROM orders WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY item HAVING "
            "WINDOWEND > 0 EMIT CHANGES;"
        ),
        "can only be used in the SELECT clause of windowed aggregations",
    ),
    (
        "SELECT item, SUM(WINDOWEND) FROM orders WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY item EMIT CHANGES;",
        "can only be used in the SELECT clause of windowed aggregations",
    ),
    ("SELECT WINDOWSTART, COUNT(*) FROM orders GROUP BY item EMIT CHANGES;", "'WINDOWSTART' cannot be resolved."),
    (
        "SELECT region, COUNT(*) FROM users WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY region EMIT CHANGES;",
        "WINDOW clause is only supported on streams.",
    ),
    (
        (
            "SELECT item, COUNT(*) FROM orders WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 2 HOURS) GROUP BY "
            "item EMIT CHANGES;"
        ),
        "Window advance",
    ),
    (
        "SELECT item, COUNT(*) FROM orders WINDOW TUMBLING (SIZE 0 HOURS) GROUP BY item EMIT CHANGES;",
        "greater than zero",
    ),
    (
        (
            "SELECT item, COUNT(*) FROM orders WINDOW TUMBLING (SIZE 2 HOURS, RETENTION 1 HOUR) GROUP BY "
            "item EMIT CHANGES;"
        ),
        "RETENTION",
    ),
    ("CREATE TABLE x AS SELECT * FROM wtable;", "KSQL does not support persistent queries on windowed tables."),
    # PARTITION BY and table functions.
    ("CREATE TABLE x AS SELECT * FROM users PARTITION BY name;", "PARTITION BY is only supported on streams"),
    ("CREATE STREAM x AS SELECT id, item FROM orders PARTITION BY item, NULL;", "including NULL"),
    (
        "CREATE STREAM x AS SELECT id, item AS i FROM orders PARTITION BY i;",
        "PARTITION BY column 'I' cannot be resolved.",
    ),
    (
        "CREATE STREAM x AS SELECT id, amount FROM orders PARTITION BY item;",
        "must include the partitioning expression ITEM",
    ),
    (
        "CREATE STREAM x WITH (KEY_FORMAT='JSON') AS SELECT * FROM clicks PARTITION BY NULL;",
        "Key format specified for stream without",
    ),
    ("CREATE STREAM x AS SELECT * FROM wins PARTITION BY n;", "PARTITION BY is not supported on windowed streams."),
    ("SELECT EXPLODE(ARRAY[EXPLODE(tags)]) FROM orders EMIT CHANGES;", "Table functions can not be nested"),
    ("SELECT EXPLODE(ARRAY[name]) FROM users EMIT CHANGES;", "Table source is not supported with table functions"),
    (
        "SELECT id FROM orders WHERE EXPLODE(tags) = 'a' EMIT CHANGES;",
        "WHERE must not contain the table function EXPLODE",
    ),
    # Joins.
    (
        "SELECT * FROM orders a JOIN orders b WITHIN 1 HOUR ON a.id = b.id EMIT CHANGES;",
        "self joins are not yet supported",
    ),
    ("SELECT * FROM orders o JOIN payments p ON o.id = p.id EMIT CHANGES;", "must have a WITHIN clause"),
    (
        "SELECT * FROM clicks c JOIN users u WITHIN 1 HOUR ON c.user = u.uid EMIT CHANGES;",
        "provided for a Stream-Table join",
    ),
    (
        "SELECT * FROM users u JOIN more_users m WITHIN 1 HOUR ON u.uid = m.uid EMIT CHANGES;",
        "provided for a Table-Table join",
    ),
    ("SELECT * FROM users u JOIN clicks c ON c.user = u.uid EMIT CHANGES;", "table-stream joins are not supported"),
    (
        "SELECT * FROM clicks c RIGHT JOIN users u ON c.user = u.uid EMIT CHANGES;",
        "RIGHT OUTER joins are not supported for stream-table",
    ),
    (
        "SELECT * FROM users u FULL JOIN regions r ON u.region = r.rid EMIT CHANGES;",
        "FULL OUTER joins are not supported for foreign-key",
    ),
    (
        "SELECT * FROM clicks c JOIN users u ON c.user = u.name EMIT CHANGES;",
        "require to join on the table's primary key",
    ),
    ("SELECT * FROM users u JOIN regions r ON u.name = r.name EMIT CHANGES;", "primary key of the right input table"),
    (
        "SELECT * FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.paid EMIT CHANGES;",
        "types don't match. Got O.ID{BIGINT} = P.PAID{INTEGER}.",
    ),
    (
        "SELECT * FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id AND o.item = p.pid EMIT CHANGES;",
        "multiple conditions",
    ),
    ("SELECT * FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id > p.id EMIT CHANGES;", "Only equality is supported"),
    (
        "SELECT * FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = 1 EMIT CHANGES;",
        "references from exactly one source",
    ),
    (
        "SELECT * FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = o.amount EMIT CHANGES;",
        "references from exactly one source",
    ),
    (
        "SELECT * FROM clicks c JOIN users u ON c.user = u.uid JOIN more_users m ON c.user = u.uid EMIT CHANGES;",
        "ON must compare M with one of",
    ),
    (
        "SELECT * FROM orders o JOIN shipments s WITHIN 1 HOUR ON o.id = s.id EMIT CHANGES;",
        "the number of partitions don't match",
    ),
    (
        "SELECT * FROM wins w JOIN orders o WITHIN 1 HOUR ON w.id = o.id EMIT CHANGES;",
        "Can not join windowed source to non-windowed source.",
    ),
    (
        "SELECT * FROM wins w JOIN sessions s WITHIN 1 HOUR ON w.id = s.id EMIT CHANGES;",
        "Incompatible windowed sources",
    ),
    ("SELECT * FROM raw r JOIN users u ON r.k = u.uid EMIT CHANGES;", "This format does not yet support JOIN."),
    (
        "CREATE STREAM x AS SELECT item, paid FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id;",
        "must include the join expressions O.ID or P.ID in its projection",
    ),
    (
        "CREATE STREAM x AS SELECT o.id, paid FROM orders o FULL JOIN payments p WITHIN 1 HOUR ON o.id = p.id;",
        "must include the join expression ROWKEY in its projection",
    ),
    (
        "CREATE TABLE x AS SELECT r.rid, r.name FROM users u JOIN regions r ON u.region = r.rid;",
        "must include the key column U.UID",
    ),
    ("SELECT * FROM orders o JOIN payments o WITHIN 1 HOUR ON o.id = o.id EMIT CHANGES;", "is used twice"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[text for text, _ in ERRORS])
def test_an_invalid_query_is_refused_with_a_reason(text: str, message: str) -> None:
    assert message in failure(text).message


def test_an_error_of_analysis_has_a_caret_and_a_suggestion() -> None:
    assert str(failure("SELECT id,\n  amout FROM orders EMIT CHANGES;")) == (
        "line 2:3: SELECT column 'AMOUT' cannot be resolved.\n    amout FROM orders EMIT CHANGES;\n    ^^^^^\n"
        "Did you mean AMOUNT?"
    )
    assert failure("SELECT * FROM ordes EMIT CHANGES;").hint == "Did you mean ORDERS?"
    assert (
        failure("SELECT address.city FROM orders EMIT CHANGES;").hint == "Write ADDRESS->CITY for a field of a struct."
    )


def wide(count: int) -> str:
    return ", ".join(f"c{number}" for number in range(count))


def test_a_wide_statement_is_analysed_in_linear_time() -> None:
    columns = ", ".join(f"c{number} INT" for number in range(1_000))
    text = f"CREATE STREAM wide (k INT KEY, {columns}) WITH (KAFKA_TOPIC='w', VALUE_FORMAT='JSON');"
    catalogue = decide(text).catalogue
    found = analyse(parse_statement(f"CREATE STREAM x AS SELECT k, {wide(1_000)} FROM wide;"), catalogue)
    assert found.source is not None
    assert len(found.source.value) == 1_000
    grouped = ", ".join(f"SUM(c{number}) AS s{number}" for number in range(500))
    table = analyse(parse_statement(f"CREATE TABLE x AS SELECT k, {grouped} FROM wide GROUP BY k;"), catalogue)
    assert table.source is not None
    exploded = ", ".join(f"EXPLODE(ARRAY[c{number}]) AS s{number}" for number in range(1_000))
    assert analyse(parse_statement(f"SELECT {exploded} FROM wide EMIT CHANGES;"), catalogue).plan is not None


def test_an_expression_of_the_greatest_depth_goes_through_every_pass() -> None:
    for text in ("+".join(["amount"] * 119), "ABS(" * 28 + "amount" + ")" * 28, "-(" * 28 + "amount" + ")" * 28):
        found = decide(f"CREATE STREAM x AS SELECT id, {text} AS v FROM orders WHERE {text} > 0;")
        assert found.plan is not None
        assert explain_text(found.plan)


def test_lambdas_in_lambdas_are_typed_once_each() -> None:
    text = "1"
    for _ in range(14):
        text = f"REDUCE(tags, 0, (s, x) => s + {text} + LEN(item))"
    asked = 0

    class CountingScope:
        def find(self, column: Column) -> Found:
            nonlocal asked
            asked += 1
            return Found(column.name, Array(STRING) if column.name == "TAGS" else STRING)

    type_expression(parse_expression_text(text), CountingScope())
    assert asked == 28

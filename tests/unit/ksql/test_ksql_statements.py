"""Every statement form of the grammar is parsed into its node, and formatted as text that parses to the same node."""

from __future__ import annotations

import pytest

from pessoa.ksql.syntax import statement_nodes as s
from pessoa.ksql.syntax.expression_nodes import Column, Literal
from pessoa.ksql.syntax.parser import parse_statement, parse_statements
from pessoa.ksql.syntax.query_nodes import Duration, Emit, JoinKind, Query, SelectAll, SourceName, WindowKind
from pessoa.ksql.syntax.statement_text import statement_text
from pessoa.ksql.types.sql_types import BIGINT, BOOLEAN, BYTES, INTEGER, STRING, Array, CustomType, Decimal, Map, Struct

ALL = Query((SelectAll(),), SourceName("S"))
TOPIC = s.Property("KAFKA_TOPIC", Literal("t", STRING))

FORMS: list[tuple[str, object]] = [
    ("CREATE STREAM s;", s.CreateSource(s.SourceKind.STREAM, "S")),
    (
        "create or replace source table if not exists t (id int primary key, v varchar) with (kafka_topic='t');",
        s.CreateSource(
            s.SourceKind.TABLE,
            "T",
            (
                s.ColumnDefinition("ID", INTEGER, s.ColumnRole.PRIMARY_KEY),
                s.ColumnDefinition("V", STRING),
            ),
            (TOPIC,),
            or_replace=True,
            if_not_exists=True,
            is_source=True,
        ),
    ),
    (
        "CREATE STREAM s (k STRING KEY, h ARRAY<STRUCT<key STRING, value BYTES>> HEADERS, one BYTES HEADER('a b'));",
        s.CreateSource(
            s.SourceKind.STREAM,
            "S",
            (
                s.ColumnDefinition("K", STRING, s.ColumnRole.KEY),
                s.ColumnDefinition("H", Array(Struct((("KEY", STRING), ("VALUE", BYTES)))), s.ColumnRole.HEADERS),
                s.ColumnDefinition("ONE", BYTES, s.ColumnRole.HEADER, "a b"),
            ),
        ),
    ),
    ("CREATE STREAM a AS SELECT * FROM s;", s.CreateAsSelect(s.SourceKind.STREAM, "A", ALL)),
    (
        "CREATE OR REPLACE TABLE IF NOT EXISTS a WITH (KAFKA_TOPIC='t') AS SELECT * FROM s;",
        s.CreateAsSelect(s.SourceKind.TABLE, "A", ALL, (TOPIC,), or_replace=True, if_not_exists=True),
    ),
    ("INSERT INTO a SELECT * FROM s;", s.InsertSelect("A", ALL)),
    (
        "INSERT INTO a WITH (QUERY_ID='q') SELECT * FROM s;",
        s.InsertSelect("A", ALL, (s.Property("QUERY_ID", Literal("q", STRING)),)),
    ),
    ("INSERT INTO a VALUES (1, 'x');", s.InsertValues("A", (), (Literal(1, INTEGER), Literal("x", STRING)))),
    (
        "INSERT INTO a (x, `y`) VALUES (-1, 3000000000);",
        s.InsertValues("A", ("X", "y"), (Literal(-1, INTEGER), Literal(3_000_000_000, BIGINT))),
    ),
    ("SELECT * FROM s;", s.QueryStatement(ALL)),
    (
        "ALTER STREAM s ADD COLUMN a INT, ADD b MAP<STRING, DECIMAL(4, 2)>;",
        s.AlterSource(
            s.SourceKind.STREAM,
            "S",
            (s.ColumnDefinition("A", INTEGER), s.ColumnDefinition("B", Map(STRING, Decimal(4, 2)))),
        ),
    ),
    ("DROP TABLE t;", s.DropSource(s.SourceKind.TABLE, "T")),
    (
        "DROP STREAM IF EXISTS s DELETE TOPIC;",
        s.DropSource(s.SourceKind.STREAM, "S", if_exists=True, delete_topic=True),
    ),
    (
        "CREATE TYPE IF NOT EXISTS address AS STRUCT<street VARCHAR, at place>;",
        s.CreateType("ADDRESS", Struct((("STREET", STRING), ("AT", CustomType("PLACE")))), if_not_exists=True),
    ),
    ("DROP TYPE IF EXISTS address;", s.DropType("ADDRESS", if_exists=True)),
    (
        "CREATE SOURCE CONNECTOR IF NOT EXISTS `my-jdbc` WITH ('connector.class'='X', \"tasks.max\"=3);",
        s.CreateConnector(
            s.ConnectorKind.SOURCE,
            "my-jdbc",
            (s.Property("connector.class", Literal("X", STRING)), s.Property("TASKS.MAX", Literal(3, INTEGER))),
            if_not_exists=True,
        ),
    ),
    (
        "CREATE SINK CONNECTOR c WITH ('a'=true);",
        s.CreateConnector(s.ConnectorKind.SINK, "C", (s.Property("a", Literal(True, BOOLEAN)),)),
    ),
    ("DROP CONNECTOR IF EXISTS c;", s.DropConnector("C", if_exists=True)),
    ("DESCRIBE CONNECTOR c;", s.DescribeConnector("C")),
    ("SHOW CONNECTORS;", s.ShowConnectors()),
    ("LIST SOURCE CONNECTORS;", s.ShowConnectors(s.ConnectorKind.SOURCE)),
    ("SHOW SINK CONNECTORS;", s.ShowConnectors(s.ConnectorKind.SINK)),
    ("SHOW CONNECTOR PLUGINS;", s.Show(s.Shown.CONNECTOR_PLUGINS)),
    ("SHOW ALL TOPICS EXTENDED;", s.Show(s.Shown.TOPICS, extended=True, all=True)),
    ("LIST TOPICS;", s.Show(s.Shown.TOPICS)),
    ("SHOW STREAMS EXTENDED;", s.Show(s.Shown.STREAMS, extended=True)),
    ("SHOW TABLES;", s.Show(s.Shown.TABLES)),
    ("SHOW QUERIES EXTENDED;", s.Show(s.Shown.QUERIES, extended=True)),
    ("SHOW FUNCTIONS;", s.Show(s.Shown.FUNCTIONS)),
    ("SHOW PROPERTIES;", s.Show(s.Shown.PROPERTIES)),
    ("LIST VARIABLES;", s.Show(s.Shown.VARIABLES)),
    ("SHOW TYPES;", s.Show(s.Shown.TYPES)),
    ("DESCRIBE s;", s.DescribeSource("S")),
    ("DESCRIBE s EXTENDED;", s.DescribeSource("S", extended=True)),
    ("DESCRIBE STREAMS;", s.DescribeAll(s.SourceKind.STREAM)),
    ("DESCRIBE TABLES EXTENDED;", s.DescribeAll(s.SourceKind.TABLE, extended=True)),
    ("DESCRIBE FUNCTION ucase;", s.DescribeFunction("UCASE")),
    ("EXPLAIN SELECT * FROM s;", s.Explain(s.QueryStatement(ALL))),
    ("EXPLAIN CTAS_A_1;", s.Explain("CTAS_A_1")),
    ("PRINT 'My.Topic' FROM BEGINNING INTERVAL 5 LIMIT 3;", s.PrintTopic("My.Topic", True, 5, 3)),
    ("PRINT Orders SAMPLE 2;", s.PrintTopic("Orders", interval=2)),
    ("TERMINATE ALL;", s.ControlQuery(s.QueryAction.TERMINATE, None)),
    ("TERMINATE transient_S_1;", s.ControlQuery(s.QueryAction.TERMINATE, "transient_S_1")),
    ("PAUSE CSAS_A_1;", s.ControlQuery(s.QueryAction.PAUSE, "CSAS_A_1")),
    ("RESUME ALL;", s.ControlQuery(s.QueryAction.RESUME, None)),
    ("SET 'auto.offset.reset'='earliest';", s.SetProperty("auto.offset.reset", "earliest")),
    ("UNSET 'auto.offset.reset';", s.UnsetProperty("auto.offset.reset")),
    ("ALTER SYSTEM 'a'='b';", s.AlterSystem("a", "b")),
    ("DEFINE v = 'it''s';", s.DefineVariable("V", "it's")),
    ("UNDEFINE v;", s.UndefineVariable("V")),
    ("RUN SCRIPT '/a/b.sql';", s.RunScript("/a/b.sql")),
    ("ASSERT TOPIC my_topic;", s.AssertTopic("my_topic")),
    (
        "ASSERT NOT EXISTS TOPIC 'a-b' WITH (PARTITIONS=2) TIMEOUT 5 SECONDS;",
        s.AssertTopic(
            "a-b",
            exists=False,
            properties=(s.Property("PARTITIONS", Literal(2, INTEGER)),),
            timeout=Duration(5, "SECONDS"),
        ),
    ),
    ("ASSERT SCHEMA SUBJECT 'a-value' ID 3;", s.AssertSchema("a-value", 3)),
    ("ASSERT NOT EXISTS SCHEMA ID 3 TIMEOUT 1 DAY;", s.AssertSchema(None, 3, False, Duration(1, "DAYS"))),
    ("ASSERT VALUES a (x) VALUES (1);", s.AssertValues("A", ("X",), (Literal(1, INTEGER),))),
    ("ASSERT NULL VALUES a (k) KEY (1);", s.AssertValues("A", ("K",), (Literal(1, INTEGER),), tombstone=True)),
    (
        "ASSERT STREAM a (x INT) WITH (KAFKA_TOPIC='t');",
        s.AssertSource(s.CreateSource(s.SourceKind.STREAM, "A", (s.ColumnDefinition("X", INTEGER),), (TOPIC,))),
    ),
    ("ASSERT TABLE a;", s.AssertSource(s.CreateSource(s.SourceKind.TABLE, "A"))),
]


@pytest.mark.parametrize(("text", "expected"), FORMS, ids=[text for text, _ in FORMS])
def test_a_statement_is_parsed_and_rendered_back(text: str, expected: object) -> None:
    found = parse_statement(text)
    assert found.statement == expected
    assert found.text == text
    assert found.warnings == ()
    assert parse_statement(statement_text(found.statement)).statement == expected


def test_every_statement_class_has_a_parser_test() -> None:
    assert {type(expected) for _, expected in FORMS} == set(s.Statement.__args__)


def query(text: str) -> Query:
    statement = parse_statement(text).statement
    assert isinstance(statement, s.QueryStatement)
    assert parse_statement(statement_text(statement)).statement == statement
    return statement.query


def test_all_clauses_of_a_query_are_read_in_their_order() -> None:
    found = query(
        "SELECT a, b AS c, t.*, s->* FROM s AS t "
        "WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 2 DAYS, GRACE PERIOD 5 MINUTES) WHERE a > 1 "
        "GROUP BY a, b PARTITION BY a HAVING COUNT(*) > 1 EMIT CHANGES LIMIT 10;"
    )
    assert [type(item).__name__ for item in found.items] == [
        "SelectExpression", "SelectExpression", "SelectAll", "SelectStruct",
    ]  # fmt: skip
    assert found.source == SourceName("S", "T")
    assert found.window is not None
    assert found.window.kind is WindowKind.TUMBLING
    assert (found.window.size.ms, found.window.retention, found.window.grace) == (
        3_600_000, Duration(2, "DAYS"), Duration(5, "MINUTES"),
    )  # fmt: skip
    assert found.group_by == (Column("A"), Column("B"))
    assert found.partition_by == (Column("A"),)
    assert (found.emit, found.limit) == (Emit.CHANGES, 10)


@pytest.mark.parametrize(
    ("text", "kind", "size", "advance"),
    [
        ("w TUMBLING (SIZE 5 SECONDS)", WindowKind.TUMBLING, 5_000, None),
        ("HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS)", WindowKind.HOPPING, 60_000, 10_000),
        ("SESSION (3 MILLISECONDS, GRACE PERIOD 1 DAY)", WindowKind.SESSION, 3, None),
    ],
)
def test_a_window_has_a_kind_a_size_and_an_advance(text: str, kind: WindowKind, size: int, advance: int | None) -> None:
    window = query(f"SELECT COUNT(*) FROM s WINDOW {text} GROUP BY a EMIT FINAL;").window
    assert window is not None
    assert (window.kind, window.size.ms, window.advance.ms if window.advance else None) == (kind, size, advance)


def test_joins_have_a_kind_aliases_and_a_window() -> None:
    found = query(
        "SELECT * FROM a INNER JOIN b x WITHIN 1 HOUR ON a.id = x.id "
        "LEFT JOIN c WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 3 SECONDS ON a.id = c.id "
        "RIGHT OUTER JOIN d ON a.id = d.id FULL JOIN e ON a.id = e.id;"
    )
    assert [join.kind for join in found.joins] == [JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL]
    assert [join.source.label for join in found.joins] == ["X", "C", "D", "E"]
    withins = [join.within for join in found.joins]
    assert [(w.before.ms, w.after.ms, w.grace) for w in withins if w] == [
        (3_600_000, 3_600_000, None), (1_000, 2_000, Duration(3, "SECONDS")),
    ]  # fmt: skip


def test_group_by_may_stand_in_brackets_together() -> None:
    assert query("SELECT 1 FROM s GROUP BY (a, b);").group_by == (Column("A"), Column("B"))
    assert len(query("SELECT 1 FROM s GROUP BY (a + b) * c;").group_by) == 1


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        ("DESCRIBE EXTENDED s;", "DESCRIBE s EXTENDED;", "DESCRIBE EXTENDED S is the spelling of 5.x"),
        ("TERMINATE QUERY q;", "TERMINATE q;", "TERMINATE QUERY is the spelling of 5.x"),
        (
            "SELECT * FROM s EMIT CHANGES PARTITION BY a;",
            "SELECT * FROM s PARTITION BY a EMIT CHANGES;",
            "its place of 5.x",
        ),
        ("SELECT WindowStart() FROM s;", "SELECT WINDOWSTART FROM s;", "is the old spelling of the column WINDOWSTART"),
    ],
)
def test_deprecated_forms_have_the_same_meaning_and_give_a_warning(old: str, new: str, warning: str) -> None:
    found = parse_statement(old)
    assert found.statement == parse_statement(new).statement
    assert len(found.warnings) == 1
    assert warning in found.warnings[0]
    assert parse_statement(new).warnings == ()


def test_statements_of_a_text_are_split_at_semicolons_outside_of_quotes_and_comments() -> None:
    text = "SET 'a;b'='c'; -- not; here\n/* nor; here */ PRINT \"x;y\";\n;"
    with pytest.raises(Exception, match="expected a statement"):
        parse_statements(text)
    found = parse_statements(text[:-2])
    assert [type(one.statement).__name__ for one in found] == ["SetProperty", "PrintTopic"]
    assert [one.text for one in found] == ["SET 'a;b'='c';", 'PRINT "x;y";']


def test_variables_are_substituted_in_names_strings_and_literals() -> None:
    text = (
        "DEFINE topic = 'orders'; DEFINE n = '3'; DEFINE who = '''Ana''';"
        "CREATE STREAM ${topic}_s (`${topic}` INT) WITH (KAFKA_TOPIC='${topic}-${unknown}', PARTITIONS=${N});"
        "INSERT INTO x VALUES (${who}); UNDEFINE topic;"
    )
    found = [one.statement for one in parse_statements(text)]
    create = found[3]
    assert isinstance(create, s.CreateSource)
    assert (create.name, create.columns[0].name) == ("ORDERS_S", "orders")
    assert [one.value.value for one in create.properties] == ["orders-${unknown}", 3]
    insert = found[4]
    assert isinstance(insert, s.InsertValues)
    assert insert.values == (Literal("Ana", STRING),)


def test_session_variables_are_used_and_undefine_removes_them() -> None:
    found = parse_statements("SELECT * FROM ${S};", {"s": "orders"})[0].statement
    assert isinstance(found, s.QueryStatement)
    assert found.query.source.name == "ORDERS"
    with pytest.raises(Exception, match="the variable s is not defined"):
        parse_statements("UNDEFINE s; SELECT * FROM ${s};", {"s": "orders"})


def test_a_variable_cannot_be_substituted_as_more_than_one_token() -> None:
    with pytest.raises(Exception, match="neither one name nor one literal"):
        parse_statements("SELECT * FROM ${s};", {"s": "a; DROP STREAM b"})

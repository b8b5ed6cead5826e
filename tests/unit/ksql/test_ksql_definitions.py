"""CREATE, INSERT, ALTER, DROP and types, checked against the catalogue."""

from __future__ import annotations

import pytest

from pessoa.ksql.analysis.analyser import Decision, Defaults, analyse
from pessoa.ksql.analysis.source_catalogue import Catalogue
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.parser import parse_statement, parse_statements
from tests.unit.ksql.ksql_evaluation import SeededEvaluationContext

SETUP = """
CREATE TYPE address AS STRUCT<city STRING, zip INT>;
CREATE STREAM s (id INT KEY, name STRING, price DECIMAL(6, 2), big BIGINT, at TIMESTAMP, home address,
    tags ARRAY<STRING>) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE t (id INT PRIMARY KEY, v STRING) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');
CREATE SOURCE STREAM ro (id INT KEY, v STRING) WITH (KAFKA_TOPIC='ro', VALUE_FORMAT='JSON');
CREATE STREAM headed (id INT KEY, v STRING, h BYTES HEADER('x')) WITH (KAFKA_TOPIC='h', VALUE_FORMAT='JSON');
CREATE STREAM win (id INT KEY, v STRING) WITH (KAFKA_TOPIC='w', VALUE_FORMAT='JSON', WINDOW_TYPE='SESSION');
CREATE STREAM made AS SELECT id, name FROM s;
"""


def build() -> Catalogue:
    catalogue = Catalogue()
    for parsed in parse_statements(SETUP):
        catalogue = analyse(parsed, catalogue).catalogue
    return catalogue


CATALOGUE = build()
WITH = "WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON')"


def decide(text: str, catalogue: Catalogue = CATALOGUE) -> Decision:
    return analyse(parse_statement(text), catalogue)


def test_a_source_is_declared_with_its_columns_and_properties() -> None:
    found = decide(
        "CREATE TABLE x (a INT PRIMARY KEY, b address, h ARRAY<STRUCT<key STRING, value BYTES>> "
        "HEADERS) WITH (kafka_topic='X-1', "
        "key_format='json', value_format='avro', partitions='3', replicas=2, window_type='hopping', "
        "window_size='2 minutes');"
    ).source
    assert found is not None
    assert found.schema_text() == (
        "`A` INTEGER PRIMARY KEY, `B` STRUCT<`CITY` STRING, `ZIP` INTEGER>, `H` ARRAY<STRUCT<`KEY` "
        "STRING, `VALUE` BYTES>>"
    )
    assert (found.topic, found.key_format, found.value_format) == ("X-1", "JSON", "AVRO")
    assert (found.partitions, found.replicas) == (3, 2)
    assert found.window is not None
    assert found.window.size_ms == 120_000
    assert found.statement.startswith("CREATE TABLE x")


def test_a_server_may_have_a_default_value_format_and_a_topic_prefix() -> None:
    parsed = parse_statement("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x');")
    found = analyse(parsed, CATALOGUE, Defaults(value_format="AVRO")).source
    assert found is not None
    assert found.value_format == "AVRO"
    made = analyse(
        parse_statement("CREATE STREAM y AS SELECT id, name FROM s;"), CATALOGUE, Defaults(topic_prefix="p_")
    )
    assert made.source is not None
    assert made.source.topic == "p_Y"


def test_the_key_property_of_ksql_5_becomes_a_key_column_with_a_warning() -> None:
    found = decide("CREATE TABLE x (id INT, v STRING) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', KEY='id');")
    assert found.source is not None
    assert [column.name for column in found.source.key] == ["ID"]
    assert "is a property of 5.x" in found.warnings[0]


def test_a_stream_may_have_only_a_key_column() -> None:
    found = decide(f"CREATE STREAM x (id BIGINT KEY) {WITH};").source
    assert found is not None
    assert found.schema_text() == "`ID` BIGINT KEY"


def test_columns_may_be_inferred_from_the_schema_registry() -> None:
    found = decide("CREATE STREAM x WITH (KAFKA_TOPIC='x', VALUE_FORMAT='AVRO');").source
    assert found is not None
    assert found.columns() == ()


ERRORS = [
    (f"CREATE STREAM s (a INT) {WITH};", "Cannot add stream 'S': A stream with the same name already exists"),
    (f"CREATE STREAM t (a INT) {WITH};", "Cannot add stream 'T': A table with the same name already exists"),
    ("CREATE STREAM x (a INT);", "missing the 'VALUE_FORMAT' property"),
    ("CREATE STREAM x (a INT) WITH (VALUE_FORMAT='JSON');", 'Missing required property "KAFKA_TOPIC"'),
    ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSN');", "Unknown format: JSN"),
    ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='NONE');", "can only be used for keys"),
    ("CREATE STREAM x (a INT) WITH (KAFKA_TOPC='x');", "Invalid config variable(s) in the WITH clause: KAFKA_TOPC"),
    ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC=3);", "Invalid value for 'KAFKA_TOPIC' property: expected STRING"),
    ("CREATE STREAM x (a INT) WITH (PARTITIONS='x');", "Invalid value for 'PARTITIONS' property: expected INTEGER"),
    ("CREATE STREAM x (a INT) WITH (PARTITIONS=0);", "PARTITIONS must be at least 1"),
    (
        "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', FORMAT='JSON', KEY_FORMAT='JSON');",
        "Cannot supply both 'KEY_FORMAT' and 'FORMAT'",
    ),
    ("CREATE STREAM x WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON');", "The statement does not define any columns."),
    (f"CREATE TABLE x (a INT) {WITH};", "Tables require a PRIMARY KEY."),
    (
        f"CREATE TABLE x (a INT KEY, b INT) {WITH};",
        "Column `A` is a 'KEY' column: please use 'PRIMARY KEY' for tables.",
    ),
    (
        f"CREATE STREAM x (a INT PRIMARY KEY, b INT) {WITH};",
        "Column `A` is a 'PRIMARY KEY' column: please use 'KEY' for streams.",
    ),
    (f"CREATE STREAM x (a INT, a STRING) {WITH};", "Duplicate column names: `A`"),
    (f"CREATE STREAM x (ROWTIME BIGINT) {WITH};", "`ROWTIME` is a reserved column name."),
    (f"CREATE STREAM x (a MAP<address, INT>) {WITH};", "The key of a map cannot be of type STRUCT"),
    (f"CREATE STREAM x (a nope) {WITH};", "Cannot resolve unknown type: NOPE"),
    (f"CREATE STREAM x (a INT, h STRING HEADERS) {WITH};", "Invalid type for HEADERS column `H`"),
    (
        f"CREATE STREAM x (a INT, h STRING HEADER('a')) {WITH};",
        "Invalid type for HEADER column `H`: expected BYTES, got STRING",
    ),
    (f"CREATE STREAM x (a INT, h BYTES HEADER('a'), i BYTES HEADER('a')) {WITH};", "of the same key twice"),
    (f"CREATE STREAM x (a INT KEY, b INT KEY, c INT) {WITH};", "Key format does not support schema"),
    (f"CREATE STREAM x (a MAP<STRING, INT> KEY, c INT) {WITH};", "are not supported as keys"),
    ("CREATE STREAM x (a INT, b INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='KAFKA');", "only supports a single field"),
    (
        "CREATE STREAM x (a ARRAY<INT>) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='DELIMITED');",
        "does not support type 'ARRAY'",
    ),
    ("CREATE STREAM x (a DECIMAL(2,1)) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='KAFKA');", "does not support type"),
    (
        "CREATE STREAM x (a INT KEY, b INT) WITH (KAFKA_TOPIC='x', KEY_FORMAT='NONE', VALUE_FORMAT='JSON');",
        "format NONE cannot have columns",
    ),
    (
        "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='PROTOBUF', WRAP_SINGLE_VALUE=false);",
        "does not support 'WRAP_SINGLE_VALUE' set to 'false'",
    ),
    (
        "CREATE STREAM x (a INT, b INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WRAP_SINGLE_VALUE=true);",
        "single-field value schemas",
    ),
    (
        "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', TIMESTAMP='b');",
        "does not exist in the schema: 'B'",
    ),
    ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', TIMESTAMP='a');", "should be LONG(INT64)"),
    (
        "CREATE STREAM x (a STRING) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', TIMESTAMP='a');",
        "without a TIMESTAMP_FORMAT",
    ),
    (
        "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLNG');",
        "Unknown window type",
    ),
    (
        "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING');",
        "require 'WINDOW_SIZE'",
    ),
    (
        (
            "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WINDOW_TYPE='SESSION', "
            "WINDOW_SIZE='1 DAY');"
        ),
        "should not be set for SESSION windows.",
    ),
    (
        (
            "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WINDOW_TYPE='HOPPING', "
            "WINDOW_SIZE='1 FORTNIGHT');"
        ),
        "Invalid duration",
    ),
    (
        "CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='DELIMITED', VALUE_DELIMITER='ab');",
        "Invalid delimiter",
    ),
    ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=3);", "cannot both exist"),
    (
        "CREATE STREAM x WITH (WINDOW_TYPE='SESSION') AS SELECT * FROM s;",
        "Invalid config variable(s) in the WITH clause: WINDOW_TYPE",
    ),
    # OR REPLACE.
    (
        "CREATE OR REPLACE TABLE s (id INT PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');",
        "must keep its kind",
    ),
    (
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v STRING) WITH (KAFKA_TOPIC='other', VALUE_FORMAT='JSON');",
        "must keep its topic",
    ),
    (
        "CREATE OR REPLACE TABLE t (id BIGINT PRIMARY KEY, v STRING) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');",
        "key columns must stay",
    ),
    (
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, w STRING) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');",
        "changed, missing or reordered",
    ),
    # INSERT.
    ("INSERT INTO nope VALUES (1);", "NOPE does not exist."),
    ("INSERT INTO s (id) VALUES ('x');", "Expected type INTEGER for field `ID` but got STRING('x')"),
    ("INSERT INTO s (id) VALUES ('1');", "Expected type INTEGER"),
    ("INSERT INTO s (id, nme) VALUES (1, 'a');", "Column name `NME` does not exist in S."),
    ("INSERT INTO s (id, name) VALUES (1);", "Expected a value for each column."),
    ("INSERT INTO s (id, id) VALUES (1, 1);", "is given twice"),
    ("INSERT INTO s (id, name) VALUES (1, other);", "OTHER is a column, and there is no row to take it from"),
    ("INSERT INTO s (ROWPARTITION, name) VALUES (1, 'a');", "Inserting into column `ROWPARTITION` is not allowed."),
    ("INSERT INTO headed (id, h) VALUES (1, 'aa');", "Cannot insert into HEADER columns: H"),
    ("INSERT INTO t (v) VALUES ('x');", "Value for primary key column(s) ID is required for tables"),
    ("INSERT INTO ro VALUES (1, 'x');", "read-only stream"),
    ("INSERT INTO win VALUES (1, 'x');", "windowed"),
    ("INSERT INTO t SELECT id, name AS v FROM s;", "can only be used to insert into a stream"),
    ("INSERT INTO ro SELECT id, name AS v FROM s;", "read-only"),
    ("INSERT INTO headed SELECT id, name AS v FROM s;", "header columns"),
    ("INSERT INTO made SELECT id, name AS other FROM s;", "Incompatible schema between results and sink."),
    ("INSERT INTO made SELECT id, name, big FROM s;", "Incompatible schema between results and sink."),
    (
        "INSERT INTO made SELECT big AS id, name FROM s PARTITION BY big;",
        "Incompatible schema between results and sink.",
    ),
    ("INSERT INTO made SELECT name, COUNT(*) FROM s GROUP BY name;", "the result a TABLE"),
    ("INSERT INTO made WITH (QERY_ID='x') SELECT id, name FROM s;", "Invalid config variable(s)"),
    # ALTER, DROP, types.
    ("ALTER STREAM nope ADD COLUMN a INT;", "NOPE does not exist."),
    ("ALTER TABLE s ADD COLUMN a INT;", "Incompatible data source type is STREAM, but statement was ALTER TABLE"),
    ("ALTER STREAM s ADD COLUMN name INT;", "A column with the same name already exists."),
    ("ALTER STREAM ro ADD COLUMN a INT;", "read-only"),
    ("ALTER STREAM made ADD COLUMN a INT;", "not supported for CREATE ... AS statements"),
    ("DROP STREAM nope;", "NOPE does not exist."),
    ("DROP TABLE s;", "Incompatible data source type is STREAM, but statement was DROP TABLE"),
    ("DROP STREAM ro DELETE TOPIC;", "Cannot delete topic for read-only source: RO"),
    ("CREATE TYPE address AS INT;", "already registered"),
    ("DROP TYPE nope;", "Type NOPE does not exist."),
    ("DESCRIBE nope;", "NOPE does not exist."),
    ("EXPLAIN SHOW STREAMS;", "EXPLAIN explains queries"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[text for text, _ in ERRORS])
def test_an_invalid_ddl_statement_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(SemanticFailure) as caught:
        decide(text)
    assert message in caught.value.message


def test_misspelt_names_get_suggestions() -> None:
    for text, hint in [
        ("CREATE STREAM x (a INT) WITH (KAFKA_TOPC='x');", "Did you mean KAFKA_TOPIC?"),
        ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSN');", "Did you mean JSON?"),
        ("INSERT INTO s (id, nme) VALUES (1, 'a');", "Did you mean NAME?"),
        (f"CREATE STREAM x (a BIGNT) {WITH};", "Did you mean BIGINT?"),
    ]:
        with pytest.raises(SemanticFailure) as caught:
            decide(text)
        assert caught.value.hint == hint


def test_insert_values_casts_each_value_to_its_column() -> None:
    found = decide(
        "INSERT INTO s (ROWTIME, id, name, price, big, at, home, tags) VALUES (1234, 1 + 1, UCASE('a'), 12, 5, "
        "'2026-11-17T10:00', STRUCT(city := 'Rio', zip := 3), ARRAY['x']);"
    ).insert
    assert found is not None
    around = SeededEvaluationContext()
    values = {name: compile_expression(typed, around)({}) for name, typed in found.columns}
    assert str(values.pop("PRICE")) == "12.00"
    assert values == {
        "ID": 2, "NAME": "A", "BIG": 5, "AT": 1_794_909_600_000, "HOME": {"CITY": "Rio", "ZIP": 3}, "TAGS": ["x"],
    }  # fmt: skip
    assert found.rowtime is not None
    assert compile_expression(found.rowtime, around)({}) == 1234


def test_insert_values_without_columns_uses_key_columns_then_value_columns() -> None:
    found = decide("INSERT INTO t VALUES (1, NULL);").insert
    assert found is not None
    assert [name for name, _ in found.columns] == ["ID", "V"]


def test_insert_select_writes_with_the_formats_of_its_sink() -> None:
    found = decide("INSERT INTO made WITH (QUERY_ID='mine') SELECT id, name FROM s WHERE big > 1;")
    assert found.query_id == "mine"
    assert found.plan is not None
    assert found.plan.sink == CATALOGUE.sources["MADE"]


def test_alter_adds_columns_after_the_existing_ones() -> None:
    found = decide("ALTER STREAM s ADD COLUMN extra INT, ADD more address;")
    assert found.source is not None
    assert [column.name for column in found.source.value[-2:]] == ["EXTRA", "MORE"]
    assert found.catalogue.sources["S"] == found.source
    assert CATALOGUE.sources["S"] != found.source


def test_or_replace_may_add_columns() -> None:
    found = decide(
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v STRING, w INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
    )
    assert found.source is not None
    assert len(found.source.value) == 2


def test_if_not_exists_and_if_exists_only_warn() -> None:
    created = decide(f"CREATE STREAM IF NOT EXISTS s (a INT) {WITH};")
    assert (created.source, created.catalogue) == (None, CATALOGUE)
    assert "already exists" in created.warnings[0]
    dropped = decide("DROP STREAM IF EXISTS nope;")
    assert (dropped.source, dropped.warnings) == (None, ("Source NOPE does not exist.",))
    assert decide("CREATE TYPE IF NOT EXISTS address AS INT;").catalogue == CATALOGUE
    assert decide("DROP TYPE IF EXISTS nope;").message == "Type 'NOPE' does not exist"


def test_drop_is_refused_while_a_source_is_used() -> None:
    from dataclasses import replace

    read = replace(CATALOGUE, readers={"S": ("CSAS_MADE_1",)})
    with pytest.raises(SemanticFailure, match=r"read from this source: \[CSAS_MADE_1\]"):
        decide("DROP STREAM s;", read)
    derived = replace(CATALOGUE, derived={"S": ("MADE",)})
    with pytest.raises(SemanticFailure, match="You need to drop them before dropping S"):
        decide("DROP STREAM s;", derived)
    own = CATALOGUE.with_source(replace(CATALOGUE.sources["MADE"], query_id="CSAS_MADE_1"))
    own = replace(own, writers={"MADE": ("CSAS_MADE_1",)})
    assert "MADE" not in decide("DROP STREAM made DELETE TOPIC;", own).catalogue.sources


def test_types_are_registered_and_dropped() -> None:
    found = decide("CREATE TYPE pair AS ARRAY<address>;")
    assert found.message == (
        "Registered custom type with name 'PAIR' and SQL type ARRAY<STRUCT<`CITY` STRING, `ZIP` INTEGER>>"
    )
    gone = analyse(parse_statement("DROP TYPE pair;"), found.catalogue)
    assert (gone.message, "PAIR" in gone.catalogue.types) == ("Dropped type 'PAIR'", False)


def test_statements_that_only_show_or_control_are_returned_unchanged() -> None:
    for text in ("SHOW STREAMS;", "TERMINATE ALL;", "SET 'a'='b';", "PRINT t;", "EXPLAIN CSAS_X_1;"):
        found = decide(text)
        assert (found.plan, found.source, found.catalogue) == (None, None, CATALOGUE)

"""Queries become plans: names, types, keys, joins, windows, aggregates; or errors with a suggestion."""

from __future__ import annotations

import pytest

from pessoa.ksql.analysis.logical_plan import AggregateStep, JoinForm, JoinStep, Step, explain_text
from pessoa.ksql.analysis.query_analysis import PASSES
from pessoa.ksql.analysis.query_kinds import QueryMode
from tests.unit.ksql.ksql_catalogue import CATALOGUE, decide, failure, plan

SCHEMAS = [
    # Plain queries.
    ("CREATE STREAM x AS SELECT * FROM clicks;", "`URL` STRING, `USER` STRING"),
    ("CREATE STREAM x AS SELECT id, amount * 2 FROM orders;", "`ID` BIGINT KEY, `KSQL_COL_0` INTEGER"),
    (
        "CREATE STREAM x AS SELECT amount, id AS k, AS_VALUE(id) AS v FROM orders;",
        "`K` BIGINT KEY, `AMOUNT` INTEGER, `V` BIGINT",
    ),
    (
        "CREATE STREAM x AS SELECT o.id, o.address->city, o.address->zip AS z FROM orders o;",
        "`ID` BIGINT KEY, `CITY` STRING, `Z` INTEGER",
    ),
    ("CREATE STREAM x AS SELECT id, address->* FROM orders;", "`ID` BIGINT KEY, `CITY` STRING, `ZIP` INTEGER"),
    (
        "CREATE STREAM x AS SELECT id, address->city, address->city FROM orders;",
        "`ID` BIGINT KEY, `CITY` STRING, `CITY_1` STRING",
    ),
    (
        "CREATE STREAM x AS SELECT id, ROWTIME AS t, ROWPARTITION AS p FROM orders;",
        "`ID` BIGINT KEY, `T` BIGINT, `P` INTEGER",
    ),
    ("CREATE STREAM x AS SELECT id, CAST(amount AS price) AS p FROM orders;", "`ID` BIGINT KEY, `P` DECIMAL(6, 2)"),
    ("CREATE STREAM x AS SELECT id, price * amount AS total FROM orders;", "`ID` BIGINT KEY, `TOTAL` DECIMAL(17, 2)"),
    ("CREATE STREAM x AS SELECT id, EXPLODE(tags) AS tag FROM orders;", "`ID` BIGINT KEY, `TAG` STRING"),
    ("CREATE STREAM x AS SELECT id, UCASE(EXPLODE(tags)) + 'x' FROM orders;", "`ID` BIGINT KEY, `KSQL_COL_0` STRING"),
    ("CREATE STREAM x AS SELECT b, a, v FROM two;", "`A` INTEGER KEY, `B` STRING KEY, `V` INTEGER"),
    ("CREATE TABLE x AS SELECT uid, name FROM users WHERE region > 1;", "`UID` STRING KEY, `NAME` STRING"),
    # PARTITION BY.
    (
        "CREATE STREAM x AS SELECT * FROM orders PARTITION BY item;",
        (
            "`ITEM` STRING KEY, `AMOUNT` INTEGER, `PRICE` DECIMAL(6, 2), `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, "
            "`ADDRESS` STRUCT<`CITY` STRING, `ZIP` INTEGER>, `PROPS` MAP<STRING, STRING>, `ID` BIGINT"
        ),
    ),
    ("CREATE STREAM x AS SELECT user AS who, url FROM clicks PARTITION BY user;", "`WHO` STRING KEY, `URL` STRING"),
    ("CREATE STREAM x AS SELECT url, user FROM clicks PARTITION BY NULL;", "`URL` STRING, `USER` STRING"),
    (
        "CREATE STREAM x AS SELECT * FROM clicks PARTITION BY UCASE(user);",
        "`KSQL_COL_0` STRING KEY, `URL` STRING, `USER` STRING",
    ),
    (
        "CREATE STREAM x AS SELECT id, item, address->city FROM orders PARTITION BY address->city;",
        "`CITY` STRING KEY, `ID` BIGINT, `ITEM` STRING",
    ),
    ("CREATE STREAM x AS SELECT 1 AS k, url FROM clicks PARTITION BY 1;", "`K` INTEGER KEY, `URL` STRING"),
    ("CREATE STREAM x AS SELECT * FROM shipments PARTITION BY id;", "`ID` BIGINT KEY, `CARRIER` STRING"),
    # Aggregates.
    (
        "CREATE TABLE x AS SELECT item, SUM(price) AS s FROM orders GROUP BY item;",
        "`ITEM` STRING KEY, `S` DECIMAL(6, 2)",
    ),
    (
        "CREATE TABLE x AS SELECT item, COUNT(*) AS n, SUM(amount) FROM orders GROUP BY item;",
        "`ITEM` STRING KEY, `N` BIGINT, `KSQL_COL_0` INTEGER",
    ),
    (
        (
            "CREATE TABLE x WITH (KEY_FORMAT='JSON') AS SELECT COUNT(*) AS n, amount, item FROM orders "
            "GROUP BY item, amount;"
        ),
        "`ITEM` STRING KEY, `AMOUNT` INTEGER KEY, `N` BIGINT",
    ),
    (
        "CREATE TABLE x AS SELECT address->city AS c, MAX(price) AS m FROM orders GROUP BY address->city;",
        "`C` STRING KEY, `M` DECIMAL(6, 2)",
    ),
    (
        "CREATE TABLE x AS SELECT amount % 2 AS even, AVG(price) * 2 AS a FROM orders GROUP BY amount % 2;",
        "`EVEN` INTEGER KEY, `A` DOUBLE",
    ),
    (
        (
            "CREATE TABLE x AS SELECT item, COLLECT_LIST(amount) AS l FROM orders GROUP BY item HAVING "
            "COUNT(*) > 2 AND item <> 'x';"
        ),
        "`ITEM` STRING KEY, `L` ARRAY<INTEGER>",
    ),
    (
        "CREATE TABLE x AS SELECT item, AS_VALUE(item) AS copy, COUNT(*) AS n FROM orders GROUP BY item;",
        "`ITEM` STRING KEY, `COPY` STRING, `N` BIGINT",
    ),
    (
        (
            "CREATE TABLE x AS SELECT item, COUNT(*) AS n, WINDOWSTART AS s, WINDOWEND - WINDOWSTART AS d FROM orders "
            "WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY item;"
        ),
        "`ITEM` STRING KEY, `N` BIGINT, `S` BIGINT, `D` BIGINT",
    ),
    ("CREATE TABLE x AS SELECT region, COUNT(*) AS n FROM users GROUP BY region;", "`REGION` INTEGER KEY, `N` BIGINT"),
    (
        (
            "CREATE TABLE x AS SELECT item, TOPK(amount, 3) AS t, LATEST_BY_OFFSET(price, 2, FALSE) AS p "
            "FROM orders GROUP BY item;"
        ),
        "`ITEM` STRING KEY, `T` ARRAY<INTEGER>, `P` ARRAY<DECIMAL(6, 2)>",
    ),
    ("CREATE TABLE x AS SELECT user, COUNT(url) AS n FROM clicks GROUP BY user;", "`USER` STRING KEY, `N` BIGINT"),
    # Joins.
    (
        "CREATE STREAM x AS SELECT * FROM shipments s JOIN payments p WITHIN 1 HOUR ON ABS(s.id) = ABS(p.id);",
        ("`ROWKEY` BIGINT KEY, `S_ID` BIGINT, `S_CARRIER` STRING, `P_PID` STRING, `P_ID` BIGINT, `P_PAID` INTEGER"),
    ),
    (
        (
            "CREATE STREAM x AS SELECT o.id, paid, s.carrier FROM orders o JOIN payments p WITHIN 1 HOUR "
            "ON o.id = ABS(p.id) JOIN shipments s WITHIN 1 HOUR ON ABS(p.id) = ABS(s.id);"
        ),
        "`O_ID` BIGINT KEY, `PAID` INTEGER, `CARRIER` STRING",
    ),
    (
        "CREATE STREAM x AS SELECT o.id, item, paid FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id;",
        "`O_ID` BIGINT KEY, `ITEM` STRING, `PAID` INTEGER",
    ),
    (
        "CREATE STREAM x AS SELECT p.id, o.id, paid FROM orders o JOIN payments p WITHIN 1 HOUR ON p.id = o.id;",
        "`O_ID` BIGINT KEY, `P_ID` BIGINT, `PAID` INTEGER",
    ),
    (
        "CREATE STREAM x AS SELECT p.id AS k, paid FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id;",
        "`K` BIGINT KEY, `PAID` INTEGER",
    ),
    (
        "CREATE STREAM x AS SELECT ROWKEY, paid FROM orders o FULL JOIN payments p WITHIN 1 HOUR ON o.id = p.id;",
        "`ROWKEY` BIGINT KEY, `PAID` INTEGER",
    ),
    (
        (
            "CREATE STREAM x AS SELECT ROWKEY AS k, paid FROM orders o JOIN payments p WITHIN 1 HOUR ON "
            "ABS(o.id) = ABS(p.id);"
        ),
        "`K` BIGINT KEY, `PAID` INTEGER",
    ),
    (
        "CREATE STREAM x AS SELECT p.id, paid FROM orders o JOIN payments p WITHIN 1 HOUR ON ABS(o.id) = p.id;",
        "`P_ID` BIGINT KEY, `PAID` INTEGER",
    ),
    (
        "CREATE STREAM x AS SELECT url, u.uid, name FROM clicks c LEFT JOIN users u ON c.user = u.uid;",
        "`UID` STRING KEY, `URL` STRING, `NAME` STRING",
    ),
    (
        "CREATE STREAM x AS SELECT c.*, u.name FROM clicks c JOIN users u ON c.user = u.uid;",
        "`C_USER` STRING KEY, `C_URL` STRING, `NAME` STRING",
    ),
    ("CREATE TABLE x AS SELECT u.uid, name, email FROM users u FULL JOIN more_users m ON u.uid = m.uid;", None),
    (
        "CREATE TABLE x AS SELECT u.uid, name, email FROM users u LEFT JOIN more_users m ON u.uid = m.uid;",
        "`U_UID` STRING KEY, `NAME` STRING, `EMAIL` STRING",
    ),
    (
        (
            "CREATE TABLE x AS SELECT u.uid, u.name AS person, r.name AS region FROM users u JOIN "
            "regions r ON u.region = r.rid;"
        ),
        "`UID` STRING KEY, `PERSON` STRING, `REGION` STRING",
    ),
    (
        "CREATE TABLE x AS SELECT u.uid, u.name, r.name FROM users u LEFT JOIN regions r ON u.region = r.rid;",
        "`UID` STRING KEY, `U_NAME` STRING, `R_NAME` STRING",
    ),
    (
        (
            "CREATE STREAM x AS SELECT m.uid, url, name, email FROM clicks c JOIN users u ON c.user = u.uid "
            "JOIN more_users m ON u.uid = m.uid;"
        ),
        "`M_UID` STRING KEY, `URL` STRING, `NAME` STRING, `EMAIL` STRING",
    ),
    ("CREATE STREAM x AS SELECT w.id, w.n, v.n FROM wins w JOIN wins2 v WITHIN 1 HOUR ON w.id = v.id;", None),
]


@pytest.mark.parametrize(("text", "schema"), SCHEMAS, ids=[text for text, _ in SCHEMAS])
def test_a_persistent_query_has_the_schema_that_ksqldb_documents(text: str, schema: str | None) -> None:
    if schema is None:
        assert failure(text).message
        return
    found = plan(text)
    assert found.schema_text() == schema
    assert found.sink is not None
    assert (found.sink.key, found.sink.value) == (found.key, found.value)


def steps(step: Step) -> list[Step]:
    found: list[Step] = [step]
    below = getattr(step, "below", None) or getattr(step, "left", None)
    return found if below is None else found + steps(below)


def join_of(text: str) -> JoinStep:
    return next(one for one in steps(plan(text).root) if isinstance(one, JoinStep))


def test_a_join_plan_has_its_kind_window_and_repartitioned_side() -> None:
    streams = join_of(
        "SELECT * FROM orders o LEFT JOIN payments p WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 3 SECONDS "
        "ON o.id = p.id EMIT CHANGES;"
    )
    assert (streams.form, streams.before_ms, streams.after_ms, streams.grace_ms) == (
        JoinForm.STREAM_STREAM, 1_000, 2_000, 3_000,
    )  # fmt: skip
    assert (streams.repartition_left, streams.repartition_right) == (False, True)
    lookup = join_of("SELECT * FROM clicks c JOIN users u ON u.uid = c.user EMIT CHANGES;")
    assert (lookup.form, lookup.repartition_left) == (JoinForm.STREAM_TABLE, True)
    assert lookup.key_names == ("C_USER", "U_UID")
    foreign = join_of("SELECT * FROM users u JOIN regions r ON u.region = r.rid EMIT CHANGES;")
    assert (foreign.form, foreign.key_names) == (JoinForm.FOREIGN_KEY, ("U_UID",))
    tables = join_of("SELECT * FROM users u FULL JOIN more_users m ON u.uid = m.uid EMIT CHANGES;")
    assert (tables.form, tables.synthetic) == (JoinForm.TABLE_TABLE, True)


@pytest.mark.parametrize(
    ("window", "emit", "grace"),
    [
        ("TUMBLING (SIZE 1 HOUR)", "CHANGES", 82_800_000),
        ("TUMBLING (SIZE 2 DAYS)", "CHANGES", 0),
        ("TUMBLING (SIZE 1 HOUR)", "FINAL", 0),
        ("TUMBLING (SIZE 1 HOUR, GRACE PERIOD 5 SECONDS)", "FINAL", 5_000),
        ("SESSION (5 MINUTES)", "CHANGES", 86_100_000),
        ("HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE, RETENTION 2 HOURS)", "CHANGES", 3_600_000),
    ],
)
def test_a_window_has_the_default_grace_of_ksqldb(window: str, emit: str, grace: int) -> None:
    found = plan(f"SELECT item, COUNT(*) FROM orders WINDOW {window} GROUP BY item EMIT {emit};")
    step = next(one for one in steps(found.root) if isinstance(one, AggregateStep))
    assert step.window is not None
    assert step.window.grace_ms == grace
    assert step.window.retention_ms >= step.window.size_ms + step.window.grace_ms


def test_the_sink_takes_topic_formats_and_partitions_from_the_left_source() -> None:
    sink = plan("CREATE STREAM x AS SELECT pid, paid FROM payments;").sink
    assert sink is not None
    assert (sink.topic, sink.partitions, sink.key_format, sink.value_format) == ("X", 4, "KAFKA", "AVRO")
    given = plan(
        "CREATE STREAM x WITH (KAFKA_TOPIC='t', PARTITIONS=7, FORMAT='JSON') AS SELECT pid, paid FROM payments;"
    ).sink
    assert given is not None
    assert (given.topic, given.partitions, given.key_format, given.value_format) == ("t", 7, "JSON", "JSON")
    keyed = plan("CREATE TABLE x AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;").sink
    assert keyed is not None
    assert (keyed.key_format, keyed.materialised) == ("KAFKA", True)
    keyless = plan("CREATE STREAM x AS SELECT url, user FROM clicks PARTITION BY NULL;").sink
    assert keyless is not None
    assert keyless.key_format == "NONE"


def test_a_windowed_aggregation_gives_a_windowed_table() -> None:
    sink = plan(
        "CREATE TABLE x AS SELECT item, COUNT(*) AS n FROM orders WINDOW TUMBLING (SIZE 5 SECONDS) GROUP BY item;"
    ).sink
    assert sink is not None
    assert sink.window is not None
    assert sink.window.size_ms == 5_000


def test_partition_by_the_existing_key_adds_no_repartition_step() -> None:
    assert "PARTITION BY" not in explain_text(plan("CREATE STREAM x AS SELECT * FROM shipments PARTITION BY id;"))
    assert "PARTITION BY" in explain_text(plan("CREATE STREAM x AS SELECT * FROM shipments PARTITION BY carrier;"))


def test_a_select_is_classified_as_push_or_pull_query() -> None:
    assert decide("SELECT * FROM orders EMIT CHANGES;").mode is QueryMode.PUSH
    assert decide("SELECT * FROM orders;").mode is QueryMode.PULL
    assert decide("SELECT * FROM stock WHERE item = 'a';").mode is QueryMode.PULL
    old = decide("SELECT * FROM users;")
    assert old.mode is QueryMode.PUSH
    assert "is not materialised" in old.warnings[0]
    grouped = decide("SELECT item, COUNT(*) FROM orders GROUP BY item;")
    assert (grouped.mode, len(grouped.warnings)) == (QueryMode.PUSH, 1)


def test_select_star_of_a_windowed_source_shows_its_bounds_in_a_push_query() -> None:
    assert plan("SELECT * FROM wins EMIT CHANGES;").schema_text() == (
        "`ID` BIGINT, `WINDOWSTART` BIGINT, `WINDOWEND` BIGINT, `N` INTEGER"
    )
    assert plan("CREATE STREAM x AS SELECT * FROM wins;").schema_text() == "`ID` BIGINT KEY, `N` INTEGER"


def test_select_star_of_a_windowed_join_has_the_bounds_of_both_sides() -> None:
    other = (
        "CREATE STREAM wins2 (id BIGINT KEY, n INT) WITH (KAFKA_TOPIC='w2', VALUE_FORMAT='JSON', "
        "WINDOW_TYPE='HOPPING', WINDOW_SIZE='2 SECONDS');"
    )
    catalogue = decide(other).catalogue
    text = "CREATE STREAM x AS SELECT * FROM wins a JOIN wins2 b WITHIN 1 MINUTE ON a.id = b.id;"
    found = decide(text, catalogue).plan
    assert found is not None
    assert found.schema_text() == (
        "`A_ID` BIGINT KEY, `A_WINDOWSTART` BIGINT, `A_WINDOWEND` BIGINT, `A_N` INTEGER, "
        "`B_ID` BIGINT, `B_WINDOWSTART` BIGINT, `B_WINDOWEND` BIGINT, `B_N` INTEGER"
    )
    assert found.window is not None
    assert found.window.size_ms == 5_000


def test_a_synthetic_key_name_avoids_existing_column_names() -> None:
    other = "CREATE STREAM taken (ROWKEY BIGINT KEY, rowkey_1 INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
    catalogue = decide(other).catalogue
    text = "CREATE STREAM x AS SELECT ROWKEY_2 AS k, carrier FROM taken t JOIN shipments s WITHIN 1 HOUR ON "
    found = decide(text + "ABS(t.ROWKEY) = ABS(s.id);", catalogue).plan
    assert found is not None
    assert found.schema_text() == "`K` BIGINT KEY, `CARRIER` STRING"


def test_rowkey_of_ksql_5_means_the_key_with_a_warning() -> None:
    found = decide("SELECT ROWKEY, item FROM orders EMIT CHANGES;")
    assert found.warnings == ("ROWKEY is the key column of 5.x; write ID.",)
    assert found.plan is not None
    assert found.plan.schema_text() == "`ID` BIGINT, `ITEM` STRING"


def test_explain_prints_every_step() -> None:
    text = (
        "EXPLAIN CREATE TABLE x AS SELECT u.name, COUNT(*) AS n FROM clicks c JOIN users u ON c.user = u.uid "
        "WINDOW TUMBLING (SIZE 1 HOUR) WHERE url LIKE '%a' GROUP BY u.name HAVING COUNT(*) > 1;"
    )
    message = decide(text).message
    assert message.splitlines() == [
        "> SINK TABLE X, topic X, key KAFKA, value JSON",
        "> RESULT TABLE [`NAME` STRING KEY, `N` BIGINT]",
        "  > PROJECT NAME, KSQL_AGG_VARIABLE_0 AS N",
        "    > HAVING KSQL_AGG_VARIABLE_0 > 1",
        (
            "      > AGGREGATE COUNT(*) AS KSQL_AGG_VARIABLE_0 BY U_NAME AS NAME, TUMBLING size 3600000 "
            "ms, grace 82800000 ms, "
            "EMIT CHANGES"
        ),
        "        > WHERE C_URL LIKE '%a'",
        "          > INNER JOIN (stream-table) ON C_USER = U_UID, repartition left",
        "            > SOURCE STREAM CLICKS [`URL` STRING, `USER` STRING]",
        "            > SOURCE TABLE USERS [`UID` STRING PRIMARY KEY, `NAME` STRING, `REGION` INTEGER]",
    ]
    assert decide(text).catalogue == CATALOGUE


def test_every_schema_of_a_plan_can_be_explained() -> None:
    for text, schema in SCHEMAS:
        if schema is not None:
            assert "SOURCE" in explain_text(plan(text))


def test_the_compiler_passes_are_listed_in_one_tuple() -> None:
    assert [one.__name__ for one in PASSES] == [
        "bind_sources",
        "resolve_names",
        "plan_joins",
        "plan_filter",
        "plan_table_functions",
        "plan_partitioning",
        "plan_aggregation",
        "plan_projection",
    ]

"""How a plan runs on Spark (real-time mode or micro-batches), and why; the names of queries there."""

from __future__ import annotations

import pytest

from pessoa.ksql.spark.native_plan import source_topics_of
from pessoa.ksql.spark.query_choice import MICRO_BATCHES, SPEED, choose
from pessoa.ksql.spark.query_names import application_id, engine_name, internal_topic
from pessoa.pipelines.queries import QuerySpec
from pessoa.pipelines.stages import why_not_real_time
from tests.unit.ksql.ksql_catalogue import plan

NATIVE = [
    "CREATE STREAM a AS SELECT * FROM clicks;",
    "CREATE STREAM a AS SELECT url, UCASE(user) AS u, LEN(url) + 1 AS n FROM clicks WHERE user LIKE 'a%';",
    "CREATE STREAM a AS SELECT user, url FROM clicks PARTITION BY user;",
    "CREATE STREAM a AS SELECT * FROM raw;",
    "CREATE TABLE a AS SELECT url, COUNT(*) AS n FROM clicks GROUP BY url;",
    "CREATE TABLE a WITH (KEY_FORMAT='JSON') AS SELECT url, user, MAX(LEN(url)) AS n FROM clicks GROUP BY url, user;",
    "CREATE TABLE a AS SELECT url, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY url;",
    """CREATE TABLE a AS SELECT url, COUNT(*) AS n, WINDOWSTART AS ws
    FROM clicks WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) GROUP BY url;""",
]
ORDERED = [
    ("CREATE STREAM a AS SELECT * FROM orders;", "DECIMAL(6, 2)"),
    ("CREATE STREAM a AS SELECT * FROM payments;", "AVRO"),
    ("CREATE STREAM a AS SELECT * FROM two;", "keys in JSON"),
    ("CREATE STREAM a AS SELECT * FROM wins;", "windows in its keys"),
    ("CREATE TABLE a AS SELECT * FROM users;", "is a table"),
    ("CREATE STREAM a AS SELECT url, MD5(user) AS u FROM clicks;", "MD5"),
    ("CREATE STREAM a AS SELECT url, EXPLODE(SPLIT(user, ',')) AS u FROM clicks;", "EXPLODE"),
    ("CREATE TABLE a AS SELECT url, COUNT(*) AS n FROM clicks GROUP BY url HAVING COUNT(*) > 1;", "HAVING"),
    ("CREATE TABLE a AS SELECT url, COLLECT_LIST(user) AS n FROM clicks GROUP BY url;", "ARRAY<STRING>"),
    ("CREATE TABLE a AS SELECT url, COUNT(*) AS n FROM clicks WINDOW SESSION (1 MINUTE) GROUP BY url;", "sessions"),
    (
        """CREATE TABLE a AS SELECT url, COUNT(*) AS n
        FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY url EMIT FINAL;""",
        "EMIT FINAL",
    ),
    (
        """CREATE TABLE a AS SELECT url, COUNT(*) AS n
        FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 1 MINUTE) GROUP BY url;""",
        "GRACE PERIOD",
    ),
    ("CREATE STREAM a AS SELECT user, url, name FROM clicks JOIN users ON user = users.uid;", "stream-table join"),
]


@pytest.mark.parametrize("text", NATIVE)
def test_queries_with_the_same_semantics_in_spark_run_in_real_time_mode(text: str) -> None:
    choice = choose(plan(text), {})
    assert choice.native is not None, choice.why
    assert choice.speed == "real-time"
    assert why_not_real_time(choice.native.plan) is None
    assert [title for title, _ in choice.native.passes] == ["Steps", "Reading", "Rows", "Plan"]


@pytest.mark.parametrize(("text", "reason"), ORDERED)
def test_other_queries_run_on_the_ordered_operator_with_a_reason(text: str, reason: str) -> None:
    choice = choose(plan(text), {})
    assert choice.native is None
    assert choice.speed == "micro-batches"
    assert reason in choice.why


def test_settings_can_force_the_ordered_operator() -> None:
    chosen = plan(NATIVE[0])
    assert choose(chosen, {SPEED: MICRO_BATCHES}).native is None
    assert "transactions" in choose(chosen, {"processing.guarantee": "exactly_once_v2"}).why
    assert choose(chosen, {"ksql.fail.on.deserialization.error": "true"}).native is None


def test_a_windowed_key_is_in_the_partition_of_its_inner_key() -> None:
    windowed, plain = choose(plan(NATIVE[6]), {}).native, choose(plan(NATIVE[4]), {}).native
    assert windowed is not None
    assert plain is not None
    assert windowed.producer_options == {"partitioner.class": "pessoa.WindowedKeyPartitioner"}
    assert plain.producer_options == {}


def test_topics_of_a_join_are_listed_once_each() -> None:
    assert source_topics_of(plan(ORDERED[-1][0])) == ("clicks", "users")


def test_names_are_those_of_ksqldb_and_fit_the_engine() -> None:
    assert engine_name("CSAS_A_1", 0, 1) == "CSAS_A_1"
    assert engine_name("CSAS_A_1", 0, 2) == "CSAS_A_1-1"
    assert application_id("default_", "CSAS_A_1") == "_confluent-ksql-default_query_CSAS_A_1"
    suffix = "Aggregate-GroupBy"
    assert internal_topic("default_", "CTAS_A_1", suffix) == (
        "_confluent-ksql-default_query_CTAS_A_1-Aggregate-GroupBy-repartition"
    )
    odd = [engine_name(f"CSAS_{name}_1", 0, 1) for name in ("a b", "a-b", "ç", "x" * 200)]
    assert len(set(odd)) == len(odd)
    for name in odd:
        QuerySpec(name, start_function="module:function")

"""Persistent queries on a real Spark, native and through the ordered operator, compared with the pure runtime."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, ProcessingFailure
from pessoa.ksql.operators.schema_source import MemorySchemas
from pessoa.ksql.query_runner import PersistentQuery
from pessoa.ksql.server.function_loading import load_directory
from pessoa.ksql.spark.query_choice import MICRO_BATCHES, SPEED
from pessoa.ksql.spark.spark_query_runner import SparkQueryRunner
from pessoa.pipelines.engine import Engine
from pessoa.testing import Broker
from tests.ksql.statements import Row, by_key, catalogue_of, in_process, plan_of, row
from tests.support.topics import eventually, fill, make_topic, read_all

CATALOGUE = catalogue_of("""
CREATE STREAM orders (id BIGINT KEY, item STRING, amount INT, price DOUBLE, paid BOOLEAN)
    WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON');
CREATE STREAM timed (id BIGINT KEY, item STRING, amount BIGINT)
    WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', TIMESTAMP='amount');
CREATE TABLE users (id BIGINT PRIMARY KEY, name STRING, region STRING)
    WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON');
CREATE TABLE regions (region STRING PRIMARY KEY, boss STRING) WITH (KAFKA_TOPIC='regions', VALUE_FORMAT='JSON');
""")


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


ORDERS: list[tuple[bytes | None, bytes | None, int]] = [
    (key(1), b'{"item": "tea", "amount": 5, "price": 1.5, "paid": true}', 1_000),
    (key(2), b'{"ITEM": "cup", "AMOUNT": "7", "PRICE": "2.25", "PAID": false}', 2_000),
    (key(1), b'{"item": "tea", "amount": null, "price": 3}', 3_000),
    (key(2), b"{broken", 3_500),
    (key(2), b'{"item": "pot", "amount": 1, "paid": "true"}', 3_600),
    (key(3), b'{"item": "pot", "amount": 2147483647, "price": 1e10, "other": [1]}', 4_000),
    (key(2), None, 5_000),
    (None, b'{"item": "cup", "amount": -3, "price": 0.1, "paid": true}', 61_000),
    (key(1), b'{"amount": 1.9}', 62_000),
    (b"short", b'{"item": "tea"}', 63_000),
    (key(3), b'{"item": "tea", "amount": 12, "price": 0.2, "paid": false, "Item": "cup"}', 125_000),
]
USERS: list[tuple[bytes | None, bytes | None, int]] = [
    (key(1), b'{"name": "ana", "region": "north"}', 500),
    (key(2), b'{"name": "rui", "region": "south"}', 600),
    (key(1), b'{"name": "ana", "region": "south"}', 2_500),
    (key(2), None, 61_500),
]
REGIONS: list[tuple[bytes | None, bytes | None, int]] = [
    (b"north", b'{"boss": "eva"}', 550),
    (b"south", b'{"boss": "leo"}', 61_600),
]
TOPICS = {"orders": ORDERS, "users": USERS, "regions": REGIONS}

NATIVE = {
    "COPIED": "CREATE STREAM copied AS SELECT * FROM orders;",
    "FILTERED": """CREATE STREAM filtered AS SELECT id, UCASE(item) AS item, amount + 1 AS more, price * 2 AS twice,
        COALESCE(amount + 1, 0) AS whole, COALESCE(item, '?') AS named, CAST(amount AS STRING) AS shown,
        CASE WHEN paid THEN 'yes' WHEN amount > 5 THEN 'later' ELSE 'no' END AS word, ROWTIME AS at
        FROM orders WHERE NOT (item = 'pot') OR amount BETWEEN 1 AND 10;""",
    "TIMED": "CREATE STREAM timed_out AS SELECT id, item, ROWTIME AS at FROM timed;",
    "MOVED": "CREATE STREAM moved AS SELECT item, id AS old, amount FROM orders PARTITION BY item;",
    "COUNTED": """CREATE TABLE counted AS SELECT item, COUNT(*) AS n, COUNT(amount) AS amounts, SUM(amount) AS total,
        AVG(price) AS mean, MIN(amount) AS least, MAX(item) AS same, LATEST_BY_OFFSET(amount) AS last,
        COUNT(*) * 2 AS twice FROM orders GROUP BY item;""",
    "TUMBLING": """CREATE TABLE tumbling AS SELECT item, COUNT(*) AS n, SUM(amount) AS total, WINDOWSTART AS ws
        FROM orders WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY item;""",
    "HOPPING": """CREATE TABLE hopping AS SELECT item, COUNT(*) AS n, WINDOWEND AS we
        FROM orders WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 20 SECONDS) WHERE amount > 1 GROUP BY item;""",
}
ORDERED = {
    "HAVING_TWO": """CREATE TABLE having_two AS SELECT item, COUNT(*) AS n FROM orders GROUP BY item
        HAVING COUNT(*) = 2;""",
    "SESSIONS": """CREATE TABLE sessions AS SELECT item, COUNT(*) AS n FROM orders WINDOW SESSION (30 SECONDS)
        GROUP BY item;""",
    "SHORT_GRACE": """CREATE TABLE short_grace AS SELECT item, COUNT(*) AS n
        FROM orders WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY item;""",
    "BY_REGION": "CREATE TABLE by_region AS SELECT region, COUNT(*) AS n FROM users GROUP BY region;",
    "ENRICHED": """CREATE STREAM enriched AS SELECT orders.id AS id, item, name FROM orders
        LEFT JOIN users ON orders.id = users.id;""",
    "WITH_BOSS": """CREATE TABLE with_boss AS SELECT users.id AS id, name, boss FROM users
        JOIN regions ON users.region = regions.region;""",
}

SEVERAL_STAGES = "WITH_BOSS"


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    for topic, records in TOPICS.items():
        make_topic(broker.bootstrap_servers, topic, 1, retention_ms="-1")
        fill(
            broker.bootstrap_servers,
            topic,
            [(one, value) for one, value, _ in records],
            [timestamp_ms for *_, timestamp_ms in records],
        )
    return broker.bootstrap_servers


@pytest.fixture(scope="module")
def runner(servers: str, spark_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkQueryRunner]:
    home: Path = tmp_path_factory.mktemp("ksql")
    running = SparkQueryRunner(
        Engine(servers, home=home, spark_remote=spark_address, state_topic=None),
        properties={"auto.offset.reset": "earliest"},
    )
    yield running
    running.close()


def expected(text: str) -> list[Row]:
    plan = plan_of(text, CATALOGUE)
    records = [
        KafkaRecord(topic, 0, offset, timestamp_ms, one, value)
        for topic, rows in TOPICS.items()
        for offset, (one, value, timestamp_ms) in enumerate(rows)
    ]
    return in_process(plan, sorted(records, key=lambda record: record.timestamp_ms))


def start(runner: SparkQueryRunner, servers: str, name: str, text: str, *, ordered: bool) -> str:
    """Start the query natively or through the ordered operator; return the name of its sink topic."""
    from dataclasses import replace

    way = f"{name}_{'ORDERED' if ordered else 'NATIVE'}"
    plan = plan_of(text, CATALOGUE)
    assert plan.sink is not None
    plan = replace(plan, sink=replace(plan.sink, topic=way))
    make_topic(servers, way, 1, retention_ms="-1")
    runner.start(PersistentQuery(f"CSAS_{way}_1", text, plan, {SPEED: MICRO_BATCHES} if ordered else {}))
    return way


def rows_of(servers: str, topic: str) -> list[Row]:
    return [row(one.key(), one.value(), one.timestamp()[1]) for one in read_all(servers, topic)]


def test_native_and_ordered_queries_give_the_output_of_the_pure_runtime(runner: SparkQueryRunner, servers: str) -> None:
    statements = {name: (text, True) for name, text in NATIVE.items()} | {
        name: (text, False) for name, text in ORDERED.items()
    }
    started: dict[str, str] = {}
    for name, (text, is_native) in statements.items():
        started[start(runner, servers, name, text, ordered=True)] = text
        if is_native:
            topic = start(runner, servers, name, text, ordered=False)
            assert runner.status(f"CSAS_{topic}_1").speed == "real-time", runner.status(f"CSAS_{topic}_1")
            started[topic] = text
    for topic, text in started.items():
        # Between stages rows pass through topics, as in Kafka Streams, so only the last row of each key is certain.
        compared = last_of_each if topic.startswith(SEVERAL_STAGES) else by_key
        wanted = compared(expected(text))

        def all_there(
            topic: str = topic, wanted: object = wanted, compared: Callable[[list[Row]], object] = compared
        ) -> bool:
            return compared(rows_of(servers, topic)) == wanted

        def shown(topic: str = topic, wanted: object = wanted) -> str:
            status = runner.status(f"CSAS_{topic}_1")
            return f"\n{topic}: {by_key(rows_of(servers, topic))}\nwanted {wanted}\n{status}"

        eventually(all_there, about=shown)
    status = runner.status("CSAS_ENRICHED_ORDERED_1")
    assert (status.state, status.speed) == ("RUNNING", "micro-batches")


SKIPPED = """CREATE STREAM {0} (id BIGINT KEY, item STRING, amount INT, at BIGINT)
    WITH (KAFKA_TOPIC='{0}', VALUE_FORMAT='JSON', TIMESTAMP='at');"""
SKIPPED_RECORDS = [
    (key(1), b'{"item": "tea", "amount": 5, "at": 1000}'),
    (key(1), b"{broken"),
    (key(1), b'{"item": "tea", "amount": [1], "at": 1000}'),
    (b"short", b'{"item": "tea", "at": 1000}'),
    (key(1), b'{"item": "tea", "amount": 5}'),
    (key(1), b'{"item": "tea", "amount": 5, "at": -1}'),
    (key(1), None),
    (key(2), b'{"item": "cup", "amount": 6, "at": 2000}'),
    # This record is not skipped: one of its columns has no value.
    (key(2), b'{"item": "pot", "at": 2000}'),
]


@pytest.mark.parametrize("ordered", [False, True], ids=["native", "ordered"])
def test_skipped_records_and_failed_expressions_are_written_to_the_processing_log(
    runner: SparkQueryRunner, servers: str, spark_log: Path, ordered: bool
) -> None:
    topic = f"skipped_{'ordered' if ordered else 'native'}"
    catalogue = catalogue_of(SKIPPED.format(topic))
    text = f"CREATE STREAM {topic}_copied AS SELECT id, item, amount + 1 AS more FROM {topic} WHERE id > 0;"
    plan = plan_of(text, catalogue)
    failures: list[ProcessingFailure] = []
    query = InProcessQuery(plan, QuerySettings(log=failures.append), MemorySchemas())
    wanted = [
        row(*made[:3])
        for offset, record in enumerate(SKIPPED_RECORDS)
        for made in query.take(KafkaRecord(topic, 0, offset, 5_000, *record))
    ]
    assert (len(wanted), len(failures)) == (3, 7)
    for name in (topic, f"{topic}_COPIED".upper()):
        make_topic(servers, name, 1, retention_ms="-1")
    fill(servers, topic, SKIPPED_RECORDS, [5_000] * len(SKIPPED_RECORDS))
    runner.start(PersistentQuery(f"CSAS_{topic}_1", text, plan, {SPEED: MICRO_BATCHES} if ordered else {}))
    assert runner.status(f"CSAS_{topic}_1").speed == ("micro-batches" if ordered else "real-time")
    sink = f"{topic}_COPIED".upper()
    eventually(
        lambda: by_key(rows_of(servers, sink)) == by_key(wanted),
        about=lambda: (rows_of(servers, sink), wanted, runner.status(f"CSAS_{topic}_1")),
    )
    entries = [line for line in spark_log.read_text().splitlines() if f"({topic}-0 at " in line]
    told = {(word, place) for line in entries for word, place in re.findall(r"([A-Z]+): .* \(\S+ at (\d+)\)$", line)}
    assert told == {(one.kind.name, str(one.offset)) for one in failures}, entries


@pytest.mark.parametrize("window", ["", "WINDOW TUMBLING (SIZE 1 MINUTE)"], ids=["table", "windows"])
def test_failed_expressions_after_an_aggregate_are_written_to_the_processing_log(
    runner: SparkQueryRunner, servers: str, spark_log: Path, window: str
) -> None:
    topic = f"divided_{'windows' if window else 'table'}"
    catalogue = catalogue_of(
        f"CREATE STREAM {topic} (id BIGINT KEY, amount INT) WITH (KAFKA_TOPIC='{topic}', VALUE_FORMAT='JSON');"
    )
    text = (
        f"CREATE TABLE {topic}_by_id AS SELECT id, SUM(amount) AS total, 12 / SUM(amount) AS share FROM {topic} "
        f"{window} GROUP BY id;"
    )
    plan = plan_of(text, catalogue)
    records: list[tuple[bytes | None, bytes | None]] = [(key(1), b'{"amount": 0}'), (key(1), b'{"amount": 3}')]
    failures: list[ProcessingFailure] = []
    query = InProcessQuery(plan, QuerySettings(log=failures.append), MemorySchemas())
    wanted = [
        row(*made[:3])
        for offset, record in enumerate(records)
        for made in query.take(KafkaRecord(topic, 0, offset, 5_000, *record))
    ]
    assert (len(wanted), len(failures)) == (2, 1)
    sink = f"{topic}_BY_ID".upper()
    for name in (topic, sink):
        make_topic(servers, name, 1, retention_ms="-1")
    query_id = f"CTAS_{topic}_1"
    runner.start(PersistentQuery(query_id, text, plan, {}))
    assert runner.status(query_id).speed == "real-time"
    for number, record in enumerate(records):
        fill(servers, topic, [record], [5_000])
        eventually(
            lambda number=number: by_key(rows_of(servers, sink)) == by_key(wanted[: number + 1]),  # type: ignore[misc]
            about=lambda: (rows_of(servers, sink), wanted, runner.status(query_id)),
        )
    told = [line for line in spark_log.read_text().splitlines() if f"(a group of {sink})" in line]
    assert [line.partition("PROCESSING: ")[2] for line in told] == [
        f"no value could be computed for SHARE (a group of {sink})"
    ]


USER_FUNCTIONS = """
from pessoa.ksql.functions.user_functions import udaf, udf, udtf

@udf("SPARK_SHOUT", "(STRING) STRING")
def shout(text):
    return text.upper() + "!"

@udtf("SPARK_LETTERS", "(STRING) STRING")
def letters(text):
    return list(text)

@udaf("SPARK_LONGEST", "(STRING) STRING")
class Longest:
    def initial(self):
        return ""
    def add(self, state, text):
        return max(state, text, key=len)
    def merge(self, one, other):
        return max(one, other, key=len)
    def result(self, state):
        return state
"""
WITH_USER_FUNCTIONS = {
    "SHOUTED": "CREATE STREAM shouted AS SELECT id, SPARK_SHOUT(item) AS item, SPARK_LETTERS(item) AS l FROM orders;",
    "LONGEST": "CREATE TABLE longest AS SELECT id, SPARK_LONGEST(item) AS item FROM orders GROUP BY id;",
}


def test_user_functions_work_in_persistent_queries(runner: SparkQueryRunner, servers: str, tmp_path: Path) -> None:
    (tmp_path / "on_spark.py").write_text(USER_FUNCTIONS)
    assert load_directory(tmp_path) == ["on_spark"]
    for name, text in WITH_USER_FUNCTIONS.items():
        topic = start(runner, servers, name, text, ordered=True)
        wanted = by_key(expected(text))
        assert wanted
        eventually(
            lambda topic=topic, wanted=wanted: by_key(rows_of(servers, topic)) == wanted,  # type: ignore[misc]
            about=lambda topic=topic: (rows_of(servers, topic), runner.status(f"CSAS_{topic}_1")),
        )


def test_terminate_deletes_the_topics_between_stages(runner: SparkQueryRunner, servers: str) -> None:
    text = ORDERED[SEVERAL_STAGES]
    topic = start(runner, servers, f"{SEVERAL_STAGES}_ENDED", text, ordered=True)
    query_id = f"CSAS_{topic}_1"
    admin = AdminClient({"bootstrap.servers": servers})

    def internal_topics() -> list[str]:
        return [name for name in admin.list_topics(timeout=30).topics if query_id in name]

    assert internal_topics()
    runner.terminate(query_id, delete_state=True)
    eventually(lambda: not internal_topics(), about=internal_topics)
    assert topic in admin.list_topics(timeout=30).topics
    assert runner.status(query_id).state == "ERROR"


def last_of_each(rows: list[Row]) -> dict[bytes | None, object]:
    """Return the last value of each key that is not deleted."""
    return {one: found[-1][0] for one, found in by_key(rows).items() if found[-1][0] is not None}

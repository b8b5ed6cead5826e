"""Persistent queries on Apache Kafka's broker: natively, through the ordered operator, and exactly-once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pessoa.ksql.query_runner import PersistentQuery
from pessoa.ksql.spark.spark_query_runner import SparkQueryRunner
from pessoa.pipelines.engine import Engine
from tests.apache.broker import ApacheKafka
from tests.ksql.statements import by_key, plan_of
from tests.ksql.test_on_spark_queries import CATALOGUE, NATIVE, ORDERED, TOPICS, expected, last_of_each, rows_of
from tests.support.topics import eventually, fill, make_topic

pytestmark = pytest.mark.apache
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2"}
# Statement, properties, speed. WITH_BOSS has two stages, with a topic between them.
QUERIES: dict[str, tuple[str, dict[str, str], str]] = {
    "COUNTED": (NATIVE["COUNTED"], {}, "real-time"),
    "BY_REGION": (ORDERED["BY_REGION"], {}, "micro-batches"),
    "ENRICHED": (ORDERED["ENRICHED"], EXACTLY_ONCE, "micro-batches"),
    "WITH_BOSS": (ORDERED["WITH_BOSS"], EXACTLY_ONCE, "micro-batches"),
}


@pytest.fixture(scope="module")
def apache() -> Iterator[str]:
    with ApacheKafka() as kafka:
        servers = kafka.bootstrap_servers
        for topic, records in TOPICS.items():
            make_topic(servers, topic, 1, retention_ms="-1")
            fill(servers, topic, [one[:2] for one in records], [one[2] for one in records])
        yield servers


def test_queries_on_apache_kafka_give_the_output_of_the_pure_runtime(
    apache: str, spark_address: str, tmp_path: Path
) -> None:
    engine = Engine(apache, home=tmp_path, spark_remote=spark_address, state_topic=None)
    runner = SparkQueryRunner(engine, properties={"auto.offset.reset": "earliest"})
    try:
        for name, (text, properties, speed) in QUERIES.items():
            plan = plan_of(text, CATALOGUE)
            assert plan.sink is not None
            make_topic(apache, name, 1, retention_ms="-1")
            plan = replace(plan, sink=replace(plan.sink, topic=name))
            runner.start(PersistentQuery(f"Q_{name}_1", text, plan, properties))
            assert runner.status(f"Q_{name}_1").speed == speed
        for name, (text, *_) in QUERIES.items():
            compared = last_of_each if name == "WITH_BOSS" else by_key
            wanted = compared(expected(text))

            def is_there(name: str = name, wanted: object = wanted, compared: object = compared) -> bool:
                assert callable(compared)
                return bool(compared(rows_of(apache, name)) == wanted)

            eventually(is_there, about=lambda name=name: f"{rows_of(apache, name)}\n{runner.status(f'Q_{name}_1')}")
    finally:
        runner.close()

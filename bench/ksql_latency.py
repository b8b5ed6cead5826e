"""Persistent ksql queries on Spark: one record through a stateless and through a windowed query.

The statements are analysed as by the server and run by the runner that the server uses. A record contains the time at
which it was sent; producer and consumer are in this process, so one clock measures both. The windowed count also
selects the latest such time of its window, and in real-time mode each record gives an update of its own.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.apache import QUIET, Figures, Side, compare, create_topic, scaled
from bench.spark import TIMEOUT_S, running_spark
from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.source_catalogue import Catalogue
from pessoa.ksql.query_runner import PersistentQuery
from pessoa.ksql.spark.spark_query_runner import SparkQueryRunner
from pessoa.ksql.syntax.parser import parse_statement
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.spark_server import SparkServer

if TYPE_CHECKING:
    from bench.report import Report

RATE_PER_S = 50
RECORDS = 500
WARMUP = 200
KEYS = 10
STREAM = "CREATE STREAM s (k STRING KEY, sent DOUBLE, name STRING) WITH (KAFKA_TOPIC='in', VALUE_FORMAT='JSON');"
STATELESS = "CREATE STREAM {0} AS SELECT k, sent, UCASE(name) AS name FROM s WHERE sent > 0;"
WINDOWED = """CREATE TABLE {0} AS SELECT k, COUNT(*) AS n, MAX(sent) AS sent
    FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k;"""
QUERIES = {"stateless CSAS": STATELESS, "windowed CTAS": WINDOWED}


def run(report: Report) -> None:
    with running_spark() as server:
        compare(report, lambda side: measure(side, server))


def measure(side: Side, server: SparkServer) -> Figures:
    figures: Figures = {}
    create_topic(side, "in", 1)
    for name, text in QUERIES.items():
        sink = name.split()[0].upper()
        create_topic(side, sink, 1)
        with running(side, server) as runner:
            start(runner, sink, text)
            latencies = sorted(through(side, sink, scaled(RECORDS)))
        for title, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            place = min(len(latencies) - 1, int(len(latencies) * share))
            figures[f"{name}, insert to output, {title}", "ms"] = latencies[place]
    return figures


@contextmanager
def running(side: Side, server: SparkServer) -> Iterator[SparkQueryRunner]:
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-ksql-", ignore_cleanup_errors=True) as folder:
        runner = SparkQueryRunner(
            Engine(side.bootstrap, home=Path(folder), spark_remote=server.address, state_topic=None)
        )
        try:
            yield runner
        finally:
            runner.close()


def start(runner: SparkQueryRunner, sink: str, text: str) -> None:
    catalogue = analyse(parse_statement(STREAM), Catalogue()).catalogue
    statement = text.format(sink.lower())
    plan = analyse(parse_statement(statement), catalogue).plan
    assert plan is not None
    runner.start(PersistentQuery(f"Q_{sink}_1", statement, plan))
    speed = runner.status(f"Q_{sink}_1").speed
    assert speed == "real-time", f"{sink} runs in {speed}"


def through(side: Side, topic: str, count: int) -> list[float]:
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **QUIET})
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "bench", **QUIET})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    try:
        wait_for_first(producer, consumer)
        round_trip(producer, consumer, WARMUP)
        return round_trip(producer, consumer, count)
    finally:
        consumer.close()


def wait_for_first(producer: Any, consumer: Any) -> None:
    """Send records until one comes out: a query that reads from the end gets no record from before its start."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        send(producer, 1)
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            return
    raise SystemExit("nothing came out")


def round_trip(producer: Any, consumer: Any, count: int) -> list[float]:
    started = time.perf_counter()
    sender = threading.Thread(target=send, args=(producer, count), daemon=True)
    sender.start()
    latencies: list[float] = []
    deadline = time.monotonic() + count / RATE_PER_S + TIMEOUT_S
    while len(latencies) < count:
        message = consumer.poll(0.1)
        now = time.perf_counter()
        if message is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(latencies)} of {count} records came out")
        elif message.error() is None and (sent := json.loads(message.value())["SENT"]) >= started:
            latencies.append((now - sent) * 1000)
    sender.join()
    return latencies


def send(producer: Any, count: int) -> None:
    began = time.perf_counter()
    for number in range(count):
        wait_s = began + number / RATE_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        value = json.dumps({"sent": time.perf_counter(), "name": "ana"})
        producer.produce("in", value, b"k%d" % (number % KEYS))
        producer.poll(0)
    producer.flush(30)

"""Thirty queries in one Spark: time until all of them write updates, CPU time and memory, and latency.

Each is a windowed count in real-time mode over a topic of its own, started by one engine that sizes Spark by itself. A
record is sent to every topic in turn; each query must write its update.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.apache import QUIET, Figures, Process, Side, create_topic
from bench.pipelines_latency import PERCENTILES
from bench.spark import TIMEOUT_S, compare, java_of
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import Aggregate, Column, Format, Sink, Source, Window
from pessoa.pipelines.queries import QuerySpec

if TYPE_CHECKING:
    from bench.report import Report

QUERIES = 30
PARTITIONS = 2
ROUNDS = 10
PAUSE_S = 0.02
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def run(report: Report) -> None:
    compare(report, measure)


def measure(side: Side) -> Figures:
    numbers = range(QUERIES)
    for number in numbers:
        create_topic(side, f"in-{number}", PARTITIONS)
    create_topic(side, "out", 1)
    with (
        tempfile.TemporaryDirectory(prefix="pessoa-bench-home-", ignore_cleanup_errors=True) as folder,
        Engine(side.bootstrap, home=Path(folder), state_topic=None) as engine,
    ):
        began = time.perf_counter()
        for number in numbers:
            engine.start(QuerySpec(f"count-{number}", plan=count_of(number)))
        started_s = time.perf_counter() - began
        slots = engine.task_slots()
        print(f"  {slots.used} of {slots.total} task slots are held by {QUERIES} queries, {slots.free} are free")
        producer, consumer = clients(side)
        try:
            first_s = wait_for_all(producer, consumer)
            before_s, cpu_before_s = time.perf_counter(), spark_cpu_seconds(engine)
            latencies = sorted(each for _ in range(ROUNDS) for each in one_round(producer, consumer))
            share = (spark_cpu_seconds(engine) - cpu_before_s) / (time.perf_counter() - before_s)
        finally:
            consumer.close()
        restarts = sum(status.restarts for status in engine.queries())
        assert not restarts, f"{restarts} restarts"
        figures: Figures = {
            (f"{QUERIES} queries started", "s"): started_s,
            (f"{QUERIES} queries, first update of all", "s"): first_s,
            (f"{QUERIES} queries, memory of Spark", "MB"): spark_process(engine).memory_mb(),
            (f"{QUERIES} queries, processor time", "cores"): share,
        }
        for name, quantile in PERCENTILES.items():
            place = min(len(latencies) - 1, int(len(latencies) * quantile))
            figures[f"{QUERIES} queries, windowed count, {name}", "ms"] = latencies[place]
        return figures


def count_of(number: int) -> Sink:
    window = Window("tumbling", MINUTE_MS, grace_ms=DAY_MS)
    columns = (Column("count", "count(*)"), Column("sent", "max(sent)"), Column("query", str(number)))
    return Sink(Aggregate(Source(f"in-{number}", value=Format("json", "sent DOUBLE")), columns, window), "out")


def clients(side: Side) -> tuple[Any, Any]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "queries", **QUIET})
    consumer.assign([TopicPartition("out", 0, 0)])
    return Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **QUIET}), consumer


def wait_for_all(producer: Any, consumer: Any) -> float:
    began = time.perf_counter()
    for number in range(QUERIES):
        send(producer, number)
    producer.flush(30)
    missing = set(range(QUERIES))
    while missing:
        missing.discard(next_update(consumer, began)["query"])
    return time.perf_counter() - began


def one_round(producer: Any, consumer: Any) -> list[float]:
    began = time.perf_counter()
    latencies: list[float] = []
    for number in range(QUERIES):
        send(producer, number)
        deadline = time.perf_counter() + PAUSE_S
        while (left_s := deadline - time.perf_counter()) > 0:
            message = consumer.poll(left_s)
            note(message, began, latencies)
    while len(latencies) < QUERIES:
        note(consumer.poll(0.1), began, latencies)
        if time.perf_counter() - began > TIMEOUT_S:
            raise SystemExit(f"{len(latencies)} of {QUERIES} updates came out")
    return latencies


def note(message: Any, began: float, latencies: list[float]) -> None:
    now = time.perf_counter()
    if message is not None and message.error() is None and (sent := json.loads(message.value())["sent"]) >= began:
        latencies.append((now - sent) * 1000)


def next_update(consumer: Any, began: float) -> dict[str, Any]:
    while time.perf_counter() - began < TIMEOUT_S:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found: dict[str, Any] = json.loads(message.value())
            return found
    raise SystemExit("not every query gave an update")


def send(producer: Any, number: int) -> None:
    producer.produce(f"in-{number}", json.dumps({"sent": time.perf_counter()}), b"k")
    producer.poll(0)


def spark_process(engine: Engine) -> Process:
    assert engine.spark_server is not None
    return java_of(engine.spark_server)


def spark_cpu_seconds(engine: Engine) -> float:
    return spark_process(engine).cpu_seconds()

"""A million keys of state: memory, throughput of a count by key, time of a restart, and latency after it.

A count by key in real-time mode, and the same in Kafka Streams. All keys are written once; then the query is stopped
and started again, which restores its state; then records of known keys are sent one by one, and each is timed until its
update was consumed.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import kafka_streams
from bench.apache import QUIET, Figures, Side, create_topic, scaled
from bench.pipelines_latency import PERCENTILES
from bench.pipelines_queries import spark_process
from bench.spark import SOURCE, TARGET, TIMEOUT_S, compare, wait_for_records
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import Aggregate, Column, Format, Sink, Source
from pessoa.pipelines.queries import QuerySpec

if TYPE_CHECKING:
    from bench.report import Report

KEYS = 1_000_000
TIMED = 1000
PAUSE_S = 0.01


def run(report: Report) -> None:
    variants = {"engine": measure_engine}
    if kafka_streams.variants():
        variants["Kafka Streams"] = measure_kafka_streams

    def measure(side: Side) -> Figures:
        figures: Figures = {}
        for variant, measure_variant in variants.items():
            for topic, partitions in ((SOURCE, 2), (TARGET, 1)):
                create_topic(side, f"{topic}-{variant.split()[0]}", partitions)
            topics = Topics(side, *(f"{topic}-{variant.split()[0]}" for topic in (SOURCE, TARGET)))
            for (case, unit), value in measure_variant(topics, scaled(KEYS)).items():
                figures[f"{scaled(KEYS):,} keys, {case}, {variant}", unit] = value
        return figures

    compare(report, measure)


class Topics(NamedTuple):
    side: Side
    source: str
    target: str


def measure_engine(topics: Topics, keys: int) -> Figures:
    columns = (Column("count", "count(*)"), Column("sent", "max(sent)"))
    plan = Sink(Aggregate(Source(topics.source, value=Format("json", "sent DOUBLE")), columns), topics.target)
    with (
        tempfile.TemporaryDirectory(prefix="pessoa-bench-home-", ignore_cleanup_errors=True) as folder,
        Engine(topics.side.bootstrap, home=Path(folder), state_topic=None) as engine,
    ):
        engine.start(QuerySpec("count", plan=plan))
        empty_mb = spark_process(engine).memory_mb()
        took_s = count_all(topics, keys)
        wait_for_state(engine, keys)
        full_mb = spark_process(engine).memory_mb()
        engine.pause("count")
        began = time.perf_counter()
        engine.resume("count")
        restart_s = first_update(topics, keys) - began
        latencies = updates_of(topics, keys, TIMED)
    return figures_of(keys / took_s, empty_mb, full_mb, restart_s, latencies)


def measure_kafka_streams(topics: Topics, keys: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-state-", ignore_cleanup_errors=True) as folder:
        where = (
            topics.side,
            kafka_streams.NO_LINGER,
            "total",
            topics.source,
            topics.target,
            Path(folder),
            "bench-state",
        )
        with kafka_streams.running(*where) as process:
            empty_mb = process.memory_mb()
            took_s = count_all(topics, keys)
            full_mb = process.memory_mb()
        began = time.perf_counter()
        with kafka_streams.running(*where):
            restart_s = first_update(topics, keys) - began
            latencies = updates_of(topics, keys, TIMED)
    return figures_of(keys / took_s, empty_mb, full_mb, restart_s, latencies)


def figures_of(rate: float, empty_mb: float, full_mb: float, restart_s: float, latencies: list[float]) -> Figures:
    figures: Figures = {
        ("counted", "rec/s"): rate,
        ("memory before", "MB"): empty_mb,
        ("memory", "MB"): full_mb,
        ("restart to first update", "s"): restart_s,
    }
    latencies.sort()
    for name, quantile in PERCENTILES.items():
        figures[f"one record, {name}", "ms"] = latencies[int(len(latencies) * quantile)]
    return figures


def count_all(topics: Topics, keys: int) -> float:
    """Produce every key once; return the seconds until the updates of all keys were consumed."""
    began = time.perf_counter()
    fill(topics, keys)
    wait_for_records(topics.side, topics.target, keys)
    return time.perf_counter() - began


def first_update(topics: Topics, keys: int) -> float:
    """Return when the first update after a restart was consumed, which is that of a key whose state was restored."""
    updates_of(topics, keys, 1)
    return time.perf_counter()


def fill(topics: Topics, keys: int) -> None:
    from confluent_kafka import Producer

    settings = {"linger.ms": 20, "queue.buffering.max.messages": 2_000_000, **QUIET}
    producer = Producer({"bootstrap.servers": topics.side.bootstrap, **settings})
    for number in range(keys):
        producer.produce(topics.source, b'{"sent": 0}', b"key-%d" % number)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)


def wait_for_state(engine: Engine, keys: int) -> None:
    """Wait for the end of a batch whose state has all keys: their state is in the checkpoint then."""
    deadline = time.monotonic() + TIMEOUT_S
    while engine.query("count").progress.state_rows < keys:
        if time.monotonic() > deadline:
            raise SystemExit(f"no batch with all keys has ended: {engine.queries()}")
        time.sleep(0.5)


def updates_of(topics: Topics, keys: int, count: int) -> list[float]:
    """Return the milliseconds from the produce of each record to the update of its key, which is not that key's
    first."""
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    consumer: Any = Consumer({"bootstrap.servers": topics.side.bootstrap, "group.id": "state", **QUIET})
    consumer.assign([TopicPartition(topics.target, 0, OFFSET_END)])
    consumer.poll(0.5)
    producer: Any = Producer({"bootstrap.servers": topics.side.bootstrap, "linger.ms": 0, **QUIET})
    started = time.perf_counter()
    latencies: list[float] = []
    try:
        for number in range(count):
            value = json.dumps({"sent": time.perf_counter()})
            producer.produce(topics.source, value, b"key-%d" % (number * 7919 % keys))
            producer.poll(0)
            take(consumer, started, latencies, PAUSE_S)
        while len(latencies) < count:
            take(consumer, started, latencies, 0.1)
            if time.perf_counter() - started > TIMEOUT_S:
                raise SystemExit(f"{len(latencies)} of {count} updates came out")
    finally:
        consumer.close()
    return latencies


def take(consumer: Any, started: float, latencies: list[float], wait_s: float) -> None:
    deadline = time.perf_counter() + wait_s
    while (left_s := deadline - time.perf_counter()) > 0:
        message = consumer.poll(left_s)
        now = time.perf_counter()
        if message is not None and message.error() is None:
            update = json.loads(message.value())
            if update["sent"] >= started:
                assert update["count"] > 1, f"the state of {message.key()} was lost"
                latencies.append((now - update["sent"]) * 1000)

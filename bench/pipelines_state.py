"""A million keys of state: memory, how fast a count takes them in, how long a restart takes, and how fast it is then.

A count by key in real-time mode. All keys are written once; then the query is stopped and started again, which restores
its state; then records of known keys are timed one by one, until the update of each has come out.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.apache import QUIET, Figures, Side, compare, create_topic, scaled
from bench.pipelines_latency import PERCENTILES
from bench.pipelines_queries import spark_process
from bench.spark import SOURCE, TARGET, TIMEOUT_S, wait_for_records
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import Aggregate, Column, Format, Sink, Source
from pessoa.pipelines.queries import QuerySpec

if TYPE_CHECKING:
    from bench.report import Report

KEYS = 1_000_000
TIMED = 1000
PAUSE_S = 0.01


def run(report: Report) -> None:
    compare(report, measure)


def measure(side: Side) -> Figures:
    keys = scaled(KEYS)
    create_topic(side, SOURCE, 2)
    create_topic(side, TARGET, 1)
    columns = (Column("count", "count(*)"), Column("sent", "max(sent)"))
    plan = Sink(Aggregate(Source(SOURCE, value=Format("json", "sent DOUBLE")), columns), TARGET)
    with (
        tempfile.TemporaryDirectory(prefix="pessoa-bench-home-", ignore_cleanup_errors=True) as folder,
        Engine(side.bootstrap, home=Path(folder), state_topic=None) as engine,
    ):
        engine.start(QuerySpec("count", plan=plan))
        empty_mb = spark_process(engine).memory_mb()
        fill(side, keys)
        began = time.perf_counter()
        wait_for_records(side, TARGET, keys)
        took_s = time.perf_counter() - began
        wait_for_state(engine, keys)
        full_mb = spark_process(engine).memory_mb()
        engine.pause("count")
        began = time.perf_counter()
        engine.resume("count")
        # The first update after the restart is that of a key whose state was restored.
        latencies = updates_of(side, keys, 1)
        restart_s = time.perf_counter() - began
        latencies = sorted(updates_of(side, keys, TIMED))
    figures: Figures = {
        (f"{keys:,} keys, counted", "rec/s"): keys / took_s,
        (f"{keys:,} keys, memory of Spark", "MB"): full_mb,
        (f"{keys:,} keys, memory before", "MB"): empty_mb,
        (f"{keys:,} keys, restart to first update", "s"): restart_s,
    }
    for name, quantile in PERCENTILES.items():
        figures[f"{keys:,} keys, one record, {name}", "ms"] = latencies[int(len(latencies) * quantile)]
    return figures


def fill(side: Side, keys: int) -> None:
    from confluent_kafka import Producer

    settings = {"linger.ms": 20, "queue.buffering.max.messages": 2_000_000, **QUIET}
    producer = Producer({"bootstrap.servers": side.bootstrap, **settings})
    for number in range(keys):
        producer.produce(SOURCE, b'{"sent": 0}', b"key-%d" % number)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)


def wait_for_state(engine: Engine, keys: int) -> None:
    """Until a batch has ended that knows all keys: their state is in the checkpoint then."""
    deadline = time.monotonic() + TIMEOUT_S
    while engine.query("count").progress.state_rows < keys:
        if time.monotonic() > deadline:
            raise SystemExit(f"no batch with all keys has ended: {engine.queries()}")
        time.sleep(0.5)


def updates_of(side: Side, keys: int, count: int) -> list[float]:
    """The milliseconds from the produce of a record to the update of its key, which is its second or later."""
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    consumer: Any = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "state", **QUIET})
    consumer.assign([TopicPartition(TARGET, 0, OFFSET_END)])
    consumer.poll(0.5)
    producer: Any = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **QUIET})
    started = time.perf_counter()
    latencies: list[float] = []
    try:
        for number in range(count):
            value = json.dumps({"sent": time.perf_counter()})
            producer.produce(SOURCE, value, b"key-%d" % (number * 7919 % keys))
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

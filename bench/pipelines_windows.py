"""Latency through a windowed count: from the produce of a record to the consume of its update.

A count by key in tumbling windows of a minute, in real-time mode, by our engine, by the script that a user would write
with PySpark only, and by Kafka Streams (`pipelines_window_batches.py`: in micro-batches). Each record contains the time
at which it was sent. The update has the latest such time of its window; keys take turns, so in real-time mode it is the
record's own. In a micro-batch there is one update for all records of a key, so only the last record of each batch is
timed.
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

from bench import kafka_streams
from bench.apache import QUIET, Figures, Side, create_topic, scaled
from bench.pipelines_latency import RATE_PER_S, RECORDS, WARMUP, percentiles
from bench.spark import SOURCE, TARGET, TIMEOUT_S, compare, in_turns, running_spark
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import Aggregate, Column, Format, Sink, Source, Window
from pessoa.pipelines.queries import QuerySpec
from pessoa.pipelines.spark_server import SparkServer, session_at

if TYPE_CHECKING:
    from bench.report import Report

KEYS = 10
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def run(report: Report) -> None:
    measure_speed(report, "real-time", ("engine", "plain", *kafka_streams.variants()[:1]))


def measure_speed(report: Report, speed: str, variants: tuple[str, ...]) -> None:
    with running_spark() as server:

        def measure(side: Side) -> Figures:
            create_topic(side, SOURCE, 1)
            create_topic(side, TARGET, 1)
            found: dict[str, list[float]] = {}
            for variant, counts in in_turns(variants):
                with counting(server, side, variant, speed):
                    count = scaled(RECORDS) if counts else 0
                    latencies = through(side, count, every_record=speed == "real-time")
                found.setdefault(variant, []).extend(latencies)
            return percentiles(f"windowed count, {speed}", found)

        compare(report, measure)


@contextmanager
def counting(server: SparkServer, side: Side, variant: str, speed: str) -> Iterator[None]:
    if variant in kafka_streams.LINGER_MS:
        with kafka_streams.running(side, variant, "count", SOURCE, TARGET):
            yield
        return
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-home-", ignore_cleanup_errors=True) as folder:
        if variant == "plain":
            session: Any = session_at(server.address)
            query = plain_count(session, side.bootstrap, f"{folder}/checkpoint", speed)
            try:
                yield
            finally:
                query.stop()
                session.stop()
            return
        with Engine(side.bootstrap, home=Path(folder), spark_remote=server.address, state_topic=None) as engine:
            window = Window("tumbling", MINUTE_MS, grace_ms=DAY_MS)
            columns = (Column("count", "count(*)"), Column("sent", "max(sent)"))
            source = Source(SOURCE, value=Format("json", "sent DOUBLE"), start="latest")
            plan = Sink(Aggregate(source, columns, window), TARGET)
            engine.start(QuerySpec("count", plan=plan, speed="real-time" if speed == "real-time" else "micro-batch"))
            yield


def plain_count(spark: Any, servers: str, checkpoint: str, speed: str) -> Any:
    from pyspark.sql import functions as F

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .load()
        .select(
            F.col("key").cast("string"), F.from_json(F.col("value").cast("string"), "sent DOUBLE").alias("v"),
            "timestamp",
        )
    )  # fmt: skip
    counted = (
        records.withWatermark("timestamp", "1 day")
        .groupBy("key", F.window("timestamp", "1 minute"))
        .agg(F.count("*").alias("count"), F.max("v.sent").alias("sent"))
    )
    writer = (
        counted.select("key", F.to_json(F.struct("count", "sent")).alias("value"))
        .writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", TARGET)
        .option("checkpointLocation", checkpoint)
    )
    return (writer.trigger(realTime="30 seconds") if speed == "real-time" else writer).start()


def through(side: Side, count: int, *, every_record: bool) -> list[float]:
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **QUIET})
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "windows", **QUIET})
    consumer.assign([TopicPartition(TARGET, 0, OFFSET_END)])
    try:
        wait_for_first(producer, consumer)
        round_trip(producer, consumer, WARMUP, every_record)
        return round_trip(producer, consumer, count, every_record) if count else []
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
    raise SystemExit("no update came out")


def round_trip(producer: Any, consumer: Any, count: int, every_record: bool) -> list[float]:
    started = time.perf_counter()
    sender = threading.Thread(target=send, args=(producer, count), daemon=True)
    sender.start()
    latencies: list[float] = []
    deadline = time.monotonic() + count / RATE_PER_S + TIMEOUT_S
    last_sent = 0.0
    while len(latencies) < count if every_record else (sender.is_alive() or last_sent < _last_sent[0]):
        message = consumer.poll(0.1)
        now = time.perf_counter()
        if message is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(latencies)} of {count} updates came out")
        elif message.error() is None and (sent := json.loads(message.value())["sent"]) >= started:
            latencies.append((now - sent) * 1000)
            last_sent = max(last_sent, sent)
    sender.join()
    return latencies


# The time at which the newest record was sent.
_last_sent = [0.0]


def send(producer: Any, count: int) -> None:
    began = time.perf_counter()
    for number in range(count):
        wait_s = began + number / RATE_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        _last_sent[0] = time.perf_counter()
        producer.produce(SOURCE, json.dumps({"sent": _last_sent[0]}), b"k%d" % (number % KEYS))
        producer.poll(0)
    producer.flush(30)

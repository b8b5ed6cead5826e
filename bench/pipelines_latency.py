"""Latency through Spark: from the produce of a record into one topic to its consume from another, at a steady rate.

Producer and consumer are in this process, so one clock measures both. Real-time mode of our engine and of plain
PySpark, and Kafka Streams, with our broker and Apache's. `pipelines_batches.py` is the same in micro-batches.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench import kafka_streams
from bench.apache import QUIET, Figures, Side, create_topic, scaled
from bench.spark import SOURCE, TARGET, TIMEOUT_S, compare, copying, in_turns, running_spark

if TYPE_CHECKING:
    from bench.report import Report

RATE_PER_S = 100
# The number of records in each of the two turns that count.
RECORDS = 500
WARMUP = 300
PADDING = b"x" * 92
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

_stamp = struct.Struct(">d")


def run(report: Report) -> None:
    measure_speed(report, "real-time", ("engine", "plain", *kafka_streams.variants()))


def measure_speed(report: Report, speed: str, variants: tuple[str, ...]) -> None:
    with running_spark() as server:

        def measure(side: Side) -> Figures:
            create_topic(side, SOURCE, 1)
            create_topic(side, TARGET, 1)
            found: dict[str, list[float]] = {}
            for variant, counts in in_turns(variants):
                with copying(server, side, variant, speed):
                    latencies = through(side, scaled(RECORDS) if counts else 0)
                found.setdefault(variant, []).extend(latencies)
            return percentiles(f"one record, {speed}", found)

        compare(report, measure)


def percentiles(case: str, found: Mapping[str, list[float]]) -> Figures:
    figures: Figures = {}
    for variant, latencies in found.items():
        latencies.sort()
        for name, share in PERCENTILES.items():
            place = min(len(latencies) - 1, int(len(latencies) * share))
            figures[f"{case}, {variant}, {name}", "ms"] = latencies[place]
    return figures


def through(side: Side, count: int) -> list[float]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **QUIET})
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "latency", **QUIET})
    # A query without a checkpoint copies the topic from its beginning: records from before `started` are skipped.
    consumer.assign([TopicPartition(TARGET, 0, 0)])
    try:
        # The first record opens connections and starts tasks; with some more Java compiles its code.
        for warmup in (1, WARMUP):
            round_trip(producer, consumer, warmup)
        return round_trip(producer, consumer, count)
    finally:
        consumer.close()


def round_trip(producer: Any, consumer: Any, count: int) -> list[float]:
    started = time.perf_counter()
    sender = threading.Thread(target=send, args=(producer, count), daemon=True)
    sender.start()
    latencies = receive(consumer, started, count)
    sender.join()
    return latencies


def send(producer: Any, count: int) -> None:
    began = time.perf_counter()
    for number in range(count):
        wait_s = began + number / RATE_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(SOURCE, _stamp.pack(time.perf_counter()) + PADDING)
        producer.poll(0)
    producer.flush(30)


def receive(consumer: Any, started: float, count: int) -> list[float]:
    """Return the latency of each record of this round in milliseconds, in the order of arrival."""
    latencies: list[float] = []
    deadline = time.monotonic() + count / RATE_PER_S + TIMEOUT_S
    while len(latencies) < count:
        message = consumer.poll(0.1)
        now = time.perf_counter()
        if message is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(latencies)} of {count} records came out")
        elif message.error() is None:
            sent = _stamp.unpack_from(message.value())[0]
            if sent >= started:
                latencies.append((now - sent) * 1000)
    return latencies

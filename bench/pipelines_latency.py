"""One record through Spark: how long from its produce into one topic to its consume from another, at a steady rate.

Producer and consumer live in this process, so one clock tells. Real-time mode and micro-batches, our engine, plain
PySpark and Kafka Streams, our broker and Apache's.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from bench import kafka_streams
from bench.apache import QUIET, Figures, Side, compare, create_topic, scaled
from bench.spark import SOURCE, TARGET, TIMEOUT_S, copying, in_turns, running_spark

if TYPE_CHECKING:
    from bench.report import Report

RATE_PER_S = 100
RECORDS = 1000
WARMUP = 300
PADDING = b"x" * 92
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
SPEEDS = ("real-time", "micro-batch")

_stamp = struct.Struct(">d")


def run(report: Report) -> None:
    others = kafka_streams.hands()
    with running_spark() as server:

        def measure(side: Side) -> Figures:
            figures: Figures = {}
            create_topic(side, SOURCE, 1)
            create_topic(side, TARGET, 1)
            for speed in SPEEDS:
                found: dict[str, list[float]] = {}
                hands = ("engine", "plain", *(others if speed == "real-time" else ()))
                for hand, counts in in_turns(hands):
                    with copying(server, side, hand, speed):
                        latencies = through(side)
                    if counts:
                        found.setdefault(hand, []).extend(latencies)
                for hand, latencies in found.items():
                    latencies.sort()
                    for name, share in PERCENTILES.items():
                        place = min(len(latencies) - 1, int(len(latencies) * share))
                        figures[f"one record, {speed}, {hand}, {name}", "ms"] = latencies[place]
            return figures

        compare(report, measure)


def through(side: Side) -> list[float]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **QUIET})
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "latency", **QUIET})
    # A query without a checkpoint copies the topic from its beginning: what came before `started` is passed over.
    consumer.assign([TopicPartition(TARGET, 0, 0)])
    count = scaled(RECORDS)
    try:
        # The first opens connections and starts tasks, some more let Java compile its code.
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
    """The milliseconds that each record of this round took, in the order of their coming."""
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

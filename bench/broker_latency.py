"""End-to-end latency: from produce to consume through one broker at a steady rate, compared with Apache Kafka.

Producer and consumer are librdkafka's and run in this process, so one clock measures when a record was produced and
when it was consumed. Every record is sent at once (`linger.ms=0`) with acks=all, on a schedule that does not wait for
responses, so that a broker that falls behind shows a higher latency.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from bench.apache import QUIET, Figures, Side, compare, create_topic, print_verdicts, scaled

if TYPE_CHECKING:
    from bench.report import Report

RATE_PER_S = 1000
RECORDS = 15_000
# The share of records that come first and are not measured: they open connections and let Java compile its code.
WARMUP_SHARE = 0.5
PADDING = b"x" * 92
TOPIC = "latency"
TIMEOUT_S = 30.0

CASE = f"produce to consume, {RATE_PER_S}/s, acks=all"
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
# "0.7 × at p50 and p99": our latency is to be so much lower.
AT_LEAST = {f"{CASE}, p50": 1 / 0.7, f"{CASE}, p99": 1 / 0.7}

STAMP = struct.Struct(">d")


def run(report: Report) -> None:
    compare(report, measure)
    print_verdicts(report, AT_LEAST)


def measure(side: Side) -> Figures:
    from confluent_kafka import Consumer, Producer, TopicPartition

    create_topic(side, TOPIC, 1)
    count = scaled(RECORDS)
    producer = Producer({"bootstrap.servers": side.bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "latency", **QUIET})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    through(producer, consumer, 1)
    through(producer, consumer, round(count * WARMUP_SHARE))
    latencies = sorted(through(producer, consumer, count))
    consumer.close()
    return {
        (f"{CASE}, {name}", "ms"): latencies[min(len(latencies) - 1, int(len(latencies) * share))]
        for name, share in PERCENTILES.items()
    }


def through(producer: Any, consumer: Any, count: int) -> list[float]:
    """Send so many records on schedule, wait until all were consumed, and return their latencies in milliseconds."""
    sender = threading.Thread(target=send, args=(producer, count), daemon=True)
    sender.start()
    latencies = receive(consumer, count)
    sender.join()
    return latencies


def send(producer: Any, count: int) -> None:
    started = time.perf_counter()
    for number in range(count):
        wait_s = started + number / RATE_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(TOPIC, STAMP.pack(time.perf_counter()) + PADDING)
        producer.poll(0)
    producer.flush(TIMEOUT_S)


def receive(consumer: Any, count: int) -> list[float]:
    """Return the latency of each record in milliseconds, in the order of arrival."""
    latencies: list[float] = []
    deadline = time.monotonic() + count / RATE_PER_S + TIMEOUT_S
    while len(latencies) < count:
        message = consumer.poll(0.1)
        now = time.perf_counter()
        if message is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(latencies)} of {count} records came out")
        elif message.error() is None:
            latencies.append((now - STAMP.unpack_from(message.value())[0]) * 1000)
    return latencies

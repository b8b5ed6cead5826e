"""Producing and consuming over TLS, compared with Apache Kafka: throughput, and the broker's CPU time per GB.

Both sides have the same key (ECDSA, P-256) and the clients choose the cipher: TLS 1.3 with AES-256-GCM. The loads are
Java's tools, as in `broker_produce` and `broker_consume`, and librdkafka, because it sends smaller TLS records than
Java, and each record has a fixed cost for its receiver; librdkafka without TLS shows the cost of TLS itself.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from bench.apache import QUIET, Figures, compare_sides, create_topic, print_verdicts, scaled
from bench.loads import consume, produce
from bench.secured import ECDSA, PLAINTEXT, secured_sides

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.apache import Side
    from bench.report import Report
    from bench.secured import Secured

PARTITIONS = 6
RECORDS = {100: 3_000_000, 1000: 600_000}
TIMEOUT_S = 120.0
RATE, COST = "MB/s", "CPU s/GB"
AT_LEAST = {
    f"{client} {what} {record_bytes} B, TLS": 1.0
    for client in ("Java", "librdkafka")
    for what in ("produces", "consumes")
    for record_bytes in RECORDS
}


def run(report: Report) -> None:
    compare_sides(report, measure, secured_sides(has_acls=False))
    print_verdicts(report, AT_LEAST)


def measure(secured: Secured) -> Figures:
    figures: Figures = {}
    side = secured.through(ECDSA)
    create_topic(side, "warmup", PARTITIONS)
    produce(side, "warmup", scaled(RECORDS[100]) // 8, 100)
    for record_bytes, count in RECORDS.items():
        records = scaled(count)
        gigabytes = records * record_bytes / 1e9
        topic = f"java-{record_bytes}"
        create_topic(side, topic, PARTITIONS)
        write = partial(_java_produces, side, topic, records, record_bytes)
        _note(figures, side, f"Java produces {record_bytes} B, TLS", gigabytes, write)
        read = partial(consume, side, topic, records, f"bench-{topic}")
        _note(figures, side, f"Java consumes {record_bytes} B, TLS", gigabytes, read)
    _measure_librdkafka(figures, side, "TLS")
    _measure_librdkafka(figures, secured.through(PLAINTEXT), "plaintext")
    return figures


def _measure_librdkafka(figures: Figures, side: Side, name: str) -> None:
    records = scaled(RECORDS[1000])
    topic, gigabytes = f"{name}-librdkafka", records * 1000 / 1e9
    create_topic(side, topic, PARTITIONS)
    case = f"1000 B, {name}"
    _note(figures, side, f"librdkafka produces {case}", gigabytes, partial(_produce, side, topic, records))
    _note(figures, side, f"librdkafka consumes {case}", gigabytes, partial(_consume, side, topic, records))


def _note(figures: Figures, side: Side, case: str, gigabytes: float, load: Callable[[], float]) -> None:
    before_s = side.process.cpu_seconds()
    figures[case, RATE] = load()
    figures[case, COST] = (side.process.cpu_seconds() - before_s) / gigabytes


def _java_produces(side: Side, topic: str, records: int, record_bytes: int) -> float:
    return produce(side, topic, records, record_bytes).mb_per_s


def _produce(side: Side, topic: str, records: int) -> float:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": side.bootstrap, "acks": "all", **side.client, **QUIET})
    value = b"x" * 1000
    began = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(TIMEOUT_S):
        raise SystemExit(f"records for {topic} were not delivered")
    return records * 1000 / 1e6 / (time.perf_counter() - began)


def _consume(side: Side, topic: str, records: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "bench-direct", **side.client, **QUIET})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    began = time.perf_counter()
    left = records
    while left > 0:
        found = consumer.consume(min(left, 10_000), TIMEOUT_S)
        if not found:
            raise SystemExit(f"{left} of {records} records of {topic} did not come")
        left -= len(found)
    consumer.close()
    return records * 1000 / 1e6 / (time.perf_counter() - began)

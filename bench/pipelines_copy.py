"""Topic → Spark → topic: records and megabytes a second, on our broker and Apache's, by our engine, plain PySpark and
Kafka Streams.

A query on a topic of six partitions copies a tenth of the load, which warms it up, and then the load: it is timed from
the produce of its first record until its last record was consumed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import kafka_streams
from bench.apache import QUIET, Figures, Side, create_topic, scaled
from bench.spark import SOURCE, TARGET, VARIANTS, compare, copying, in_turns, running_spark, wait_for_records

if TYPE_CHECKING:
    from bench.report import Report

RECORDS = 300_000
VALUE = b"x" * 100
PARTITIONS = 6
WARMUP_SHARE = 0.1


def run(report: Report) -> None:
    with running_spark() as server:

        def measure(side: Side) -> Figures:
            took_s: dict[str, float] = {}
            memory_mb: dict[str, float] = {}
            warmup, count = scaled(int(RECORDS * WARMUP_SHARE)), scaled(RECORDS)
            for variant, counts in in_turns((*VARIANTS, *kafka_streams.variants()[-1:])):
                remake(side, SOURCE, TARGET)
                with copying(server, side, variant, "micro-batch") as java:
                    produce(side, SOURCE, warmup)
                    wait_for_records(side, TARGET, warmup)
                    began = time.perf_counter()
                    produce(side, SOURCE, count)
                    wait_for_records(side, TARGET, warmup + count)
                    if counts:
                        took_s[variant] = took_s.get(variant, 0.0) + time.perf_counter() - began
                        memory_mb["Kafka Streams" if variant in kafka_streams.LINGER_MS else "Spark"] = java.memory_mb()
            figures: Figures = {(f"memory of {name}", "MB"): megabytes for name, megabytes in memory_mb.items()}
            for variant, seconds in took_s.items():
                rate = 2 * count / seconds
                figures[f"copy, {variant}", "rec/s"] = rate
                figures[f"copy, {variant}", "MB/s"] = rate * len(VALUE) / 1e6
            return figures

        compare(report, measure)


def remake(side: Side, *topics: str) -> None:
    """Create empty topics, after deleting those of the variant before."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 3})
    there = [topic for topic in topics if topic in admin.list_topics(timeout=30).topics]
    for future in admin.delete_topics(there).values() if there else ():
        future.result(30)
    deadline = time.monotonic() + 30
    while any(topic in admin.list_topics(timeout=30).topics for topic in topics) and time.monotonic() < deadline:
        time.sleep(0.05)
    for topic in topics:
        create_topic(side, topic, PARTITIONS)


def produce(side: Side, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    settings = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, **QUIET}
    producer = Producer({"bootstrap.servers": side.bootstrap, **settings})
    for number in range(count):
        try:
            producer.produce(topic, VALUE, b"%d" % number)
        except BufferError:
            producer.poll(0.5)
            producer.produce(topic, VALUE, b"%d" % number)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)

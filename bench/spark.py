"""What the measurements of pipelines share: one Spark, and a copy from topic to topic in several variants.

    engine          our engine, at-least-once: a plan, or Spark's Kafka sink behind a function
    exactly-once    our engine with transactions
    Kafka Streams   in Java, with its default linger.ms and with 0
    plain           the script that a user would write with PySpark only, in a session of the same Spark

The broker is ours or Apache's, in turn (`bench.apache`). Two columns must differ only by broker or variant, and not by
the age of a JVM: Java compiles code that runs often, and Spark keeps the code that it has generated for a plan. So
every variant runs once without counting, then all in their order and all in the opposite order (`in_turns`): a variant
that is early in one turn is late in the other.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench import kafka_streams
from bench.apache import QUIET, Figures, Process, Side, compare_sides, sides
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import BYTES, Sink, Source
from pessoa.pipelines.queries import QuerySpec
from pessoa.pipelines.spark_server import SparkOptions, SparkServer, session_at

if TYPE_CHECKING:
    from bench.report import Report

TIMEOUT_S = 300.0
SOURCE, TARGET = "pipeline-in", "pipeline-out"
VARIANTS = ("engine", "exactly-once", "plain")
# Making a class data archive takes a minute of one core, which would disturb the measurement.
os.environ.setdefault("PESSOA_CLASS_ARCHIVE", "use")
# The variants take turns with each broker, so one round is enough. A part then takes five minutes at most.
ROUNDS = int(os.environ.get("PESSOA_BENCH_ROUNDS", "1"))
T = TypeVar("T")


def compare(report: Report, measure: Callable[[Side], Figures]) -> None:
    """Compare the two sides as `bench.apache` does, and print the figures of a side as soon as they are complete."""

    def measure_and_print(side: Side) -> Figures:
        figures = measure(side)
        for (case, unit), value in figures.items():
            print(f"  {side.name}: {case}: {value:,.4g} {unit}", flush=True)
        return figures

    compare_sides(report, measure_and_print, sides(), ROUNDS)


def in_turns(variants: Sequence[T]) -> Iterator[tuple[T, bool]]:
    """Yield the variant whose turn it is, and whether the turn counts: each has one turn that does not, and then
    two."""
    for variant in variants:
        yield variant, False
    for variant in (*variants, *reversed(variants)):
        yield variant, True


@contextmanager
def running_spark() -> Iterator[SparkServer]:
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-spark-") as folder:
        server = SparkServer.start(Path(folder), SparkOptions(memory="2g"))
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def copying(server: SparkServer, side: Side, variant: str, speed: str) -> Iterator[Process]:
    """Copy records from SOURCE to TARGET within the block; yield the Java process that copies them."""
    if variant in kafka_streams.LINGER_MS:
        with kafka_streams.running(side, variant, "copy", SOURCE, TARGET) as process:
            yield process
        return
    spark = java_of(server)
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-home-") as folder:
        if variant == "plain":
            session: Any = session_at(server.address)
            query = plain_copy(session, side.bootstrap, f"{folder}/checkpoint", speed)
            try:
                yield spark
            finally:
                query.stop()
                session.stop()
            return
        with Engine(side.bootstrap, home=Path(folder), spark_remote=server.address, state_topic=None) as engine:
            engine.start(our_copy(variant, speed))
            yield spark


def java_of(server: SparkServer) -> Process:
    """Return the Java process of Spark, which is the child of its guardian process."""
    pid = server.pid
    return Process(int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0]))


def our_copy(variant: str, speed: str) -> QuerySpec:
    plan = Sink(Source(SOURCE, BYTES, BYTES), TARGET, BYTES, BYTES)
    if variant == "exactly-once":
        return QuerySpec("copy", plan=plan, delivery="exactly-once")
    return QuerySpec("copy", plan=plan, speed="real-time" if speed == "real-time" else "micro-batch")


def plain_copy(spark: Any, servers: str, checkpoint: str, speed: str) -> Any:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        records.select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", TARGET)
        .option("checkpointLocation", checkpoint)
    )
    if speed == "real-time":
        writer = writer.outputMode("update").trigger(realTime="30 seconds")
    return writer.start()


def wait_for_records(side: Side, topic: str, count: int) -> None:
    """Wait until the last stable offsets of the topic sum up to `count`; markers of transactions count as well."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "bench", **QUIET})
    deadline = time.monotonic() + TIMEOUT_S
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        while True:
            ends = [consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in partitions]
            if sum(ends) >= count:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"{sum(ends)} of {count} records came out of Spark")
            time.sleep(0.01)
    finally:
        consumer.close()

"""What the pipelines' parts share: one Spark for all of them, and a copy from topic to topic in several hands.

    engine          our engine, at-least-once: a plan, or Spark's Kafka sink behind a function
    exactly-once    our engine with transactions
    Kafka Streams   in Java, with its producer's wait and without
    plain           the script that a user would write with PySpark alone, in a session of the same Spark

The broker is ours or Apache's, each in its turn (`bench.apache`). What differs between two columns must be the broker
or the writer, never the age of a JVM: Java compiles what it has run often, and Spark keeps the code that it made for a
plan. So every hand runs once to no account, and then all of them there and back (`in_turns`): the hand that is older in
one run is younger in the other.
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
HANDS = ("engine", "exactly-once", "plain")
# Making an archive takes a minute of a core, beside which nothing is measured.
os.environ.setdefault("PESSOA_CLASS_ARCHIVE", "use")
# The hands take turns with each broker, so one round is enough. A part then takes five minutes at most.
ROUNDS = int(os.environ.get("PESSOA_BENCH_ROUNDS", "1"))
T = TypeVar("T")


def compare(report: Report, measure: Callable[[Side], Figures]) -> None:
    """As `bench.apache` does; the figures of a side are said when it is done, since the other takes minutes."""

    def measure_and_say(side: Side) -> Figures:
        figures = measure(side)
        for (case, unit), value in figures.items():
            print(f"  {side.name}: {case}: {value:,.4g} {unit}", flush=True)
        return figures

    compare_sides(report, measure_and_say, sides(), ROUNDS)


def in_turns(hands: Sequence[T]) -> Iterator[tuple[T, bool]]:
    """Whose turn it is, and whether it counts: each comes once to no account, and then twice."""
    for hand in hands:
        yield hand, False
    for hand in (*hands, *reversed(hands)):
        yield hand, True


@contextmanager
def running_spark() -> Iterator[SparkServer]:
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-spark-") as folder:
        server = SparkServer.start(Path(folder), SparkOptions(memory="2g"))
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def copying(server: SparkServer, side: Side, hand: str, speed: str) -> Iterator[Process]:
    """Records go from SOURCE to TARGET as long as the block lasts; gives the Java that copies them."""
    if hand in kafka_streams.LINGER_MS:
        with kafka_streams.running(side, hand, "copy", SOURCE, TARGET) as process:
            yield process
        return
    spark = java_of(server)
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-home-") as folder:
        if hand == "plain":
            session: Any = session_at(server.address)
            query = plain_copy(session, side.bootstrap, f"{folder}/checkpoint", speed)
            try:
                yield spark
            finally:
                query.stop()
                session.stop()
            return
        with Engine(side.bootstrap, home=Path(folder), spark_remote=server.address, state_topic=None) as engine:
            engine.start(our_copy(hand, speed))
            yield spark


def java_of(server: SparkServer) -> Process:
    """The child of the guardian that was started."""
    pid = server.pid
    return Process(int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0]))


def our_copy(hand: str, speed: str) -> QuerySpec:
    plan = Sink(Source(SOURCE, BYTES, BYTES), TARGET, BYTES, BYTES)
    if hand == "exactly-once":
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
    """Until so many offsets of the topic are stable, which with transactions is a few more than records."""
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

"""From the start of a program to its first output record: ours, the plain PySpark script, and Kafka Streams.

The record is in the topic before the program starts, and each program is a process of its own that copies it:
interpreter, imports, Java, Spark, the query and its first record are all in the figure. One more run of ours uses a
Spark that runs already, which shows what a warm one under `pessoa up` would save (decision 0020).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import kafka_streams
from bench.apache import QUIET, Figures, Side
from bench.pipelines_copy import remake
from bench.spark import SOURCE, TARGET, TIMEOUT_S, compare, java_of, running_spark
from pessoa.pipelines.jars import fetch
from tests.support.typed_process import TypedProcess

if TYPE_CHECKING:
    from bench.report import Report

TURNS = 2
WARM = "engine, Spark is up"
ENGINE = """
import os, sys
from pathlib import Path
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import BYTES, Sink, Source
from pessoa.pipelines.queries import QuerySpec

servers, source, target, folder, jars = sys.argv[1:]
remote = os.environ.get("BENCH_SPARK")
with Engine(servers, home=Path(folder), spark_remote=remote, state_topic=None) as engine:
    engine.start(QuerySpec("copy", plan=Sink(Source(source, BYTES, BYTES), target, BYTES, BYTES)))
    sys.stdin.read()
"""
PLAIN = """
import sys
from pyspark.sql import SparkSession

servers, source, target, folder, jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[*]").config("spark.jars", jars).config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false").getOrCreate()
)
records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
records = records.option("subscribe", source).option("startingOffsets", "earliest").load().select("key", "value")
writer = records.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", target)
query = writer.option("checkpointLocation", folder + "/checkpoint").start()
sys.stdin.read()
query.stop()
spark.stop()
"""


def run(report: Report) -> None:
    starters: dict[str, Callable[[Side], AbstractContextManager[None]]] = {
        "engine": lambda side: script(side, ENGINE),
        WARM: lambda side: script(side, ENGINE),
        "plain": lambda side: script(side, PLAIN),
    }
    if kafka_streams.variants():
        kafka_streams.compiled()
        starters["Kafka Streams"] = streams

    def measure(side: Side) -> Figures:
        taken_s: dict[str, list[float]] = {}
        for _ in range(TURNS):
            for variant, starter in starters.items():
                remake(side, SOURCE, TARGET)
                send_one(side)
                with spark_before(variant):
                    began = time.perf_counter()
                    with starter(side):
                        wait_for_one(side)
                        taken_s.setdefault(variant, []).append(time.perf_counter() - began)
        return {(f"program start to first record, {variant}", "s"): min(taken) for variant, taken in taken_s.items()}

    compare(report, measure)


@contextmanager
def spark_before(variant: str) -> Iterator[None]:
    """Start a Spark that has run no query, for the variant that uses a running one."""
    if variant != WARM:
        yield
        return
    with running_spark() as server:
        print(f"  a Spark that waits: {java_of(server).memory_mb():,.0f} MB", flush=True)
        os.environ["BENCH_SPARK"] = server.address
        try:
            yield
        finally:
            del os.environ["BENCH_SPARK"]


@contextmanager
def script(side: Side, text: str) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-home-", ignore_cleanup_errors=True) as folder:
        jars = ",".join(map(str, fetch()))
        program = TypedProcess(
            [sys.executable, "-c", text, side.bootstrap, SOURCE, TARGET, folder, jars],
            Path(folder) / "output",
            environment={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        program.start()
        try:
            yield
        finally:
            program.end_input()
            program.wait_for_end(60)


@contextmanager
def streams(side: Side) -> Iterator[None]:
    with kafka_streams.running(side, kafka_streams.NO_LINGER, "copy", SOURCE, TARGET):
        yield


def send_one(side: Side) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": side.bootstrap, **QUIET})
    producer.produce(SOURCE, b"value", b"key", partition=0)
    assert producer.flush(30) == 0, "the record was not written"


def wait_for_one(side: Side) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer: Any = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "start", **QUIET})
    partitions = consumer.list_topics(TARGET, timeout=30).topics[TARGET].partitions
    consumer.assign([TopicPartition(TARGET, number, 0) for number in partitions])
    try:
        message = consumer.poll(TIMEOUT_S)
        if message is None or message.error() is not None:
            raise SystemExit(f"no record came out: {message and message.error()}")
    finally:
        consumer.close()

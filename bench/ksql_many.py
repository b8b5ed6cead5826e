"""Thirty persistent ksql queries in one Spark: time until all of them run, latency, and memory.

Every third is a windowed count, the others are stateless; all read one topic in real-time mode. While Spark compiles
the plan of a query, running queries wait for its cores for seconds. So latency is measured in the steady state: from
one minute after every query has written a record, when each has begun its second batch, and for a minute, in which each
ends one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import QUIET, Figures, Side, compare, create_topic, scaled
from bench.ksql_latency import RATE_PER_S, STATELESS, WINDOWED, running, send, start, through
from bench.spark import TIMEOUT_S, running_spark
from pessoa.pipelines.spark_server import SparkServer

if TYPE_CHECKING:
    from bench.report import Report

MANY = 30
# Twice the length of a batch in real-time mode.
BATCH_S = 60


def run(report: Report) -> None:
    with running_spark() as server:
        compare(report, lambda side: many_at_once(side, server))


def many_at_once(side: Side, server: SparkServer) -> Figures:
    """Start thirty queries, every third of them windowed, and return figures with the latency of the first."""
    sinks = [f"MANY_{number}" for number in range(MANY)]
    create_topic(side, "in", 1)
    for sink in sinks:
        create_topic(side, sink, 1)
    with running(side, server) as runner:
        began = time.perf_counter()
        for number, sink in enumerate(sinks):
            start(runner, sink, WINDOWED if number % 3 == 2 else STATELESS)
        started_s = time.perf_counter() - began
        wait_for_all(side, sinks)
        running_s = time.perf_counter() - began
        time.sleep(BATCH_S)
        latencies = sorted(through(side, sinks[0], scaled(RATE_PER_S * BATCH_S)))
        memory_mb = resident_mb(server)
    return {
        (f"{MANY} queries, started", "s"): started_s,
        (f"{MANY} queries, each has written", "s"): running_s,
        (f"{MANY} queries, one of them, p50", "ms"): latencies[len(latencies) // 2],
        (f"{MANY} queries, one of them, p99", "ms"): latencies[len(latencies) * 99 // 100],
        (f"{MANY} queries, one of them, longest", "ms"): latencies[-1],
        (f"{MANY} queries, Spark's memory", "MB"): memory_mb,
    }


def wait_for_all(side: Side, sinks: list[str]) -> None:
    """Send records until each of the queries has written one."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **QUIET})
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "bench-all", **QUIET})
    consumer.assign([TopicPartition(sink, 0, 0) for sink in sinks])
    silent = set(sinks)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while silent:
            if time.monotonic() > deadline:
                raise SystemExit(f"nothing came out of {', '.join(sorted(silent))}")
            send(producer, 1)
            silent -= {one.topic() for one in consumer.consume(100, 0.5) if one.error() is None}
    finally:
        consumer.close()


def resident_mb(server: SparkServer) -> float:
    """Return the memory of all processes of the Spark server: Java, and Python workers if there are any."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
            group = int((status.parent / "stat").read_text().rpartition(")")[2].split()[2])
        except (OSError, IndexError, ValueError):
            # The process has ended meanwhile.
            continue
        if group == server.pid and "VmRSS:" in text:
            total += int(text.split("VmRSS:")[1].split()[0])
    return total / 1024

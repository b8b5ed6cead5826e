"""A share group, compared with Apache Kafka's: throughput and end-to-end latency.

- Throughput: six partitions are filled, and Apache's kafka-share-consumer-perf-test (Java's KafkaShareConsumer) reads
  and accepts them, as one member and as four. Two groups each; the faster one counts, as in broker_consume.
- The same with librdkafka's share consumer, one member in this process.
- Latency: records at a steady rate, librdkafka's producer and share consumer in this process, with one clock; a poll
  accepts the records of the poll before.

A group begins with the earliest record, and its members get their partitions with an early heartbeat, so that joining
is not in the figures.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.apache import (
    APACHE,
    QUIET,
    Figures,
    Side,
    compare_sides,
    create_topic,
    print_verdicts,
    running_apache,
    running_pessoa,
    scaled,
    sides,
)
from bench.broker_latency import PERCENTILES, RATE_PER_S, STAMP, TOPIC, WARMUP_SHARE, send
from bench.loads import MIB, produce, run_tool
from bench.report import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.report import Report

PARTITIONS = 6
RECORD_BYTES = 1000
RECORDS = 200_000
LATENCY_RECORDS = 10_000
TIMEOUT_S = 60.0
MEMBERS = (1, 4)
GROUPS = ("first", "second")

JAVA = "share consume 1000 B, Java, members: {}"
LIBRDKAFKA = "share consume 1000 B, librdkafka"
CASE = f"produce to share consumer, {RATE_PER_S}/s, acks=all"
AT_LEAST = {**{JAVA.format(members): 1.0 for members in MEMBERS}, f"{CASE}, p50": 1.0, f"{CASE}, p99": 1.0}
# Members get their partitions with their second heartbeat.
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def run(report: Report) -> None:
    starters = {OURS: partial(running_pessoa, more=SETTINGS), APACHE: partial(running_apache, more=SETTINGS)}
    compare_sides(report, measure, {name: starters[name] for name in sides()})
    print_verdicts(report, AT_LEAST)


def measure(side: Side) -> Figures:
    records = scaled(RECORDS)
    create_topic(side, "share", PARTITIONS)
    produce(side, "share", records, RECORD_BYTES, acks="1")
    figures: Figures = {}
    cpu_before_s = side.process.cpu_seconds()
    for members in MEMBERS:
        speeds = [read_with_java(side, records, f"java-{members}-{name}", members) for name in GROUPS]
        figures[JAVA.format(members), "MB/s"] = max(speeds)
    spent_s = side.process.cpu_seconds() - cpu_before_s
    gigabytes = len(MEMBERS) * len(GROUPS) * records * RECORD_BYTES / 1e9
    figures["broker's CPU per GB consumed by Java", "s"] = spent_s / gigabytes
    figures[LIBRDKAFKA, "MB/s"] = max(read_with_librdkafka(side, records, f"librdkafka-{name}") for name in GROUPS)
    latencies = sorted(measure_latencies(side, scaled(LATENCY_RECORDS)))
    for name, share in PERCENTILES.items():
        figures[f"{CASE}, {name}", "ms"] = latencies[min(len(latencies) - 1, int(len(latencies) * share))]
    return figures


def begin_group(side: Side, group: str) -> None:
    """Set share.auto.offset.reset of the group to earliest."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": side.bootstrap, **QUIET})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)


def read_with_java(side: Side, records: int, group: str, members: int) -> float:
    """Run kafka-share-consumer-perf-test; return MB/s from its first to its last record."""
    begin_group(side, group)
    output = run_tool(
        "kafka-share-consumer-perf-test",
        *("--bootstrap-server", side.bootstrap),
        *("--topic", "share"),
        *("--num-records", str(records)),
        *("--group", group),
        *("--threads", str(members)),
        *("--timeout", "60000"),
        "--hide-header",
    )
    # start, end, MB, MB/s, records/s, records, fetch ms
    for line in reversed(output.splitlines()):
        cells = line.split(", ")
        if len(cells) == 7:
            if int(cells[5]) < records:
                raise SystemExit(f"of {records} records {cells[5]} were consumed:\n{output}")
            return float(cells[3]) * MIB
    raise SystemExit(f"the share consumer says nothing that can be read:\n{output}")


def share_consumer(side: Side, group: str, topic: str) -> Any:
    from confluent_kafka import ShareConsumer

    begin_group(side, group)
    consumer = ShareConsumer({"bootstrap.servers": side.bootstrap, "group.id": group, **QUIET})
    consumer.subscribe([topic])
    return consumer


def read_with_librdkafka(side: Side, records: int, group: str) -> float:
    """Return MB/s from the first record to the last; each record is accepted by the next poll."""
    with share_consumer(side, group, "share") as consumer:
        counts = list(polled(consumer, records, lambda _message, _now: None))
    (before, began), (after, ended) = counts[0], counts[-1]
    return (after - before) * RECORD_BYTES / 1e6 / (ended - began)


def polled(consumer: Any, wanted: int, handle: Callable[[Any, float], None]) -> Iterator[tuple[int, float]]:
    """Poll until `wanted` records have come; after each poll with records yield their number and the time."""
    count, deadline = 0, time.monotonic() + TIMEOUT_S + wanted / RATE_PER_S
    while count < wanted:
        messages = consumer.poll(0.1)
        now = time.perf_counter()
        for message in messages:
            if message.error() is None:
                handle(message, now)
                count += 1
        if messages:
            yield count, now
        elif time.monotonic() > deadline:
            raise SystemExit(f"{count} of {wanted} records came out")


def measure_latencies(side: Side, count: int) -> list[float]:
    from confluent_kafka import Producer

    create_topic(side, TOPIC, 1)
    producer = Producer({"bootstrap.servers": side.bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    latencies: list[float] = []
    with share_consumer(side, "latency", TOPIC) as consumer:
        # The first record opens the connections and waits for the assignment; with the others Java compiles its code.
        for some in (1, round(count * WARMUP_SHARE), count):
            latencies.clear()
            sender = threading.Thread(target=send, args=(producer, some), daemon=True)
            sender.start()
            for _ in polled(consumer, some, lambda message, now: latencies.append(_latency_ms(message, now))):
                pass
            sender.join()
    return latencies


def _latency_ms(message: Any, now: float) -> float:
    stamp: float = STAMP.unpack_from(message.value())[0]
    return (now - stamp) * 1000

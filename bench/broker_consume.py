"""Consuming from one broker, compared with Apache Kafka: MB/s, and the broker's CPU time per GB.

Six partitions are filled, and Apache's kafka-consumer-perf-test reads them from the beginning, twice, as two groups.
The faster of the two counts: in a short run Java spends half of the time with compiling the consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.apache import Figures, Side, compare, create_topic, print_verdicts, scaled
from bench.loads import consume, produce

if TYPE_CHECKING:
    from bench.report import Report

PARTITIONS = 6
RECORD_BYTES = 1000
RECORDS = 500_000
GROUPS = ("first", "second")
CASE = "consume 1000 B"
AT_LEAST = {CASE: 1.2}


def run(report: Report) -> None:
    compare(report, measure)
    print_verdicts(report, AT_LEAST)


def measure(side: Side) -> Figures:
    records = scaled(RECORDS)
    create_topic(side, "consume", PARTITIONS)
    produce(side, "consume", records, RECORD_BYTES, acks="1")
    cpu_before_s = side.process.cpu_seconds()
    fastest = max(consume(side, "consume", records, group) for group in GROUPS)
    spent_s = side.process.cpu_seconds() - cpu_before_s
    gigabytes = len(GROUPS) * records * RECORD_BYTES / 1e9
    return {(CASE, "MB/s"): fastest, ("broker's CPU per GB consumed", "s"): spent_s / gigabytes}

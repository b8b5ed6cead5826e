"""Producing to one broker, compared with Apache Kafka: throughput by record size, acks and codec, CPU time and memory.

Apache's kafka-producer-perf-test writes to six partitions as fast as it can; it is the same program for both. On two
cores it takes at least one of them, so the CPU time of the broker per GB of records matters as much as the throughput;
it is reported too, and so is the broker's memory after the load.

Compression is work for the producer only: the broker stores batches as they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.apache import Figures, Side, compare, create_topic, print_verdicts, scaled
from bench.loads import produce

if TYPE_CHECKING:
    from bench.report import Report

PARTITIONS = 6
# Enough that Java has compiled the producer, which takes some six seconds of CPU time with any load, within the part
# that is not in the figures.
RECORDS = {100: 4_000_000, 1000: 1_000_000}


class Case(NamedTuple):
    record_bytes: int
    acks: str
    codec: str

    def __str__(self) -> str:
        codec = "" if self.codec == "none" else f", {self.codec}"
        return f"produce {self.record_bytes} B, acks={self.acks}{codec}"


CASES = [Case(size, acks, "none") for size in RECORDS for acks in ("1", "all")] + [
    Case(size, "1", codec) for size in RECORDS for codec in ("lz4", "zstd")
]
MEMORY = "memory after load"
AT_LEAST = {str(case): 1.5 if case.record_bytes == 100 else 1.3 for case in CASES if case.codec == "none"} | {
    MEMORY: 10.0
}


def run(report: Report) -> None:
    compare(report, measure)
    print_verdicts(report, AT_LEAST)


def measure(side: Side) -> Figures:
    figures: Figures = {}
    create_topic(side, "warmup", PARTITIONS)
    produce(side, "warmup", scaled(RECORDS[100] // 8), 100, acks="1")
    for number, case in enumerate(CASES):
        topic = f"bench-{number}"
        create_topic(side, topic, PARTITIONS)
        records = scaled(RECORDS[case.record_bytes])
        cpu_before_s = side.process.cpu_seconds()
        done = produce(side, topic, records, case.record_bytes, acks=case.acks, codec=case.codec)
        if case.codec == "none":
            spent_s = side.process.cpu_seconds() - cpu_before_s
            figures[f"broker's CPU per GB, {case}", "s"] = spent_s / (records * case.record_bytes / 1e9)
        if case.record_bytes == 100:
            figures[str(case), "rec/s"] = done.records_per_s
        else:
            figures[str(case), "MB/s"] = done.mb_per_s
    figures[MEMORY, "MB"] = side.process.memory_mb()
    return figures

"""Producing to three brokers with replication factor 3 and acks=all, compared with three of Apache's.

Every record is written three times before it is acknowledged. On a machine with two cores, which three brokers and the
producer share, the throughput depends on the CPU time of the cluster per GB, which is reported as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.apache import print_verdicts, scaled
from bench.clusters import compare, create_topic
from bench.loads import produce

if TYPE_CHECKING:
    from bench.apache import Figures
    from bench.clusters import Cluster
    from bench.report import Report

PARTITIONS = 6
RECORDS = {100: 1_000_000, 1000: 150_000}
CASES = {size: f"produce {size} B, RF 3, acks=all" for size in RECORDS}
MEMORY = "memory of 3 after load"
# DESIGN section 6.
AT_LEAST = dict.fromkeys(CASES.values(), 3.0)


def run(report: Report) -> None:
    compare(report, measure)
    print_verdicts(report, AT_LEAST)


def measure(cluster: Cluster) -> Figures:
    figures: Figures = {}
    side = cluster.as_side()
    create_topic(cluster, "warmup", PARTITIONS, min_insync_replicas="2")
    produce(side, "warmup", scaled(RECORDS[100] // 4), 100)
    for size, case in CASES.items():
        topic = f"bench-{size}"
        create_topic(cluster, topic, PARTITIONS, min_insync_replicas="2")
        records = scaled(RECORDS[size])
        cpu_before_s = cluster.cpu_seconds()
        done = produce(side, topic, records, size)
        figures[f"brokers' CPU per GB, {size} B", "s"] = (cluster.cpu_seconds() - cpu_before_s) / (records * size / 1e9)
        if size == 1000:
            figures[case, "MB/s"] = done.mb_per_s
        else:
            figures[case, "rec/s"] = done.records_per_s
    figures[MEMORY, "MB"] = cluster.memory_mb()
    return figures

"""A thousand partitions with three replicas each, created at once on three brokers, compared with three of Apache's.

created     until CreateTopics is answered
led         until every partition has a leader and all its replicas in sync, counted from the same moment
on disk     until DescribeLogDirs of every broker lists every replica, counted from the same moment; both sides answer
            CreateTopics before all replicas are created
memory      of the three brokers after that, minus their memory before the topic
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.apache import QUIET, scaled
from bench.clusters import compare, is_whole, wait_until

if TYPE_CHECKING:
    from bench.apache import Figures
    from bench.clusters import Cluster
    from bench.report import Report

PARTITIONS = 1_000
ROUNDS = 1
BROKERS = (1, 2, 3)


def run(report: Report) -> None:
    compare(report, measure, ROUNDS)


def measure(cluster: Cluster) -> Figures:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from pessoa.client.cluster_client import Cluster as Client
    from pessoa.client.reassignment_admin import replica_directories

    partitions = scaled(PARTITIONS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    before_mb = cluster.memory_mb()
    began = time.perf_counter()
    admin.create_topics([NewTopic("many", partitions, 3)], operation_timeout=120)["many"].result(120)
    created_s = time.perf_counter() - began
    wait_until(lambda: is_whole(admin, "many", partitions), f"{partitions} partitions led and in sync")
    led_s = time.perf_counter() - began
    with Client(cluster.bootstrap) as client:
        wait_until(lambda: len(replica_directories(client, BROKERS)) >= 3 * partitions, "every replica on its disk")
    made_s = time.perf_counter() - began
    return {
        (f"{partitions} partitions created", "s"): created_s,
        (f"{partitions} partitions led, in sync", "s"): led_s,
        (f"{partitions} partitions on disk", "s"): made_s,
        (f"memory for {partitions} partitions on 3", "MB"): max(0.0, cluster.memory_mb() - before_mb),
    }

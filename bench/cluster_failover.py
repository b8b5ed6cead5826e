"""How long a partition has no leader after kill -9, and a producer no acknowledgement, compared with Apache's.

new leader      from the kill to the first Metadata response of another broker that names another leader
producer        the longest time between two acknowledgements of one record after another, acks=all
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.apache import QUIET
from bench.clusters import compare, create_topic, wait_until

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from bench.apache import Figures
    from bench.clusters import Cluster
    from bench.report import Report

LEADER, PRODUCER = "new leader after kill -9", "producer stands still"
BEFORE, AFTER = 100, 20


def run(report: Report) -> None:
    compare(report, measure)


def measure(cluster: Cluster) -> Figures:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    create_topic(cluster, "failover", 1, min_insync_replicas="2")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 2_000, **QUIET})
    acknowledged_at: list[float] = []

    def note_acknowledgement(error: KafkaError | None, _: Message) -> None:
        if error is None:
            acknowledged_at.append(time.perf_counter())

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, **QUIET}
    )

    def send_one() -> None:
        producer.produce("failover", b"x", on_delivery=note_acknowledgement)
        producer.poll(0.005)

    def leader() -> int:
        return int(admin.list_topics("failover", timeout=10).topics["failover"].partitions[0].leader)

    def has_sent(count: int) -> bool:
        send_one()
        return len(acknowledged_at) >= count

    wait_until(lambda: has_sent(BEFORE), "the first records")
    victim = leader()
    killed_at = time.perf_counter()
    cluster.kill(victim)
    led_at = 0.0

    def is_led_and_acknowledges() -> bool:
        nonlocal led_at
        send_one()
        if not led_at and leader() not in (victim, -1):
            led_at = time.perf_counter()
        return bool(led_at) and len(acknowledged_at) >= before_the_kill + AFTER

    before_the_kill = len(acknowledged_at)
    wait_until(is_led_and_acknowledges, "another leader")
    producer.flush(30)
    # The delivery report of a record that was acknowledged just before the kill may come after it, so one is not
    # enough.
    gaps = (after - before for before, after in pairwise(acknowledged_at[before_the_kill - 1 :]))
    return {(LEADER, "s"): led_at - killed_at, (PRODUCER, "s"): max(gaps)}

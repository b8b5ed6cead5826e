"""librdkafka's share consumers as processes that are killed, on brokers that are killed: at least once, and not more
often than the group allows."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Queue

import pytest

from pessoa.testing import Broker, Cluster
from tests.conformance.test_share_groups import SETTINGS, create_replicated_topic, numbers, produce, share_group
from tests.support.clients import TIMEOUT_S, Reachable, create_topic, until

# Prints every record that it gets, with its delivery count. With "dies" it is killed by the first one.
MEMBER = """
import os, signal, sys
from confluent_kafka import ShareConsumer

servers, group, topic, how = sys.argv[1:]
with ShareConsumer({"bootstrap.servers": servers, "group.id": group}) as consumer:
    consumer.subscribe([topic])
    while True:
        for message in consumer.poll(0.1):
            if message.error() is None:
                print(message.delivery_count(), message.value().decode(), flush=True)
                if how == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
"""


class Member:
    """A process with a share consumer. `got` is what it has printed: (delivery count, value)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.got: list[tuple[int, str]] = []
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def listen(self) -> set[str]:
        """Every value that it has got so far."""
        while True:
            try:
                count, _, value = self._lines.get(timeout=0.05).strip().partition(" ")
            except Empty:
                return {value for _, value in self.got}
            self.got.append((int(count), value))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def member(broker: Reachable, topic: str, group: str, how: str = "lives") -> Iterator[Member]:
    words = [sys.executable, "-c", MEMBER, broker.bootstrap_servers, group, topic, how]
    running = Member(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    try:
        yield running
    finally:
        running.kill()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def test_nothing_is_lost_when_members_and_the_leaders_of_their_partition_are_killed() -> None:
    with Cluster(3, SETTINGS) as cluster:
        topic = create_replicated_topic(cluster)
        group = share_group(cluster)
        with member(cluster, topic, group) as one, member(cluster, topic, group) as other:
            wanted = set(numbers(100, "before-"))
            produce(cluster, topic, sorted(wanted))
            until(lambda: one.listen() or other.listen(), bool, "the first records")
            killed, left = (one, other) if one.got else (other, one)
            killed.kill()
            leader = cluster.leader_of(topic, 0)
            cluster.kill(leader)
            more = numbers(100, "after-")
            produce(cluster, topic, more)
            wanted |= set(more)
            until(lambda: left.listen() | killed.listen(), wanted.issubset, "every record")
            cluster.start(leader)
            cluster.wait_until_in_sync()
            produce(cluster, topic, ["last"])
            until(left.listen, lambda values: "last" in values, "the last record")


def test_a_record_that_kills_every_member_is_given_up_at_the_limit_of_deliveries(broker: Broker) -> None:
    topic, group = create_topic(broker), share_group(broker, **{"share.delivery.count.limit": "3"})
    produce(broker, topic, ["poison"])
    for count in (1, 2, 3):
        with member(broker, topic, group, "dies") as victim:
            until(victim.listen, bool, f"delivery {count}")
            assert victim.process.wait(TIMEOUT_S) == -signal.SIGKILL
            assert victim.got == [(count, "poison")]
    produce(broker, topic, ["harmless"])
    with member(broker, topic, group) as survivor:
        until(survivor.listen, bool, "the next record")
        assert survivor.got == [(1, "harmless")]

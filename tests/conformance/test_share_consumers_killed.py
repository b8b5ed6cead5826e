"""librdkafka's share consumers and the brokers are killed: every record is delivered at least once, and not more often
than the delivery count limit of the group."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.testing import Broker, Cluster
from tests.conformance.test_share_groups import SETTINGS, create_replicated_topic, numbers, produce, share_group
from tests.support.clients import TIMEOUT_S, Reachable, create_topic
from tests.support.logged_process import LoggedProcess
from tests.support.topics import eventually

# Prints every record that it gets, with its delivery count. With "dies" it kills itself at the first record.
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


class Member(LoggedProcess):
    """A process with a share consumer that prints the records it gets."""

    def __init__(self, broker: Reachable, topic: str, group: str, log: Path, how: str = "lives") -> None:
        words = [sys.executable, "-c", MEMBER, broker.bootstrap_servers, group, topic, how]
        super().__init__(words, log, errors=log.with_suffix(".errors"))

    @property
    def got(self) -> list[tuple[int, str]]:
        """Return the delivery count and the value of every record so far."""
        return [(int(count), value) for count, value in map(str.split, self.lines)]

    @property
    def values(self) -> set[str]:
        return {value for _, value in self.got}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def test_no_record_is_lost_when_a_share_member_and_the_leader_of_its_partition_are_killed(tmp_path: Path) -> None:
    with Cluster(3, SETTINGS) as cluster:
        topic = create_replicated_topic(cluster)
        group = share_group(cluster)
        with (
            Member(cluster, topic, group, tmp_path / "one") as one,
            Member(cluster, topic, group, tmp_path / "other") as other,
        ):
            wanted = set(numbers(100, "before-"))
            produce(cluster, topic, sorted(wanted))
            eventually(lambda: one.lines or other.lines, TIMEOUT_S, about="the first records")
            killed, left = (one, other) if one.lines else (other, one)
            killed.kill()
            leader = cluster.leader_of(topic, 0)
            cluster.kill(leader)
            more = numbers(100, "after-")
            produce(cluster, topic, more)
            wanted |= set(more)
            eventually(lambda: wanted <= left.values | killed.values, TIMEOUT_S, about="every record")
            cluster.start(leader)
            cluster.wait_until_in_sync()
            produce(cluster, topic, ["last"])
            eventually(lambda: "last" in left.values, TIMEOUT_S, about="the last record")


def test_a_record_that_kills_every_member_is_not_delivered_beyond_the_delivery_count_limit(
    broker: Broker, tmp_path: Path
) -> None:
    topic, group = create_topic(broker), share_group(broker, **{"share.delivery.count.limit": "3"})
    produce(broker, topic, ["poison"])
    for count in (1, 2, 3):
        with Member(broker, topic, group, tmp_path / "victim", "dies") as victim:
            assert victim.wait_for_end(TIMEOUT_S) == -signal.SIGKILL
            assert victim.got == [(count, "poison")]
    produce(broker, topic, ["harmless"])
    with Member(broker, topic, group, tmp_path / "survivor") as survivor:
        survivor.wait_for(r"\n", TIMEOUT_S)
        assert survivor.got == [(1, "harmless")]

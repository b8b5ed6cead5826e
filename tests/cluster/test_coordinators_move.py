"""Groups and transactions go on when the broker that coordinates them dies."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from pessoa.client import cluster_client as clusters
from pessoa.client.group_admin import commit_offsets, committed_offsets, describe_group
from pessoa.testing import Cluster
from tests.cluster.conftest import QUIET, TIMEOUT_S, check_nothing_lost, create_topic, producing, read_all

GROUP_TOPIC, TRANSACTION_TOPIC = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # One partition each, so that the leader of partition 0 coordinates every group and transaction.
    with Cluster(3, {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}) as running:
        yield running


def consumer_of(cluster: Cluster, group: str, **configs: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
            **configs,
        }
    )


def poll_values(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} were read"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(int(value))
    return found


def commit_until_it_works(consumer: Consumer) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            return


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_continues_and_keeps_its_offsets_when_its_coordinator_dies(cluster: Cluster, protocol: str) -> None:
    create_topic(cluster, "t")
    with producing(cluster, "t") as producer:
        consumer = consumer_of(cluster, "g", **{"group.protocol": protocol})
        consumer.subscribe(["t"])
        read = poll_values(consumer, 50)
        commit_until_it_works(consumer)
        dead = cluster.leader_of(GROUP_TOPIC, 0)
        cluster.kill(dead)
        read += poll_values(consumer, 50)
        commit_until_it_works(consumer)
        consumer.close()
        assert read == list(range(len(read)))
        another = consumer_of(cluster, "g", **{"group.protocol": protocol})
        another.subscribe(["t"])
        assert poll_values(another, 10)[0] == len(read)
        another.close()
        cluster.start(dead)
        cluster.wait_until_in_sync()
    check_nothing_lost(producer, read_all(cluster, "t", 1))


def test_a_client_finds_the_new_coordinator_of_a_group_over_its_existing_connections(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    with clusters.Cluster(cluster.bootstrap_servers, {}) as client:
        commit_offsets(client, "g", {("t", 0): 7})
        assert describe_group(client, "g").state == "Empty"
        dead = cluster.leader_of(GROUP_TOPIC, 0)
        cluster.kill(dead)
        assert committed_offsets(client, "g")["t", 0].offset == 7
        found = describe_group(client, "g")
        assert found.state == "Empty"
        assert found.coordinator.node_id != dead
        commit_offsets(client, "g", {("t", 0): 9})
        assert committed_offsets(client, "g")["t", 0].offset == 9


@pytest.mark.parametrize("victim", ["coordinator", "leader"])
def test_transactions_are_visible_completely_or_not_at_all_when_a_broker_dies(cluster: Cluster, victim: str) -> None:
    create_topic(cluster, "a")
    create_topic(cluster, "b")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "mover", **QUIET})
    producer.init_transactions(TIMEOUT_S)
    committed: list[str] = []
    dead = 0
    for number in range(60):
        producer.begin_transaction()
        producer.produce("a", str(number))
        producer.produce("b", str(number))
        if number == 20:
            dead = cluster.leader_of(TRANSACTION_TOPIC if victim == "coordinator" else "a", 0)
            cluster.kill(dead)
        if number % 5 == 4:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            committed.append(str(number))
        if number == 40:
            cluster.start(dead)
    cluster.wait_until_in_sync()
    for topic in ("a", "b"):
        found = read_all(cluster, topic, 1, isolation_level="read_committed")
        assert [value for _, _, value in found] == committed


def test_offsets_committed_in_a_transaction_survive_the_coordinator_of_the_group(cluster: Cluster) -> None:
    create_topic(cluster, "source")
    with producing(cluster, "source") as source:
        source.wait_for(200)
    create_topic(cluster, "copy")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "copier", **QUIET})
    producer.init_transactions(TIMEOUT_S)
    consumer = consumer_of(cluster, "g", **{"isolation.level": "read_committed"})
    consumer.subscribe(["source"])
    copied = 0
    while copied < 150:
        values = poll_values(consumer, 10)
        producer.begin_transaction()
        for value in values:
            producer.produce("copy", str(value))
        position = [TopicPartition("source", 0, values[-1] + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        copied += len(values)
        if copied == 70:
            cluster.kill(cluster.leader_of(GROUP_TOPIC, 0))
    assert [offset.offset for offset in consumer.committed([TopicPartition("source", 0)], TIMEOUT_S)] == [copied]
    consumer.close()
    found = read_all(cluster, "copy", 1, isolation_level="read_committed")
    assert [int(value) for _, _, value in found] == list(range(copied))

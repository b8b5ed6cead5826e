"""Brokers that are restarted one after another under load, without any error for clients.

A broker that shuts down moves its leaders, answers clients with the new leaders, and closes its ports when clients have
disconnected.
"""

from __future__ import annotations

import signal
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, Message, Producer

from pessoa.client.blocking_connection import Connection
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from tests.chaos.counting_clients import CUT, ERROR, REFUSED, CountingClients
from tests.chaos.processes import BROKERS, CONTROLLERS, IMPATIENT, BrokerProcesses, Home, until

TOPIC, PARTITIONS = "t", 6
# A client that was silent for longer may find that the broker it used is gone (`broker/draining.py` waits for 0.3 s).
_SILENCE_S = 0.25
# What clients retry by themselves.
_RETRIABLE = {
    "NOT_LEADER_OR_FOLLOWER",
    "FENCED_LEADER_EPOCH",
    # A broker that has heard less of the metadata than the client: both ask again.
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_LEADER_EPOCH",
    "LEADER_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "OFFSET_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
}


class LibrdkafkaClients:
    """A producer, and a consumer group of each protocol; `failed` has the errors that they reported to the
    application."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.failed: list[str] = []
        self.acknowledged: set[bytes] = set()
        # Group protocol → value → how often it was polled
        self.polled: dict[str, dict[bytes, int]] = {"classic": defaultdict(int), "consumer": defaultdict(int)}
        self._is_done, self._is_read = Event(), Event()
        self._threads = [
            Thread(target=self._produce),
            *(Thread(target=self._consume, args=[protocol]) for protocol in self.polled),
        ]

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap_servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed.append(f"produce: {error}")
            else:
                value = message.value()
                assert value is not None
                self.acknowledged.add(value)

        number = 0
        while not self._is_done.is_set():
            producer.produce(TOPIC, b"rd-%d" % number, partition=number % PARTITIONS, on_delivery=told)
            number += 1
            producer.poll(0.01)
        producer.flush(60)

    def _consume(self, protocol: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": f"{protocol}-group",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                **IMPATIENT,
            }
        )
        consumer.subscribe([TOPIC])
        while not self._is_read.is_set():
            for message in consumer.consume(500, 0.1):
                value = message.value()
                if message.error() is not None:
                    self.failed.append(f"{protocol}: {message.error()}")
                elif value is not None and value.startswith(b"rd-"):
                    self.polled[protocol][value] += 1
        consumer.close()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Wait until each group has polled every acknowledged record."""
        self._is_done.set()
        self._threads[0].join()
        try:
            until(
                lambda: all(self.acknowledged <= values.keys() for values in self.polled.values()),
                lambda: f"{len(self.acknowledged)} polled by each ({ {p: len(v) for p, v in self.polled.items()} })",
            )
        finally:
            self._is_read.set()
            for thread in self._threads:
                thread.join()


@contextmanager
def librdkafka_clients(brokers: BrokerProcesses) -> Iterator[LibrdkafkaClients]:
    clients = LibrdkafkaClients(brokers.bootstrap_servers)
    clients.start()
    try:
        until(lambda: all(clients.polled.values()), "both groups consume")
        yield clients
    finally:
        clients.finish()


@pytest.fixture(scope="module")
def all_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("rolling"), {"broker.session.timeout.ms": "9000"}) as running:
        running.create_topic(TOPIC, PARTITIONS)
        yield running


@pytest.fixture
def brokers(all_brokers: BrokerProcesses) -> Iterator[BrokerProcesses]:
    """Return all three brokers, started again if an earlier test has stopped them."""
    all_brokers.start_all()
    yield all_brokers
    assert not all_brokers.complaints()


def restart(brokers: BrokerProcesses, number: int) -> None:
    assert brokers.stop(number) == 0
    brokers.start(number)
    brokers.wait_until_in_sync()


def check_no_client_noticed(clients: CountingClients) -> None:
    clients.check()
    journal = clients.journal
    noticed = [str(one) for one in journal.of_kind(REFUSED, CUT) if one.silent_s < _SILENCE_S]
    assert not noticed, noticed
    told = {one.what for one in journal.of_kind(ERROR)}
    assert told <= _RETRIABLE, journal.summary()


def test_no_request_is_refused_or_lost_while_each_broker_is_restarted(brokers: BrokerProcesses) -> None:
    with CountingClients(brokers.bootstrap_servers, TOPIC, PARTITIONS) as clients:
        with librdkafka_clients(brokers) as others:
            until(lambda: clients.acknowledged > 100, "the first records")
            for number in brokers:
                restart(brokers, number)
                before = clients.acknowledged
                until(lambda: clients.acknowledged > before + 30, "some more records")  # noqa: B023
            brokers.admin().elect_leaders(ElectionType.PREFERRED).result(60)
            until(
                lambda: {brokers.leader_of(TOPIC, index) for index in range(PARTITIONS)} == {1, 2, 3}, "all lead again"
            )
            before = clients.acknowledged
            until(lambda: clients.acknowledged > before + 30, "some more records")
        assert not others.failed
    check_no_client_noticed(clients)
    acks_s, reads_s = map(clients.longest_pause_s, (clients.journal.acknowledged_at_s, clients.journal.read_at_s))
    print(f"longest pause: {acks_s:.2f} s in acknowledgements, {reads_s:.2f} s in reading; {clients.journal.summary()}")


def test_a_broker_that_leads_nothing_is_not_in_metadata_after_it_has_stopped(brokers: BrokerProcesses) -> None:
    follower = next(iter(set(brokers) - {brokers.leader_of(TOPIC, 0)}))
    restart(brokers, follower)
    # It has handed over what it led, and the controller does not give that back so soon.
    assert all(
        one.leader != follower for topic in brokers.metadata().topics.values() for one in topic.partitions.values()
    )
    assert brokers.stop(follower) == 0
    assert follower not in brokers.metadata().brokers


def test_a_client_that_connects_again_when_it_is_cut_off_is_served_by_the_broker_that_stops(
    brokers: BrokerProcesses,
) -> None:
    """As librdkafka does, which asks another broker for metadata only meanwhile."""
    number = brokers.leader_of(TOPIC, 0)
    host, _, port = brokers.address(number).rpartition(":")
    with socket.create_connection((host, int(port)), 60) as idle:
        brokers.signal(number, signal.SIGTERM)
        assert idle.recv(1) == b"", "the broker has ended the connection"
        again = Connection(host, int(port), "again", {}, time.monotonic() + 60)
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    found = again.send(request, MetadataResponse, time.monotonic() + 60)
    assert {one.node_id for one in found.brokers} == set(brokers) - {number}
    again.close()
    assert brokers.stop(number) == 0


def test_a_stop_does_not_wait_for_ever_for_partitions_that_no_other_broker_can_lead(brokers: BrokerProcesses) -> None:
    last = brokers.leader_of(TOPIC, 0)
    for other in set(brokers) - {last}:
        brokers.kill(other)
    began = time.monotonic()
    # Without a majority of controllers no other broker can be elected, and none can be told.
    assert brokers.stop(last) == 0
    assert time.monotonic() - began < 30


def test_a_second_signal_does_not_disturb_a_stop(brokers: BrokerProcesses) -> None:
    with CountingClients(brokers.bootstrap_servers, TOPIC, PARTITIONS) as clients:
        until(lambda: clients.acknowledged > 30, "the first records")
        leader = brokers.leader_of(TOPIC, 0)
        brokers.signal(leader, signal.SIGTERM)
        brokers.signal(leader, signal.SIGTERM)
        assert brokers.stop(leader) == 0
        before = clients.acknowledged
        until(lambda: clients.acknowledged > before + 30, "some more records")
    check_no_client_noticed(clients)


def test_clients_do_not_notice_that_controllers_of_their_own_and_brokers_are_restarted(tmp_path: Path) -> None:
    roles = {**dict.fromkeys(CONTROLLERS, "controller"), **dict.fromkeys(BROKERS, "broker")}
    homes = {number: Home(tmp_path / f"data-{number}", roles=role) for number, role in roles.items()}
    with BrokerProcesses(tmp_path, {"broker.session.timeout.ms": "9000"}, homes) as nodes:
        nodes.create_topic(TOPIC, PARTITIONS)
        with CountingClients(nodes.bootstrap_servers, TOPIC, PARTITIONS) as clients:
            until(lambda: clients.acknowledged > 30, "the first records")
            for number in nodes.nodes:
                restart(nodes, number)
            before = clients.acknowledged
            until(lambda: clients.acknowledged > before + 30, "some more records")
        check_no_client_noticed(clients)
        assert not nodes.complaints()

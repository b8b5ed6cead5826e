"""The offsets at which the reader of a push query starts and ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pessoa.client.topic_creation import TopicSpec
from pessoa.ksql.server.kafka_clients import KafkaClients, KafkaRefused
from pessoa.ksql.server.server_config import make_config
from pessoa.ksql.server.topic_reader import SourceReader
from pessoa.testing import Broker


@pytest.fixture
def clients(broker: Broker, tmp_path: Path) -> Iterator[KafkaClients]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "pessoa.home": str(tmp_path)}
    clients = KafkaClients(make_config(settings))
    yield clients
    clients.close()


@pytest.fixture
def topic(clients: KafkaClients, name: str) -> str:
    clients.create_topic(TopicSpec(name, partitions=1))
    return name


def write(broker: Broker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def first_value(reader: SourceReader) -> bytes | None:
    deadline = time.monotonic() + 30
    for batch in reader.read():
        if batch:
            return batch[0].value
        assert time.monotonic() < deadline, "nothing was read"
    return None


def test_a_reader_from_latest_reads_what_is_written_after_it_was_opened(
    broker: Broker, clients: KafkaClients, topic: str
) -> None:
    write(broker, topic, b"before")
    reader = SourceReader(clients, {topic: False}, "reader")
    reader.open()
    write(broker, topic, b"behind open")
    assert first_value(reader) == b"behind open"


def test_a_reader_to_the_end_of_an_empty_topic_ends(clients: KafkaClients, topic: str) -> None:
    reader = SourceReader(clients, {topic: True}, "reader", to_end=True)
    reader.open()
    assert [batch for batch in reader.read() if batch] == []


def test_a_reader_of_a_missing_topic_does_not_open(clients: KafkaClients, name: str) -> None:
    with pytest.raises(KafkaRefused, match="does not exist"):
        SourceReader(clients, {name: True}, "reader").open()

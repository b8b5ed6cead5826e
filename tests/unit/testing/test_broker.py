"""The broker that runs inside a test."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Broker

TIMEOUT_S = 60


def create(broker: Broker, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(TIMEOUT_S)


def produce(broker: Broker, topic: str, values: list[bytes]) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "1"})
    for value in values:
        producer.produce(topic, value, partition=0, callback=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(values)


def read(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), TIMEOUT_S)
            assert messages, f"{len(found)} of {count} records came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_what_is_produced_is_consumed_and_survives_a_restart(where: str, tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(100)]
    with Broker(directory=tmp_path / "broker" if where == "disk" else None) as broker:
        create(broker, "orders")
        produce(broker, "orders", values)
        assert read(broker, "orders", 100) == values
        before = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == before
        produce(broker, "orders", [b"after"])
        assert read(broker, "orders", 101) == [*values, b"after"]


def test_two_brokers_in_one_process_are_independent() -> None:
    with Broker() as one, Broker() as other:
        create(one, "only-here")
        metadata = AdminClient({"bootstrap.servers": other.bootstrap_servers}).list_topics(timeout=TIMEOUT_S)
        assert "only-here" not in metadata.topics


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_hundred_brokers_leave_no_thread_no_socket_and_no_file_behind(tmp_path: Path) -> None:
    with Broker():
        pass
    threads, descriptors = threading.active_count(), open_descriptors()
    for number in range(100):
        with Broker(directory=tmp_path / "data" if number % 2 else None):
            pass
    assert threading.active_count() == threads
    # Sockets are descriptors too.
    assert open_descriptors() <= descriptors
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_wrong_setting_stops_the_start_with_its_key_and_what_is_allowed() -> None:
    before = set(threading.enumerate())
    with pytest.raises(Exception, match=r"num\.partitions=many"), Broker({"num.partitions": "many"}):
        pass
    assert not [thread for thread in threading.enumerate() if thread not in before]


def test_a_mistake_in_the_broker_fails_the_test_with_its_own_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from pessoa.broker.apis import metadata

    was_asked = threading.Event()

    def mistaken(*_: object) -> None:
        was_asked.set()
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(metadata.ROW, "handle", mistaken)
    broker = Broker()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + TIMEOUT_S
    while not was_asked.is_set():
        assert time.monotonic() < deadline, "the handler was never called"
        with pytest.raises(Exception, match="Failed to get metadata"):
            admin.list_topics(timeout=0.5)
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        broker.stop()


def test_the_fixtures_give_a_broker_and_a_topic(kafka: Broker, kafka_topic: str) -> None:
    produce(kafka, kafka_topic, [b"hello"])
    assert read(kafka, kafka_topic, 1) == [b"hello"]

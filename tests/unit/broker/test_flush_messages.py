"""`flush.messages`: an append is acknowledged when it is synced."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Broker

TIMEOUT_S = 60


def test_with_flush_messages_1_every_acknowledged_record_is_below_the_recovery_point(tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "broker") as broker:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap_servers, "acks": "1"}
        admin = AdminClient(settings)
        topics = [NewTopic("careful", 1, 1, config={"flush.messages": "1"}), NewTopic("usual", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result(TIMEOUT_S)
        producer = Producer(settings)
        for number in range(20):
            for topic in ("careful", "usual"):
                producer.produce(topic, b"%d" % number)
            assert producer.flush(TIMEOUT_S) == 0
        assert broker.inspect(lambda one: one.services.replicas.by_name["careful"][0].log.unflushed_count) == 0
        assert broker.inspect(lambda one: one.services.replicas.by_name["usual"][0].log.unflushed_count) == 20

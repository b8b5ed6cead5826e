"""A producer that was replaced writes nothing any more, also when the coordinator that replaced it is dead by then."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.chaos.checks import read_all
from tests.chaos.load import EAGER, patiently
from tests.chaos.processes import TIMEOUT_S, BrokerProcesses


def transactional(brokers: BrokerProcesses) -> Producer:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "transactional.id": "one", **EAGER})
    patiently(lambda: producer.init_transactions(TIMEOUT_S))
    return producer


def test_a_zombie_is_fenced_by_its_successor_over_the_death_of_every_broker(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path) as brokers:
        brokers.create_topic("t", 1)
        zombie = transactional(brokers)
        zombie.begin_transaction()
        zombie.produce("t", b"of the zombie")
        assert zombie.flush(TIMEOUT_S) == 0
        successor = transactional(brokers)
        brokers.kill(*brokers)
        brokers.start_all()
        with pytest.raises(KafkaException) as refused:
            patiently(lambda: zombie.commit_transaction(TIMEOUT_S))
        assert refused.value.args[0].fatal()
        successor.begin_transaction()
        successor.produce("t", b"of the successor")
        patiently(lambda: successor.commit_transaction(TIMEOUT_S))
        [records] = read_all(brokers, ("t",), "read_committed", partitions=1).values()
        assert list(records.values()) == [b"of the successor"]

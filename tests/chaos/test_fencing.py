"""Fenced producers and voters without their state do not act.

A fenced producer writes nothing, also when the coordinator that fenced it was killed. A voter that does not know for
which candidate it has voted does not start, because it might vote twice; with an empty disk it is a new voter.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException, Producer

from tests.chaos.checks import read_all
from tests.chaos.faults import lose_the_disk, spoil_quorum_state
from tests.chaos.load import EAGER, retry_transient_errors
from tests.chaos.processes import TIMEOUT_S, BrokerProcesses


def transactional(brokers: BrokerProcesses) -> Producer:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "transactional.id": "one", **EAGER})
    retry_transient_errors(lambda: producer.init_transactions(TIMEOUT_S))
    return producer


def test_a_fenced_producer_stays_fenced_after_every_broker_was_killed(tmp_path: Path) -> None:
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
            retry_transient_errors(lambda: zombie.commit_transaction(TIMEOUT_S))
        assert refused.value.args[0].fatal()
        successor.begin_transaction()
        successor.produce("t", b"of the successor")
        retry_transient_errors(lambda: successor.commit_transaction(TIMEOUT_S))
        [records] = read_all(brokers, ("t",), "read_committed", partitions=1).values()
        assert list(records.values()) == [b"of the successor"]


def test_a_voter_with_an_unreadable_quorum_state_does_not_start_and_rejoins_with_an_empty_disk(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path) as brokers:
        brokers.create_topic("t", 1)
        brokers.kill(1)
        spoil_quorum_state(brokers.data(1), Random(1))
        brokers.start(1)
        assert brokers.wait_for_end(1) != 0
        assert "could vote twice in one epoch" in brokers.log_text(1)
        lose_the_disk(brokers.data(1), Random(1))
        brokers.start(1)
        brokers.wait_until_in_sync()

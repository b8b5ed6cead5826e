"""Disks that are swapped, one of two disks that fails, and a topic that is created again while a broker is down."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tests.chaos.checks import check_replicas_are_equal, read_all
from tests.chaos.disks import Disks, why_no_disks
from tests.chaos.load import EAGER
from tests.chaos.processes import BROKERS, TIMEOUT_S, BrokerProcesses, Home, until


def produce(brokers: BrokerProcesses, topic: str, values: range, partitions: int = 1) -> None:
    """Produce the values with acks=all until all are acknowledged."""
    failed = []
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "enable.idempotence": True, **EAGER})
    for number in values:
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def values(brokers: BrokerProcesses, topic: str, partitions: int = 1) -> list[int]:
    found = read_all(brokers, (topic,), "read_committed", partitions)
    return sorted(int(value) for records in found.values() for value in records.values())


def swap_disks(brokers: BrokerProcesses, one: int, other: int) -> None:
    aside = brokers.data(one).with_name("aside")
    brokers.data(one).rename(aside)
    brokers.data(other).rename(brokers.data(one))
    aside.rename(brokers.data(other))


def test_brokers_whose_disks_were_swapped_do_not_start_and_lose_no_record(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path) as brokers:
        brokers.create_topic("t", 1)
        produce(brokers, "t", range(100))
        brokers.kill(1, 2)
        swap_disks(brokers, 1, 2)
        for number, owner in ((1, 2), (2, 1)):
            brokers.start(number)
            assert brokers.wait_for_end(number) != 0
            assert f"belongs to node {owner}, but node.id is {number}" in brokers.log_tail(number)
            assert "Traceback" not in brokers.log_text(number)
        swap_disks(brokers, 1, 2)
        brokers.start_all()
        assert values(brokers, "t") == list(range(100))


def test_a_broker_with_one_of_two_disks_failed_keeps_leading_the_partitions_of_the_other(tmp_path: Path) -> None:
    reason = why_no_disks()
    if reason is not None:
        pytest.skip(reason)
    with Disks(tmp_path, (1,)) as disks:
        good, bad = tmp_path / "data-1", disks.path(1) / "data"
        homes = {number: Home(tmp_path / f"data-{number}") for number in BROKERS}
        homes[1].settings = {"log.dirs": f"{good},{bad}", "metadata.log.dir": str(good)}
        with BrokerProcesses(tmp_path, homes=homes) as brokers:
            brokers.create_topic("t", 6)
            produce(brokers, "t", range(600), partitions=6)
            placed = {number for number in range(6) if (bad / f"t-{number}").exists()}
            assert 0 < len(placed) < 6

            disks.fail(1)
            produce(brokers, "t", range(600, 1200), partitions=6)

            def in_sync() -> set[int]:
                return {one.id for one in brokers.metadata().topics["t"].partitions.values() if 1 in one.isrs}

            until(lambda: in_sync() == set(range(6)) - placed, "broker 1 in sync where its disk works, and there alone")
            produce(brokers, "t", range(1200, 1800), partitions=6)
            brokers.kill(1)
            disks.repair(1)
            brokers.start(1)
            brokers.wait_until_in_sync()
            assert values(brokers, "t", partitions=6) == list(range(1800))


def test_a_broker_that_was_down_has_the_new_topic_when_a_topic_was_deleted_and_created_again(
    tmp_path: Path,
) -> None:
    with BrokerProcesses(tmp_path) as brokers:
        brokers.create_topic("t", 1)
        produce(brokers, "t", range(100))
        brokers.kill(3)
        until(lambda: 3 not in brokers.metadata().topics["t"].partitions[0].isrs, "a topic without broker 3")
        admin = brokers.admin()
        admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
        until(lambda: "t" not in brokers.metadata().topics, "no topic")
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2, 3]])])["t"].result(TIMEOUT_S)
        until(lambda: "t" in brokers.metadata().topics, "the topic again")
        produce(brokers, "t", range(1000, 1050))
        brokers.start(3)
        check_replicas_are_equal(brokers)
        assert values(brokers, "t") == list(range(1000, 1050))

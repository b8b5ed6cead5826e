"""The textbook case of Kafka: three brokers, three partitions, three replicas of each; one broker is killed.

And the output of Apache's own tools about such a cluster, because that is what users read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.apache.broker import run_tool
from tests.apache.tool_server import ToolServer
from tests.chaos.processes import IMPATIENT, TIMEOUT_S, BrokerProcesses, until

# Runs one of Apache's tools against the cluster, which must succeed, and returns its output.
Run = Callable[..., str]


class Row(NamedTuple):
    """A line of `kafka-topics --describe`."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]


def rows(described: str) -> list[Row]:
    found = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", described)
    return [Row(int(one), int(leader), numbers(replicas), numbers(isr)) for one, leader, replicas, isr in found]


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path) as running:
        yield running


def ours(tool: str, brokers: BrokerProcesses, *arguments: str) -> str:
    """Run one of our own tools, which must succeed, and return its output."""
    command = [
        sys.executable,
        "-m",
        "pessoa.cli.tools",
        tool,
        "--bootstrap-server",
        brokers.bootstrap_servers,
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def produce(brokers: BrokerProcesses, topic: str, values: range, partitions: int, size: int = 0) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "acks": "all", **IMPATIENT})
    for value in values:
        producer.produce(topic, str(value).rjust(size), partition=value % partitions)
    assert producer.flush(TIMEOUT_S) == 0


def test_leaders_are_spread_and_move_when_a_broker_dies_and_the_consumer_continues(brokers: BrokerProcesses) -> None:
    ours("kafka-topics", brokers, "--create", "--topic", "picture", "--partitions", "3", "--replication-factor", "3")
    described = rows(ours("kafka-topics", brokers, "--describe", "--topic", "picture"))
    assert sorted(row.leader for row in described) == [1, 2, 3]
    assert all(sorted(row.replicas) == [1, 2, 3] == sorted(row.isr) for row in described)
    words = ["--bootstrap-server", brokers.bootstrap_servers, "--topic", "picture", "--from-beginning"]
    command = [sys.executable, "-m", "pessoa.cli.tools", "kafka-console-consumer", *words, "--max-messages", "60"]
    produce(brokers, "picture", range(30), 3)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        try:
            assert consumer.stdout is not None
            before = {int(consumer.stdout.readline()) for _ in range(30)}
            assert before == set(range(30))
            victim = described[0].leader
            brokers.kill(victim)
            until(lambda: brokers.leader_of("picture", described[0].partition) != victim, "another leader")
            produce(brokers, "picture", range(30, 60), 3)
            after = {int(line) for line in consumer.stdout.read().splitlines()}
            assert after == set(range(30, 60))
        finally:
            consumer.kill()
    moved = rows(ours("kafka-topics", brokers, "--describe", "--topic", "picture"))
    assert all(row.leader != victim and victim not in row.isr and len(row.isr) == 2 for row in moved)
    brokers.start(victim)
    brokers.wait_until_in_sync()


def test_twelve_replicas_of_four_partitions_are_spread_evenly(brokers: BrokerProcesses) -> None:
    ours("kafka-topics", brokers, "--create", "--topic", "twelve", "--partitions", "4", "--replication-factor", "3")
    described = rows(ours("kafka-topics", brokers, "--describe", "--topic", "twelve"))
    assert Counter(one for row in described for one in row.replicas) == {1: 4, 2: 4, 3: 4}
    assert sorted(Counter(row.leader for row in described).values()) == [1, 1, 2]


@pytest.mark.apache
def test_apaches_tools_describe_the_quorum_and_move_replicas_and_leaders(
    brokers: BrokerProcesses, tmp_path: Path
) -> None:
    brokers.create_topic("moved", 3)
    produce(brokers, "moved", range(300), 3, size=20_000)
    with ToolServer() as tools:

        def run(tool: str, *arguments: str) -> str:
            done = tools.run(tool, "--bootstrap-server", brokers.bootstrap_servers, *arguments)
            assert done.code == 0, done.out + done.err
            return done.out

        status = run("kafka-metadata-quorum", "describe", "--status")
        assert f"LeaderId:               {brokers.controller()}" in status, status
        replication = run("kafka-metadata-quorum", "describe", "--replication").splitlines()
        roles = sorted((line.split()[0], line.split()[-1]) for line in replication[1:])
        leader = brokers.controller()
        assert roles == [(str(one), "Leader" if one == leader else "Follower") for one in (1, 2, 3)], replication
        check_reassignment(brokers, tmp_path, run)
        check_leader_election(run)
    for number in brokers:
        check_metadata_log_is_readable(brokers.data(number))


def check_reassignment(brokers: BrokerProcesses, folder: Path, run: Run) -> None:
    topics, plan, long_plan = folder / "topics.json", folder / "plan.json", folder / "long.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    generated = run(
        "kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3"
    )
    assert generated.count('"topic":"moved"') == 6, generated
    plan.write_text(plan_of({0: [1, 2], 1: [2, 3], 2: [3, 1]}))
    assert "Successfully started" in run(
        "kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan)
    )
    until(
        lambda: (
            run("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan)).count("completed") == 3
        ),
        "three reassignments",
    )
    described = rows(run("kafka-topics", "--describe", "--topic", "moved"))
    assert [row.replicas for row in described] == [[1, 2], [2, 3], [3, 1]]
    # At this rate the move to broker 3 would take hours; it is cancelled.
    long_plan.write_text(plan_of({0: [1, 3]}))
    slowly = ("--execute", "--throttle", "1000", "--reassignment-json-file", str(long_plan))
    run("kafka-reassign-partitions", *slowly)
    assert "moved-0" in run("kafka-reassign-partitions", "--list")
    run("kafka-reassign-partitions", "--cancel", "--reassignment-json-file", str(long_plan))
    assert "No partition reassignments found" in run("kafka-reassign-partitions", "--list")
    assert rows(run("kafka-topics", "--describe", "--topic", "moved"))[0].replicas == [1, 2]
    brokers.wait_until_in_sync()


def check_leader_election(run: Run) -> None:
    run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    described = rows(run("kafka-topics", "--describe", "--topic", "moved"))
    assert [row.leader for row in described] == [1, 2, 3]


def check_metadata_log_is_readable(data: Path) -> None:
    """Assert that Apache's decoder reads every record of our metadata log, on the leader and on the followers."""
    [log] = (data / "__cluster_metadata-0").glob("0*.log")
    told = run_tool(
        "kafka-dump-log", "--cluster-metadata-decoder", "--skip-record-metadata", "--files", log, check=True
    )
    kinds = Counter(re.findall(r'"type":"(\w+)"', told.stdout))
    assert kinds["REGISTER_BROKER_RECORD"] >= 3, told.stdout
    assert kinds["PARTITION_RECORD"] >= 3
    assert kinds["PARTITION_CHANGE_RECORD"] >= 1


def plan_of(replicas: dict[int, list[int]]) -> str:
    partitions = [{"topic": "moved", "partition": one, "replicas": where} for one, where in replicas.items()]
    return json.dumps({"version": 1, "partitions": partitions})

"""Voters are added and removed with Kafka's commands while a cluster of processes runs.

three voters ─▶ a fourth is added ─▶ the leader is removed ─▶ three voters; no acknowledged record is lost

Once with our tools on a quorum that was formatted with --initial-controllers, and once with Apache's tools on a static
quorum (controller.quorum.voters) whose kraft.version is raised.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.apache.broker import reserve_port
from tests.apache.tool_server import Outcome, ToolServer
from tests.support.logged_process import LoggedProcess, pessoa
from tests.tools.stage import run_ours

TIMEOUT_S = 180.0
QUIET = {"log_level": 0}
Run = Callable[..., Outcome]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT_S:.0f} s"
        time.sleep(0.05)


class Nodes:
    """Combined nodes as `pessoa broker` processes; `run` runs our tools or Apache's on them."""

    def __init__(self, directory: Path, run: Run) -> None:
        self.directory = directory
        self._run = run
        self.ports = {number: (reserve_port(), reserve_port()) for number in (1, 2, 3, 4)}
        self._processes: dict[int, LoggedProcess] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._processes)

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[number][0]}" for number in self._processes)

    def controller(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number][1]}"

    def configure(self, number: int, **settings: str) -> Path:
        path = self.directory / f"{number}.properties"
        common = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number][0]},CONTROLLER://{self.controller(number)}",
            "log.dirs": str(self.directory / f"data-{number}"),
            "offsets.topic.num.partitions": "1",
            # On a busy machine a node may be slow; it must not be taken as failed.
            "controller.quorum.fetch.timeout.ms": "4000",
            "controller.quorum.request.timeout.ms": "8000",
            "broker.session.timeout.ms": "30000",
        }
        given = {key.replace("_", "."): value for key, value in settings.items()}
        path.write_text("".join(f"{key}={value}\n" for key, value in (common | given).items()))
        return path

    def start(self, *numbers: int) -> None:
        """Start nodes and wait until all are ready; none is ready before a majority runs."""
        for number in numbers:
            command = pessoa("broker", "--config", self.directory / f"{number}.properties")
            self._processes[number] = LoggedProcess(command, self.directory / f"{number}.log", name=f"node {number}")
            self._processes[number].start()
        for number in numbers:
            self._processes[number].wait_for("is ready")

    def stop(self, number: int) -> None:
        assert self._processes.pop(number).stop() == 0

    def close(self) -> None:
        for process in self._processes.values():
            process.close()

    # Reading the state of the quorum with tools.

    def tool(self, name: str, *words: str | Path) -> str:
        outcome = self._run(name, *map(str, words))
        assert outcome.code == 0, f"{name} {words}: {outcome.out}{outcome.err}"
        return outcome.out

    def quorum(self, *words: str | Path) -> str:
        return self.tool("kafka-metadata-quorum", "--bootstrap-server", self.servers, *words)

    def voters(self) -> list[int]:
        status = self.quorum("describe", "--status")
        line = next(one for one in status.splitlines() if one.startswith("CurrentVoters"))
        return [int(found) for found in re.findall(r'"id": (\d+)', line)]

    def replicas(self) -> dict[int, tuple[str, str]]:
        """Return the directory id and the status (Leader, Follower, Observer) of each node."""
        rows = [line.split() for line in self.quorum("describe", "--replication").splitlines()[1:]]
        return {int(row[0]): (row[1], row[-1]) for row in rows}

    def leader(self) -> int:
        return next(number for number, (_, status) in self.replicas().items() if status == "Leader")

    def have_voters_in_the_log(self) -> bool:
        features = self.tool("kafka-features", "--bootstrap-server", self.servers, "describe")
        return re.search(r"kraft.version\s.*FinalizedVersionLevel: 1\s", features) is not None

    # Records that must not be lost.

    def write(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        admin.create_topics([NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})])[topic].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", **QUIET})
        for number in range(20):
            producer.produce(topic, str(number))
        assert producer.flush(TIMEOUT_S) == 0

    def read(self, topic: str) -> list[int]:
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "reader", "enable.partition.eof": True, **QUIET}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                value = message.value()
                if error is None and value is not None:
                    found.append(int(value))
        finally:
            consumer.close()
        raise AssertionError(f"the end of {topic} was not reached")

    def remove(self, number: int) -> None:
        directory, _ = self.replicas()[number]
        self.quorum("remove-controller", "--controller-id", str(number), "--controller-directory-id", directory)
        until(lambda: self.leader() != number, f"another controller than {number} leads")


def test_a_fourth_controller_is_added_and_the_leader_removed_and_nothing_is_lost(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, run_ours)
    cluster_id, *ids = (nodes.tool("kafka-storage", "random-uuid").strip() for _ in range(4))
    bootstrap = ",".join(nodes.controller(number) for number in (1, 2, 3))
    first = ",".join(f"{number}@{nodes.controller(number)}:{ids[number - 1]}" for number in (1, 2, 3))
    for number in (1, 2, 3, 4):
        path = nodes.configure(number, controller_quorum_bootstrap_servers=bootstrap)
        choice = ("--initial-controllers", first) if number < 4 else ("--no-initial-controllers",)
        nodes.tool("kafka-storage", "format", "-t", cluster_id, "-c", path, *choice)
    try:
        nodes.start(1, 2, 3)
        assert nodes.voters() == [1, 2, 3]
        nodes.write("before")
        nodes.start(4)
        assert nodes.replicas()[4][1] == "Observer"
        nodes.quorum("--command-config", tmp_path / "4.properties", "add-controller")
        assert nodes.voters() == [1, 2, 3, 4]
        nodes.write("with-four")
        leader = nodes.leader()
        nodes.remove(leader)
        assert nodes.voters() == [number for number in (1, 2, 3, 4) if number != leader]
        nodes.write("with-three")
        # The other nodes have all records of the removed voter.
        nodes.stop(leader)
        nodes.write("without-it")
        for topic in ("before", "with-four", "with-three", "without-it"):
            assert nodes.read(topic) == list(range(20))
    finally:
        nodes.close()


@pytest.mark.apache
def test_apaches_tools_make_a_static_quorum_dynamic_and_change_its_voters(tmp_path: Path, tools: ToolServer) -> None:
    nodes = Nodes(tmp_path, tools.run)
    voters = ",".join(f"{number}@{nodes.controller(number)}" for number in (1, 2, 3))
    for number in (1, 2, 3):
        nodes.configure(number, controller_quorum_voters=voters)
    bootstrap = ",".join(nodes.controller(number) for number in (1, 2, 3))
    nodes.configure(4, controller_quorum_bootstrap_servers=bootstrap, controller_quorum_auto_join_enable="true")
    try:
        nodes.start(1, 2, 3)
        nodes.write("before")
        nodes.tool("kafka-features", "--bootstrap-server", nodes.servers, "upgrade", "--feature", "kraft.version=1")
        until(nodes.have_voters_in_the_log, "whichever broker is asked knows of the new kraft.version")
        nodes.start(4)
        until(lambda: nodes.voters() == [1, 2, 3, 4], "the fourth has joined by itself")
        leader = nodes.leader()
        nodes.remove(leader)
        nodes.write("with-three")
        assert nodes.voters() == [number for number in (1, 2, 3, 4) if number != leader]
        nodes.quorum("--command-config", tmp_path / f"{leader}.properties", "add-controller")
        assert nodes.voters() == [1, 2, 3, 4]
        for topic in ("before", "with-three"):
            assert nodes.read(topic) == list(range(20))
    finally:
        nodes.close()

"""Processes of every combination of roles, as a user starts them: `pessoa broker --config server.properties`.

Isolated controllers and brokers, combined nodes, and mixtures; static and dynamic quorums. Under load the active
controller and a leader are killed, and all controllers are restarted one after another.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cluster.conftest import QUIET, check_nothing_lost, producing, read_all, until
from tests.support.role_processes import Layout, RoleProcesses, wait_for

BROKER, CONTROLLER, BOTH = "broker", "controller", "broker,controller"
THREE_AND_THREE = {1: BROKER, 2: BROKER, 3: BROKER, 11: CONTROLLER, 12: CONTROLLER, 13: CONTROLLER}
LAYOUTS: dict[str, Callable[[], Layout]] = {
    "controllers-and-brokers": lambda: Layout(THREE_AND_THREE),
    "controllers-and-brokers-with-dynamic-voters": lambda: Layout(THREE_AND_THREE, dynamic_voters=True),
    "combined": lambda: Layout({1: BOTH, 2: BOTH, 3: BOTH}),
    "mixed": lambda: Layout({1: BOTH, 2: BROKER, 3: BROKER, 12: CONTROLLER, 13: CONTROLLER}),
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Layout:
    return LAYOUTS[request.param]()


class Topic:
    """A topic with a replica on every broker, and the metadata that clients get about its one partition."""

    def __init__(self, nodes: RoleProcesses, name: str) -> None:
        self.name = name
        self._admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, "socket.timeout.ms": 2_000, **QUIET})
        nodes.tool("kafka-topics", "--bootstrap-server", nodes.bootstrap_servers, "--create", "--topic", name,
                   "--partitions", "1", "--replication-factor", "3", "--config", "min.insync.replicas=2")  # fmt: skip

    @property
    def leader(self) -> int:
        return int(self._admin.list_topics(self.name, timeout=30).topics[self.name].partitions[0].leader)

    def wait_until_in_sync(self) -> None:
        def is_so() -> bool:
            partition = self._admin.list_topics(self.name, timeout=30).topics[self.name].partitions[0]
            return len(partition.isrs) == 3

        until(is_so, "all replicas in sync")


def check_quorum(nodes: RoleProcesses) -> None:
    """Check that brokers and controllers report the same quorum: the voters, and all other nodes as observers."""
    for way in nodes.bootstrap_options():
        assert nodes.voters(way) == nodes.layout.controllers, way
        replicas = nodes.replicas(way)
        assert sorted(replicas) == sorted(nodes), way
        observers = [number for number, (_, status) in replicas.items() if status == "Observer"]
        assert sorted(observers) == sorted(set(nodes.layout.brokers) - set(nodes.layout.controllers)), way
    listed = nodes.tool("kafka-cluster", "list-endpoints", "--bootstrap-controller", nodes.bootstrap_controllers)
    assert [int(line.split()[0]) for line in listed.splitlines()[1:]] == nodes.layout.controllers


def test_nothing_is_lost_when_controller_and_leader_are_killed_and_the_controllers_restart_in_turn(
    tmp_path: Path, layout: Layout
) -> None:
    with RoleProcesses(tmp_path, layout) as nodes:
        topic = Topic(nodes, "t")
        check_quorum(nodes)
        with producing(nodes, "t") as producer:
            producer.wait_for(50)
            for victim in (nodes.active_controller(), topic.leader):
                nodes.kill(victim)
                producer.wait_for(20)
                nodes.start(victim)
                topic.wait_until_in_sync()
            for controller in layout.controllers:
                assert nodes.stop(controller) == 0
                producer.wait_for(20)
                nodes.start(controller)
                topic.wait_until_in_sync()
        check_nothing_lost(producer, read_all(nodes, "t", 1))
        check_quorum(nodes)
        # The tools see what librdkafka has written, and the other way round.
        nodes.tool("kafka-console-producer", "--bootstrap-server", nodes.bootstrap_servers, "--topic", "t",
                   stdin="by a tool\n")  # fmt: skip
        told = nodes.tool("kafka-console-consumer", "--bootstrap-server", nodes.bootstrap_servers, "--topic", "t",
                          "--from-beginning", "--max-messages", str(len(producer.acked) + 1))  # fmt: skip
        assert told.splitlines()[-1] == "by a tool"


def test_controller_only_nodes_are_added_and_removed_through_the_controller_listener(tmp_path: Path) -> None:
    layout = LAYOUTS["controllers-and-brokers-with-dynamic-voters"]()
    with RoleProcesses(tmp_path, layout) as nodes:
        Topic(nodes, "t")
        nodes.add_controller(14)
        through = ("--bootstrap-controller", nodes.bootstrap_controllers)
        nodes.quorum("--command-config", nodes.properties_path(14), "add-controller", through=through)
        assert nodes.voters(through) == [11, 12, 13, 14]
        leader = nodes.active_controller()
        directory, _ = nodes.replicas(through)[leader]
        words = ("--controller-id", str(leader), "--controller-directory-id", directory)
        nodes.quorum("remove-controller", *words, through=through)
        wait_for(lambda: nodes.active_controller() != leader, "another controller leads")
        # A process that is no voter any more goes on as an observer, and stops like any other.
        assert nodes.replicas()[leader][1] == "Observer"
        assert nodes.stop(leader) == 0
        with producing(nodes, "t") as producer:
            producer.wait_for(20)
        Topic(nodes, "after")
        assert nodes.voters() == [number for number in (11, 12, 13, 14) if number != leader]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_that_still_waits_for_the_other_controllers(tmp_path: Path, how: signal.Signals) -> None:
    """Neither a controller without a majority nor a broker without a controller keeps its process alive."""
    nodes = RoleProcesses(tmp_path, Layout({1: BROKER, 11: CONTROLLER, 12: CONTROLLER, 13: CONTROLLER}))
    try:
        for number in (1, 11):
            nodes.configure(number)
            nodes.launch(number)
        wait_for(lambda: "listening on CONTROLLER" in nodes.log_text(11), "the controller listens")
        wait_for(lambda: "listening on PLAINTEXT" in nodes.log_text(1), "the broker listens")
        assert nodes.stop(1, how) == 0
        assert nodes.stop(11, how) == 0
        assert not any(" is ready" in nodes.log_text(number) for number in (1, 11))
    finally:
        nodes.close()


def test_a_controller_only_node_applies_its_dynamic_configs_and_logger_levels(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path, Layout({1: BROKER, 11: CONTROLLER})) as nodes:
        there = ("--bootstrap-controller", nodes.bootstrap_controllers)

        def configs(*words: str) -> str:
            return nodes.tool("kafka-configs", *there, *words)

        own = ("--entity-type", "brokers", "--entity-name", "11")
        configs(*own, "--alter", "--add-config", "max.connections=55")
        assert "max.connections=55" in configs(*own, "--describe")
        # What was set for a new cluster from its beginning.
        assert "min.insync.replicas=1" in configs("--entity-type", "brokers", "--entity-default", "--describe")
        configs("--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", "max.connections=56")
        loggers = ("--entity-type", "broker-loggers", "--entity-name", "11")
        configs(*loggers, "--alter", "--add-config", "pessoa.net=DEBUG")
        assert "pessoa.net=DEBUG" in configs(*loggers, "--describe")
        # After a restart it still knows what was set for it.
        assert nodes.stop(11, signal.SIGINT) == 0
        nodes.start(11)
        assert "max.connections=55" in configs(*own, "--describe")
        for way in nodes.bootstrap_options():
            assert "metadata.version" in nodes.tool("kafka-features", *way, "describe")
            assert "Cluster ID: " in nodes.tool("kafka-cluster", "cluster-id", *way)

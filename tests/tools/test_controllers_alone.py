"""Our tools and Apache's with --bootstrap-controller, and on nodes with one role each.

With --bootstrap-controller Java's Admin talks to a controller: the output of each command is compared with that on
Apache Kafka.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache.broker import ApacheKafka
from tests.apache.tool_server import Outcome, ToolServer
from tests.support.role_processes import Layout, RoleProcesses, Run
from tests.tools.stage import THEIRS, Cluster, normalised, run_ours

BROKER, CONTROLLER, BOTH = "broker", "controller", "broker,controller"

# @W is first the listener of the broker, then that of the controller. Each cluster is one combined node, formatted by
# Apache's tool for Kafka 4.2: metadata.version can be lowered from there as long as no record format has changed.
SAME_OUTPUT = """
kafka-features @W describe
kafka-features @W downgrade --feature metadata.version=28 --dry-run
kafka-features @W downgrade --feature metadata.version=24
kafka-features @W downgrade --feature metadata.version=23 --unsafe
kafka-features @W describe
kafka-features @W upgrade --feature metadata.version=30
kafka-metadata-quorum @W describe --status
kafka-metadata-quorum @W describe --replication
kafka-cluster cluster-id @W
kafka-cluster list-endpoints @W
kafka-features @W describe
kafka-features @W describe --node-id 1
kafka-configs @W --entity-type brokers --entity-default --describe
kafka-configs @W --entity-type brokers --entity-name 1 --alter --add-config max.connections=55
kafka-configs @W --entity-type brokers --entity-name 1 --describe
kafka-configs @W --entity-type brokers --entity-default --alter --add-config max.connections=57
kafka-configs @W --entity-type brokers --describe
kafka-configs @W --entity-type broker-loggers --entity-name 1 --alter --add-config root=DEBUG
kafka-configs @W --entity-type broker-loggers --entity-name 1 --alter --add-config root=INFO
kafka-configs @W --entity-type groups --entity-name g --alter --add-config consumer.session.timeout.ms=50000
kafka-features @W downgrade --feature group.version=0
kafka-features @W describe
kafka-features @W upgrade --feature group.version=1
kafka-features @W disable --feature transaction.version --dry-run
kafka-features @W disable --feature transaction.version
kafka-features @W upgrade --feature transaction.version=2
kafka-features @W disable --feature eligible.leader.replicas.version
kafka-features @W upgrade --feature eligible.leader.replicas.version=1
kafka-features @W downgrade --feature kraft.version=0
kafka-features @W upgrade --feature metadata.version=30
kafka-features @W upgrade --release-version 4.3 --dry-run
"""
# Both refuse these; the messages may differ.
REFUSED = """
kafka-features @W upgrade --feature metadata.version=29
kafka-features @W disable --feature kraft.version --feature nix
kafka-features @W downgrade --feature metadata.version=29
kafka-features @W downgrade --feature metadata.version=29 --dry-run
kafka-features @W downgrade --feature metadata.version=29 --unsafe
kafka-features @W downgrade --feature metadata.version=7
kafka-features @W downgrade --release-version 4.2
kafka-features @W disable --feature metadata.version
kafka-features @W upgrade --feature nix=1
kafka-features @W upgrade --feature metadata.version=99
kafka-features @W upgrade --feature share.version=2 --dry-run
kafka-configs @W --entity-type broker-loggers --entity-name 1 --alter --add-config nix=DEBUG
kafka-configs @W --entity-type topics --entity-name t --alter --add-config retention.ms=5
kafka-cluster unregister @W --id 9
kafka-metadata-quorum @W remove-controller --controller-id 1 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ
"""


_PORT = re.compile(r"(?<=127\.0\.0\.1[ :])\d+")


def ask(tools: ToolServer, cluster: Cluster, line: str) -> Iterator[tuple[str, Outcome]]:
    for way in (f"--bootstrap-server {cluster.servers}", f"--bootstrap-controller {cluster.controllers}"):
        outcome = normalised(tools.run(*line.replace("@W", way).split()), cluster, THEIRS)
        yield f"{line} ({way.split()[0]})", outcome._replace(out=_PORT.sub("<port>", outcome.out))


def ask_until_stable(tools: ToolServer, cluster: Cluster, line: str) -> list[tuple[str, Outcome]]:
    """Repeat a describe command until its output is stable: a broker applies a change after the controller's answer."""
    found = list(ask(tools, cluster, line))
    if " describe" in line or "--describe" in line:
        deadline = time.monotonic() + 10
        while (again := list(ask(tools, cluster, line))) != found and time.monotonic() < deadline:
            found = again
    return found


@pytest.mark.apache
def test_apaches_tools_get_the_same_answers_from_our_controller_as_from_apaches(
    tmp_path: Path, tools: ToolServer
) -> None:
    release = ("--release-version", "4.2")
    with (
        ApacheKafka(format_words=release) as kafka,
        RoleProcesses(tmp_path, Layout({1: BOTH}, format_words=release), tools.run) as nodes,
    ):
        theirs = Cluster(kafka.bootstrap_servers, f"127.0.0.1:{kafka.nodes[0].controller_port}")
        ours = Cluster(nodes.bootstrap_servers, nodes.bootstrap_controllers)
        for line in SAME_OUTPUT.strip().splitlines():
            assert ask_until_stable(tools, ours, line) == ask_until_stable(tools, theirs, line)
        for line in REFUSED.strip().splitlines():
            for (name, expected), (_, found) in zip(ask(tools, theirs, line), ask(tools, ours, line), strict=True):
                assert expected.code == found.code == 1, f"{name}: {expected} {found}"


@pytest.mark.parametrize("whose", ["ours", pytest.param("apaches", marks=pytest.mark.apache)])
def test_offsets_are_reset_while_a_broker_has_stopped_and_another_partition_has_no_leader(
    tmp_path: Path, tools: ToolServer, whose: str
) -> None:
    """The group is the first one, so __consumer_offsets is created, with a replica on the stopped broker."""
    run: Run = run_ours if whose == "ours" else tools.run
    roles = {1: BROKER, 2: BROKER, 3: BROKER, 11: CONTROLLER, 12: CONTROLLER, 13: CONTROLLER}
    with RoleProcesses(tmp_path, Layout(roles), run) as nodes:
        there = ("--bootstrap-server", nodes.bootstrap_servers)
        nodes.tool("kafka-topics", *there, "--create", "--topic", "t", "--replica-assignment", "1,2,3")
        assert nodes.stop(2) == 0
        reset = ("kafka-consumer-groups", *there, "--group", "new", "--reset-offsets", "--to-earliest", "--execute")
        told = nodes.tool(*reset, "--topic", "t:0")
        assert re.search(r"^new +t +0 +0\s*$", told, re.MULTILINE), told
        assert 'The partitions "t-1" have no leader' in nodes.tool(*reset, "--topic", "t")
        nodes.tool("kafka-topics", *there, "--create", "--topic", "all", "--replication-factor", "3")

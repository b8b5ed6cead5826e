"""Partitions are reassigned between three brokers with our tools and with Apache's; all records must remain.

A test that needs an unfinished reassignment cuts the connection between the leader and the new replica.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from pessoa.testing import Cluster
from tests.apache.tool_server import Outcome, ToolServer
from tests.tools.stage import run_ours

TIMEOUT_S = 90.0
RECORDS = [f"record {number}" for number in range(300)]
ASSIGNMENT = [[1, 2], [2, 3], [3, 1]]
Run = Callable[..., Outcome]

pytestmark = pytest.mark.apache


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Only the tests move leaders, and a busy machine must not get a broker fenced.
    settings = {"auto.leader.rebalance.enable": "false", "broker.session.timeout.ms": "120000"}
    with Cluster(brokers=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture(params=["ours", "apaches"])
def run(request: pytest.FixtureRequest, tools: ToolServer) -> Run:
    return run_ours if request.param == "ours" else tools.run


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """Create a topic with three partitions on two brokers each, and records in all of them; return its name."""
    name = re.sub(r"\W", "-", request.node.name)
    made = run_ours("kafka-topics", "--bootstrap-server", cluster.bootstrap_servers, "--create", "--topic", name,
                    "--replica-assignment", ",".join(f"{one}:{other}" for one, other in ASSIGNMENT))  # fmt: skip
    assert made.code == 0, made
    sent = run_ours("kafka-console-producer", "--bootstrap-server", cluster.bootstrap_servers, "--topic", name,
                    "--batch-size", "0", stdin="".join(f"{record}\n" for record in RECORDS))  # fmt: skip
    assert sent == Outcome(0, "", "")
    for server in cluster.bootstrap_servers.split(","):
        describe = partial(run_ours, "kafka-topics", "--bootstrap-server", server, "--describe", "--topic", name)
        until(lambda describe=describe: describe().out.count("Leader: ") == len(ASSIGNMENT), f"{server} knows {name}")  # type: ignore[misc]
    return name


def plan_file(folder: Path, topic: str, replicas: dict[int, list[int]]) -> str:
    partitions = [{"topic": topic, "partition": number, "replicas": ids} for number, ids in replicas.items()]
    path = folder / f"plan-{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def partition_states(cluster: Cluster, topic: str) -> list[tuple[int, list[int], list[int]]]:
    """Return leader, replicas and ISR of each partition, as kafka-topics shows them."""
    shown = run_ours("kafka-topics", "--bootstrap-server", cluster.bootstrap_servers, "--describe", "--topic", topic)
    rows = re.findall(r"\tLeader: (\d+|none)\tReplicas: ([\d,]+)\tIsr: ([\d,]*)\t", shown.out)
    return [
        (int(leader) if leader.isdigit() else -1, [*map(int, replicas.split(","))], sorted(map(int, isr.split(","))))
        for leader, replicas, isr in rows
    ]


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def wait_until_all_brokers_list(cluster: Cluster, expected: str) -> None:
    """Wait until every broker lists these reassignments."""
    for server in cluster.bootstrap_servers.split(","):
        lists = partial(run_ours, "kafka-reassign-partitions", "--bootstrap-server", server, "--list")
        until(lambda lists=lists: lists().out == expected, f"{server} lists: {expected}")  # type: ignore[misc]


def assert_every_record_is_kept(cluster: Cluster, topic: str) -> None:
    read = run_ours("kafka-console-consumer", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic,
                    "--from-beginning", "--max-messages", str(len(RECORDS)), "--timeout-ms", "60000")  # fmt: skip
    assert sorted(read.out.splitlines()) == sorted(RECORDS), read.err
    ends = run_ours("kafka-get-offsets", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic).out.split()
    assert sum(int(line.rpartition(":")[2]) for line in ends) == len(RECORDS)


def test_partitions_move_with_a_throttle_and_keep_their_records(
    cluster: Cluster, run: Run, topic: str, tmp_path: Path
) -> None:
    def reassign(*words: str) -> Outcome:
        return run("kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap_servers, *words)

    to_move = tmp_path / "topics.json"
    to_move.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = reassign("--generate", "--topics-to-move-json-file", str(to_move), "--broker-list", "2,3")
    head, before, gap, middle, proposed = generated.out.splitlines()
    assert (head, gap, middle) == (
        "Current partition replica assignment", "", "Proposed partition reassignment configuration",
    )  # fmt: skip
    assert [one["replicas"] for one in json.loads(before)["partitions"]] == ASSIGNMENT
    assert [sorted(one["replicas"]) for one in json.loads(proposed)["partitions"]] == [[2, 3]] * 3

    wanted = [[3, 1], [1, 2], [2, 3]]
    plan = plan_file(tmp_path, topic, dict(enumerate(wanted)))
    started = reassign("--execute", "--reassignment-json-file", plan, "--throttle", "50000000")
    assert started.code == 0, started
    names = ",".join(f"{topic}-{number}" for number in range(3))
    assert f"Successfully started partition reassignments for {names}" in started.out.splitlines()
    assert "The inter-broker throttle limit was set to 50000000 B/s" in started.out.splitlines()

    verified: list[Outcome] = []

    def is_completed() -> bool:
        verified.append(reassign("--verify", "--reassignment-json-file", plan))
        assert verified[-1].code == 0, verified[-1]
        return verified[-1].out.count("is completed.") == len(wanted)

    until(is_completed, "the partitions have moved")
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified[-1].out.splitlines()
    assert f"Clearing topic-level throttles on topic {topic}" in verified[-1].out.splitlines()
    wait_until_all_brokers_list(cluster, "No partition reassignments found.\n")
    assert reassign("--list").out == "No partition reassignments found.\n"
    # Brokers learn of the end of the reassignment after the controller.
    moved = [(wanted[number], sorted(wanted[number])) for number in range(len(wanted))]
    until(lambda: [one[1:] for one in partition_states(cluster, topic)] == moved, "every broker knows where they are")
    throttles = partial(
        run_ours, "kafka-configs", "--bootstrap-server", cluster.bootstrap_servers, "--describe", "--topic", topic
    )
    until(lambda: "throttled" not in throttles().out, "every broker knows that nothing is throttled")
    assert_every_record_is_kept(cluster, topic)


def test_an_unfinished_reassignment_is_listed_not_started_twice_and_cancelled(
    cluster: Cluster, run: Run, topic: str, tmp_path: Path
) -> None:
    def reassign(*words: str) -> Outcome:
        return run("kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap_servers, *words)

    # Both other brokers still reach the controller, so none is fenced; but the new replica cannot reach its leader.
    controller = cluster.controller()
    number = ASSIGNMENT.index([(controller + 1) % 3 + 1, controller])
    leader, target = ASSIGNMENT[number][0], controller % 3 + 1
    moved = f"{topic}-{number}"
    plan = plan_file(tmp_path, topic, {number: [leader, target]})
    cluster.partition(leader, target)
    try:
        started = reassign("--execute", "--reassignment-json-file", plan)
        assert started.code == 0, started
        lists = f"replicas: {leader},{target},{controller}. adding: {target}. removing: {controller}."
        wait_until_all_brokers_list(cluster, f"Current partition reassignments:\n{moved}: {lists}\n")
        assert reassign("--list").out == f"Current partition reassignments:\n{moved}: {lists}\n"
        again = reassign("--execute", "--reassignment-json-file", plan)
        assert again.code == 1
        assert "Cannot execute because there is an existing partition assignment" in again.out
        shown = reassign("--verify", "--reassignment-json-file", plan).out
        assert f"Reassignment of partition {moved} is still in progress." in shown.splitlines()
        cancelled = reassign("--cancel", "--reassignment-json-file", plan)
        assert f"Successfully cancelled partition reassignment for: {moved}" in cancelled.out.splitlines()
        before = leader, [leader, controller], sorted([leader, controller])
        until(lambda: partition_states(cluster, topic)[number] == before, "the replicas are as they were")
        wait_until_all_brokers_list(cluster, "No partition reassignments found.\n")
        assert reassign("--list").out == "No partition reassignments found.\n"
    finally:
        cluster.heal()
        cluster.wait_until_in_sync()
    assert_every_record_is_kept(cluster, topic)


def test_leader_election_moves_leadership_back_to_the_preferred_replica(cluster: Cluster, run: Run, topic: str) -> None:
    def elect(*words: str) -> Outcome:
        return run("kafka-leader-election", "--bootstrap-server", cluster.bootstrap_servers,
                   "--election-type", "preferred", *words)  # fmt: skip

    cluster.restart(1)
    cluster.wait_until_in_sync()
    until(lambda: partition_states(cluster, topic)[0] == (2, [1, 2], [1, 2]), "another one leads")
    elected = elect("--topic", topic, "--partition", "0")
    assert elected.out == f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
    until(lambda: partition_states(cluster, topic)[0] == (1, [1, 2], [1, 2]), "the preferred leader leads")
    again = elect("--topic", topic, "--partition", "0")
    assert again.out == f"Valid replica already elected for partitions {topic}-0\n"
    assert_every_record_is_kept(cluster, topic)

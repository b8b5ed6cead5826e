"""Replicas that move between brokers and between disks, in processes, with a throttle, and with kill -9.

A throttle of one byte a second lets one chunk pass and no more: so a move stays unfinished, however slow or fast the
machine is, until the test raises the rate. The controller sets a rate and a broker applies it, so a test of a disk's
throttle waits until that broker has the rate. Removing and setting it again resets the debt, and another chunk passes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.apache.tool_server import Outcome, ToolServer
from tests.cluster.conftest import QUIET, TIMEOUT_S, check_nothing_lost, producing, read_all, until
from tests.cluster.test_processes import Processes
from tests.tools.stage import run_ours

Run = Callable[..., Outcome]
MakeMoving = Callable[[str, list[int]], "Moving"]
# More than one fetch of a follower brings, and more than one piece that is copied.
VALUES = [f"{number:02d}" * 50_000 for number in range(30)]
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    running = Processes(tmp_path_factory.mktemp("brokers"), disks=2)
    try:
        for number in running:
            running.start(number)
        running.wait_until_in_sync()
        yield running
    finally:
        running.close()


@pytest.fixture
def make_moving(processes: Processes, tmp_path: Path) -> Iterator[MakeMoving]:
    """Return a function that creates a topic, with the tool that moves it; the topics are deleted after the test."""
    made = []

    def make(topic: str, replicas: list[int]) -> Moving:
        made.append(Moving(processes, tmp_path, topic, replicas))
        return made[-1]

    yield make
    for number in processes:
        if not processes.is_running(number):
            processes.start(number)
    processes.wait_until_registered()
    for moving in made:
        moving.end()
    processes.wait_until_in_sync()


class Moving:
    """A topic of one partition, and the tool that moves its replicas."""

    def __init__(self, processes: Processes, folder: Path, topic: str, replicas: list[int]) -> None:
        self._processes = processes
        self._plan = folder / "plan.json"
        self.topic = topic
        self.server = ("--bootstrap-server", processes.bootstrap_servers)
        made = run_ours("kafka-topics", *self.server, "--create", "--topic", topic,
                        "--replica-assignment", ":".join(map(str, replicas)))  # fmt: skip
        assert made.code == 0, made
        processes.wait_until_in_sync()

    def fill(self) -> None:
        settings = {"bootstrap.servers": self._processes.bootstrap_servers, "acks": "all", "batch.num.messages": 1}
        producer = Producer({**settings, **QUIET})
        for value in VALUES:
            producer.produce(self.topic, value)
        assert producer.flush(TIMEOUT_S) == 0

    def plan(self, replicas: list[int], log_dirs: list[str] | None = None) -> None:
        part = {"topic": self.topic, "partition": 0, "replicas": replicas}
        self._plan.write_text(
            json.dumps({"version": 1, "partitions": [part if log_dirs is None else {**part, "log_dirs": log_dirs}]})
        )

    def reassign(self, *words: str, run: Run = run_ours) -> list[str]:
        done = run("kafka-reassign-partitions", *self.server, *words, "--reassignment-json-file", str(self._plan))
        assert done.code == 0, done
        return done.out.splitlines()

    def verify_until(self, line: str, run: Run = run_ours) -> list[str]:
        shown: list[list[str]] = []

        def is_so() -> bool:
            shown.append(self.reassign("--verify", run=run))
            return line in shown[-1]

        until(is_so, lambda: f"{line} in {shown[-1]}")
        return shown[-1]

    def where(self, broker: int) -> dict[str, tuple[int, bool]]:
        """Return for each directory of a broker that has the partition its size, and whether it is a future replica."""
        shown = run_ours("kafka-log-dirs", *self.server, "--describe", "--broker-list", str(broker),
                         "--topic-list", self.topic)  # fmt: skip
        assert shown.code == 0, shown
        [told] = json.loads(shown.out.splitlines()[-1])["brokers"]
        return {
            one["logDir"]: (part["size"], part["isFuture"]) for one in told["logDirs"] for part in one["partitions"]
        }

    def size(self, broker: int) -> int:
        return sum(size for size, _ in self.where(broker).values())

    def has_throttles(self) -> bool:
        return "throttled" in run_ours("kafka-configs", *self.server, "--describe", "--topic", self.topic).out

    def has_rate(self, value: str | None) -> bool:
        """Return whether broker 1 itself reports this rate for moves between its disks."""
        shown = run_ours("kafka-configs", *self.server, "--describe", "--broker", "1")
        told = RATE not in shown.out if value is None else f"{RATE}={value} " in shown.out
        return shown.code == 0 and told

    def hold(self) -> None:
        """Set the throttle of broker 1 between its disks to one byte a second, and wait until the broker has it."""
        set_so = run_ours("kafka-configs", *self.server, "--alter", "--broker", "1", "--add-config", f"{RATE}=1")
        assert set_so.code == 0, set_so
        until(lambda: self.has_rate("1"), "broker 1 knows its rate")

    def end(self) -> None:
        """End all moves and throttles, also after a failed test."""
        if self._plan.exists():
            self.reassign("--cancel")
        until(lambda: self.has_rate(None) and not self.has_throttles(), "nothing is held any more")

    def values(self) -> list[str]:
        return [value for _, _, value in read_all(self._processes, self.topic, 1)]


def test_a_throttle_limits_a_reassignment_until_it_is_raised_and_is_removed_at_the_end(
    make_moving: MakeMoving,
) -> None:
    moving = make_moving("held", [1, 2])
    moving.fill()
    moving.plan([1, 3])
    assert "The inter-broker throttle limit was set to 1 B/s" in moving.reassign("--execute", "--throttle", "1")
    until(lambda: moving.size(3) > 0, "the first piece has come")
    for _ in range(10):
        assert moving.size(3) < moving.size(1) // 2
        time.sleep(0.05)
    assert "Reassignment of partition held-0 is still in progress." in moving.reassign("--verify")
    # The broker that is asked hears of it a little after the controller has written it.
    until(moving.has_throttles, "the throttles are there")
    moving.reassign("--execute", "--additional", "--throttle", "50000000")
    shown = moving.verify_until("Reassignment of partition held-0 is completed.")
    assert "Clearing broker-level throttles on brokers 1,2,3" in shown
    until(lambda: not moving.has_throttles(), "the throttles are gone")
    assert moving.values() == VALUES


def test_a_replica_that_moves_between_log_directories_survives_kill_minus_nine(
    processes: Processes, make_moving: MakeMoving
) -> None:
    moving = make_moving("carried", [1, 2])
    moving.fill()
    [here] = moving.where(1)
    [there] = set(processes.log_dirs(1)) - {here}
    moving.plan([1, 2], [there, "any"])
    moving.hold()
    started = moving.reassign("--execute", "--replica-alter-log-dirs-throttle", "1")
    assert "The replica-alter-dir throttle limit was set to 1 B/s" in started
    assert "Successfully started log directory move for: carried-0-1" in started
    # Taken back, and begun again.
    assert "Successfully started log directory move for: carried-0-1" in moving.reassign("--cancel")
    assert list(moving.where(1)) == [here]
    until(lambda: moving.has_rate(None), "the rate is taken off")
    moving.hold()
    moving.reassign("--execute", "--replica-alter-log-dirs-throttle", "1")
    until(lambda: moving.where(1)[there][0] > 0, "the first piece has been copied")
    with producing(processes, "carried") as producer:
        producer.wait_for(20)
        processes.kill(1)
        producer.wait_for(20)
        processes.start(1)
        processes.wait_until_in_sync()
        producer.wait_for(20)
        assert "Reassignment of replica carried-0-1 is still in progress." in moving.reassign("--verify")
        assert [is_copy for _, is_copy in (moving.where(1)[path] for path in (here, there))] == [False, True]
        moving.reassign("--execute", "--replica-alter-log-dirs-throttle", "50000000")
        moving.verify_until("Reassignment of replica carried-0-1 completed successfully.")
        producer.wait_for(20)
    assert list(moving.where(1)) == [there]
    processes.wait_until_in_sync()
    found = moving.values()
    assert found[: len(VALUES)] == VALUES
    numbered = [(0, number, value) for number, value in enumerate(found)][len(VALUES) :]
    check_nothing_lost(producer, numbered)
    # The controller knows where it is: otherwise it would not know what a lost disk takes with it.
    until(lambda: directory_id(there) in metadata_log(processes), "the controller has been told")


def directory_id(path: str) -> str:
    [found] = re.findall(r"directory\.id=(\S+)", (Path(path) / "meta.properties").read_text())
    return str(found)


def metadata_log(processes: Processes) -> str:
    """Return the last record in broker 1's metadata log that changes directories of a partition on broker 1."""
    path = Path(processes.log_dirs(1)[0]) / "__cluster_metadata-0" / f"{0:020d}.log"
    shown = run_ours("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(path)).out
    changes = [line for line in shown.splitlines() if "PARTITION_CHANGE_RECORD" in line and '"directories"' in line]
    return changes[-1] if changes else ""


@pytest.mark.apache
def test_apaches_tool_moves_replicas_to_named_log_directories_here_and_on_another_broker(
    processes: Processes, make_moving: MakeMoving
) -> None:
    moving = make_moving("sent", [1, 2])
    moving.fill()
    [here] = moving.where(1)
    [there] = set(processes.log_dirs(1)) - {here}
    target = processes.log_dirs(3)[1]
    moving.plan([1, 3], [there, target])
    with ToolServer() as tools:
        moving.reassign("--execute", run=tools.run)
        shown = moving.verify_until("Reassignment of replica sent-0-1 completed successfully.", run=tools.run)
        if "Reassignment of replica sent-0-3 completed successfully." not in shown:
            moving.verify_until("Reassignment of replica sent-0-3 completed successfully.", run=tools.run)
        moving.verify_until("Reassignment of partition sent-0 is completed.", run=tools.run)

    def places() -> list[list[str]]:
        return [list(moving.where(broker)) for broker in (1, 2, 3)]

    # The broker that has the replica no more hears of it a little after the controller has written it.
    until(lambda: places() == [[there], [], [target]], lambda: f"every replica is where it was sent, not {places()}")
    assert moving.values() == VALUES

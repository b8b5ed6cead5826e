"""Three brokers as `pessoa broker` processes with disks of their own, and what a test can do to them from outside.

    with BrokerProcesses(tmp_path) as brokers:
        brokers.kill(brokers.leader_of("t", 0))          # SIGKILL
        brokers.pause(2); brokers.resume(2)              # SIGSTOP, SIGCONT
        brokers.start(1)
        brokers.wait_until_in_sync()

Each is a combined node and a static voter, unless its `Home` has another role: then three more processes are the
controllers, and `nodes` is all six. Iterating yields the brokers. All queries go through one admin client, as a user's
would; only the active controller is found in the logs. A node may run behind a command (`ip netns exec …`) and on an
address of its own: see `Home`.

The settings are those of a user's broker, except that sessions end after three seconds instead of nine, so that a test
need not wait long until the cluster reacts to a stopped process.
"""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.apache.broker import reserve_port
from tests.support.logged_process import LoggedProcess

if TYPE_CHECKING:
    from tests.chaos.guard import Guard

BROKERS = (1, 2, 3)
# The node ids of separate controllers.
CONTROLLERS = (11, 12, 13)
COMBINED = "broker,controller"
PESSOA = ("-m", "pessoa")
# A deadline for failures: success takes a fraction of it, but a machine may be busy with other tests.
TIMEOUT_S = 120.0
_POLL_S = 0.05
# librdkafka logs the failures that these tests cause. It also must not wait for a stopped broker. And it drops a
# metadata request that it was about to repeat when its broker is shut down: a joining member then waits for the next
# periodic refresh, by default after five minutes.
IMPATIENT = {
    "log_level": 0,
    "topic.metadata.refresh.interval.ms": 5_000,
    "socket.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 1_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}
_PASSING = (KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


def until(condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what if isinstance(what, str) else what()}: not within {timeout_s:.0f} s")
        time.sleep(_POLL_S)


@dataclass(slots=True)
class Home:
    """The directory and the settings of one node."""

    data: Path
    roles: str = COMBINED
    host: str = "127.0.0.1"
    command: tuple[str, ...] = ()
    # The arguments of Python.
    program: tuple[str, ...] = PESSOA
    settings: Mapping[str, str] = field(default_factory=dict)
    # The ports to which others connect for broker and controller, if a proxy is in front of its own.
    seen_at: tuple[int, int] | None = None


class BrokerProcesses:
    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        homes: Mapping[int, Home] | None = None,
        guard: Guard | None = None,
    ) -> None:
        """With a `guard` every listener requires TLS and a login."""
        self._guard = guard
        self._directory = directory
        self._settings = {**SETTINGS, **(settings or {})}
        self._homes = dict(homes or {number: Home(directory / f"data-{number}") for number in BROKERS})
        self._ports = {number: (reserve_port(), reserve_port()) for number in self._homes}
        # The nodes that were started and not yet stopped, killed or waited for.
        self._processes: dict[int, LoggedProcess] = {}
        self._paused: set[int] = set()
        self._admin: AdminClient | None = None

    def __repr__(self) -> str:
        states = (f"{one} {'paused' if one in self._paused else 'runs'}" for one in sorted(self._processes))
        return f"<BrokerProcesses: {', '.join(states) or 'none runs'}>"

    def __iter__(self) -> Iterator[int]:
        return iter([number for number, home in self._homes.items() if "broker" in home.roles])

    @property
    def nodes(self) -> list[int]:
        """Return all nodes: brokers and separate controllers."""
        return list(self._homes)

    @property
    def controllers(self) -> list[int]:
        return [number for number, home in self._homes.items() if "controller" in home.roles]

    def __enter__(self) -> Self:
        try:
            self.start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.address, self))

    @property
    def client(self) -> dict[str, str]:
        """Return the settings of a librdkafka client that has all rights."""
        security = {} if self._guard is None else self._guard.client("admin")
        return {"bootstrap.servers": self.bootstrap_servers, **security}

    @property
    def running(self) -> list[int]:
        """Return the nodes that are running and not paused."""
        return sorted(self._processes.keys() - self._paused)

    def data(self, number: int) -> Path:
        return self._homes[number].data

    def address(self, number: int) -> str:
        return f"{self._homes[number].host}:{self._seen_at(number)[0]}"

    def controller_address(self, number: int) -> str:
        return f"{self._homes[number].host}:{self._seen_at(number)[1]}"

    def listens_at(self, number: int) -> tuple[int, int]:
        return self._ports[number]

    def _seen_at(self, number: int) -> tuple[int, int]:
        return self._homes[number].seen_at or self._ports[number]

    def pid(self, number: int) -> int:
        return self._processes[number].pid

    # Starting and stopping.

    def start(self, number: int, **settings: str) -> None:
        assert number not in self._processes, f"node {number} runs"
        home, (client, controller) = self._homes[number], self._ports[number]
        voters = ",".join(f"{one}@{self.controller_address(one)}" for one in self.controllers)
        guard, name = self._guard, "PLAINTEXT" if self._guard is None else "CLIENTS"
        listeners = {
            "broker": f"{name}://{home.host}:{client}",
            "controller": f"CONTROLLER://{home.host}:{controller}",
        }
        values = {
            "process.roles": home.roles,
            "node.id": str(number),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners[role] for role in home.roles.split(",")),
            **({"advertised.listeners": f"{name}://{self.address(number)}"} if "broker" in home.roles else {}),
            "controller.quorum.voters": voters,
            "log.dirs": str(home.data),
            **(guard.settings(number, is_broker="broker" in home.roles) if guard is not None else {}),
            **self._settings,
            **home.settings,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / f"{number}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        users = guard.arguments if guard is not None else []
        command = [*home.command, sys.executable, *home.program, "broker", "--config", str(config), *users]
        process = LoggedProcess(command, self._log(number), name=f"node {number}")
        process.start()
        self._processes[number] = process

    def start_all(self) -> None:
        for number in self.nodes:
            if number not in self._processes:
                self.start(number)
        self.wait_until_in_sync()

    def kill(self, *numbers: int) -> None:
        """Kill nodes with SIGKILL: without a controlled shutdown and without a flush."""
        dying = [self._processes.pop(number) for number in numbers]
        self._paused -= set(numbers)
        for process in dying:
            process.send_signal(signal.SIGKILL)
        for process in dying:
            process.wait_for_end()

    def stop(self, number: int) -> int:
        """Stop a node with SIGTERM and return its exit code."""
        return self._processes.pop(number).stop()

    def signal(self, number: int, what: signal.Signals) -> None:
        self._processes[number].send_signal(what)

    def wait_for_end(self, number: int) -> int:
        """Wait until a node ends by itself and return its exit code."""
        return self._processes.pop(number).wait_for_end()

    def pause(self, number: int) -> None:
        self._processes[number].send_signal(signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        self._paused.discard(number)
        self._processes[number].send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill(*self._processes)

    # Queries.

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**IMPATIENT, **self.client})
        return self._admin

    def metadata(self) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self.admin().list_topics(timeout=3)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def create_topic(self, name: str, partitions: int, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, len(list(self)), config=settings)

        def is_there() -> bool:
            try:
                self.admin().create_topics([topic])[name].result(TIMEOUT_S)
            except KafkaException as problem:
                # librdkafka drops a bootstrap address with its waiting requests when it learns whose address it is.
                if problem.args[0].code() not in (*_PASSING, KafkaError.TOPIC_ALREADY_EXISTS):
                    raise
            return name in self.metadata().topics

        until(is_there, f"topic {name}")
        self.wait_until_in_sync()

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the leader, waiting until it is a node that runs and is not paused."""
        found = -1

        def is_led() -> bool:
            nonlocal found
            known = self.metadata().topics.get(topic)
            found = known.partitions[partition].leader if known and partition in known.partitions else -1
            return found in self.running

        until(is_led, f"a leader of {topic}-{partition}")
        return found

    def controller(self) -> int:
        """Return the controller that has logged the highest epoch as the active controller."""
        said = r"is the active controller in epoch (\d+)"
        told = ((number, re.findall(said, self.log_text(number))) for number in self.controllers)
        return max((int(epoch), number) for number, epochs in told for epoch in epochs)[1]

    def wait_until_in_sync(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all brokers are registered and all replicas of all topics are in sync."""
        wrong = ""

        def is_so() -> bool:
            nonlocal wrong
            for number, process in self._processes.items():
                assert process.is_running, f"node {number} ended:\n{self.log_tail(number)}"
            if not all(" is ready" in process.said for process in self._processes.values()):
                # The other brokers may not have noticed yet that a broker was down.
                wrong = "a node is not ready"
                return False
            metadata = self.metadata()
            behind = [
                f"{topic.topic}-{one.id} (leader {one.leader}, isr {one.isrs})"
                for topic in metadata.topics.values()
                for one in topic.partitions.values()
                if len(one.isrs) < len(one.replicas) or one.leader not in metadata.brokers
            ]
            wrong = f"brokers {sorted(metadata.brokers)}, behind: {behind[:5]}"
            return len(metadata.brokers) == len(list(self)) and not behind

        try:
            until(is_so, "all replicas in sync", timeout_s)
        except AssertionError as problem:
            tails = "\n".join(f"--- node {one}\n{self.log_tail(one)}" for one in self.nodes)
            raise AssertionError(f"{problem}: {wrong}\n{tails}") from None

    # Logs.

    def log_text(self, number: int) -> str:
        path = self._log(number)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def log_tail(self, number: int) -> str:
        return "\n".join(self.log_text(number).splitlines()[-15:])

    def complaints(self) -> list[str]:
        """Return the lines about unexpected errors that any of the brokers has logged since the first start."""
        wrong = re.compile(r" ERROR | CRITICAL |^Traceback")
        return [
            f"{one}: {line}" for one in self.nodes for line in self.log_text(one).splitlines() if wrong.search(line)
        ]

    def _log(self, number: int) -> Path:
        return self._directory / f"{number}.log"


def can_connect(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True

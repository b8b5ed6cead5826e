"""A cluster of `pessoa broker` processes; a layout says which roles each node has.

    layout = Layout(roles={1: "broker,controller", 2: "broker", 11: "controller"}, …)

Each process has its `server.properties`, its data and its output in a directory, and listens on loopback. With
`dynamic_voters` the voters stand in the log (`controller.quorum.bootstrap.servers`, formatted with `kafka-storage`);
otherwise every file names them in `controller.quorum.voters`. Only processes that were started here are signalled.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.apache.broker import reserve_port
from tests.apache.tool_server import Outcome
from tests.support.logged_process import LoggedProcess, pessoa
from tests.tools.stage import run_ours

TIMEOUT_S = 120.0
_POLL_S = 0.02
Run = Callable[..., Outcome]


@dataclass
class Layout:
    roles: Mapping[int, str]
    dynamic_voters: bool = False
    # Further options of `kafka-storage format`; without any, a static quorum is not formatted before it starts.
    format_words: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def controllers(self) -> list[int]:
        return [number for number, roles in self.roles.items() if "controller" in roles]

    @property
    def brokers(self) -> list[int]:
        return [number for number, roles in self.roles.items() if "broker" in roles]


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(_POLL_S)


class RoleProcesses:
    """`with RoleProcesses(directory, layout) as nodes:` starts all of them, and ends all that run."""

    def __init__(self, directory: Path, layout: Layout, run: Run = run_ours) -> None:
        self.directory = directory
        self.layout = layout
        self._run = run
        self._client_ports = {number: reserve_port() for number in layout.brokers}
        self._controller_ports = {number: reserve_port() for number in layout.controllers}
        self._processes: dict[int, LoggedProcess] = {}

    def __enter__(self) -> Self:
        try:
            for number in self:
                self.configure(number)
            if self.layout.dynamic_voters or self.layout.format_words:
                self._format()
            self.start(*self)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[int]:
        return iter(self.layout.roles)

    # Addresses and files.

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._client_ports.values())

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(map(self.controller_address, self.layout.controllers))

    def controller_address(self, number: int) -> str:
        return f"127.0.0.1:{self._controller_ports[number]}"

    def properties_path(self, number: int) -> Path:
        return self.directory / f"{number}.properties"

    def configure(self, number: int) -> None:
        listeners = []
        if number in self._client_ports:
            listeners.append(f"PLAINTEXT://127.0.0.1:{self._client_ports[number]}")
        if number in self._controller_ports:
            listeners.append(f"CONTROLLER://{self.controller_address(number)}")
        voters = ",".join(f"{one}@{self.controller_address(one)}" for one in self.layout.controllers)
        quorum = "bootstrap.servers" if self.layout.dynamic_voters else "voters"
        settings = {
            "process.roles": self.layout.roles[number],
            "node.id": str(number),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            f"controller.quorum.{quorum}": self.bootstrap_controllers if self.layout.dynamic_voters else voters,
            "log.dirs": str(self.directory / f"data-{number}"),
            "offsets.topic.num.partitions": "3",
            **self.layout.settings,
        }
        self.properties_path(number).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def add_controller(self, number: int) -> None:
        """Format and start a controller that is no voter; `kafka-metadata-quorum add-controller` makes it one."""
        assert self.layout.dynamic_voters
        self.layout.roles = {**self.layout.roles, number: "controller"}
        self._controller_ports[number] = reserve_port()
        self.configure(number)
        self._format_one(number, "--no-initial-controllers")
        self.start(number)

    def _format(self) -> None:
        """Format the directories of all nodes; the initial controllers are named with their directory ids."""
        self._cluster_id = self._random_id()
        first = ",".join(
            f"{number}@{self.controller_address(number)}:{self._random_id()}" for number in self.layout.controllers
        )
        for number in self:
            is_voter = self.layout.dynamic_voters and number in self.layout.controllers
            words = ("--initial-controllers", first) if is_voter else ()
            self._format_one(number, *words, *self.layout.format_words)

    def _format_one(self, number: int, *words: str) -> None:
        self.tool("kafka-storage", "format", "-t", self._cluster_id, "-c", self.properties_path(number), *words)

    def _random_id(self) -> str:
        return self.tool("kafka-storage", "random-uuid").strip()

    # Processes.

    def start(self, *numbers: int) -> None:
        """Start these nodes and wait until each has printed that it is ready, for which a majority of controllers must
        run."""
        for number in numbers:
            self.launch(number)
        for number in numbers:
            self._processes[number].wait_for(" is ready")

    def launch(self, number: int) -> LoggedProcess:
        command = pessoa("broker", "--config", self.properties_path(number))
        process = LoggedProcess(command, self._log_path(number), name=f"node {number}")
        process.start()
        self._processes[number] = process
        return process

    def _log_path(self, number: int) -> Path:
        return self.directory / f"{number}.log"

    def log_text(self, number: int) -> str:
        path = self._log_path(number)
        return path.read_text() if path.exists() else ""

    def kill(self, number: int) -> None:
        self._processes.pop(number).close()

    def stop(self, number: int, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop a node with this signal; return its exit code."""
        return self._processes.pop(number).stop(how, TIMEOUT_S)

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    # Requests through the command-line tools.

    def tool(self, name: str, *words: str | Path, stdin: str = "") -> str:
        outcome = self._run(name, *map(str, words), stdin=stdin)
        assert outcome.code == 0, f"{name} {words}: {outcome.out}{outcome.err}"
        return outcome.out

    def bootstrap_options(self) -> Iterable[tuple[str, str]]:
        yield "--bootstrap-server", self.bootstrap_servers
        yield "--bootstrap-controller", self.bootstrap_controllers

    def quorum(self, *words: str | Path, through: tuple[str, str] | None = None) -> str:
        return self.tool("kafka-metadata-quorum", *(through or ("--bootstrap-server", self.bootstrap_servers)), *words)

    def voters(self, through: tuple[str, str] | None = None) -> list[int]:
        status = self.quorum("describe", "--status", through=through)
        line = next(one for one in status.splitlines() if one.startswith("CurrentVoters"))
        return [int(found) for found in re.findall(r'"id": (\d+)', line)]

    def replicas(self, through: tuple[str, str] | None = None) -> dict[int, tuple[str, str]]:
        """Return for each node its directory id and its status: Leader, Follower or Observer."""
        rows = [line.split() for line in self.quorum("describe", "--replication", through=through).splitlines()[1:]]
        return {int(row[0]): (row[1], row[-1]) for row in rows}

    def active_controller(self) -> int:
        return next(number for number, (_, status) in self.replicas().items() if status == "Leader")

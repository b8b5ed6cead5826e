"""Run a Connect worker in this process, on any Kafka, with tasks on Spark or with tasks that only pretend to run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from pessoa.connect.runner import RUNNING, Runner, TaskReport, TaskSpec
from pessoa.connect.worker_config import make_config
from pessoa.connect.worker_service import make_connect_app
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer, bind

# The machine that runs these tests may be very busy.
DEADLINE_S = 300.0


class PretendingRunner:
    """A runner that starts nothing and reports every task as RUNNING, unless a test sets `reports` or `refusal`."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, int], TaskSpec] = {}
        self.forgotten: list[str] = []
        self.reports: dict[tuple[str, int], TaskReport] = {}
        self.refusal: Exception | None = None
        # A test clears it to make starts wait.
        self.may_start = threading.Event()
        self.may_start.set()

    def start(self, spec: TaskSpec) -> None:
        assert self.may_start.wait(DEADLINE_S)
        if self.refusal is not None:
            raise self.refusal
        self.reports.pop((spec.connector, spec.number), None)
        self.running[spec.connector, spec.number] = spec

    def report(self, spec: TaskSpec) -> TaskReport:
        return self.reports.get((spec.connector, spec.number), TaskReport(RUNNING))

    def stop(self, spec: TaskSpec) -> None:
        self.running.pop((spec.connector, spec.number), None)

    def forget(self, spec: TaskSpec) -> None:
        self.stop(spec)
        self.forgotten.append(spec.connector)

    def close(self) -> None:
        pass


@contextmanager
def connect_worker(
    bootstrap_servers: str, home: Path, settings: Mapping[str, str] | None = None, runner: Runner | None = None
) -> Iterator[httpx.Client]:
    """Start a worker and yield an HTTP client for it once it is healthy."""
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    config = make_config(
        {
            "bootstrap.servers": bootstrap_servers,
            "listeners": f"http://127.0.0.1:{port}",
            "pessoa.home": str(home),
            "offset.storage.partitions": "3",
            "status.storage.partitions": "2",
            "pessoa.pace.ms": "200",
            **(settings or {}),
        }
    )

    async def make() -> App:
        return await make_connect_app(config, port, runner=runner)

    with (
        ThreadedServer(make, listening=listening) as server,
        httpx.Client(base_url=server.url, timeout=DEADLINE_S) as client,
    ):
        wait_until(lambda: client.get("/health").status_code == 200, "the worker is healthy")
        yield client


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Return the first true value of the condition; fail after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {deadline_s} s in vain: {what}"
        time.sleep(0.05)
    return found


def states(client: httpx.Client, connector: str) -> tuple[str, ...]:
    """Return the connector's state followed by those of its tasks; empty if there is no such connector."""
    answer = client.get(f"/connectors/{connector}/status")
    if answer.status_code != 200:
        return ()
    status = answer.json()
    return (status["connector"]["state"], *(task["state"] for task in status["tasks"]))


def wait_for_states(client: httpx.Client, connector: str, *wanted: str) -> None:
    def reached() -> bool:
        found = states(client, connector)
        if "FAILED" in found and "FAILED" not in wanted:
            raise AssertionError(client.get(f"/connectors/{connector}/status").text)
        return found == wanted

    wait_until(reached, f"{connector} is {wanted}")

"""A worker accepts writes as soon as it answers 200, and leaves its group only when its tasks have stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from pessoa.client.topic_creation import TopicSpec, TopicUnavailable, ensure_topic
from pessoa.connect.runner import TaskSpec
from pessoa.connect.worker_config import make_config
from pessoa.connect.worker_service import make_connect_app
from pessoa.connect.worker_store import TopicStore
from pessoa.testing import Broker
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer, bind
from tests.connect.serving import DEADLINE_S, PretendingRunner, wait_for_states, wait_until

SOURCE = {"connector.class": "FileStreamSource", "file": "/nowhere/in.txt", "topic": "lines"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # The default of brokers is 3000 ms: a new group waits that long for members before it has a leader.
    with Broker({"group.initial.rebalance.delay.ms": "1000"}) as running:
        yield running


@contextmanager
def worker(broker: Broker, home: Path, group: str, runner: PretendingRunner, port: int = 0) -> Iterator[int]:
    """Start a worker without waiting for it, and yield its port."""
    listening = bind("127.0.0.1", port)
    port = listening.getsockname()[1]
    config = make_config(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "listeners": f"http://127.0.0.1:{port}",
            "pessoa.home": str(home),
            "group.id": group,
            **{f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
        }
    )

    async def make() -> App:
        return await make_connect_app(config, port, runner=runner)

    server = ThreadedServer(make, listening=listening)
    starting = threading.Thread(target=server.__enter__)
    starting.start()
    try:
        yield port
    finally:
        starting.join()
        server.__exit__()


def first_answer(port: int, path: str) -> httpx.Response:
    """Repeat a GET request until it is answered with 200, and return that answer."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S)
        except httpx.TransportError:
            continue
        if answer.status_code == 200:
            return answer
        time.sleep(0.01)
    raise AssertionError(f"{path} was not answered")


@pytest.mark.parametrize("path", ["/connectors", "/health"])
def test_a_connector_can_be_created_as_soon_as_a_worker_answers(broker: Broker, tmp_path: Path, path: str) -> None:
    group, port = f"ready-{path.strip('/')}", 0
    # The second worker has the port of the first one, and finds its records in the internal topics.
    for number in range(2):
        with worker(broker, tmp_path, group, PretendingRunner(), port) as port:
            first_answer(port, path)
            body = {"name": f"c{number}", "config": SOURCE}
            made = httpx.post(f"http://127.0.0.1:{port}/connectors", json=body, timeout=DEADLINE_S)
            assert made.status_code == 201, made.text


def test_a_connector_can_be_created_as_soon_as_a_second_worker_answers(broker: Broker, tmp_path: Path) -> None:
    with worker(broker, tmp_path / "a", "pair", PretendingRunner()) as leader:
        first_answer(leader, "/health")
        with worker(broker, tmp_path / "b", "pair", PretendingRunner()) as port:
            first_answer(port, "/connectors")
            body = {"name": "passed-on", "config": SOURCE}
            made = httpx.post(f"http://127.0.0.1:{port}/connectors", json=body, timeout=DEADLINE_S)
            assert made.status_code == 201, made.text


def test_a_worker_that_cannot_create_its_config_topic_prints_the_reason_without_a_traceback(
    broker: Broker, tmp_path: Path
) -> None:
    settings = (f"pessoa.home={tmp_path}", "config.storage.topic=no/topic")
    words = ("--bootstrap-server", broker.bootstrap_servers, "--port", "0", "--host", "127.0.0.1")
    overrides = (word for one in settings for word in ("--override", one))
    ended = subprocess.run(
        [sys.executable, "-m", "pessoa", "connect", *words, *overrides],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == 1
    assert "the topic no/topic could not be created" in ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_standalone_worker_runs_the_connectors_that_it_is_given_without_internal_topics(
    broker: Broker, tmp_path: Path
) -> None:
    runner = PretendingRunner()
    settings = {"bootstrap.servers": broker.bootstrap_servers, "pessoa.home": str(tmp_path)}
    config = make_config({**settings, "offset.storage.file.filename": str(tmp_path / "offsets")}, is_standalone=True)

    async def make() -> App:
        return await make_connect_app(config, runner=runner, connectors={"c": SOURCE})

    with ThreadedServer(make) as server, httpx.Client(base_url=server.url, timeout=DEADLINE_S) as http:
        wait_for_states(http, "c", "RUNNING", "RUNNING")
        topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=DEADLINE_S).topics
        assert not any(name.startswith("connect-") for name in topics)


def test_a_worker_refuses_a_config_topic_that_is_not_compacted(broker: Broker, tmp_path: Path) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    ensure_topic(AdminClient(dict(servers)), TopicSpec("forgets", 1, 1, {"cleanup.policy": "delete"}))
    config = make_config({**servers, "pessoa.home": str(tmp_path), "config.storage.topic": "forgets"})
    with pytest.raises(TopicUnavailable, match=r"forgets has cleanup\.policy=delete.*must be compact"):
        TopicStore(config).start()


class SlowRunner(PretendingRunner):
    """A runner that needs half a second to stop a task, and appends each start and stop to a list."""

    def __init__(self, name: str, told: list[str]) -> None:
        super().__init__()
        self._name = name
        self._told = told

    def start(self, spec: TaskSpec) -> None:
        self._told.append(f"{self._name} starts")
        super().start(spec)

    def stop(self, spec: TaskSpec) -> None:
        time.sleep(0.5)
        super().stop(spec)
        self._told.append(f"{self._name} has stopped")


def test_a_worker_leaves_its_group_only_when_its_tasks_have_stopped(broker: Broker, tmp_path: Path) -> None:
    told: list[str] = []
    with worker(broker, tmp_path / "a", "handover", SlowRunner("first", told)) as first:
        first_answer(first, "/health")
        with httpx.Client(base_url=f"http://127.0.0.1:{first}", timeout=DEADLINE_S) as http:
            assert http.post("/connectors", json={"name": "c", "config": SOURCE}).status_code == 201
            wait_for_states(http, "c", "RUNNING", "RUNNING")
        second = worker(broker, tmp_path / "b", "handover", SlowRunner("second", told))
        second_port = second.__enter__()
        first_answer(second_port, "/connectors")
    try:
        wait_until(lambda: "second starts" in told, "the second worker runs the task")
    finally:
        second.__exit__(None, None, None)
    # A rebalance may stop a task and start it on the same worker; it must never run on two workers at once.
    running = ""
    for line in told:
        name, _, what = line.partition(" ")
        if what == "starts":
            assert running in ("", name), told
            running = name
        else:
            running = ""

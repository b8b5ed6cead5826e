"""The platform as processes on ports of its own: started, queried, damaged, filled and stopped with its commands.

`--port-shift` keeps the ports apart from those of the notes and of the other workers. Most of them are in the range of
ephemeral ports, so now and then one is in use: then the next shift is tried.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pessoa.platform.run_file import is_ours

TIMEOUT_S = 120.0
ATTEMPTS = 10
# The ksql server creates the topic.
FIRST_STREAM = "CREATE STREAM first (v INT) WITH (KAFKA_TOPIC='by-ksql', PARTITIONS=1, VALUE_FORMAT='JSON');"


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)


class Home:
    def __init__(self, folder: Path, first_shift: int) -> None:
        self.folder = folder
        self.shift = first_shift
        # The results of the first writes by service.
        self.first_writes: dict[str, object] = {}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pessoa", *words],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=os.environ | {"PESSOA_HOME": str(self.folder)},
        )

    def confluent(self, *words: str) -> str:
        """Run the `confluent` command and return what it prints after its banner."""
        environment = os.environ | {"PESSOA_HOME": str(self.folder)}
        # If set, it names services other than those of `pessoa up`.
        environment.pop("CONFLUENT_CURRENT", None)
        done = subprocess.run(
            [sys.executable, "-m", "pessoa.cli.confluent.confluent", *words],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
        )
        assert done.returncode == 0, done
        return done.stdout.partition("\n\n")[2]

    def up(self, *options: str) -> str:
        """Start the platform in the background on free ports, and return what `pessoa up` prints."""
        for _ in range(ATTEMPTS):
            done = self("up", "--detach", "--port-shift", str(self.shift), *options)
            if done.returncode == 0:
                return done.stdout
            assert "is already taken" in done.stderr or "is held by" in done.stderr, done
            self.shift += 10
        raise AssertionError(f"no free ports in {ATTEMPTS} attempts")

    def first_port_taken(self) -> socket.socket:
        """Return a socket that listens on the first broker's port; choose another shift if that port is in use."""
        for _ in range(ATTEMPTS):
            try:
                return socket.create_server(("127.0.0.1", 9092 + self.shift))
            except OSError:
                self.shift += 10
        raise AssertionError(f"no free ports in {ATTEMPTS} attempts")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port + self.shift}" for port in (9092, 29092, 39092))

    def get(self, port: int, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port + self.shift}{path}", timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read()
            return body

    def post(self, port: int, path: str, body: object, media_type: str = "application/json") -> int:
        """Send a POST request and return the status code."""
        url = f"http://127.0.0.1:{port + self.shift}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": media_type})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                status: int = answer.status
        except urllib.error.HTTPError as refused:
            return refused.code
        return status

    def produce_one(self, topic: str) -> None:
        from confluent_kafka import Producer

        failures: list[object] = []
        # Idempotent: a retry after a leader has moved must not write the record twice, since records are counted.
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures

    def run_file(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return found

    def service(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.run_file()["services"] if one["name"] == name)
        return found


def shift_of(worker_id: str, number: int) -> int:
    worker = 9 if worker_id == "master" else int(worker_id.removeprefix("gw"))
    return 1_000 + 400 * worker + 100 * number


@pytest.fixture
def home(tmp_path: Path, worker_id: str) -> Iterator[Home]:
    home = Home(tmp_path, shift_of(worker_id, 1))
    yield home
    home("down")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("platform"), shift_of(worker_id, 2))
    try:
        home.up()
        home.first_writes = first_writes(home)
        yield home
    finally:
        home("down")


def first_writes(home: Home) -> dict[str, object]:
    """Write to every service once, without retries, and return the results."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": home.bootstrap_servers, "log_level": 0})
    connector = {"connector.class": "FileStreamSource", "file": "/nowhere", "topic": "t"}
    records = {"records": [{"value": 1}]}
    writes: dict[str, Callable[[], object]] = {
        "connect": lambda: home.post(
            8083, "/connectors", {"name": "first", "config": connector, "initial_state": "STOPPED"}
        ),
        "kafka-rest": lambda: home.post(8082, "/topics/by-rest", records, "application/vnd.kafka.json.v2+json"),
        "schema-registry": lambda: home.post(8081, "/subjects/first/versions", {"schema": '"string"'}),
        "topic": lambda: admin.create_topics([NewTopic("whole", 3, 3)])["whole"].result(TIMEOUT_S),
        "producer": lambda: home.produce_one("by-producer"),
        "ksql-server": lambda: home.post(8088, "/ksql", {"ksql": FIRST_STREAM}),
        "control-center": lambda: home.post(9021, "/api/v1/topics", {"name": "by-control-center", "partitions": 1}),
        "control-center reads": lambda: len(json.loads(home.get(9021, "/api/v1/brokers"))),
    }
    with ThreadPoolExecutor(len(writes)) as threads:
        begun = {name: threads.submit(write) for name, write in writes.items()}
        return {name: one.exception() or one.result() for name, one in begun.items()}


def test_the_first_write_to_every_service_succeeds_after_pessoa_up_has_returned(platform: Home) -> None:
    assert platform.first_writes == {
        "connect": 201,
        "kafka-rest": 200,
        "schema-registry": 200,
        "topic": None,
        "producer": None,
        "ksql-server": 200,
        "control-center": 201,
        "control-center reads": 3,
    }
    urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{8083 + platform.shift}/connectors/first", method="DELETE")
    ).close()


def test_status_lists_every_service_as_ready_with_its_address(platform: Home) -> None:
    shown = platform("status")
    assert shown.returncode == 0
    rows = [line.split()[:3] for line in shown.stdout.splitlines()[1:]]
    assert rows == [
        [name, f"localhost:{port + platform.shift}", "ready"]
        for name, port in (
            ("broker-1", 9092),
            ("broker-2", 29092),
            ("broker-3", 39092),
            ("schema-registry", 8081),
            ("kafka-rest", 8082),
            ("connect", 8083),
            ("ksql-server", 8088),
            ("control-center", 9021),
        )
    ]


def test_top_shows_every_process_once(platform: Home) -> None:
    shown = platform("top")
    names = [line.split()[0] for line in shown.stdout.splitlines()]
    brokers = ["broker-1", "broker-2", "broker-3"]
    services = [*brokers, "schema-registry", "kafka-rest", "connect", "ksql-server", "control-center"]
    assert names == ["service", *services, "supervisor"]
    assert all(" MB " in line for line in shown.stdout.splitlines()[1:])


def test_pessoa_logs_prints_one_service_or_all_services_with_their_names(platform: Home) -> None:
    assert "broker 2 of cluster" in platform("logs", "broker-2").stdout
    everything = platform("logs").stdout.splitlines()
    assert {line.split(" | ")[0].strip() for line in everything} >= {"broker-1", "broker-3", "schema-registry", "up"}
    unknown = platform("logs", "zookeeper")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("Error: there is no log of zookeeper; there are broker-1, broker-2")


def test_a_second_platform_in_the_same_home_is_refused(platform: Home) -> None:
    refused = platform("up", "--services", "none", "--port-shift", "4000")
    assert refused.returncode == 1
    pid = platform.run_file()["pid"]
    assert refused.stderr == (
        f"Error: Pessoa is already running in {platform.folder} (process {pid})."
        " `pessoa status` shows it, `pessoa down` stops it.\n"
    )


def test_the_demo_fills_the_topics_of_the_shop(platform: Home) -> None:
    done = platform("demo", "--bootstrap-server", platform.bootstrap_servers, "--events", "300")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[0] == "made the topics customers, products, page-views, orders, payments"
    topics = json.loads(platform.get(8082, "/topics"))
    assert {"customers", "products", "page-views", "orders", "payments"} <= set(topics)
    again = platform("demo", "--bootstrap-server", platform.bootstrap_servers, "--events", "300")
    # The same seed gives the same data.
    assert again.stdout.splitlines() == ["the topics of the shop are there", done.stdout.splitlines()[1]]


def test_connectors_are_loaded_shown_changed_and_unloaded(platform: Home, tmp_path: Path) -> None:
    # Created in the state STOPPED, so that no task needs Spark.
    settings = {"connector.class": "FileStreamSource", "file": "test.txt", "topic": "connect-test"}
    description = tmp_path / "paused.json"
    description.write_text(json.dumps({"name": "file-source", "config": settings, "initial_state": "STOPPED"}))
    configured = settings | {"name": "file-source"}
    loaded = json.loads(platform.confluent("load", "file-source", "-d", str(description)))
    assert loaded == {"name": "file-source", "config": configured, "tasks": [], "type": "source"}
    assert json.loads(platform.confluent("status", "connectors")) == ["file-source"]

    def is_stopped() -> bool:
        found = json.loads(platform.confluent("status", "file-source"))
        return bool(found.get("connector", {}).get("state") == "STOPPED")

    wait_until(is_stopped, "the connector is stopped")
    heading, _, shown = platform.confluent("config", "file-source").partition("\n")
    assert heading == "Current configuration of 'file-source' connector:"
    assert json.loads(shown) == configured
    properties = tmp_path / "file-source.properties"
    properties.write_text("connector.class=FileStreamSource\nfile=other.txt\ntopic=connect-test\n")
    changed = json.loads(platform.confluent("config", "file-source", "-d", str(properties)))
    assert changed["config"] == configured | {"file": "other.txt"}
    assert platform.confluent("unload", "file-source") == ""
    assert json.loads(platform.confluent("status", "connectors")) == []
    plugins = platform.confluent("list", "plugins").removeprefix("Available Connector Plugins: \n")
    assert "org.apache.kafka.connect.file.FileStreamSourceConnector" in {one["class"] for one in json.loads(plugins)}


@pytest.mark.parametrize("name", ["broker-1", "broker-2", "broker-3", "schema-registry", "kafka-rest", "connect"])
def test_a_killed_service_is_restarted_and_its_clients_continue(platform: Home, name: str) -> None:
    from confluent_kafka import Consumer

    reader = Consumer(
        {
            "bootstrap.servers": platform.bootstrap_servers,
            "group.id": f"during-{name}",
            "auto.offset.reset": "earliest",
            # librdkafka drops its pending request to a broker that is dead for longer than its session, and repeats
            # it at the next metadata refresh: by default after five minutes.
            "topic.metadata.refresh.interval.ms": 5_000,
        }
    )
    platform.produce_one(f"during-{name}")
    reader.subscribe([f"during-{name}"])
    before = platform.service(name)
    os.kill(before["pid"], signal.SIGKILL)
    platform.produce_one(f"during-{name}")
    wait_until(lambda: platform.service(name)["restarts"] > before["restarts"], f"{name} is started again")
    wait_until(lambda: platform.service(name)["state"] == "ready", f"{name} is back")
    assert platform.service(name)["pid"] != before["pid"]
    platform.produce_one(f"during-{name}")
    offsets: set[object] = set()
    errors: list[str] = []

    def has_read_all() -> bool:
        for message in reader.consume(10, 0.2):
            error = message.error()
            if error is None:
                offsets.add((message.partition(), message.offset()))
            else:
                errors.append(str(error))
        return len(offsets) == 3

    try:
        wait_until(has_read_all, "the consumer has read what was written before, during and after")
    except AssertionError as in_vain:
        raise AssertionError(f"read {offsets}, errors {errors}, assigned {reader.assignment()}") from in_vain
    finally:
        reader.close()
    assert platform.get(8081, "/subjects") == b'["first"]'
    assert f'"during-{name}"'.encode() in platform.get(8082, "/topics")
    assert platform.get(8083, "/connectors") == b"[]"
    wait_until(lambda: platform("status").returncode == 0, "everything answers")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--services", "spells"), "There is no service called spells; this installation has schema-registry"),
        (("--brokers", "6"), "6 is not in the range 1<=x<=5"),
    ],
)
def test_an_unknown_service_or_too_many_brokers_is_a_usage_error(
    home: Home, words: tuple[str, ...], sentence: str
) -> None:
    refused = home("up", *words)
    assert refused.returncode == 2
    assert sentence in refused.stderr
    assert not home.folder.joinpath("run.json").exists()


def test_status_top_and_down_report_that_the_platform_is_not_running(home: Home) -> None:
    for command, code in (("status", 3), ("top", 3), ("down", 0)):
        shown = home(command)
        assert (shown.stdout, shown.returncode) == (f"Pessoa is not running in {home.folder}.\n", code)


def test_pessoa_up_in_the_background_reports_a_taken_port_in_one_sentence(home: Home) -> None:
    with home.first_port_taken() as server:
        port = server.getsockname()[1]
        refused = home("up", "--brokers", "1", "--services", "none", "--port-shift", str(home.shift), "--detach")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Cannot start broker-1: port {port} is already taken by another program; stop it, or use --port-shift.\n"
    )


def test_processes_that_a_killed_supervisor_left_are_stopped_by_the_next_start(home: Home) -> None:
    home.up("--brokers", "1", "--services", "none")
    orphan = home.service("broker-1")["pid"]
    os.kill(home.run_file()["pid"], signal.SIGKILL)
    wait_until(lambda: home("status").returncode == 3, "the supervisor is gone")
    assert is_ours(orphan)
    again = home.up("--brokers", "1", "--services", "none")
    assert again.startswith("The last `pessoa up` was killed and left broker-1 running; stopped them.\n")
    assert home.service("broker-1")["pid"] != orphan
    # It may remain a zombie until process 1 reaps it, but its program has ended.
    assert not is_ours(orphan)
    assert home("down").stdout.startswith("Stopped broker-1 in ")

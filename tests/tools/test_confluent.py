"""The `confluent` command as in tutorials: services are started, used and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.cli.confluent.confluent_services import available
from tests.apache.broker import reserve_port

BANNER = [
    "This CLI is intended for development only, not for production",
    "https://docs.confluent.io/current/cli/index.html",
    "",
]
TIMEOUT_S = 120


class Confluent:
    def __init__(self, directory: Path) -> None:
        self._environment = os.environ | {"CONFLUENT_CURRENT": f"{directory}/"}

    def __call__(self, *words: str, stdin: str = "", code: int = 0) -> list[str]:
        """Run a command and return the lines that it prints after the banner."""
        command = [sys.executable, "-m", "pessoa.cli.confluent.confluent", *words]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, env=self._environment
        )
        assert done.returncode == code, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert lines[:3] == BANNER
        return lines[3:]


@pytest.fixture
def confluent(tmp_path: Path) -> Iterator[Confluent]:
    run = Confluent(tmp_path)
    yield run
    run("destroy")


def write_settings_with_free_ports(run: Path) -> dict[str, int]:
    """Write the settings files of the services, with free ports; return the ports."""
    ports = {name: reserve_port() for name in ("kafka", "controller", "schema-registry", "kafka-rest")}
    kafka = f"localhost:{ports['kafka']}"
    texts = {
        "kafka": (
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://{kafka},CONTROLLER://localhost:{ports['controller']}\n"
            f"controller.quorum.voters=1@localhost:{ports['controller']}\nlog.dirs={run}/kafka/data\n"
            "offsets.topic.replication.factor=1\ngroup.initial.rebalance.delay.ms=0\n"
        ),
        "schema-registry": (
            f"listeners=http://localhost:{ports['schema-registry']}\nkafkastore.bootstrap.servers={kafka}\n"
        ),
        "kafka-rest": (
            f"listeners=http://localhost:{ports['kafka-rest']}\nbootstrap.servers={kafka}\n"
            f"schema.registry.url=http://localhost:{ports['schema-registry']}\n"
        ),
    }
    for name, text in texts.items():
        (run / name).mkdir()
        (run / name / f"{name}.properties").write_text(text)
    return ports


def test_services_start_in_order_serve_and_stop_in_reverse(confluent: Confluent) -> None:
    run = confluent("current")[0]
    ports = write_settings_with_free_ports(Path(run))
    names = ["kafka", "schema-registry", "kafka-rest"]
    others = [name for name in available() if name not in names]
    using = f"Using CONFLUENT_CURRENT: {run}"
    assert confluent("start", "kafka-rest") == [
        using,
        *(line for name in names for line in (f"Starting {name}", f"{name} is [UP]")),
    ]
    assert confluent("start", "kafka") == [using, "kafka is already running. Try restarting if needed"]
    states = [f"{name} is [{'UP' if name in names else 'DOWN'}]" for name in reversed([*names, *others])]
    assert confluent("status") == states
    assert confluent("status", "schema-registry") == ["schema-registry is [UP]", "kafka is [UP]"]
    with urllib.request.urlopen(f"http://localhost:{ports['schema-registry']}/subjects", timeout=30) as answer:
        assert answer.read() == b"[]"
    assert confluent("produce", "shop", stdin="apple\npear\n") == []
    assert confluent("consume", "shop", "--from-beginning", "--max-messages", "2") == ["apple", "pear"]
    assert len(confluent("log", "kafka", "-1")) == 1
    assert confluent("stop", "kafka-rest") == [using, "Stopping kafka-rest", "kafka-rest is [DOWN]"]
    assert confluent("local", "services", "kafka-rest", "status")[0] == "kafka-rest is [DOWN]"
    stopped = [line for name in reversed([*names, *others]) for line in (f"Stopping {name}", f"{name} is [DOWN]")]
    assert confluent("destroy") == [using, *stopped, f"Deleting: {run}"]
    assert not Path(run).exists()


def test_confluent_list_version_and_help_work_without_a_running_service(confluent: Confluent) -> None:
    from pessoa import __version__

    assert confluent("list") == ["Available services:", *(f"  {name}" for name in available())]
    assert available()[:3] == ["kafka", "schema-registry", "kafka-rest"]
    assert confluent("version") == [f"Pessoa: {__version__}"]
    assert confluent("version", "kafka") == [f"kafka: {__version__}"]
    assert confluent("Version", "kafka") == [f"kafka: {__version__}"]
    assert confluent("help", "log")[0] == "Usage: confluent log <service> [tail options]"
    assert confluent("log", "--help") == confluent("help", "log")
    assert confluent("list", "connectors")[1] == "  elasticsearch-sink"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("levitate",), "Unknown command 'levitate'."),
        (("start", "levitation"), "Unknown service: levitation"),
        (("start", "zookeeper"), "There is no zookeeper: its work is done by the quorum inside kafka."),
        (("log",), "Missing required service argument in 'confluent log'"),
        (("top",), "No services are running"),
        (("load", "mine"), "mine is not a predefined connector name."),
        (("status", "connectors"), "connect is [DOWN]"),
    ],
)
def test_a_failing_confluent_command_prints_the_reason_on_standard_output_and_exits_with_127(
    confluent: Confluent, words: tuple[str, ...], sentence: str
) -> None:
    assert confluent(*words, code=127)[0] == sentence


def test_confluent_without_arguments_lists_its_commands_without_the_banner(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pessoa.cli.confluent.confluent"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("confluent: A command line interface")

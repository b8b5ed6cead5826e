"""The schema registry as a process: start, error messages of a failed start, and stop."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from pessoa.testing.broker import Broker
from tests.support.logged_process import LoggedProcess, pessoa

COMMAND = pessoa("schema-registry")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)


def test_the_registry_serves_with_a_properties_file_and_exits_with_0(tmp_path: Path) -> None:
    with Broker() as broker:
        properties = tmp_path / "schema-registry.properties"
        properties.write_text(
            f"listeners=http://127.0.0.1:0\nkafkastore.bootstrap.servers=PLAINTEXT://{broker.bootstrap_servers}\n"
            "host.name=127.0.0.1\nschema.compatibility.level=full\n"
        )
        with LoggedProcess([*COMMAND, str(properties)], tmp_path / "registry.log") as child:
            url = child.wait_for(r"is listening on (\S+)")[1]
            assert httpx.get(f"{url}/config", timeout=60).json() == {"compatibilityLevel": "FULL"}
            assert httpx.post(f"{url}/subjects/a/versions", json={"schema": '"int"'}, timeout=60).json()["id"] == 1
            assert child.stop() == 0


def test_the_registry_exits_with_an_error_that_names_the_unreachable_cluster() -> None:
    ended = run(
        "--bootstrap-server", "127.0.0.1:1", "--port", "0", "--override", "kafkastore.init.timeout.ms=100"
    )  # fmt: skip
    assert ended.returncode == 1
    assert "127.0.0.1:1 does not answer" in ended.stdout


def test_the_registry_can_be_stopped_while_it_waits_for_its_cluster(tmp_path: Path) -> None:
    command = [*COMMAND, "--bootstrap-server", "127.0.0.1:1", "--port", "0"]
    with LoggedProcess(command, tmp_path / "registry.log") as child:
        child.wait_for("waiting for Kafka at 127.0.0.1:1")
        assert child.stop() == 0


def test_the_registry_exits_with_an_error_that_names_the_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--host", "127.0.0.1", "--port", str(port))
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--override", "x"), "KEY=VALUE"),
        (("--override", "listeners=ftp://x:1"), "listeners=ftp://x:1"),
        (("nowhere.properties",), "nowhere.properties"),
    ],
)
def test_the_registry_exits_with_an_error_that_names_the_invalid_argument(
    arguments: tuple[str, ...], says: str
) -> None:
    ended = run(*arguments)
    assert ended.returncode != 0
    assert says in ended.stderr

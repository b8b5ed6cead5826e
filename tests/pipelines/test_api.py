"""The HTTP interface of the engine and the command `pessoa pipelines`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from pessoa.cli.pipelines import pipelines
from pessoa.pipelines.api import pipelines_app
from pessoa.pipelines.engine import Engine
from pessoa.testing import Broker
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer
from tests.support.topics import eventually, fill, make_topic, read_all

FLOWS = Path(__file__).with_name("flows.py")


@pytest.fixture(scope="module")
def url(broker: Broker, spark_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for topic in ("input", "loud"):
        make_topic(broker.bootstrap_servers, topic)
    home = tmp_path_factory.mktemp("engine")

    async def make() -> App:
        return pipelines_app(Engine(broker.bootstrap_servers, home=home, spark_remote=spark_address))

    with ThreadedServer(make) as server:
        yield server.url


def command(url: str, *words: str) -> Result:
    return CliRunner().invoke(pipelines, [*words, "--url", url])


def test_a_query_is_started_shown_paused_resumed_and_deleted_from_the_command_line(broker: Broker, url: str) -> None:
    servers = broker.bootstrap_servers
    fill(servers, "input", [(b"k", b"hello"), (b"k", b"world")])
    started = command(url, "start", "shout", f"{FLOWS}:shout", "--topic", "loud")
    assert started.exit_code == 0, started.output
    eventually(lambda: [message.value() for message in read_all(servers, "loud")] == [b"HELLO", b"WORLD"])
    eventually(lambda: httpx.get(f"{url}/queries/shout").json()["progress"]["lag"] == 0)
    header, row, slots = command(url, "list").output.splitlines()
    assert header.split()[:4] == ["id", "state", "delivery", "speed"]
    assert row.split()[:4] == ["shout", "RUNNING", "at-least-once", "micro-batch"]
    assert slots.startswith("task slots: 0 held in real-time mode, ")
    assert ["shout", "RUNNING", "micro-batch"] in [line.split()[:3] for line in command(url, "top").output.splitlines()]
    assert httpx.get(f"{url}/task-slots").json() == {"total": 64, "used": 0, "free": 60}
    assert "offset           input-" in command(url, "status", "shout").output
    metrics = httpx.get(f"{url}/metrics").text
    assert 'pessoa_query_lag_records{query="shout"} 0.0' in metrics
    assert 'pessoa_query_state{query="shout",state="RUNNING"} 1.0' in metrics
    assert "PAUSED" in command(url, "pause", "shout").output
    assert command(url, "resume", "shout").exit_code == 0
    assert command(url, "delete", "shout").output == "shout is deleted\n"
    assert httpx.get(f"{url}/queries").json() == []


def test_the_pipelines_command_and_api_report_errors_in_one_sentence(url: str) -> None:
    missing = command(url, "start", "a", "nowhere:nothing")
    assert (missing.exit_code, missing.output) == (
        1,
        "Error: nowhere:nothing cannot be loaded: No module named 'nowhere'\n",
    )
    assert command(url, "status", "b").output == "Error: there is no query b\n"
    assert command(url, "pause", "b").output == "Error: there is no query b\n"
    gone = command("http://127.0.0.1:1", "list")
    assert gone.exit_code == 1
    assert "start one with `pessoa pipelines serve`" in gone.output
    refused = httpx.post(f"{url}/queries", json={"id": "x", "start_function": "a:b", "delivery": "twice"})
    assert refused.status_code == 422
    assert refused.json()["message"] == "delivery is at-least-once or exactly-once, not twice"

"""The REST proxy as a process: a session with curl, SIGTERM and SIGKILL, errors at the start."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Broker
from tests.support.logged_process import LoggedProcess, pessoa

PATIENCE_S = 120.0
# A session as users type it, but without `| jq`.
NOTES = [
    'curl "http://localhost:8082/topics"',
    'curl "http://localhost:8082/topics/topicgo1"',
    'curl "http://localhost:8082/topics/topicgo1/partitions"',
    r"""curl -X POST -H "Content-Type: application/vnd.kafka.json.v2+json" \
      -H "Accept: application/vnd.kafka.v2+json" \
      --data '{"records":[{"value":{"msg":"success 4"}}]}' "http://localhost:8082/topics/topicgo1" """,
    r"""curl -X POST -H "Content-Type: application/vnd.kafka.v2+json" \
      --data '{"name": "my_consumer_instance", "format": "json", "auto.offset.reset": "earliest"}' \
      http://localhost:8082/consumers/go_json_consumer""",
    r"""curl -X POST -H "Content-Type: application/vnd.kafka.v2+json" --data '{"topics":["topicgo1"]}' \
 http://localhost:8082/consumers/go_json_consumer/instances/my_consumer_instance/subscription""",
    r"""curl -X GET -H "Accept: application/vnd.kafka.json.v2+json" \
  http://localhost:8082/consumers/go_json_consumer/instances/my_consumer_instance/records""",
    r"""curl -X DELETE -H "Content-Type: application/vnd.kafka.v2+json" \
      http://localhost:8082/consumers/go_json_consumer/instances/my_consumer_instance""",
]


@contextmanager
def running_proxy(
    bootstrap_servers: str, settings: dict[str, str] | None = None
) -> Iterator[tuple[LoggedProcess, str]]:
    """Start `pessoa rest-proxy`; return the process and the URL that it has logged."""
    overrides = [word for key, value in (settings or {}).items() for word in ("--override", f"{key}={value}")]
    command = pessoa("rest-proxy", "--bootstrap-server", bootstrap_servers, "--port", "0", *overrides)
    with TemporaryDirectory() as folder, LoggedProcess(command, Path(folder) / "proxy.log") as process:
        yield process, process.wait_for(r"listening on (\S+)")[1]


def curl(command: str) -> str:
    done = subprocess.run(["bash", "-c", f"{command.replace('curl ', 'curl -sS ', 1)}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def create_topic(bootstrap_servers: str, name: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    return admin


@pytest.mark.skipif(shutil.which("curl") is None, reason="the notes' session is typed with curl, which is not here")
def test_a_curl_session_with_the_rest_proxy_produces_consumes_and_deletes_its_instance() -> None:
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "topicgo1")
        # The session uses port 8082, which is replaced by a free port.
        with running_proxy(broker.bootstrap_servers) as (_, url):
            here = url.replace("127.0.0.1", "localhost")
            session = [command.replace("http://localhost:8082", here) for command in NOTES]
            topics, topic, partitions, produced, created, subscribed = (curl(each) for each in session[:6])
            assert json.loads(topics) == ["topicgo1"]
            assert json.loads(topic)["name"] == "topicgo1"
            assert [each["partition"] for each in json.loads(partitions)] == [0]
            assert json.loads(produced)["offsets"] == [{"partition": 0, "offset": 0, "error_code": None, "error": None}]
            uri = f"{here}/consumers/go_json_consumer/instances/my_consumer_instance"
            assert json.loads(created) == {"instance_id": "my_consumer_instance", "base_uri": uri}
            assert subscribed == ""
            deadline = time.monotonic() + PATIENCE_S
            while not (records := json.loads(curl(session[6]))):
                assert time.monotonic() < deadline, "no record came"
            value = {"msg": "success 4"}
            assert records == [{"topic": "topicgo1", "key": None, "value": value, "partition": 0, "offset": 0}]
            assert curl(session[7]) == ""
            assert json.loads(curl(session[6]))["error_code"] == 40403


def test_on_sigterm_consumer_instances_leave_their_groups_and_the_proxy_exits_with_0() -> None:
    with Broker() as broker, running_proxy(broker.bootstrap_servers) as (process, url):
        admin = create_topic(broker.bootstrap_servers, "t")
        join(url, "t")
        assert process.stop() == 0
        assert members(admin) == []


def test_the_members_of_a_killed_proxy_leave_the_group_after_the_session_timeout() -> None:
    # The broker refuses longer session timeouts, so a proxy that ignores its own setting cannot join.
    settings = {"group.min.session.timeout.ms": "1000", "group.max.session.timeout.ms": "4000"}
    with Broker(settings) as broker:
        admin = create_topic(broker.bootstrap_servers, "t")
        # Long enough that the session of a running proxy does not expire.
        session = {"consumer.session.timeout.ms": "4000", "consumer.heartbeat.interval.ms": "500"}
        with running_proxy(broker.bootstrap_servers, settings=session) as (process, url):
            join(url, "t")
            assert len(members(admin)) == 1
            process.kill()
            deadline = time.monotonic() + PATIENCE_S
            while members(admin):
                assert time.monotonic() < deadline, "the ghost stays"
        # The next proxy gets all partitions of the group.
        with running_proxy(broker.bootstrap_servers, settings=session) as (_, url):
            assert join(url, "t") == [{"topic": "t", "partition": 0}]


def join(url: str, topic: str) -> list[dict[str, object]]:
    """Create an instance in the group `g` and read until it has a partition; return its assignment."""
    http = httpx.Client(trust_env=False, timeout=PATIENCE_S)
    body = {"format": "json", "auto.offset.reset": "earliest"}
    headers = {"content-type": "application/vnd.kafka.v2+json"}
    uri = http.post(f"{url}/consumers/g", json=body, headers=headers).json()["base_uri"]
    http.post(f"{uri}/subscription", json={"topics": [topic]}, headers=headers)
    found: list[dict[str, object]] = []
    deadline = time.monotonic() + PATIENCE_S
    while not found:
        assert time.monotonic() < deadline, "no partition was assigned"
        http.get(f"{uri}/records?timeout=200", headers={"accept": "application/vnd.kafka.json.v2+json"})
        found = http.get(f"{uri}/assignments").json()["partitions"]
    http.close()
    return found


def members(admin: AdminClient) -> list[object]:
    found: list[object] = admin.describe_consumer_groups(["g"])["g"].result().members
    return found


def test_rest_proxy_exits_with_an_error_message_for_a_port_in_use_and_a_wrong_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = pessoa("rest-proxy", "--port", port)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, "cannot listen" in done.stdout + done.stderr) == (1, True)
    command = pessoa("rest-proxy", "--override", "consumer.threads=many")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "consumer.threads=many: it must be a whole number" in done.stderr

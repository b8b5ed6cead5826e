"""Public clients of ksqlDB with our server: the Python package of PyPI, and curl as in ksqlDB's reference."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services.ksql.serving import Ksql

# `make test` installs it there, outside .venv, for the reasons in tools/ksql-client.lock.
CLIENT = Path(__file__).parents[3] / "build" / "ksql-client"
PAGE = Path(__file__).parents[3] / "docs" / "KSQL.md"
SESSION = Path(__file__).parent / "pypi_client_session.py"
V1 = "Accept: application/vnd.ksql.v1+json"
# HTTP/2 from the first byte on, as ksqlDB's Java client speaks it.
PRIOR = "--http2-prior-knowledge"

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on PATH")


@pytest.mark.skipif(
    not (CLIENT / "ksql").is_dir(), reason="make build/ksql-client/.stamp installs the ksqlDB client of PyPI"
)
def test_the_ksql_client_of_pypi_creates_queries_and_drops_streams_and_inserts_rows(ksql: Ksql, name: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(CLIENT)}
    done = subprocess.run(
        [sys.executable, str(SESSION), str(ksql.base_url).rstrip("/"), name],
        capture_output=True, text=True, timeout=120, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["version"] == ksql.get("/info").json()["KsqlServerInfo"]["version"]
    assert "ksql.service.id" in said["properties"]
    assert said["created"] is True
    assert said["derived"] is True
    assert said["inserted"] == [{"status": "ok", "seq": 0}, {"status": "ok", "seq": 1}]
    assert [one.get("row") for one in json.loads(said["text"])[1:3]] == [{"columns": ["a", 1]}, {"columns": ["b", 2]}]
    assert said["objects"] == [{"V": "a", "N": 1}, {"V": "b", "N": 2}]
    head, *rows = [json.loads(line) for line in said["http2"].splitlines()]
    assert (head["columnNames"], rows) == (["V", "N"], [["a", 1], ["b", 2]])
    assert said["closed"] is False
    assert sorted(said["streams"]) == [name, f"{name}_TOO", f"{name}_UPPER"]
    assert "nonsense" in said["refused"]
    assert sorted(said["left"]) == [name, f"{name}_TOO"]


def curl(*words: str) -> str:
    done = subprocess.run(["curl", "-sS", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_curl
def test_the_curl_requests_of_ksqldbs_reference_are_answered(ksql: Ksql, name: str) -> None:
    """The requests of ksqlDB's pages: /ksql, /query, /query-stream, /inserts-stream, /close-query, /info, /status."""
    url = str(ksql.base_url).rstrip("/")

    def statements(text: str) -> list[dict[str, Any]]:
        body = json.dumps({"ksql": text, "streamsProperties": {}})
        answer: list[dict[str, Any]] = json.loads(curl("-X", "POST", f"{url}/ksql", "-H", V1, "-d", body))
        return answer

    create = (
        f"CREATE STREAM {name} (K VARCHAR KEY, N INT) WITH (kafka_topic='{name}', value_format='json', partitions=1);"
    )
    assert statements(create)[0]["commandStatus"]["status"] == "SUCCESS"
    assert json.loads(curl(f"{url}/status/stream/{name}/create"))["message"] == "Stream created"
    lines = "\n".join([json.dumps({"target": name}), '{"K": "a", "N": 1}', '{"K": "b", "N": 2}', ""])
    told = curl(PRIOR, "-X", "POST", f"{url}/inserts-stream", "--data-binary", lines).splitlines()
    assert [json.loads(one)["status"] for one in told] == ["ok", "ok"]

    query = f"SELECT * FROM {name} EMIT CHANGES LIMIT 2;"
    old = {"ksql": query, "streamsProperties": {"ksql.streams.auto.offset.reset": "earliest"}}
    rows = json.loads(curl("-X", "POST", f"{url}/query", "-H", V1, "--basic", "-d", json.dumps(old)))
    assert rows[0]["header"]["schema"] == "`K` STRING KEY, `N` INTEGER"
    assert rows[1:] == [
        {"row": {"columns": ["a", 1]}}, {"row": {"columns": ["b", 2]}}, {"finalMessage": "Limit Reached"},
    ]  # fmt: skip
    new = json.dumps({"sql": query, "properties": {"auto.offset.reset": "earliest"}})
    for version in ("--http1.1", "--http2", PRIOR):
        # With --http2 curl offers an upgrade, which a server may ignore.
        head, *found = curl(version, "-X", "POST", f"{url}/query-stream", "-d", new).splitlines()
        assert json.loads(head)["columnTypes"] == ["STRING", "INTEGER"]
        assert [json.loads(one) for one in found] == [["a", 1], ["b", 2]]
    array = json.loads(curl("-X", "POST", f"{url}/query-stream", "-H", "Accept: application/json", "-d", new))
    assert array[1:] == [["a", 1], ["b", 2]]
    closed = curl("-X", "POST", f"{url}/close-query", "-d", '{"queryId": "none"}', "-w", " %{http_code}")
    assert closed.endswith(" 400")
    assert json.loads(curl(f"{url}/info"))["KsqlServerInfo"]["ksqlServiceId"] == "shared_"
    assert json.loads(curl(f"{url}/healthcheck"))["isHealthy"] is True
    assert statements(f"DROP STREAM {name} DELETE TOPIC;")[0]["commandStatus"]["status"] == "SUCCESS"


@needs_curl
def test_the_curl_commands_of_the_ksql_page_are_answered_without_an_error(ksql: Ksql) -> None:
    ksql.run("CREATE STREAM IF NOT EXISTS ORDERS (ID INT KEY) WITH (KAFKA_TOPIC='page-orders', VALUE_FORMAT='JSON', "
             "PARTITIONS=1);")  # fmt: skip
    section = PAGE.read_text(encoding="utf-8").split("## The REST interface")[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = [shlex.split(line) for line in block[1].replace("\\\n", " ").splitlines()]
    assert [words[0] for words in lines] == ["curl"] * 3
    for words in lines:
        sent = [word.replace("http://localhost:8088", str(ksql.base_url).rstrip("/")) for word in words[1:]]
        # The last is a push query that ends with its client.
        ended = [word.replace("EMIT CHANGES", "EMIT CHANGES LIMIT 0") for word in sent]
        answer = json.loads(curl(*ended).splitlines()[0])
        assert "error_code" not in answer, answer

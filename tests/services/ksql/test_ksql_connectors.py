"""Statements about connectors, with a real Connect worker whose tasks do not run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pessoa.testing import Broker
from tests.connect.serving import PretendingRunner, connect_worker
from tests.services.ksql.serving import ksql_server, wait_for

FILE_SOURCE = (
    "CREATE SOURCE CONNECTOR lines WITH ('connector.class'='FileStreamSource', 'file'='/tmp/none', 'topic'='lines', "
    "'tasks.max'=1);"
)


def test_a_connector_is_created_listed_described_and_dropped(broker: Broker, tmp_path: Path) -> None:
    with connect_worker(broker.bootstrap_servers, tmp_path / "connect", runner=PretendingRunner()) as worker:
        settings = {"ksql.service.id": "connectors_", "ksql.connect.url": str(worker.base_url)}
        with ksql_server(broker.bootstrap_servers, tmp_path, settings) as ksql:
            (made,) = ksql.run(FILE_SOURCE)
            assert made["@type"] == "connector_info"
            assert made["info"]["name"] == "LINES"
            assert made["info"]["config"]["file"] == "/tmp/none"
            assert "already exists" in ksql.refused(FILE_SOURCE)["message"]
            (kept,) = ksql.run(FILE_SOURCE.replace("CONNECTOR", "CONNECTOR IF NOT EXISTS"))
            assert kept["@type"] == "warning_entity"

            def listed() -> list[dict[str, str]]:
                found: list[dict[str, str]] = ksql.run("SHOW CONNECTORS;")[0]["connectors"]
                return found

            wait_for(lambda: listed()[0]["state"] == "RUNNING (1/1 tasks RUNNING)", "the connector's start")
            assert (listed()[0]["name"], listed()[0]["type"]) == ("LINES", "source")
            assert ksql.run("SHOW SINK CONNECTORS;")[0]["connectors"] == []
            described = ksql.run("DESCRIBE CONNECTOR LINES;")[0]
            assert described["status"]["connector"]["state"] == "RUNNING"
            plugins = ksql.run("SHOW CONNECTOR PLUGINS;")[0]["connectorsPlugins"]
            assert any(one["type"] == "sink" for one in plugins)
            assert ksql.run("DROP CONNECTOR LINES;")[0]["connectorName"] == "LINES"
            assert "does not exist" in ksql.refused("DROP CONNECTOR LINES;")["message"]
            assert ksql.run("DROP CONNECTOR IF EXISTS LINES;")[0]["@type"] == "warning_entity"
            refused = ksql.refused("CREATE SOURCE CONNECTOR bad WITH ('connector.class'='NoSuchClass');")
            assert "Connect refused" in refused["message"]


def test_an_unreachable_connect_worker_is_named_in_the_error(broker: Broker, tmp_path: Path) -> None:
    settings = {"ksql.service.id": "away_", "ksql.connect.url": "http://127.0.0.1:1"}
    with ksql_server(broker.bootstrap_servers, tmp_path, settings) as ksql:
        refused = ksql.refused("SHOW CONNECTORS;")
        assert refused["error_code"] == 50000
        assert "http://127.0.0.1:1 does not answer" in refused["message"]


class RecordingConnect(BaseHTTPRequestHandler):
    """A Connect worker without connectors that records the Authorization header of each request."""

    logins: list[str | None]

    def do_GET(self) -> None:
        self.logins.append(self.headers["Authorization"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}" if self.path.startswith("/connectors") else b"[]")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening() -> Iterator[tuple[str, list[str | None]]]:
    logins: list[str | None] = []
    server = HTTPServer(("127.0.0.1", 0), type("Asked", (RecordingConnect,), {"logins": logins}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", logins
    server.shutdown()
    server.server_close()


def test_requests_to_connect_have_the_credentials_of_the_caller_unless_the_server_has_its_own(
    broker: Broker, tmp_path: Path, listening: tuple[str, list[str | None]]
) -> None:
    url, logins = listening
    own = {"ksql.connect.basic.auth.user.info": "ksql:secret"}
    for service_id, more in (("callers_", {}), ("own_", own)):
        settings = {"ksql.service.id": service_id, "ksql.connect.url": url, **more}
        with ksql_server(broker.bootstrap_servers, tmp_path / service_id, settings) as ksql:
            for header in ({"Authorization": "Basic YW5hOng="}, {}):
                sent = ksql.post("/ksql", json={"ksql": "SHOW CONNECTORS; SHOW CONNECTOR PLUGINS;"}, headers=header)
                assert sent.status_code == 200, sent.text
    assert logins == ["Basic YW5hOng="] * 2 + [None] * 2 + ["Basic a3NxbDpzZWNyZXQ="] * 4

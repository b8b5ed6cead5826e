"""Statements about connectors, against a real Connect worker whose tasks only pretend to run."""

from __future__ import annotations

from pathlib import Path

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


def test_a_connect_that_is_away_is_named(broker: Broker, tmp_path: Path) -> None:
    settings = {"ksql.service.id": "away_", "ksql.connect.url": "http://127.0.0.1:1"}
    with ksql_server(broker.bootstrap_servers, tmp_path, settings) as ksql:
        refused = ksql.refused("SHOW CONNECTORS;")
        assert refused["error_code"] == 50000
        assert "http://127.0.0.1:1 does not answer" in refused["message"]

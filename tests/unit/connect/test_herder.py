"""The herder without Kafka and Spark: the tests call its rounds one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.connect.herder import ConnectorRun, Herder
from pessoa.connect.plugins import Plugins
from pessoa.connect.worker_config import make_config
from pessoa.connect.worker_store import MemoryStore
from tests.connect.serving import PretendingRunner

SOURCE = {"connector.class": "FileStreamSource", "topic": "lines", "file": "in.txt"}


def test_a_connector_that_is_created_during_a_poll_of_the_herder_keeps_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(None)
    config = make_config({"pessoa.home": str(tmp_path)}, is_standalone=True)
    herder = Herder(config, store, PretendingRunner(), Plugins())
    herder.lead(True)
    # A connector that was deleted is removed first; meanwhile a request creates another.
    herder._runs["old"] = ConnectorRun(SOURCE, "source", "1")

    def create_another(name: str) -> None:
        del herder._runs[name]
        herder.put("new", {**SOURCE, "name": "new"})

    monkeypatch.setattr(herder, "_remove_connector", create_another)
    herder.reconcile()
    assert store.state.connector_status["new"].state == "UNASSIGNED"
    herder.reconcile()
    assert store.state.connector_status["new"].state == "RUNNING"

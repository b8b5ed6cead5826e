"""The connectors of docs/WRITING_A_CONNECTOR.md, as printed there: found as plugins, validated, started, stopped."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.connect.config_validation import validate
from pessoa.connect.plugins import Plugins, UnknownPlugin
from pessoa.connect.query_offset import query_offset_of
from pessoa.connect.sink_task import SinkTask
from pessoa.connect.source_task import SourceTask
from pessoa.connect.worker_config import make_config
from pessoa.pipelines.python_sink import KafkaRow
from pessoa.pipelines.tasks import Task

PAGE = Path(__file__).parents[2] / "docs" / "WRITING_A_CONNECTOR.md"
STRING = "org.apache.kafka.connect.storage.StringConverter"


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[dict[str, str]]:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "relogio.py").write_text(found[1], encoding="utf-8")
    # There are no internal topics, so the offsets of a source are kept in a file.
    yield {"plugin.path": str(plugins), "pessoa.home": str(tmp_path / "home"), "bootstrap.servers": "127.0.0.1:1",
            "key.converter": STRING}  # fmt: skip
    # The next test must load the module of its own folder.
    sys.modules.pop("relogio", None)


def test_the_documented_connectors_are_listed_as_plugins_and_their_config_is_validated(worker: dict[str, str]) -> None:
    plugins = Plugins(worker["plugin.path"])
    assert {("relogio.RelogioConnector", "source"), ("relogio.CadernoConnector", "sink")} <= {
        (each.name, each.type) for each in plugins.list_plugins()
    }
    verdict = validate(plugins, worker, {"name": "r", "connector.class": "Relogio", "until": "soon"})
    errors = {report.key.name: report.errors for report in verdict.reports if report.errors}
    assert set(errors) == {"topic", "until"}


def test_the_documented_source_counts_and_continues_from_its_offset(worker: dict[str, str]) -> None:
    settings = {"connector.class": "Relogio", "topic": "tiques", "until": "5"}
    task = SourceTask("relogio", 0, settings, worker, query_offset_of({}))
    rows, place = task.read(task.initial_offset())
    assert [json.loads(row.value or b"")["payload"]["number"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row.key for row in rows] == [b"1", b"2", b"3", b"4", b"5"]
    assert task.read(place) == ([], place)
    later = SourceTask("relogio", 0, {**settings, "until": "7"}, worker, place)
    assert len(list(later.read(later.initial_offset())[0])) == 2
    # After a crash the task is asked for the same batch again.
    assert list(later.read_between(query_offset_of({}), place)) == rows


def test_the_documented_sink_writes_records_and_skips_tombstones_and_unreadable_ones(
    worker: dict[str, str], tmp_path: Path
) -> None:
    settings = {"connector.class": "Caderno", "file": str(tmp_path / "caderno.txt"), "topics": "tiques",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false", "errors.tolerance": "all"}  # fmt: skip
    task = SinkTask("caderno", settings, worker, "first")
    values = [b'{"number": 1}', None, b"broken", b'{"number": 2}']
    rows = [KafkaRow("tiques", 0, offset, 0, "CreateTime", None, value, []) for offset, value in enumerate(values)]
    task.open(Task("c", 0, 0, 0))
    task.put(rows, 0)
    task.close()
    assert (tmp_path / "caderno.txt").read_text() == "1\n2\n"


def test_a_plugin_file_that_cannot_be_loaded_hides_no_other_and_is_named_in_the_unknown_plugin_error(
    worker: dict[str, str],
) -> None:
    broken = Path(worker["plugin.path"]) / "broken.py"
    broken.write_text("import a_package_that_is_not_installed\n", encoding="utf-8")
    plugins = Plugins(worker["plugin.path"])
    assert plugins.connector_name("Relogio") == "relogio.RelogioConnector"
    with pytest.raises(UnknownPlugin, match=r"broken\.py cannot be loaded: ModuleNotFoundError: No module named 'a_p"):
        plugins.connector("Broken")


def test_the_documented_example_that_runs_the_connector_without_a_worker_succeeds(worker: dict[str, str]) -> None:
    _, trial = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    source = Plugins(worker["plugin.path"]).connector("Relogio")
    exec(trial, {"RelogioConnector": source})


def test_the_plugin_path_of_a_worker_defaults_to_the_plugins_folder_in_its_home(worker: dict[str, str]) -> None:
    folder = Path(worker["plugin.path"])
    assert make_config({"pessoa.home": str(folder.parent)})["plugin.path"] == str(folder)
    assert make_config({"pessoa.home": str(folder.parent), "plugin.path": "others"})["plugin.path"] == "others"
    assert "plugin.path" not in make_config({"pessoa.home": str(folder)}).settings

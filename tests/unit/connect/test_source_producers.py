"""The settings of producers that reach the writer of a source's records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from pessoa.connect.runner import TaskSpec
from pessoa.connect.spark_runner import SparkRunner
from pessoa.connect.worker_config import make_config
from pessoa.pipelines.queries import QuerySpec

if TYPE_CHECKING:
    from pessoa.pipelines.engine import Engine


class Recorder:
    """An engine that notes what it is to run."""

    def __init__(self) -> None:
        self.started: list[QuerySpec] = []

    def queries(self) -> list[object]:
        return []

    def start(self, spec: QuerySpec) -> None:
        self.started.append(spec)


@pytest.mark.parametrize("support", ["requested", "required"])
def test_a_sources_records_are_written_with_the_producer_settings_of_worker_and_connector(
    support: str, tmp_path: Path
) -> None:
    worker = {
        "pessoa.home": str(tmp_path),
        "producer.linger.ms": "5",
        "producer.acks": "1",
        "producer.key.serializer": "J",
    }
    engine = Recorder()
    runner = SparkRunner(make_config(worker, is_standalone=True), lambda _: cast("Engine", engine))
    settings = {
        "connector.class": "FileStreamSource", "file": "x", "topic": "t", "exactly.once.support": support,
        "producer.override.acks": "all", "producer.override.sasl.jaas.config": "of the connector",
    }  # fmt: skip
    runner.start(TaskSpec("c", 0, "source", "run", settings))
    [spec] = engine.started
    assert spec.producer_options == {"linger.ms": "5", "acks": "all", "sasl.jaas.config": "of the connector"}

"""Which settings of worker and connector are used by the producer of a source's records, and which by converters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from pessoa.client.registry_client import URL
from pessoa.connect import spark_runner
from pessoa.connect.record_converters import with_registry_of_worker
from pessoa.connect.runner import TaskSpec
from pessoa.connect.spark_runner import SparkRunner
from pessoa.connect.worker_config import make_config
from pessoa.pipelines.queries import QuerySpec

if TYPE_CHECKING:
    from pessoa.pipelines.engine import Engine


class Recorder:
    """An engine that records the queries that it should start."""

    def __init__(self) -> None:
        self.started: list[QuerySpec] = []

    def queries(self) -> list[object]:
        return []

    def start(self, spec: QuerySpec) -> None:
        self.started.append(spec)


@pytest.mark.parametrize("support", ["requested", "required"])
def test_source_records_are_written_with_the_producer_settings_of_worker_and_connector(
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


def test_the_registry_credentials_of_the_worker_are_sent_to_its_own_registry_only() -> None:
    worker = {URL: "https://a:8081", "basic.auth.user.info": "connect:planted", "schemas.enable": "false"}
    login = {"basic.auth.user.info": "connect:planted"}
    assert with_registry_of_worker({}, worker) == {URL: "https://a:8081", **login}
    assert with_registry_of_worker({URL: "https://a:8081", "x": "y"}, worker) == {
        URL: "https://a:8081",
        "x": "y",
        **login,
    }
    assert with_registry_of_worker({URL: "https://evil:8081"}, worker) == {URL: "https://evil:8081"}
    own = {"basic.auth.user.info": "ana:hers"}
    assert with_registry_of_worker(own, worker) == {URL: "https://a:8081", **own}
    assert with_registry_of_worker({URL: "http://b"}, {}) == {URL: "http://b"}
    assert with_registry_of_worker({}, {}) == {}


@pytest.mark.parametrize(
    ("settings", "taken"),
    [({"topics": "orders,a.b"}, {"orders", "a.b"}), ({"topics.regex": "or.*s|a"}, {"orders", "a"})],
)
def test_topics_regex_of_a_sink_matches_whole_topic_names(
    settings: dict[str, str], taken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_runner, "_starting_offsets", lambda *_: "earliest")
    options = spark_runner.sink_options({"bootstrap.servers": "h:1"}, settings, "c")
    # Spark looks for a match anywhere in a name.
    pattern = re.compile(options["subscribePattern"])
    topics = ("orders", "orders-refused", "all-orders", "a.b", "aXb", "a", "ab")
    assert {each for each in topics if pattern.search(each)} == taken

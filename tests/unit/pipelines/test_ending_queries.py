"""A query that Spark takes long to stop, since its cluster is unreachable, delays no other query.

Spark is a fake here; it stops one query only when the test releases it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.pipelines import ending_queries, group_offsets, query_keeper
from pessoa.pipelines import engine as engine_file
from pessoa.pipelines.engine import Engine, EngineRefused
from pessoa.pipelines.queries import QuerySpec
from pessoa.pipelines.spark_link import SparkLink
from tests.support.topics import eventually

DEADLINE_S = 60.0


class Spark:
    def __init__(self) -> None:
        self.launched: list[str] = []
        self.is_stopping = threading.Event()
        self.may_stop = threading.Event()
        self.running: list[Any] = []

    def launch(self, spec: QuerySpec, *_: object, **__: object) -> Any:
        self.launched.append(spec.id)
        running = SimpleNamespace(runId=len(self.launched), lastProgress=None, exception=lambda: None)
        running.stop = self.stop_slowly if self.launched == ["slow"] else lambda: None
        self.running.append(running)
        return running

    def stop_slowly(self) -> None:
        self.is_stopping.set()
        assert self.may_stop.wait(DEADLINE_S)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    made = Spark()
    session = SimpleNamespace(streams=SimpleNamespace(active=made.running), stop=lambda: None)
    monkeypatch.setattr(query_keeper, "launch", made.launch)
    monkeypatch.setattr(query_keeper, "in_use", nullcontext)
    monkeypatch.setattr(query_keeper, "LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr(query_keeper, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(group_offsets, "_delete", lambda *_: None)
    monkeypatch.setattr(SparkLink, "_connect", lambda _: session)
    monkeypatch.setattr(ending_queries, "MOMENT_S", 0.01)
    yield made
    made.may_stop.set()


@pytest.fixture
def engine(spark: Spark, tmp_path: Path) -> Iterator[Engine]:
    with Engine("127.0.0.1:1", home=tmp_path, spark_remote="sc://127.0.0.1:1", state_topic=None) as made:
        made.start(copy("slow"))
        yield made
        spark.may_stop.set()


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def copy(query_id: str) -> QuerySpec:
    return QuerySpec(query_id, start_function="builtins:print", topic="out")


def test_others_are_started_and_stopped_while_spark_is_stopping_one(
    spark: Spark, engine: Engine, aside: ThreadPoolExecutor
) -> None:
    stopping: Future[None] = aside.submit(engine.stop, "slow")
    assert spark.is_stopping.wait(DEADLINE_S)
    try:
        aside.submit(engine.start, copy("quick")).result(DEADLINE_S / 4)
        aside.submit(engine.pause, "quick").result(DEADLINE_S / 4)
        assert not stopping.done(), "who stops a query may rely on it that nothing is written any more"
    finally:
        spark.may_stop.set()
    stopping.result(DEADLINE_S)
    assert [(status.id, status.state) for status in engine.queries()] == [("slow", "STOPPED"), ("quick", "PAUSED")]


def test_a_query_is_started_again_when_spark_has_stopped_it_and_not_before(spark: Spark, engine: Engine) -> None:
    engine.restart("slow")
    assert spark.is_stopping.wait(DEADLINE_S)
    engine.start(copy("quick"))
    # Several rounds have gone by when the query that failed has been started again.
    spark.running.pop()
    eventually(lambda: spark.launched == ["slow", "quick", "quick"])
    spark.may_stop.set()
    eventually(lambda: spark.launched == ["slow", "quick", "quick", "slow"])


def test_a_query_that_spark_does_not_stop_keeps_its_checkpoint_and_its_name(
    spark: Spark, engine: Engine, aside: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_file, "TIMEOUT_S", 0.1)
    with pytest.raises(EngineRefused, match="Spark is still stopping the query slow"):
        engine.delete("slow")
    assert engine.query("slow").status().state == "STOPPED"
    releasing = aside.submit(engine.release, "slow")
    eventually(lambda: not engine.queries())
    with pytest.raises(EngineRefused, match="Spark is still stopping the query slow"):
        engine.start(copy("slow"))
    spark.may_stop.set()
    releasing.result(DEADLINE_S)
    engine.start(copy("slow"))
    assert spark.launched == ["slow", "slow"]

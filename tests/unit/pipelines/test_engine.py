"""The engine while its cluster is unreachable: stopping a query needs no response of the cluster.

Spark and the cluster are fakes here; `tests/pipelines` has real ones.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.pipelines import engine as engine_file
from pessoa.pipelines import group_offsets, query_keeper, traces
from pessoa.pipelines.engine import Engine, EngineRefused
from pessoa.pipelines.names import EVERY_NAME
from pessoa.pipelines.plan import Aggregate, Column, Sink, Source
from pessoa.pipelines.queries import QuerySpec, to_value
from pessoa.pipelines.slots import kept_slots
from pessoa.pipelines.spark_link import SparkLink
from pessoa.pipelines.topic_ids import TopicIdsUnreadable, TopicLook, TopicRecreated
from pessoa.pipelines.topic_writer import marker_topic
from tests.support.topics import eventually

DEADLINE_S = 60.0


class Cluster:
    """A fake of the parts of Kafka and Spark that the engine uses."""

    def __init__(self) -> None:
        self.was_asked = threading.Event()
        self.may_answer = threading.Event()
        self.connections = 0
        self.refusals: list[Exception] = []
        self.remembered: dict[str, Any] = {}
        self.launched: list[str] = []
        self.running: list[Any] = []
        self.stopped: list[str] = []
        # What it says of a write: it is written, or why not.
        self.write_failures: list[Exception] = []
        self.removed: list[str] = []
        # What became of markers, in order.
        self.steps: list[str] = []
        self.while_removing: Callable[[], object] = lambda: None
        # Of the topics that it has.
        self.topic_ids: dict[str, str] = {}

    def ids_of(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic in topics}

    def ensure_topic(self, *_: object) -> None:
        self.was_asked.set()
        assert self.may_answer.wait(DEADLINE_S)
        if self.refusals:
            raise self.refusals.pop()
        self.steps.append("made")

    def state_topic(self, *_: object) -> Any:
        return SimpleNamespace(load=self.load, put=self.put)

    def load(self) -> dict[str, Any]:
        return {query_id: value for query_id, value in self.remembered.items() if value is not None}

    def put(self, query_id: str, value: Any) -> Callable[[], None]:
        self.remembered[query_id] = value
        return self.wait_until_written

    def wait_until_written(self) -> None:
        if self.write_failures:
            raise self.write_failures.pop()

    def delete_topic(self, _: object, name: str) -> None:
        self.while_removing()
        self.removed.append(name)
        self.steps.append("removed")

    def launch(self, spec: QuerySpec, *_: object, **__: object) -> Any:
        self.launched.append(spec.id)
        run_id = f"{spec.id}-{len(self.launched)}"
        running = SimpleNamespace(runId=run_id, lastProgress=None, stop=lambda: self.stopped.append(run_id))
        self.running.append(running)
        return running

    def session(self) -> Any:
        self.connections += 1
        return SimpleNamespace(streams=SimpleNamespace(active=self.running), stop=lambda: None)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()
    for name in ("ensure_topic", "delete_topic"):
        monkeypatch.setattr(traces, name, getattr(made, name))
    monkeypatch.setattr(query_keeper, "launch", made.launch)
    monkeypatch.setattr(engine_file, "StateTopic", made.state_topic)
    # No group is deleted: there is no cluster that answers, and closing an engine waits for the answer.
    monkeypatch.setattr(group_offsets, "_delete", lambda *_: None)
    monkeypatch.setattr(query_keeper, "in_use", nullcontext)
    monkeypatch.setattr(SparkLink, "_connect", lambda _: made.session())
    monkeypatch.setattr(query_keeper, "LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr(query_keeper, "FIRST_PAUSE_S", 0.0)
    for name in ("ask", "answer"):
        monkeypatch.setattr(TopicLook, name, made.ids_of)
    yield made
    made.may_answer.set()


def once(query_id: str, **more: Any) -> QuerySpec:
    return QuerySpec(query_id, start_function="flows:copy", topic="out", delivery="exactly-once", **more)


def make_engine(home: Path, **more: Any) -> Engine:
    return Engine("127.0.0.1:1", home=home, spark_remote="sc://127.0.0.1:1", **more)


def is_waited_for(engine: Engine, name: str) -> bool:
    """Return whether a thread waits for the lock of the name, or with EVERY_NAME for that of all names."""
    with engine._names._condition:
        return name in engine._names._awaited_names


def in_time(act: Callable[[], object]) -> None:
    acting = threading.Thread(target=act, daemon=True)
    acting.start()
    acting.join(DEADLINE_S)
    assert not acting.is_alive(), "it waited for the cluster"


def test_queries_are_stopped_and_shown_while_the_cluster_is_asked_for_markers(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cluster.remembered[name] = {"spec": to_value(once(name)), "target": "RUNNING"}
    with make_engine(tmp_path) as engine:
        assert cluster.was_asked.wait(DEADLINE_S)
        in_time(lambda: engine.stop("a"))
        in_time(lambda: engine.pause("b"))
        assert [(status.id, status.state) for status in engine.queries()] == [("a", "STOPPED"), ("b", "PAUSED")]
        cluster.may_answer.set()
        in_time(lambda: engine.resume("a"))
        eventually(lambda: cluster.launched == ["a"])
    assert cluster.launched == ["a"], "a query that was stopped before the answer came is not started"


def test_others_can_be_stopped_while_a_query_waits_to_be_started_by_hand(cluster: Cluster, tmp_path: Path) -> None:
    cluster.remembered["a"] = {
        "spec": to_value(QuerySpec("a", start_function="flows:copy", topic="out")),
        "target": "RUNNING",
    }
    with make_engine(tmp_path) as engine:
        eventually(lambda: cluster.launched == ["a"])
        spec = QuerySpec("b", start_function="tests.pipelines.flows:copy", topic="out", delivery="exactly-once")
        starting = threading.Thread(target=lambda: engine.start(spec), daemon=True)
        starting.start()
        assert cluster.was_asked.wait(DEADLINE_S)
        in_time(lambda: engine.stop("a"))
        cluster.may_answer.set()
        starting.join(DEADLINE_S)
        assert [(status.id, status.state) for status in engine.queries()] == [("a", "STOPPED"), ("b", "RUNNING")]


def test_an_unreachable_cluster_does_not_count_as_an_attempt_of_a_query(cluster: Cluster, tmp_path: Path) -> None:
    cluster.refusals = [TopicUnavailable("no broker answered", may_pass=True) for _ in range(5)]
    cluster.may_answer.set()
    cluster.remembered["a"] = {"spec": to_value(once("a", max_restarts=0)), "target": "RUNNING"}
    with make_engine(tmp_path) as engine:
        eventually(lambda: cluster.launched == ["a"], about=engine.queries)


def test_a_cluster_that_refuses_the_markers_ends_the_query_with_its_error_message(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.refusals = [TopicUnavailable("you may not create topics") for _ in range(3)]
    cluster.may_answer.set()
    cluster.remembered["a"] = {"spec": to_value(once("a", max_restarts=2)), "target": "RUNNING"}
    with make_engine(tmp_path) as engine:
        eventually(lambda: engine.query("a").status().state == "FAILED")
        assert engine.query("a").status().error == "you may not create topics"
    assert cluster.launched == []


def test_a_query_whose_directory_is_damaged_ends_with_the_reason_and_the_others_continue(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.may_answer.set()
    (tmp_path / "queries" / "a").mkdir(parents=True)
    (tmp_path / "queries" / "a" / "slots").touch()
    for name in ("a", "b"):
        cluster.remembered[name] = {"spec": to_value(once(name, max_restarts=1)), "target": "RUNNING"}
    with make_engine(tmp_path) as engine:
        eventually(lambda: cluster.launched == ["b"], DEADLINE_S, about=engine.queries)
        eventually(lambda: engine.query("a").status().state == "FAILED", DEADLINE_S)
        assert "should hold the number of slots" in engine.query("a").status().error


def test_the_slot_file_of_a_query_is_written_completely_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="the disk is full"):
            kept_slots(tmp_path / "a", 3)
    synced: list[bool] = []
    with monkeypatch.context() as watched:
        watched.setattr("os.fsync", lambda file: synced.append(stat.S_ISDIR(os.fstat(file).st_mode)))
        assert kept_slots(tmp_path / "a", 4) == 4, "nothing was kept of what was not written whole"
    assert synced == [False, True, True], "the file, the folder that names it, and the one that names the folder"
    assert kept_slots(tmp_path / "a", 5) == 4


def test_a_query_that_spark_has_ended_is_started_again_and_the_others_are_left_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.may_answer.set()
    for name in ("a", "b"):
        cluster.remembered[name] = {"spec": to_value(once(name)), "target": "RUNNING"}
    with make_engine(tmp_path) as engine:
        eventually(lambda: sorted(cluster.launched) == ["a", "b"])
        ended = next(running for running in cluster.running if running.runId.startswith("a"))
        ended.exception = lambda: "it went wrong"
        cluster.running.remove(ended)
        eventually(lambda: sorted(cluster.launched) == ["a", "a", "b"])

        def found() -> dict[str, tuple[str, int, str]]:
            return {status.id: (status.state, status.restarts, status.error) for status in engine.queries()}

        # A query is noted as running a moment after it was launched.
        eventually(lambda: found() == {"a": ("RUNNING", 1, "it went wrong"), "b": ("RUNNING", 0, "")}, about=found)


def test_a_query_whose_deletion_could_not_be_written_keeps_its_checkpoint_and_can_be_deleted_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.may_answer.set()
    cluster.remembered["a"] = {"spec": to_value(once("a")), "target": "RUNNING"}
    with make_engine(tmp_path) as engine:
        eventually(lambda: cluster.launched == ["a"])
        cluster.write_failures = [TopicUnavailable("no broker answered")]
        with pytest.raises(TopicUnavailable):
            engine.delete("a")
        assert engine.query("a").status().state == "STOPPED"
        assert cluster.remembered["a"] is not None, "what was not heard in time may be heard yet"
        assert (tmp_path / "queries" / "a" / "slots").exists()
        assert cluster.removed == []
        engine.delete("a")
        assert engine.queries() == []
        assert not (tmp_path / "queries" / "a").exists()
        assert cluster.removed == [marker_topic("a")]
    assert cluster.launched == ["a"]


def test_a_query_that_is_being_deleted_refuses_every_command(cluster: Cluster, tmp_path: Path) -> None:
    cluster.may_answer.set()
    cluster.remembered["a"] = {"spec": to_value(once("a")), "target": "RUNNING"}
    refused: list[str] = []

    def meddle() -> None:
        spec = QuerySpec("a", start_function="tests.pipelines.flows:copy", topic="out", delivery="exactly-once")
        with pytest.raises(EngineRefused, match="there is a query a already"):
            engine.start(spec)
        for act in (engine.resume, engine.restart, engine.pause, engine.stop, engine.release):
            with pytest.raises(EngineRefused) as refusal:
                act("a")
            refused.append(str(refusal.value))

    with make_engine(tmp_path) as engine:
        eventually(lambda: cluster.launched == ["a"])
        cluster.while_removing = meddle
        engine.delete("a")
        assert engine.queries() == []
    assert refused == ["the query a is being deleted"] * 5
    assert cluster.remembered == {"a": None}, "the last word is that it is gone"


def test_a_query_that_begins_while_one_of_its_name_is_deleted_has_its_own_markers(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "queries" / "a").mkdir(parents=True)
    spec = QuerySpec("a", start_function="tests.pipelines.flows:copy", topic="out", delivery="exactly-once")
    with Engine("127.0.0.1:1", home=tmp_path, spark_remote="sc://127.0.0.1:1", state_topic=None) as engine:
        starting = threading.Thread(target=lambda: engine.start(spec), daemon=True)
        cluster.may_answer.set()

        def begin_meanwhile() -> None:
            starting.start()
            # It has asked for the name, or would have made its markers by now.
            eventually(lambda: cluster.was_asked.is_set() or is_waited_for(engine, "a"))

        cluster.while_removing = begin_meanwhile
        engine.delete("a")
        starting.join(DEADLINE_S)
        assert cluster.steps == ["removed", "made"], "the markers are made when those of the one before are gone"
        assert engine.query("a").status().state == "RUNNING"
        assert (tmp_path / "queries" / "a" / "slots").exists()


def test_a_closed_engine_does_not_start_spark_again(cluster: Cluster, tmp_path: Path) -> None:
    cluster.may_answer.set()
    cluster.remembered["a"] = {"spec": to_value(once("a")), "target": "STOPPED"}
    engine = make_engine(tmp_path)
    engine.close()
    spec = QuerySpec("b", start_function="tests.pipelines.flows:copy", topic="out")
    for act in (
        lambda: engine.start(spec),
        lambda: engine.resume("a"),
        lambda: engine.restart("a"),
        engine.session,
    ):
        with pytest.raises(EngineRefused, match="the engine is closed"):
            act()
    assert cluster.connections == 0
    assert cluster.remembered["a"]["target"] == "STOPPED"


def test_a_query_whose_start_was_waiting_for_the_cluster_when_the_engine_was_closed_is_not_started(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_file, "LEAVE_TIMEOUT_S", 0.01)
    engine = make_engine(tmp_path)
    spec = QuerySpec("b", start_function="tests.pipelines.flows:copy", topic="out", delivery="exactly-once")
    refused: list[str] = []

    def start() -> None:
        with pytest.raises(EngineRefused) as refusal:
            engine.start(spec)
        refused.append(str(refusal.value))

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    assert cluster.was_asked.wait(DEADLINE_S)
    engine.close()
    with pytest.raises(EngineRefused, match="another engine is at work"):
        make_engine(tmp_path)
    cluster.may_answer.set()
    starting.join(DEADLINE_S)
    assert refused == ["the engine is closed"]
    assert cluster.launched == []
    make_engine(tmp_path).close()


def test_closing_an_engine_waits_for_a_deletion_in_progress(cluster: Cluster, tmp_path: Path) -> None:
    cluster.may_answer.set()
    cluster.remembered["a"] = {"spec": to_value(once("a")), "target": "RUNNING"}
    engine = make_engine(tmp_path)
    eventually(lambda: cluster.launched == ["a"], DEADLINE_S)

    def close() -> None:
        engine.close()
        cluster.steps.append("closed")

    closing = threading.Thread(target=close, daemon=True)

    def close_meanwhile() -> None:
        closing.start()
        eventually(lambda: is_waited_for(engine, EVERY_NAME) or not closing.is_alive(), DEADLINE_S)

    cluster.while_removing = close_meanwhile
    engine.delete("a")
    closing.join(DEADLINE_S)
    assert cluster.steps == ["made", "removed", "closed"]
    with pytest.raises(EngineRefused, match="the engine is closed"):
        engine.delete("a")


class Killed(BaseException):
    """Raised to simulate that the engine is killed at this point."""


KILLS = {
    "before the cluster has heard of it": "put",
    "before anything is moved away": "rename",
    "when the checkpoint is moved away": "rmtree",
    "before the markers go": "delete_topic",
    "behind them": "unlink",
}


@pytest.mark.parametrize("where", KILLS)
def test_a_deletion_that_was_interrupted_by_a_kill_is_completed_or_undone_by_the_next_engine(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    cluster.may_answer.set()
    cluster.remembered["a"] = {"spec": to_value(once("a")), "target": "RUNNING"}
    home, elsewhere = tmp_path / "home", tmp_path / "shared"
    traces_of_it = [home / "queries" / "a" / "slots", elsewhere / "a" / "offsets"]
    traces_of_it[1].mkdir(parents=True)
    cluster.while_removing = lambda: cluster.steps.extend(str(each) for each in traces_of_it if each.exists())

    def die(*_: object, **__: object) -> None:
        raise Killed

    with make_engine(home, checkpoints=str(elsewhere)) as engine:
        eventually(lambda: cluster.launched == ["a"], DEADLINE_S)
        owner: Any = {"put": engine._state, "rmtree": shutil, "delete_topic": traces}.get(KILLS[where], Path)
        with monkeypatch.context() as killer:
            killer.setattr(owner, KILLS[where], die)
            with pytest.raises(Killed):
                engine.delete("a")
    with make_engine(home, checkpoints=str(elsewhere)) as engine:
        is_known = where == "before the cluster has heard of it"
        assert [status.id for status in engine.queries()] == (["a"] if is_known else [])
        assert [each.exists() for each in traces_of_it] == [is_known] * 2
        assert not list((home / "deleting").iterdir())
    assert set(cluster.steps) == ({"made"} if is_known else {"made", "removed"}), "no checkpoint outlives its markers"
    if not is_known:
        assert not list(elsewhere.iterdir())
        assert not list((home / "queries").iterdir())


@pytest.mark.parametrize("state_topic", ["state", None])
def test_a_query_whose_checkpoint_cannot_be_moved_is_kept_and_can_be_deleted_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_topic: str | None
) -> None:
    cluster.may_answer.set()
    home, elsewhere = tmp_path / "home", tmp_path / "shared"
    (elsewhere / "a" / "offsets").mkdir(parents=True)
    spec = QuerySpec("a", start_function="tests.pipelines.flows:copy", topic="out", delivery="exactly-once")

    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    with make_engine(home, checkpoints=str(elsewhere), state_topic=state_topic) as engine:
        engine.start(spec)
        with monkeypatch.context() as refusing:
            refusing.setattr(Path, "rename", refuse)
            for _ in range(2):
                with pytest.raises(PermissionError):
                    engine.delete("a")
        assert engine.query("a").status().state == "STOPPED"
        engine.resume("a")
    # A new engine does not take the query for deleted.
    make_engine(home, checkpoints=str(elsewhere), state_topic=state_topic).close()
    assert (elsewhere / "a" / "offsets").exists()
    assert cluster.removed == []
    with make_engine(home, checkpoints=str(elsewhere), state_topic=state_topic) as engine:
        engine.delete("a")
    assert not list(elsewhere.iterdir())
    assert cluster.removed == [marker_topic("a")]


def test_the_remains_of_a_deleted_query_do_not_affect_a_new_query_of_its_name(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.may_answer.set()
    spec = QuerySpec("a", start_function="tests.pipelines.flows:copy", topic="out", delivery="exactly-once")

    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    with make_engine(tmp_path, state_topic=None) as engine:
        with monkeypatch.context() as refusing:
            refusing.setattr(shutil, "rmtree", refuse)
            for _ in range(2):
                engine.start(spec)
                engine.delete("a")
        engine.start(spec)
    with make_engine(tmp_path, state_topic=None) as engine:
        assert (tmp_path / "queries" / "a" / "slots").exists()
        engine.delete("a")
    assert not list((tmp_path / "queries").iterdir())


def test_a_query_that_is_deleted_while_it_is_prepared_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.remembered["a"] = {"spec": to_value(once("a")), "target": "RUNNING"}
    with make_engine(tmp_path) as engine:
        assert cluster.was_asked.wait(DEADLINE_S)
        deleting = threading.Thread(target=lambda: engine.delete("a"), daemon=True)
        deleting.start()
        eventually(lambda: is_waited_for(engine, "a") or cluster.removed, DEADLINE_S)
        cluster.may_answer.set()
        deleting.join(DEADLINE_S)
        assert engine.queries() == []
    assert cluster.steps == ["made", "removed"]
    assert not (tmp_path / "queries" / "a").exists()


def test_a_query_whose_specification_could_not_be_stored_does_not_run(cluster: Cluster, tmp_path: Path) -> None:
    cluster.write_failures = [TopicUnavailable("no broker answered")]
    spec = QuerySpec("a", start_function="tests.pipelines.flows:copy", topic="out")
    with make_engine(tmp_path) as engine:
        with pytest.raises(TopicUnavailable):
            engine.start(spec)
        assert engine.queries() == []
        assert cluster.stopped == ["a-1"]
        assert cluster.remembered == {"a": None}, "also if the word that it runs arrives late"
        assert engine.start(spec).status().state == "RUNNING"


def test_a_checkpoint_outside_the_home_is_deleted_with_its_query(cluster: Cluster, tmp_path: Path) -> None:
    cluster.may_answer.set()
    elsewhere = tmp_path / "shared disk"
    for name in ("a", "b"):
        (elsewhere / name / "offsets").mkdir(parents=True)
    with make_engine(tmp_path / "home", checkpoints=elsewhere.as_uri()) as engine:
        engine.start(QuerySpec("a", start_function="tests.pipelines.flows:copy", topic="out"))
        engine.delete("a")
    assert [each.name for each in elsewhere.iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/data#1/a", "/data#1/a"),
        ("file:/data%231/a", "/data#1/a"),
        ("file:///data/a b", "/data/a b"),
        ("file://elsewhere/data/a", None),
        ("s3a://bucket/data/a", None),
        ("hdfs:/data/a", None),
        # Spark's folder is not ours.
        ("data/a", None),
    ],
)
def test_only_local_checkpoint_paths_are_recognised_for_removal(place: str, path: str | None) -> None:
    assert traces.path_of(place) == (Path(path) if path is not None else None)


@pytest.fixture
def counted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return a dict of partition counts that the fake cluster reports; Spark has eight slots and two shuffle
    partitions."""
    partitions: dict[str, int] = {}
    monkeypatch.setattr(query_keeper, "count_partitions", lambda *_: partitions)

    def connect(link: SparkLink) -> Any:
        link.task_slots = 8
        session = cluster.session()
        session.conf = SimpleNamespace(get=lambda _: "2")
        return session

    monkeypatch.setattr(SparkLink, "_connect", connect)
    return partitions


def count_of(topic: str) -> Sink:
    return Sink(Aggregate(Source(topic), (Column("count", "count(*)"),)), "out")


def test_a_query_in_real_time_holds_task_slots_and_one_that_does_not_fit_is_refused(
    counted: dict[str, int], tmp_path: Path
) -> None:
    counted["vendas"] = 3
    with make_engine(tmp_path, state_topic=None) as engine:
        engine.start(QuerySpec("first", plan=count_of("vendas")))
        assert (engine.task_slots().used, engine.task_slots().free) == (5, 1)
        with pytest.raises(EngineRefused, match="the query second needs 5 task slots"):
            engine.start(QuerySpec("second", plan=count_of("vendas")))
        engine.start(QuerySpec("batches", plan=count_of("vendas"), speed="micro-batch"))
        assert [(status.id, status.task_slots) for status in engine.queries()] == [("first", 5), ("batches", 0)]
        engine.stop("first")
        assert engine.task_slots().used == 0
        engine.start(QuerySpec("second", plan=count_of("vendas")))
        assert engine.task_slots().used == 5


def test_a_query_that_should_run_waits_for_task_slots_and_is_not_ended(counted: dict[str, int], tmp_path: Path) -> None:
    counted["vendas"] = 3
    with make_engine(tmp_path, state_topic=None) as engine:
        engine.start(QuerySpec("first", plan=count_of("vendas")))
        engine.stop("first")
        engine.start(QuerySpec("second", plan=count_of("vendas"), max_restarts=0))
        engine.resume("first")
        eventually(lambda: "needs 5 task slots" in engine.query("first").status().error)
        engine.delete("second")
        eventually(lambda: engine.query("first").status().state == "RUNNING")


def test_a_query_whose_state_is_unsupported_in_real_time_mode_continues_in_micro_batches(
    cluster: Cluster, counted: dict[str, int], tmp_path: Path
) -> None:
    counted["vendas"] = 3
    with make_engine(tmp_path, state_topic=None) as engine:
        query = engine.start(QuerySpec("old", plan=count_of("vendas")))
        failure = "[STREAMING_REAL_TIME_MODE.CHECKPOINT_FORMAT_V1_NOT_SUPPORTED] Streaming real-time mode has …"
        ended = cluster.running[0]
        ended.exception = lambda: failure
        cluster.running.remove(ended)
        eventually(lambda: cluster.launched == ["old", "old"])
        status = query.status()
        assert (status.speed, status.restarts, query.spec.output_mode) == ("micro-batch", 0, "update")
        assert "start it anew under another name" in status.error


READS_SALES = QuerySpec("a", plan=Sink(Source("vendas"), "out"), speed="micro-batch")


def test_a_query_ends_when_its_topic_was_created_again_while_it_ran(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topic_ids = {"vendas": "old", "outro": "x"}
    with Engine("nowhere:9092", home=tmp_path, spark_remote="sc://nowhere", state_topic=None) as engine:
        engine.start(READS_SALES)
        cluster.topic_ids = {"vendas": "new", "outro": "y"}
        eventually(lambda: engine.query("a").state == "FAILED", DEADLINE_S, pause_s=0.01)
        assert "the topic vendas was deleted and made again" in engine.query("a").error
        assert "under another name" in engine.query("a").error
        # It stays so, and a query that begins anew reads the topic that is there.
        engine.restart("a")
        eventually(lambda: engine.query("a").state == "FAILED", DEADLINE_S, pause_s=0.01)
        assert len(cluster.launched) == 1
        engine.delete("a")
        engine.start(READS_SALES)
        assert len(cluster.launched) == 2


def test_a_query_is_not_resumed_when_its_topic_was_created_again_while_it_was_paused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is noticed while it runs would come too late.
    monkeypatch.setattr(TopicLook, "answer", lambda *_: {})
    cluster.topic_ids = {"vendas": "old"}
    with Engine("nowhere:9092", home=tmp_path, spark_remote="sc://nowhere", state_topic=None) as engine:
        engine.start(READS_SALES)
        engine.pause("a")
        cluster.topic_ids = {"vendas": "new"}
        engine.resume("a")
        eventually(lambda: engine.query("a").state == "FAILED", DEADLINE_S, pause_s=0.01)
        assert len(cluster.launched) == 1


def test_a_query_is_refused_when_its_topic_was_created_again_while_no_engine_ran(
    cluster: Cluster, tmp_path: Path
) -> None:
    for topic_id in ("old", "", "old"):
        # A cluster that does not tell is no reason to refuse.
        cluster.topic_ids = {"vendas": topic_id} if topic_id else {}
        with Engine("nowhere:9092", home=tmp_path, spark_remote="sc://nowhere", state_topic=None) as engine:
            engine.start(READS_SALES)
    cluster.topic_ids = {"vendas": "new"}
    with Engine("nowhere:9092", home=tmp_path, spark_remote="sc://nowhere", state_topic=None) as engine:
        with pytest.raises(TopicRecreated, match="the topic vendas was deleted and made again"):
            engine.start(READS_SALES)
        assert engine.queries() == []
        (tmp_path / "queries" / "a" / "topics").write_text("nothing")
        with pytest.raises(TopicIdsUnreadable, match="should hold the ids"):
            engine.start(READS_SALES)


def test_spark_is_started_to_remove_a_checkpoint_on_a_remote_file_system(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[str] = []
    monkeypatch.setattr(traces, "empty_folder", lambda _, place: emptied.append(place))
    cluster.remembered["a"] = {"spec": {"start_function": "flows:copy", "topic": "out"}, "target": "PAUSED"}
    settings: dict[str, Any] = {"home": tmp_path, "spark_remote": "sc://nowhere", "checkpoints": "s3a://bucket/c"}
    with Engine("nowhere:9092", **settings) as engine:
        assert cluster.connections == 0
        engine.delete("a")
        assert (emptied, cluster.connections) == (["s3a://bucket/c/a"], 1)

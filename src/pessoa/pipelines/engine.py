"""The engine: owns the queries, keeps them running, and remembers which should.

    with Engine("localhost:9092", home=Path("pipelines")) as engine:
        engine.start(QuerySpec("copy", start_function="flows.py:copy", topic="out", delivery="exactly-once"))
        engine.query("copy").status()

Spark is started when the first query is. A thread looks after everything about twice a second:

    Spark is gone            start it again, and all its queries
    a query has ended        start it again after a pause that doubles; give up when it has made no progress for
                             `max_restarts` attempts in a row, with the reason in its status
    a query has progressed   keep the numbers, commit its offsets to its group

What should run stands in a compacted topic (state_topic.py), where each query is stands in its checkpoint under
`<home>/queries/<id>`. So the engine, Spark or a broker may be killed at any moment: an engine that starts with the same
home goes on. Two engines in one home would run every query twice; the second one is refused.

Locks: `_mutex` is held while a query is changed or Spark is asked, and never while a cluster is asked something: one
that is away would keep queries from being stopped. Spark asks a cluster too while it stops a query, so that is waited
for without the lock (ending_queries.py). Looking at a status takes no lock. A thread that asks the cluster
on behalf of a query that begins or is deleted takes its name for that time (names.py): a query that begins under a
name finds either all that one before it has left there, or nothing.
"""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from pessoa.client.topic_creation import TIMEOUT_S, TopicUnavailable
from pessoa.pipelines.ending_queries import EndingQueries
from pessoa.pipelines.failures import is_final, is_state_of_micro_batches, plain
from pessoa.pipelines.group_offsets import GroupOffsets
from pessoa.pipelines.jars import JarsUnavailable
from pessoa.pipelines.java import NoJava
from pessoa.pipelines.launching import client_settings, launch, mode_of, speed_of
from pessoa.pipelines.names import Names
from pessoa.pipelines.plan import KafkaSettings, PlanRefused
from pessoa.pipelines.queries import (
    QuerySpec,
    QueryStatus,
    SpecRefused,
    State,
    Target,
    find_function,
    from_value,
    to_value,
)
from pessoa.pipelines.query_progress import Progress, read_progress
from pessoa.pipelines.spark_link import SparkLink
from pessoa.pipelines.spark_server import SparkOptions, SparkServer, SparkUnavailable, in_use
from pessoa.pipelines.state_topic import STATE_TOPIC, StateTopic
from pessoa.pipelines.task_slots import NoTaskSlots, TaskSlots, count_partitions, refuse_if_full, slots_wanted
from pessoa.pipelines.traces import Traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_INTERVAL_S = 0.5
# Every question costs Spark some milliseconds of the cores that the queries run on.
REPORT_INTERVAL_S = 1.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
# An engine that is closed should end soon.
LEAVE_TIMEOUT_S = 15.0
# The thread that looks after all queries does not wait longer than this for a cluster on behalf of one.
MARKERS_TIMEOUT_S = 5.0
# Only the engine's owner can mend these, so nothing is tried again.
REFUSALS = (PlanRefused, SpecRefused, NoJava, JarsUnavailable)

log = logging.getLogger(__name__)


class EngineRefused(Exception):
    """The engine cannot do what it was asked; the sentence says why."""


class Query:
    """One query of an engine. Its fields are the engine's to change."""

    def __init__(self, spec: QuerySpec, target: Target) -> None:
        self.spec = spec
        self.target: Target = target
        self.state: State = "STARTING" if target == "RUNNING" else target
        self.error = ""
        self.progress = Progress()
        # All restarts, and those in a row without a batch between them.
        self.restarts = 0
        self.attempts = 0
        self.next_start_s = 0.0
        # Whether the topic that an exactly-once query needs was seen since it last failed.
        self.has_markers = False
        # The partitions of the topics that it reads, if it was asked since it last failed; and the task slots it holds.
        self.partitions: Mapping[str, int] | None = None
        self.task_slots = 0
        # Whether it is being deleted: no other request may change it any more.
        self.is_leaving = False
        # Spark's query, while there is one.
        self.running: StreamingQuery | None = None
        self.first_batch_id = -1
        self.next_report_s = 0.0

    def __repr__(self) -> str:
        return f"<Query {self.spec.id} {self.state}, batch {self.progress.batch_id}>"

    @property
    def is_prepared(self) -> bool:
        has_markers = self.has_markers or self.spec.delivery != "exactly-once"
        return has_markers and (self.partitions is not None or not self.is_real_time)

    @property
    def is_real_time(self) -> bool:
        return speed_of(self.spec) == "real-time"

    def is_due(self) -> bool:
        """Whether it should run, does not, and may be tried."""
        should_run = self.target == "RUNNING" and self.state != "FAILED"
        return should_run and self.running is None and time.monotonic() >= self.next_start_s

    def status(self) -> QueryStatus:
        return QueryStatus(
            self.spec.id, self.state, self.spec.delivery, speed_of(self.spec), self.restarts, self.error,
            self.spec.group, self.progress, self.task_slots if self.running is not None else 0,
        )  # fmt: skip


class Engine:
    def __init__(
        self,
        bootstrap_servers: str,
        *,
        home: Path,
        spark_remote: str | None = None,
        spark: SparkOptions | None = None,
        kafka_options: Mapping[str, str] | None = None,
        schema_registry_url: str = "",
        state_topic: str | None = STATE_TOPIC,
        checkpoints: str | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`checkpoints` is where a Spark cluster keeps them: a path or URI that driver and executors can reach."""
        self.home = home
        self.kafka = KafkaSettings(bootstrap_servers, dict(kafka_options or {}), schema_registry_url)
        self._spark = SparkLink(home, spark_remote, spark or SparkOptions(), say)
        self._mutex = threading.RLock()
        self._names = Names()
        self._ending = EndingQueries()
        self._closing = threading.Event()
        settings = client_settings(self.kafka)
        self._traces = Traces(home, settings, checkpoints)
        self._queries: dict[str, Query] = {}
        self._home_lock = _lock(home)
        self._groups = GroupOffsets(settings)
        try:
            self._state = StateTopic(settings, state_topic) if state_topic is not None else None
            self._recall()
        except BaseException:
            self._groups.close()
            self._home_lock.close()
            raise
        self._monitor = threading.Thread(target=self._watch, name="pessoa-engine", daemon=True)
        self._monitor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine in {self.home} with {len(self._queries)} queries, {self._spark}>"

    # What one asks of it.

    def start(self, spec: QuerySpec) -> Query:
        """Run a query, and keep it running. Raises what only its author can mend: PlanRefused, SpecRefused, …"""
        self._refuse_twin(spec)
        # What is wrong on paper is said before Spark is started for it.
        if self._state is not None:
            to_value(spec)
        if isinstance(spec.start_function, str):
            find_function(spec.start_function)
        with self._names.alone_with(spec.id):
            return self._start_alone(Query(spec, "RUNNING"))

    def _start_alone(self, query: Query) -> Query:
        with self._mutex:
            self._refuse_if_closed()
            self._refuse_twin(query.spec)
        # It goes on from the state that is there, also if that could not be deleted.
        self._traces.pardon(query.spec.id)
        self._wait_for_end(query.spec.id)
        if not query.is_prepared:
            self._prepare_query(query, TIMEOUT_S)
        with self._mutex:
            self._refuse_if_closed()
            self._launch(query, raises=True)
            self._queries[query.spec.id] = query
            wait_until_written = self._remember(query)
        try:
            wait_until_written()
        except TopicUnavailable:
            self._take_back(query)
            raise
        return query

    def _wait_for_end(self, query_id: str) -> None:
        if not self._ending.wait_for(query_id, TIMEOUT_S):
            raise EngineRefused(
                f"Spark is still stopping the query {query_id}: does the cluster answer? Try again soon"
            )

    def _take_back(self, query: Query) -> None:
        """Its author hears that it was not started. What it has done stays: a query of its name goes on from there."""
        with self._mutex:
            if self._queries.get(query.spec.id) is query:
                self._end(query)
                del self._queries[query.spec.id]
                # Not waited for. It stands behind a word that may yet be written.
                self._forget(query.spec.id)

    def _refuse_twin(self, spec: QuerySpec) -> None:
        if spec.id in self._queries:
            raise EngineRefused(f"there is a query {spec.id} already: delete it, or choose another name")

    def _refuse_if_closed(self) -> None:
        """Raise if the engine is closed. Called under the lock, so that nothing starts after `close` has begun."""
        if self._closing.is_set():
            raise EngineRefused("the engine is closed")

    def pause(self, query_id: str) -> None:
        self._rest(query_id, "PAUSED")

    def stop(self, query_id: str) -> None:
        """Stop the query; then the offsets of its group may be set."""
        self._rest(query_id, "STOPPED")

    def resume(self, query_id: str) -> None:
        with self._mutex:
            self._refuse_if_closed()
            query = self._changeable(query_id)
            if query.target == "RUNNING" and query.state != "FAILED":
                return
            wait_until_written = self._set_going(query)
        wait_until_written()

    def restart(self, query_id: str) -> None:
        with self._mutex:
            self._refuse_if_closed()
            query = self._changeable(query_id)
            self._end(query)
            query.restarts += 1
            wait_until_written = self._set_going(query)
        wait_until_written()

    def _set_going(self, query: Query) -> Callable[[], object]:
        query.target, query.state, query.error = "RUNNING", "STARTING", ""
        query.attempts, query.next_start_s = 0, 0.0
        wait_until_written = self._remember(query)
        self._start_if_due(query)
        return wait_until_written

    def delete(self, query_id: str) -> None:
        """Stop a query and forget it, with its checkpoint, markers and group; a group that was named for it stays.

        If the cluster cannot be told, or a checkpoint cannot be moved away, the query stays where it is, at rest, and
        can be deleted again. An engine without a state topic also deletes what an engine before it has left under that
        name.
        """
        with self._names.alone_with(query_id):
            with self._mutex:
                self._refuse_if_closed()
                query = self._queries.get(query_id)
                if query is None and (self._state is not None or not self._traces.folder(query_id).exists()):
                    raise EngineRefused(f"there is no query {query_id}")
                self._traces.condemn(query_id)
                if query is not None:
                    self._end(query)
                    query.target = query.state = "STOPPED"
                    self._groups.forget(query.spec.group, deletes=query.spec.group_id is None)
                wait_until_written = self._forget(query_id)
                if query is not None:
                    query.is_leaving = True
            try:
                # First of all: an engine that still knows the query would begin anew without its checkpoint.
                wait_until_written()
                self._wait_for_end(query_id)
                has_markers = query is None or query.spec.delivery == "exactly-once"
                self._traces.remove(query_id, has_markers=has_markers)
                with self._mutex:
                    self._queries.pop(query_id, None)
            except Exception:
                self._traces.pardon(query_id)
                if query is not None:
                    with self._mutex:
                        # Not waited for. It stands behind a word that may yet be written.
                        self._remember(query)
                raise
            finally:
                if query is not None:
                    query.is_leaving = False

    def release(self, query_id: str) -> None:
        """Stop a query and let go of it. What it left stays: a query that starts under its name goes on from there."""
        with self._mutex:
            query = self._changeable(query_id)
            self._end(query)
            del self._queries[query_id]
            wait_until_written = self._forget(query_id)
        self._ending.wait_for(query_id)
        wait_until_written()

    def queries(self) -> list[QueryStatus]:
        return [query.status() for query in list(self._queries.values())]

    def query(self, query_id: str) -> Query:
        try:
            return self._queries[query_id]
        except KeyError:
            raise EngineRefused(f"there is no query {query_id}") from None

    def _changeable(self, query_id: str) -> Query:
        query = self.query(query_id)
        if query.is_leaving:
            raise EngineRefused(f"the query {query_id} is being deleted")
        return query

    def session(self) -> SparkSession:
        """The session that the queries run in; starts Spark if need be."""
        with self._mutex:
            self._refuse_if_closed()
            return self._spark.connect()

    def task_slots(self) -> TaskSlots:
        """Spark's task slots, and how many of them are held. Before Spark has started there are none on a cluster."""
        held = sum(query.task_slots for query in list(self._queries.values()) if query.running is not None)
        return TaskSlots(self._spark.task_slots or 0, held)

    @property
    def spark_server(self) -> SparkServer | None:
        return self._spark.server

    def close(self) -> None:
        """Stop everything; what was running will go on when an engine starts in this home again.

        A deletion or a start that is under way is waited for, and keeps the home if that takes too long.
        """
        self._closing.set()
        with self._mutex:
            for query in self._queries.values():
                self._end(query)
        self._ending.wait_for_all()
        with self._mutex:
            self._spark.drop()
        self._monitor.join()
        self._groups.close()
        self._names.when_all_are_free(self._home_lock.close)
        if not self._names.wait_until_all_are_free(LEAVE_TIMEOUT_S):
            log.warning("%s: a query still waits for the cluster, and keeps %s until then", self._names, self.home)

    # Looking after it.

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_INTERVAL_S):
            self._prepare()
            with self._mutex:
                self.look()

    def _prepare(self) -> None:
        """See that the queries that are about to start have their markers. The cluster may take its time to answer."""
        for query in list(self._queries.values()):
            with self._mutex:
                # One that is deleted, or begins anew, is in other hands.
                is_ours = self._queries.get(query.spec.id) is query and query.is_due() and not query.is_prepared
                if self._closing.is_set() or not is_ours or not self._names.maybe_take(query.spec.id):
                    continue
            try:
                self._prepare_query(query, MARKERS_TIMEOUT_S)
            except TopicUnavailable as missing:
                self._failed_to_prepare(query, str(missing), counts=not missing.may_pass)
            except Exception as failure:
                # A disk or a client may fail in many ways. Without this thread nothing would be looked after any more.
                log.exception("query %s could not be prepared", query.spec.id)
                self._failed_to_prepare(query, str(failure) or type(failure).__name__)
            else:
                continue
            finally:
                self._names.give_back(query.spec.id)
            # The others have their turn when everything else was looked after.
            return

    def _failed_to_prepare(self, query: Query, reason: str, *, counts: bool = True) -> None:
        with self._mutex:
            if query.is_due() and not self._closing.is_set():
                self._note_failure(query, reason, counts=counts)

    def _prepare_query(self, query: Query, timeout_s: float) -> None:
        if query.spec.delivery == "exactly-once":
            self._traces.make_markers(query.spec.id, query.spec.slots, timeout_s)
            query.has_markers = True
        if query.is_real_time:
            query.partitions = count_partitions(client_settings(self.kafka), query.spec.plan)

    def look(self) -> None:
        """One round: notice what has ended, start what should run."""
        if self._spark.has_ended:
            self._lose_spark("Spark has ended")
        self._look_at([query for query in self._queries.values() if query.running is not None])
        for query in list(self._queries.values()):
            if self._closing.is_set():
                return
            self._start_if_due(query)

    def _start_if_due(self, query: Query) -> None:
        if query.is_due() and query.is_prepared and self._ending.has_ended(query.spec.id):
            self._launch(query)

    def _look_at(self, queries: list[Query]) -> None:
        """Notice progress and ends. One question to Spark for all of them, and one for each that is due to report."""
        session = self._spark.session
        if not queries or session is None:
            return
        now_s = time.monotonic()
        found = []
        try:
            active = {running.runId for running in session.streams.active}
            for query in queries:
                assert query.running is not None
                is_active = query.running.runId in active
                is_due = now_s >= query.next_report_s or not is_active
                report = query.running.lastProgress if is_due else None
                found.append((query, is_active, report, None if is_active else query.running.exception()))
        except Exception as lost:  # noqa: BLE001
            # Any exception of Spark's client means that Spark does not answer.
            self._lose_spark(f"Spark does not answer ({type(lost).__name__})")
            return
        for query, is_active, report, failure in found:
            if report is not None:
                query.next_report_s = now_s + REPORT_INTERVAL_S
                self._note_progress(query, read_progress(report))
            if not is_active and is_state_of_micro_batches(str(failure)):
                self._go_on_in_micro_batches(query)
            elif not is_active:
                self._note_failure(query, plain(str(failure)) if failure is not None else "Spark ended the query")

    def _note_progress(self, query: Query, progress: Progress) -> None:
        query.progress = progress
        query.state = "RUNNING"
        if query.first_batch_id < 0:
            query.first_batch_id = progress.batch_id
        elif progress.batch_id > query.first_batch_id:
            # A batch was finished since the start: what failed before is over.
            query.attempts = 0
        self._groups.commit(query.spec.group, progress.offsets)

    def _launch(self, query: Query, *, raises: bool = False) -> None:
        query.state = "STARTING" if not query.error else "RESTARTING"
        try:
            spark = self._spark.connect()
            slots = self._traces.slots(query.spec.id, query.spec.slots)
            self._take_task_slots(query, spark)
            with in_use(spark):
                query.running = launch(query.spec, spark, self.kafka, self._traces.checkpoint(query.spec.id), slots)
            query.first_batch_id, query.next_report_s = -1, 0.0
            query.state = "RUNNING"
        except REFUSALS as refused:
            if raises:
                raise
            query.state, query.error = "FAILED", str(refused)
        except NoTaskSlots as full:
            if raises:
                raise EngineRefused(str(full)) from None
            # Another query may end. This one waits, and it is not to blame.
            self._note_failure(query, str(full), counts=False)
        except SparkUnavailable as missing:
            if raises:
                raise
            self._note_failure(query, str(missing))
        except Exception as failure:
            # Spark refuses in many ways; the user's own function may raise anything.
            if raises:
                raise
            self._note_failure(query, plain(str(failure)))

    def _go_on_in_micro_batches(self, query: Query) -> None:
        """The state that the query has was written in a format which real-time mode does not take."""
        self._end(query)
        query.spec = dataclasses.replace(query.spec, speed="micro-batch", output_mode=mode_of(query.spec))
        query.state, query.next_start_s = "RESTARTING", 0.0
        query.error = (
            "its state was begun in micro-batches by an older version, so it goes on in them: to run it in real-time"
            " mode, start it anew under another name"
        )
        log.warning("query %s: %s", query.spec.id, query.error)

    def _take_task_slots(self, query: Query, spark: SparkSession) -> None:
        query.task_slots = 0
        if query.is_real_time:
            shuffle_partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
            wanted = slots_wanted(query.spec.plan, query.partitions or {}, shuffle_partitions)
            # A Spark that does not say how many it has is taken at its word when it refuses.
            if self._spark.task_slots is not None:
                refuse_if_full(query.spec.id, wanted, self.task_slots())
            query.task_slots = wanted

    def _note_failure(self, query: Query, reason: str, *, counts: bool = True) -> None:
        self._end(query)
        query.error = reason
        query.has_markers, query.partitions = False, None
        query.attempts += counts
        if query.attempts > query.spec.max_restarts or is_final(reason):
            query.state = "FAILED"
            log.error("query %s failed and is given up: %s", query.spec.id, reason)
            return
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** max(0, query.attempts - 1))
        query.state = "RESTARTING"
        query.restarts += counts
        query.next_start_s = time.monotonic() + pause_s
        log.warning("query %s failed and starts again in %.0f s: %s", query.spec.id, pause_s, reason)

    def _lose_spark(self, reason: str) -> None:
        if self._spark.has_ended:
            assert self._spark.server is not None
            reason = f"Spark has ended; its log is {self._spark.server.log_path}"
        log.warning("%s", reason)
        self._spark.drop()
        for query in self._queries.values():
            if query.running is not None:
                # No fault of the query's: it starts again at once, and it does not count.
                query.running = None
                query.state, query.error = "RESTARTING", reason
                query.restarts += 1
                query.next_start_s = 0.0

    def _end(self, query: Query) -> None:
        running, query.running = query.running, None
        if running is not None and self._spark.session is not None and not self._spark.has_ended:
            self._ending.stop(query.spec.id, running)

    # Remembering.

    def _rest(self, query_id: str, target: Target) -> None:
        with self._mutex:
            query = self._changeable(query_id)
            self._end(query)
            query.target = query.state = target
            wait_until_written = self._remember(query)
        self._ending.wait_for(query_id)
        if not self._groups.stop_committing(query.spec.group):
            log.warning("a commit for the group %s is still on its way to a cluster that is away", query.spec.group)
        wait_until_written()

    def _remember(self, query: Query) -> Callable[[], object]:
        """Under the lock, so that the last word on a query is the one that is kept; to be waited for without it."""
        if self._state is None:
            return _at_once
        return self._state.put(query.spec.id, {"spec": to_value(query.spec), "target": query.target})

    def _forget(self, query_id: str) -> Callable[[], object]:
        return self._state.put(query_id, None) if self._state is not None else _at_once

    def _recall(self) -> None:
        remembered = self._state.load() if self._state is not None else {}
        for query_id, value in remembered.items():
            try:
                self._queries[query_id] = Query(from_value(query_id, value["spec"]), value["target"])
            except (KeyError, TypeError, PlanRefused, SpecRefused) as damaged:
                log.error("query %s cannot be read from the state topic: %s", query_id, damaged)  # noqa: TRY400
        self._traces.remove_condemned(remembered)


def _at_once() -> None:
    """There is nothing to wait for."""


def _lock(home: Path) -> IO[str]:
    """Held until the file is closed, or its process has ended."""
    home.mkdir(parents=True, exist_ok=True)
    file = (home / "engine.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise EngineRefused(
            f"another engine is at work in {home}: stop it first, or give this one a home of its own"
        ) from None
    return file

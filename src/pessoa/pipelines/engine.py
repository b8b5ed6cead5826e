"""The engine: owns the queries, keeps them running, and remembers which should.

    with Engine("localhost:9092", home=Path("pipelines")) as engine:
        engine.start(QuerySpec("copy", start_function="flows.py:copy", topic="out", delivery="exactly-once"))
        engine.query("copy").status()

Spark is started when the first query is. What keeps the queries running afterwards is `query_keeper.py`.

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

import fcntl
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from pessoa.client.topic_creation import TIMEOUT_S, TopicUnavailable
from pessoa.pipelines.jars import JarsUnavailable
from pessoa.pipelines.java import NoJava
from pessoa.pipelines.launching import client_settings
from pessoa.pipelines.plan import KafkaSettings, PlanRefused
from pessoa.pipelines.queries import QuerySpec, QueryStatus, SpecRefused, Target, find_function, from_value, to_value
from pessoa.pipelines.query_handle import Query
from pessoa.pipelines.query_keeper import QueryKeeper
from pessoa.pipelines.slow_steps import saying
from pessoa.pipelines.spark_link import SparkLink
from pessoa.pipelines.spark_server import SparkOptions, SparkServer, SparkUnavailable
from pessoa.pipelines.state_topic import STATE_TOPIC, StateTopic
from pessoa.pipelines.task_slots import NoTaskSlots, TaskSlots
from pessoa.pipelines.traces import Traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An engine that is closed should end soon.
LEAVE_TIMEOUT_S = 15.0

log = logging.getLogger(__name__)


class EngineRefused(Exception):
    """The engine cannot carry out the call; the message says why."""


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
        """Make an engine in `home`. `checkpoints` is where a Spark cluster keeps them: a path or URI that driver and
        executors can reach."""
        self.home = home
        self.kafka = KafkaSettings(bootstrap_servers, dict(kafka_options or {}), schema_registry_url)
        self._spark = SparkLink(home, spark_remote, spark or SparkOptions(), say)
        self._say = say
        self._mutex = threading.RLock()
        settings = client_settings(self.kafka)
        self._traces = Traces(home, settings, checkpoints, self._session_for_removal)
        self._home_lock = _lock(home)
        self._keeper = QueryKeeper(self.kafka, self._spark, self._traces, self._mutex)
        # The keeper's own objects, under shorter names.
        self._queries, self._names, self._ending_queries = self._keeper.queries, self._keeper.names, self._keeper.ending
        self._groups, self._closing = self._keeper.groups, self._keeper.closing
        try:
            self._state = StateTopic(settings, state_topic) if state_topic is not None else None
            self._restore_queries()
        except BaseException:
            self._groups.close()
            self._home_lock.close()
            raise
        self._monitor = threading.Thread(target=self._keeper.watch, name="pessoa-engine", daemon=True)
        self._monitor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine in {self.home} with {len(self._queries)} queries, {self._spark}>"

    # Requests.

    def start(self, spec: QuerySpec) -> Query:
        """Run a query, and restart it when it fails. Raises errors of the specification: PlanRefused, SpecRefused, …"""
        self._refuse_twin(spec)
        # Errors that can be found without Spark are raised before Spark is started.
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
        # The query continues from the state that exists, also if a deletion of it has failed.
        self._traces.unmark_deleting(query.spec.id)
        self._wait_for_end(query.spec.id)
        if not query.is_prepared:
            with saying(self._say, f"Asking the cluster for what {query.spec.id} needs"):
                self._keeper.prepare_query(query, TIMEOUT_S)
        with self._mutex:
            self._refuse_if_closed()
            self._launch(query)
            self._queries[query.spec.id] = query
            wait_until_written = self._remember(query)
        try:
            wait_until_written()
        except TopicUnavailable:
            self._remove_failed_start(query)
            raise
        return query

    def _launch(self, query: Query) -> None:
        try:
            # Spark reports its start itself.
            with saying(self._say if self._spark.session is not None else _say_nothing, f"Starting {query.spec.id}"):
                self._keeper.launch(query, raises=True)
        except NoTaskSlots as full:
            raise EngineRefused(str(full)) from None

    def _wait_for_end(self, query_id: str) -> None:
        if not self._ending_queries.wait_for(query_id, TIMEOUT_S):
            raise EngineRefused(
                f"Spark is still stopping the query {query_id}: does the cluster answer? Try again soon"
            )

    def _remove_failed_start(self, query: Query) -> None:
        """Remove a query that failed to start; its checkpoint stays, and a query of the same name continues from it."""
        with self._mutex:
            if self._queries.get(query.spec.id) is query:
                self._keeper.end(query)
                del self._queries[query.spec.id]
                # Not waited for. The tombstone comes after a record that may not be written yet.
                self._forget(query.spec.id)

    def _refuse_twin(self, spec: QuerySpec) -> None:
        if spec.id in self._queries:
            raise EngineRefused(f"there is a query {spec.id} already: delete it, or choose another name")

    def _refuse_if_closed(self) -> None:
        """Raise if the engine is closed. Called under the lock, so that nothing starts after `close` has begun."""
        if self._closing.is_set():
            raise EngineRefused("the engine is closed")

    def pause(self, query_id: str) -> None:
        self._end_with_target(query_id, "PAUSED")

    def stop(self, query_id: str) -> None:
        """Stop the query; then the offsets of its group may be set."""
        self._end_with_target(query_id, "STOPPED")

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
            self._keeper.end(query)
            query.restarts += 1
            wait_until_written = self._set_going(query)
        wait_until_written()

    def _set_going(self, query: Query) -> Callable[[], object]:
        query.target, query.state, query.error = "RUNNING", "STARTING", ""
        query.attempts, query.next_start_s = 0, 0.0
        wait_until_written = self._remember(query)
        self._keeper.start_if_due(query)
        return wait_until_written

    def delete(self, query_id: str) -> None:
        """Stop a query and delete it, with its checkpoint, markers and group; a group that the specification names
        stays.

        If the cluster cannot be reached, or a checkpoint cannot be moved away, the query stays, stopped, and can be
        deleted again. An engine without a state topic also deletes the files that an earlier engine has left under that
        name.
        """
        with self._names.alone_with(query_id):
            with self._mutex:
                self._refuse_if_closed()
                query = self._queries.get(query_id)
                if query is None and (self._state is not None or not self._traces.folder(query_id).exists()):
                    raise EngineRefused(f"there is no query {query_id}")
                self._traces.mark_deleting(query_id)
                if query is not None:
                    self._keeper.end(query)
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
                self._traces.unmark_deleting(query_id)
                if query is not None:
                    with self._mutex:
                        # Not waited for. The record comes after a tombstone that may not be written yet.
                        self._remember(query)
                raise
            finally:
                if query is not None:
                    query.is_leaving = False

    def release(self, query_id: str) -> None:
        """Stop and drop a query; its checkpoint stays, and a query of the same name continues from it."""
        with self._mutex:
            query = self._changeable(query_id)
            self._keeper.end(query)
            del self._queries[query_id]
            wait_until_written = self._forget(query_id)
        self._ending_queries.wait_for(query_id)
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
        """Return the session that the queries run in; starts Spark if it does not run."""
        with self._mutex:
            self._refuse_if_closed()
            return self._spark.connect()

    def _session_for_removal(self) -> SparkSession | None:
        """Return the Spark session, and start Spark if it does not run; None if that fails. A checkpoint may be
        where only Spark can delete it: a query under the name of the deleted one would continue from it, without its
        markers."""
        with self._mutex:
            try:
                return self._spark.connect()
            except (SparkUnavailable, NoJava, JarsUnavailable) as missing:
                log.warning("%s", missing)
                return None

    def task_slots(self) -> TaskSlots:
        """Return the count of Spark's task slots, and of those that are held. On a cluster it is 0 until Spark has
        started."""
        return self._keeper.task_slots()

    @property
    def spark_server(self) -> SparkServer | None:
        return self._spark.server

    def close(self) -> None:
        """Stop everything; queries that were running continue when an engine starts in this home again.

        This waits for a deletion or a start in progress; one that takes too long keeps the home locked.
        """
        self._closing.set()
        with self._mutex:
            for query in self._queries.values():
                self._keeper.end(query)
        with saying(self._say, "Stopping queries"):
            self._ending_queries.wait_for_all()
        with self._mutex:
            self._spark.drop()
        self._monitor.join()
        self._groups.close()
        self._names.when_all_are_free(self._home_lock.close)
        if not self._names.wait_until_all_are_free(LEAVE_TIMEOUT_S):
            log.warning("%s: a query still waits for the cluster, and keeps %s until then", self._names, self.home)

    # State topic.

    def _end_with_target(self, query_id: str, target: Target) -> None:
        with self._mutex:
            query = self._changeable(query_id)
            self._keeper.end(query)
            query.target = query.state = target
            wait_until_written = self._remember(query)
        self._ending_queries.wait_for(query_id)
        if not self._groups.stop_committing(query.spec.group):
            log.warning("a commit for the group %s is still on its way to a cluster that is away", query.spec.group)
        wait_until_written()

    def _remember(self, query: Query) -> Callable[[], object]:
        """Write the query to the state topic, under the lock so that the last change wins; the result waits for it."""
        if self._state is None:
            return _at_once
        return self._state.put(query.spec.id, {"spec": to_value(query.spec), "target": query.target})

    def _forget(self, query_id: str) -> Callable[[], object]:
        return self._state.put(query_id, None) if self._state is not None else _at_once

    def _restore_queries(self) -> None:
        stored_queries = self._state.load() if self._state is not None else {}
        for query_id, value in stored_queries.items():
            try:
                self._queries[query_id] = Query(from_value(query_id, value["spec"]), value["target"])
            except (KeyError, TypeError, PlanRefused, SpecRefused) as damaged:
                log.error("query %s cannot be read from the state topic: %s", query_id, damaged)  # noqa: TRY400
        self._traces.finish_deletions(stored_queries)


def _say_nothing(_: str) -> None:
    """Discard the message."""


def _at_once() -> None:
    """Return at once: there is no state topic to wait for."""


def _lock(home: Path) -> IO[str]:
    """Return the locked lock file; the lock is held until the file is closed or the process ends."""
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

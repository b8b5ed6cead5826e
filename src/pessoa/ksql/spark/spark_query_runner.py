"""Persistent queries on the pipelines' engine: one engine and one Spark for all of them.

    start      choose the way (query_choice.py), see that the topics are there, start the queries of the stages
    terminate  end them; with their state: checkpoints, markers, internal topics

The engine remembers nothing (`state_topic=None`): the server's command topic says which queries there are, and after a
restart the server starts them again. A query that is started under the name of one before goes on from its checkpoint.
The way that a query runs stands beside its checkpoint and stays: state of the one way means nothing to the other.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from pessoa.client.topic_creation import IfExists, TopicSpec, TopicUnavailable, delete_topic, ensure_topic
from pessoa.ksql.analysis.logical_plan import LogicalPlan, explain_text
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.query_runner import PersistentQuery, RunnerState, RunnerStatus
from pessoa.ksql.spark.native_plan import leftmost_source, source_topics_of
from pessoa.ksql.spark.ordered_queries import MAX_RESTARTS, make_topology, plan_ordered
from pessoa.ksql.spark.query_choice import MICRO_BATCHES, SPEED, Choice, choose, delivery_of, start_of
from pessoa.ksql.spark.query_names import application_id, engine_name
from pessoa.ksql.spark.spark_expressions import SESSION_SETTINGS
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.pipelines.engine import Engine, EngineRefused
from pessoa.pipelines.jars import JarsUnavailable
from pessoa.pipelines.java import NoJava
from pessoa.pipelines.launching import TIME_INTERCEPTOR, client_settings, has_java_classes
from pessoa.pipelines.queries import QuerySpec, QueryStatus
from pessoa.pipelines.spark_server import SparkUnavailable

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)

REPLICATION_FACTOR = 3
METADATA_TIMEOUT_S = 30.0
Way = Literal["native", "ordered"]
_STATES: Mapping[str, RunnerState] = {
    "STARTING": "STARTING",
    "RUNNING": "RUNNING",
    "RESTARTING": "ERROR",
    "PAUSED": "PAUSED",
    "STOPPED": "PAUSED",
    "FAILED": "ERROR",
}


# The errors with which the engine refuses a query; each message is a sentence for users.
_REFUSALS = (EngineRefused, TopicUnavailable, JarsUnavailable, NoJava, SparkUnavailable, ValueError)
# The server's settings that operators read. Others may be secrets, and are not sent to Spark.
_OPERATOR_SETTINGS = ("ksql.fail.", "ksql.functions.", "ksql.persistence.", "ksql.timestamp.", "pessoa.")


class RunnerConfig(Protocol):
    """The part of a server's configuration that a runner needs."""

    @property
    def settings(self) -> Mapping[str, str]: ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def service_id(self) -> str: ...

    @property
    def offset_reset(self) -> str: ...

    @property
    def home(self) -> Path: ...

    @property
    def spark_remote(self) -> str | None: ...

    @property
    def kafka_security(self) -> dict[str, str]: ...

    @property
    def registry_settings(self) -> dict[str, str] | None: ...

    def below(self, prefix: str) -> dict[str, str]: ...


def make_runner(config: RunnerConfig) -> SparkQueryRunner:
    """Return the runner of a server. Spark starts with the first query."""
    engine = Engine(
        config.bootstrap_servers,
        home=config.home / "engine",
        spark_remote=config.spark_remote,
        kafka_options=config.kafka_security,
        state_topic=None,
        say=lambda sentence: log.info("%s", sentence),
    )
    operator_settings = {name: value for name, value in config.settings.items() if name.startswith(_OPERATOR_SETTINGS)}
    properties = {**operator_settings, **config.below("ksql.streams."), "auto.offset.reset": config.offset_reset}
    return SparkQueryRunner(
        engine, service_id=config.service_id, registry=config.registry_settings, properties=properties
    )


@dataclass(frozen=True)
class _Running:
    query: PersistentQuery
    choice: Choice
    # The engine's names, sources first, and the topics between them.
    names: tuple[str, ...]
    internal_topics: tuple[str, ...]
    started_ms: int


class SparkQueryRunner:
    def __init__(
        self,
        engine: Engine,
        *,
        service_id: str = "default_",
        registry: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`registry` are the settings of the registry's client, `properties` the server's. The runner owns the
        engine from now on."""
        self._engine = engine
        self._service_id = service_id
        self._registry = dict(registry or {})
        self._properties = dict(properties or {})
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        # None until Spark was checked for it.
        self._writes_times: bool | None = None
        self._ways = engine.home / "ksql-ways"
        self._admin_client: AdminClient | None = None

    def __repr__(self) -> str:
        return f"<SparkQueryRunner with {len(self._running)} queries on {self._engine!r}>"

    # Operations for the server.

    def start(self, query: PersistentQuery) -> None:
        """Begin to run the query, or continue it. Raises KsqlError."""
        with self._lock:
            if query.id in self._running:
                raise KsqlError(f"There is a query {query.id} already.")
        properties = {**self._properties, **query.properties}
        try:
            choice = self._keep_way(query.id, query.plan, properties)
            specs, topics = self._specs(query, choice, properties)
            for topic in topics:
                ensure_topic(self._admin(), topic)
            running = _Running(
                query,
                choice,
                tuple(spec.id for spec in specs),
                tuple(topic.name for topic in topics),
                time.time_ns() // 1_000_000,
            )
            self._start_all(specs)
        except _REFUSALS as refused:
            raise KsqlError(f"The query {query.id} cannot run: {refused}") from refused
        with self._lock:
            self._running[query.id] = running

    def _start_all(self, specs: tuple[QuerySpec, ...]) -> None:
        """Start all stages of the query, or none if one fails."""
        started: list[str] = []
        try:
            for spec in specs:
                self._engine.start(spec)
                started.append(spec.id)
        except BaseException:
            for name in started:
                self._engine.release(name)
            raise

    def pause(self, query_id: str) -> None:
        for name in self._find_running(query_id).names:
            self._engine.pause(name)

    def resume(self, query_id: str) -> None:
        for name in self._find_running(query_id).names:
            self._engine.resume(name)

    def terminate(self, query_id: str, delete_state: bool) -> None:
        """Stop the query for good. If the query is unknown, delete what an earlier run has left."""
        with self._lock:
            running = self._running.pop(query_id, None)
        names = running.names if running is not None else (engine_name(query_id, 0, 1),)
        for name in names:
            try:
                if delete_state:
                    self._engine.delete(name)
                else:
                    self._engine.release(name)
            except EngineRefused as absent:
                if running is not None:
                    raise KsqlError(str(absent)) from absent
        if delete_state:
            self._way_file(query_id).unlink(missing_ok=True)
            for topic in running.internal_topics if running is not None else ():
                delete_topic(self._admin(), topic)

    def status(self, query_id: str) -> RunnerStatus:
        with self._lock:
            running = self._running.get(query_id)
        if running is None:
            return RunnerStatus("ERROR", f"there is no query {query_id}")
        found = [self._engine.query(name).status() for name in running.names]
        worst = _worst_status(found)
        lag = {
            (topic, partition): count
            for status in found
            for topic, partition, count in status.progress.lags
            if topic not in running.internal_topics
        }
        return RunnerStatus(
            _STATES[worst.state],
            worst.error if _STATES[worst.state] == "ERROR" else "",
            running.choice.speed,
            running.choice.why,
            max(status.progress.rows_per_second for status in found),
            lag,
            running.started_ms,
        )

    def explain(self, plan: LogicalPlan) -> list[str]:
        """Return our plan, whether it runs in real-time mode or in micro-batches and why, and the engine's own plan."""
        choice = choose(plan, self._properties)
        lines = [*explain_text(plan).splitlines(), "", f"Runs in {choice.speed}, because {choice.why}."]
        if choice.native is not None:
            for title, text in choice.native.passes:
                lines += ["", f"{title}:", *(f"  {line}" for line in text.splitlines())]
            lines += ["", "Spark's plan:", *self._spark_plan(choice)]
        else:
            lines += self._stages(plan)
        return lines

    def close(self) -> None:
        self._engine.close()
        with self._lock:
            self._admin_client = None

    # How it is done.

    def _find_running(self, query_id: str) -> _Running:
        with self._lock:
            running = self._running.get(query_id)
        if running is None:
            raise KsqlError(f"There is no query {query_id}.")
        return running

    def _admin(self) -> AdminClient:
        """Return the one admin client for all queries: a new one takes 50 ms until its first response."""
        from confluent_kafka.admin import AdminClient

        with self._lock:
            if self._admin_client is None:
                self._admin_client = AdminClient({**client_settings(self._engine.kafka), "log_level": "3"})
            return self._admin_client

    def _specs(
        self, query: PersistentQuery, choice: Choice, properties: Mapping[str, str]
    ) -> tuple[tuple[QuerySpec, ...], tuple[TopicSpec, ...]]:
        partitions = self._partitions(query.plan)
        if choice.native is not None:
            name = engine_name(query.id, 0, 1)
            spec = QuerySpec(
                name,
                plan=choice.native.plan,
                speed="real-time",
                keep_timestamps=True,
                group_id=application_id(self._service_id, query.id),
                producer_options=choice.native.producer_options,
                spark_settings=SESSION_SETTINGS,
                max_restarts=MAX_RESTARTS,
            )
            return (spec,), ()
        ordered = plan_ordered(
            query.id,
            query.plan,
            partitions,
            service_id=self._service_id,
            properties=properties,
            registry=self._registry,
            delivery=delivery_of(properties),
            start=start_of(properties),
        )
        return ordered.specs, ordered.internal_topics

    def _partitions(self, plan: LogicalPlan) -> dict[str, int]:
        """Return the partition counts of the sources and of the sink, whose topic is created if it does not exist."""
        admin = self._admin()
        known = admin.list_topics(timeout=METADATA_TIMEOUT_S).topics
        topics = source_topics_of(plan)
        if missing := [topic for topic in topics if topic not in known]:
            raise TopicUnavailable(f"the topic {missing[0]} does not exist")
        counts = {topic: len(known[topic].partitions) for topic in topics}
        assert plan.sink is not None, "a persistent query has a sink"
        if plan.sink.topic not in known:
            count = plan.sink.partitions or counts[leftmost_source(plan).topic]
            replicas = plan.sink.replicas or REPLICATION_FACTOR
            wanted = TopicSpec(plan.sink.topic, count, replicas, _sink_config(plan), IfExists.TAKE)
            counts[plan.sink.topic] = len(ensure_topic(admin, wanted))
        else:
            counts[plan.sink.topic] = len(known[plan.sink.topic].partitions)
        return counts

    def _way_file(self, query_id: str) -> Path:
        return self._ways / f"{engine_name(query_id, 0, 1)}.json"

    def _keep_way(self, query_id: str, plan: LogicalPlan, properties: Mapping[str, str]) -> Choice:
        """Return whether the query runs in real-time mode or in micro-batches: as before, if it has run before."""
        file = self._way_file(query_id)
        before: Way | None = json.loads(file.read_text())["way"] if file.exists() else None
        if before == "ordered":
            return choose(plan, {**properties, SPEED: MICRO_BATCHES})
        choice = choose(plan, properties)
        if choice.native is not None and not self._has_java_classes():
            choice = Choice(None, MICRO_BATCHES, f"this Spark has no class {TIME_INTERCEPTOR} to write times with")
        if before == "native" and choice.native is None:
            raise KsqlError(
                f"The query {query_id} has state of Spark's own operators, and cannot go on with it: {choice.why}.",
                hint="Start it as it was, or terminate it and create it anew.",
            )
        way: Way = "ordered" if choice.native is None else "native"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"way": way}))
        return choice

    def _has_java_classes(self) -> bool:
        """Return whether Spark's producers can write times; a Spark that we start can."""
        if self._writes_times is None:
            session = self._engine.session()
            self._writes_times = self._engine.spark_server is not None or has_java_classes(session)
        return self._writes_times

    def _stages(self, plan: LogicalPlan) -> list[str]:
        lines = ["", "Ordered operator:"]
        for number, stage in enumerate(make_topology(plan, self._properties, self._registry).stages, 1):
            inputs = ", ".join(one.topic for one in stage.inputs)
            target = stage.output.internal or (plan.sink.topic if plan.sink is not None else "the caller")
            kept = "with state, in stream order" if stage.has_state else "without state"
            lines.append(f"  stage {number}: {inputs} -> {target}, {kept}")
        return lines

    def _spark_plan(self, choice: Choice) -> list[str]:
        """Return Spark's plan, if Spark is running: it is not started to explain a statement."""
        assert choice.native is not None
        if not self._engine.queries():
            return ["  Spark starts with the first query."]
        from pessoa.pipelines.spark_plans import spark_plan

        session = self._engine.session()
        for name, value in SESSION_SETTINGS.items():
            session.conf.set(name, value)
        return [f"  {line}" for line in spark_plan(choice.native.plan, session, self._engine.kafka)]


def _sink_config(plan: LogicalPlan) -> dict[str, str]:
    if plan.kind is SourceKind.STREAM:
        return {}
    return {"cleanup.policy": "compact" if plan.window is None else "compact,delete"}


def _worst_status(found: list[QueryStatus]) -> QueryStatus:
    order = ("FAILED", "RESTARTING", "STARTING", "PAUSED", "STOPPED", "RUNNING")
    return min(found, key=lambda status: order.index(status.state))

"""The runner of tasks on Spark: a task is a query of the engine.

    source   SourceTask, polled beside Spark's driver ──► rows ──► Kafka
    sink     Kafka ──► one Spark task for each partition ──► SinkTask

A sink reads its topics by a pattern even where they are named, since a topic may come into being later. Without a
checkpoint it begins at the offsets of its consumer group, or at the start of a topic. The group's offsets are committed
after every batch, so lag tools see them.

A query that fails because of its connector is not started again by itself: the connector is FAILED until a request
restarts it. A query that fails because of Spark is started again by the engine, and so is Spark itself.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import uuid4

from pessoa.base.config_values import split_list
from pessoa.client.librdkafka import security_settings
from pessoa.connect.clients import client_settings
from pessoa.connect.config_providers import Providers
from pessoa.connect.connector import Connector, SinkConnector, SourceConnector
from pessoa.connect.connector_offsets import group_of, group_offsets
from pessoa.connect.connectors.table_sink import TableSinkConnector
from pessoa.connect.java_regex import JavaPattern
from pessoa.connect.plugins import Plugins
from pessoa.connect.query_offset import parts_of, query_offset_of, read_query_offset
from pessoa.connect.runner import FAILED, RUNNING, TaskReport, TaskSpec
from pessoa.connect.sink_task import SinkTask
from pessoa.connect.source_task import SourceTask
from pessoa.connect.table_task import TableTask
from pessoa.connect.worker_config import WorkerConfig
from pessoa.web.settings import settings_below

if TYPE_CHECKING:
    from pessoa.pipelines.engine import Engine
    from pessoa.pipelines.queries import QuerySpec

log = logging.getLogger("pessoa.connect")

_TIMEOUT_S = 30.0
# Restarts in a row after failures of Spark: a worker process that does not start in time on a busy machine, say.
RESTARTS = 10
# Settings of Kafka clients that Spark sets itself, and refuses from others.
_SPARK_SERIALISES = ("key.serializer", "value.serializer")
_SPARK_DECIDES = ("group.id", "auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit")


class SparkRunner:
    """Runs tasks as queries. The engine is made for the first task: a worker without connectors needs no Spark."""

    def __init__(self, config: WorkerConfig, make_engine: Callable[[WorkerConfig], Engine] | None = None) -> None:
        self._config = config
        self._make = make_engine or make_default_engine
        self._engine: Engine | None = None

    def __repr__(self) -> str:
        return f"<SparkRunner {self._engine}>"

    def _ensure_engine(self) -> Engine:
        if self._engine is None:
            self._engine = self._make(self._config)
        return self._engine

    def start(self, spec: TaskSpec) -> None:
        engine = self._ensure_engine()
        query_id = query_name(spec)
        if _is_known(engine, query_id):
            # Its checkpoint stays; its settings may be new.
            engine.release(query_id)
        engine.start(self._query(spec, query_id))

    def report(self, spec: TaskSpec) -> TaskReport:
        engine = self._ensure_engine()
        query_id = query_name(spec)
        offsets = None
        if spec.kind == "source" and self._config.is_standalone:
            offset = read_query_offset(self._config.settings, spec.connector, spec.number)
            offsets = parts_of(offset) if offset is not None else None
        if not _is_known(engine, query_id):
            return TaskReport(FAILED, "the query is unknown to the engine", offsets)
        status = engine.query(query_id).status()
        if status.state == "FAILED" or (status.state == "RESTARTING" and _is_raised_by_python(status.error)):
            engine.stop(query_id)
            return TaskReport(FAILED, status.error, offsets)
        return TaskReport("RESTARTING" if status.state == "RESTARTING" else RUNNING, None, offsets)

    def stop(self, spec: TaskSpec) -> None:
        engine = self._ensure_engine()
        if _is_known(engine, query_name(spec)):
            engine.stop(query_name(spec))

    def forget(self, spec: TaskSpec) -> None:
        engine = self._ensure_engine()
        query_id = query_name(spec)
        # Also the checkpoint of a query of a worker that ran before this one.
        if _is_known(engine, query_id) or (self._config.home / "queries" / query_id).exists():
            engine.delete(query_id)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    # Queries.

    def _query(self, spec: TaskSpec, query_id: str) -> QuerySpec:
        from pessoa.pipelines.python_source import python_source
        from pessoa.pipelines.queries import QuerySpec

        worker = self._config.settings
        pace = int(worker["pessoa.pace.ms"])
        if spec.kind == "source":
            task = SourceTask(spec.connector, spec.number, spec.settings, worker, query_offset_of(spec.offsets))
            required = spec.settings.get("exactly.once.support", "requested").lower() == "required"
            is_exactly_once = required or worker.get("exactly.once.source.support", "disabled").lower() == "enabled"
            return QuerySpec(
                query_id,
                start_function=lambda spark, _: python_source(spark, task),
                delivery="exactly-once" if is_exactly_once else "at-least-once",
                keep_timestamps=self._keeps_timestamps(spec),
                trigger_ms=pace,
                max_restarts=RESTARTS,
                producer_options=producer_options(worker, spec.settings),
            )
        options = sink_options(worker, spec.settings, spec.connector)
        rotation = int(spec.settings.get("rotate.schedule.interval.ms", "-1"))
        kind = self._kind(spec)
        if issubclass(kind, SinkConnector) and kind.IS_WRITTEN_BY_SPARK:
            return self._table_query(spec, query_id, options)
        return QuerySpec(
            query_id,
            start_function=lambda spark, _: spark.readStream.format("kafka").options(**options).load(),
            writer=SinkTask(spec.connector, spec.settings, worker, uuid4().hex),
            trigger_ms=rotation if rotation > 0 else pace,
            max_restarts=RESTARTS,
            group_id=group_of(spec.connector, spec.settings),
        )

    def _table_query(self, spec: TaskSpec, query_id: str, options: Mapping[str, str]) -> QuerySpec:
        from pessoa.pipelines.queries import QuerySpec
        from pessoa.pipelines.table_target import TableTarget, as_rows

        worker = self._config.settings
        config = TableSinkConnector.CONFIG.parse(Providers(worker).resolve(spec.settings))
        task = TableTask(spec.connector, spec.settings, worker, uuid4().hex)
        columns = config.string("table.schema")
        return QuerySpec(
            query_id,
            start_function=lambda spark, _: as_rows(
                spark, spark.readStream.format("kafka").options(**options).load(), task, columns
            ),
            table=TableTarget(
                config.string("table.format"),
                config.string("table.path"),
                config.entries("table.partition.by"),
                settings_below(spec.settings, "table.option."),
            ),
            trigger_ms=int(worker["pessoa.pace.ms"]),
            max_restarts=RESTARTS,
            group_id=group_of(spec.connector, spec.settings),
        )

    def _kind(self, spec: TaskSpec) -> type[Connector]:
        return Plugins(self._config.settings.get("plugin.path", "")).connector(spec.settings["connector.class"])

    def _keeps_timestamps(self, spec: TaskSpec) -> bool:
        kind = self._kind(spec)
        return issubclass(kind, SourceConnector) and kind.KEEPS_TIMESTAMPS


def make_default_engine(config: WorkerConfig) -> Engine:
    from pessoa.pipelines.engine import Engine

    return Engine(
        config.bootstrap_servers,
        home=config.home,
        spark_remote=config.spark_remote,
        kafka_options=security_settings(config.settings),
        state_topic=None,
        say=log.info,
    )


def _is_raised_by_python(error: str) -> bool:
    """Whether the error comes from Python code: its trace has a Python frame, Spark's own errors have none."""
    return 'File "' in error


def _is_known(engine: Engine, query_id: str) -> bool:
    return any(status.id == query_id for status in engine.queries())


def query_name(spec: TaskSpec) -> str:
    """Return the query id of a task, valid for engine, disk and Kafka whatever the connector is called."""
    safe_name = re.sub(r"[^A-Za-z0-9._-]", "_", spec.connector)[:60]
    if safe_name != spec.connector:
        safe_name += "-" + sha256(spec.connector.encode()).hexdigest()[:8]
    return f"connect-{safe_name}-{spec.number}-{spec.run_id}"


# The Kafka side of a source, and of a sink.


def producer_options(worker: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the producer settings of a source connector: `producer.*` of the worker, overridden by
    `producer.override.*` of the connector."""
    own = {**settings_below(worker, "producer."), **settings_below(settings, "producer.override.")}
    return {name: text for name, text in own.items() if name not in _SPARK_SERIALISES}


def sink_options(worker: Mapping[str, str], settings: Mapping[str, str], connector: str) -> dict[str, str]:
    """Return the options of Spark's Kafka source."""
    names = split_list(settings.get("topics", ""))
    pattern = settings.get("topics.regex") or "|".join(re.escape(name) for name in names)
    options = {
        "kafka.bootstrap.servers": worker["bootstrap.servers"],
        # Spark takes a topic that has a match anywhere in its name, Kafka's consumers one that matches as a whole. A
        # sink of `orders` would read `orders-refused` too, its own dead letters.
        "subscribePattern": f"^(?:{pattern})$",
        "includeHeaders": "true",
        # A topic that lost records to retention is read on from where it begins, as a consumer would.
        "failOnDataLoss": "false",
        "startingOffsets": _starting_offsets(worker, settings, connector, pattern),
        **{f"kafka.{name}": text for name, text in security_settings(worker).items()},
    }
    for prefix in ("consumer.", "consumer.override."):
        for name, text in (worker if prefix == "consumer." else settings).items():
            if name.startswith(prefix) and name.removeprefix(prefix) not in _SPARK_DECIDES:
                options[f"kafka.{name.removeprefix(prefix)}"] = text
    if "consumer.override.max.poll.records" in settings:
        options.pop("kafka.max.poll.records", None)
    return options


def _starting_offsets(worker: Mapping[str, str], settings: Mapping[str, str], connector: str, pattern: str) -> str:
    from confluent_kafka.admin import AdminClient

    reset = settings.get("consumer.override.auto.offset.reset", worker.get("consumer.auto.offset.reset", "earliest"))
    known = group_offsets(worker, group_of(connector, settings))
    if not known:
        return "latest" if reset == "latest" else "earliest"
    admin = AdminClient(dict(client_settings(worker, "admin")))
    topics = admin.list_topics(timeout=_TIMEOUT_S).topics
    compiled = JavaPattern(pattern).compiled
    otherwise = -1 if reset == "latest" else -2
    offsets = {
        name: {str(number): known.get((name, number), otherwise) for number in topic.partitions}
        for name, topic in topics.items()
        if compiled.fullmatch(name)
    }
    return json.dumps(offsets) if offsets else "earliest"

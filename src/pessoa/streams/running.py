"""An app while it runs: its queries in an engine of its own.

Before anything starts, the app is made whole: columns that the app does not describe are learnt or looked up, topics
that it writes are created if they are missing, and one that it reads must be there. Then each pipeline is cut into
queries and started; a refusal stops all of it.

The engine keeps its checkpoints under $PESSOA_HOME/streams/<app> (~/.pessoa without it), unless the app names a home.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import msgspec

from pessoa.base.home_folder import pessoa_home
from pessoa.client.topic_creation import TopicSpec, TopicUnavailable, ensure_topic
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.launching import client_settings
from pessoa.pipelines.plan import (
    Aggregate,
    Apply,
    Filter,
    FlatMap,
    Node,
    PlanRefused,
    Project,
    Rekey,
    Sink,
    Source,
    Speed,
    every,
    inputs,
)
from pessoa.pipelines.queries import QuerySpec, QueryStatus
from pessoa.pipelines.registry_formats import resolve_schemas
from pessoa.pipelines.stages import Stage, why_not_real_time, with_inputs
from pessoa.streams.app import App, finish_sink
from pessoa.streams.backlog import Backlog

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from pessoa.web.asgi_app import App as WebApp
    from pessoa.web.serving import ThreadedServer

# How many records are looked at to learn the columns of a topic, and how long one waits for them.
SAMPLE_COUNT = 200
SAMPLE_TIMEOUT_S = 10.0
ADMIN_TIMEOUT_S = 20.0
LOOK_INTERVAL_S = 0.5
# Some seconds with a Python function (20,000 to 100,000 records a second), against a tenth of a second for a batch.
RECORDS_PER_BATCH = 250_000


class PipelineFailed(Exception):
    """A query failed for good, or could not start; the sentence says why."""


def home_of(app: App) -> Path:
    if app.home is not None:
        return app.home
    return pessoa_home() / "streams" / app.id


def forget(app: App) -> None:
    """Delete the checkpoints of the app's queries: they restart from the beginning of their topics."""
    shutil.rmtree(home_of(app), ignore_errors=True)


class Running:
    def __init__(self, app: App, say: Callable[[str], None] = lambda _: None) -> None:
        self._app = app
        self._say = say
        self._stopped = threading.Event()
        self._settings = client_settings(app.kafka)
        sinks = self._complete_plans()
        self._engine = Engine(
            app.kafka.bootstrap_servers,
            home=home_of(app),
            spark_remote=app.spark,
            kafka_options=app.kafka.options,
            schema_registry_url=app.kafka.schema_registry_url,
            # The app is what remembers: its functions exist in this process only.
            state_topic=None,
            say=say,
        )
        self._stages: dict[str, Stage] = {}
        self._server: ThreadedServer | None = None
        try:
            for sink in sinks:
                self._start(sink)
        except BaseException:
            self._engine.close()
            raise

    def __repr__(self) -> str:
        return f"<Running {self._app.id}: {', '.join(f'{each.id} {each.state}' for each in self.status())}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def engine(self) -> Engine:
        return self._engine

    def status(self) -> list[QueryStatus]:
        return self._engine.queries()

    def report(self) -> str:
        """Return a line for each query: its topic and its mode, with the reason if that is micro-batch."""
        lines = []
        for query in self.status():
            stage = self._stages[query.id]
            reason = self._app.why_slow(stage.plan)
            lines.append(f"{query.id} → {stage.topic}: " + (f"micro-batch, as {reason}" if reason else "real-time"))
        return "\n".join(lines)

    def wait(self) -> None:
        """Wait until `stop` is called or Ctrl-C is pressed. Raises PipelineFailed if a query gives up."""
        backlog = Backlog()
        try:
            while not self._stopped.wait(LOOK_INTERVAL_S):
                self.check()
                for sentence in backlog.sentences(self.status(), time.monotonic()):
                    self._say(sentence)
        except KeyboardInterrupt:
            self.stop()

    def serve(self, port: int) -> str:
        """Serve the app's queries and tables over HTTP on this machine; return the address."""
        from pessoa.pipelines.api import pipelines_app
        from pessoa.web.serving import ThreadedServer

        async def make() -> WebApp:
            return pipelines_app(self._engine, self._app.tables)

        self._server = ThreadedServer(make, port=port).__enter__()
        return self._server.url

    def check(self) -> None:
        """Raise PipelineFailed if a query has failed for good."""
        for query in self.status():
            if query.state == "FAILED":
                raise PipelineFailed(f"{query.id} gave up: {query.error}")

    def stop(self) -> None:
        """Stop all queries. When the app is started again, they go on where they stopped."""
        if not self._stopped.is_set():
            self._stopped.set()
            if self._server is not None:
                self._server.__exit__()
            self._app.close_tables()
            self._engine.close()

    # Before the start

    def _complete_plans(self) -> list[Sink]:
        app = self._app
        admin = self._admin()
        existing = _topics(admin, app.kafka.bootstrap_servers)
        written = {sink.topic for sink in app.plans if not app.is_effect(sink.topic)}
        read = {node.topic for plan in app.plans for node in every(plan) if isinstance(node, Source)}
        if missing := sorted(read - written - existing):
            raise PlanRefused(
                f"the topic {missing[0]} does not exist: create it with kafka-topics --create --topic {missing[0]}"
            )
        letters = {app.errors.topic} if app.errors.topic else set()
        for topic in sorted((written | letters | app.changelogs) - existing):
            # As many partitions and replicas as the cluster gives a new topic.
            _ensure(admin, TopicSpec(topic, config={"cleanup.policy": "compact"} if topic in app.changelogs else {}))
        unknown = {
            node.topic
            for plan in app.plans
            for node in every(plan)
            if isinstance(node, Source) and node.value.kind == "json" and not node.value.columns
        }
        if unknown:
            self._say(f"Learning columns from the first records of {', '.join(sorted(unknown))}")
        samples = {topic: self._read_samples(topic) for topic in sorted(unknown)}
        return [cast("Sink", finish_sink(resolve_schemas(app.learn(sink, samples), app.kafka))) for sink in app.plans]

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({**self._settings})

    def _read_samples(self, topic: str) -> list[bytes | None]:
        """Return the values of the first records of the topic's partitions."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {**self._settings, "group.id": f"{self._app.id}-learning", "enable.auto.commit": False,
             "enable.partition.eof": True}
        )  # fmt: skip
        try:
            partitions = consumer.list_topics(topic, ADMIN_TIMEOUT_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
            found: list[bytes | None] = []
            at_end: set[int | None] = set()
            while len(found) < SAMPLE_COUNT and len(at_end) < len(partitions):
                record = consumer.poll(SAMPLE_TIMEOUT_S)
                if record is None:
                    break
                if record.error() is not None:
                    at_end.add(record.partition())
                else:
                    found.append(record.value())
            return found
        finally:
            consumer.close()

    # Queries

    def _start(self, sink: Sink) -> None:
        parts = self._app.queries_of(sink, self._types)
        for part in parts:
            if part.is_internal:
                _ensure(self._admin(), TopicSpec(part.topic, part.partitions))
        for part in parts:
            self._say(f"Starting {part.query}")
            self._stages[part.query] = part
            self._engine.start(
                QuerySpec(
                    part.query,
                    plan=self._plan(part),
                    functions=self._app.functions.by_name,
                    delivery=self._app.delivery,
                    speed=self._speed(part),
                    keep_timestamps=self._app.keep_times,
                )
            )

    def _plan(self, stage: Stage) -> Node:
        """Return the plan with a record limit for each batch if it reads a long backlog, so that progress is reported
        between batches and a crash repeats one batch only. Real-time mode needs no limit."""
        return in_limited_batches(stage.plan) if self._app.why_slow(stage.plan) else stage.plan

    def _speed(self, stage: Stage) -> Speed | None:
        """Return the speed in the app's settings; None if it is real-time and the query cannot run in that mode."""
        return None if self._app.speed == "real-time" and why_not_real_time(stage.plan) else self._app.speed

    def _types(self, node: Node) -> Mapping[str, str]:
        from pessoa.pipelines.compiler import Compiler
        from pessoa.pipelines.refusals import in_the_plans_words

        compiler = Compiler(node, self._engine.session(), self._app.kafka, self._app.functions.by_name, None)
        with in_the_plans_words(node, compiler):
            return compiler.types(node)


def in_limited_batches(plan: Node) -> Node:
    """Return the plan with at most RECORDS_PER_BATCH records in each batch, if the division into batches does not
    change its results. It does for plans with two sources, which must be read equally far, and for those with a
    watermark: within a batch it moves with the fastest partition, and later records of another partition would be
    late."""
    nodes = every(plan)
    is_free = all(
        isinstance(node, Source | Project | Apply | Filter | FlatMap | Rekey | Sink)
        or (isinstance(node, Aggregate) and node.window is None)
        for node in nodes
    )
    sources = [node for node in nodes if isinstance(node, Source)]
    if not is_free or len(sources) != 1:
        return plan

    def limit(node: Node) -> Node:
        if isinstance(node, Source):
            limits = {"maxOffsetsPerTrigger": str(RECORDS_PER_BATCH)}
            return msgspec.structs.replace(node, options={**limits, **node.options})
        return with_inputs(node, tuple(map(limit, inputs(node))))

    return limit(plan)


def _topics(admin: AdminClient, servers: str) -> set[str]:
    from confluent_kafka import KafkaException

    try:
        return set(admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics)
    except KafkaException as silence:
        raise PipelineFailed(
            f"no broker answers at {servers} within {ADMIN_TIMEOUT_S:.0f} s ({silence.args[0].str()}): start one with"
            " `pessoa up`, or name another in App(…)"
        ) from None


def _ensure(admin: AdminClient, wanted: TopicSpec) -> None:
    try:
        ensure_topic(admin, wanted, ADMIN_TIMEOUT_S)
    except TopicUnavailable as refused:
        raise PlanRefused(str(refused)) from None

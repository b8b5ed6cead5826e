"""An app: a name, a cluster, and the pipelines that were described with it.

    app = App("vendas-app", bootstrap_servers="localhost:9092")
    app.stream("vendas", value=Venda).filter("valor > 10").group_by_key().count().to("totais")
    app.run()

Every `to` is the end of one pipeline, and each pipeline becomes one query of the engine, or several where Spark needs
a topic in between (`pipelines.stages`). The queries are named after the app and the topic they write, so an app that
starts again goes on where it stopped.

`explain()` and `test(…)` need no cluster; `test` needs Spark, which is Java.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, overload

import msgspec

from pessoa.pipelines.columns import Schema, struct_fields
from pessoa.pipelines.explain import runs, tree
from pessoa.pipelines.plan import (
    NOTHING,
    PRIMITIVES,
    STRING,
    Aggregate,
    Apply,
    Errors,
    FlatMap,
    ForeignKeyJoin,
    Format,
    Join,
    KafkaSettings,
    Node,
    OnError,
    PlanRefused,
    Process,
    Project,
    Rekey,
    Sink,
    Source,
    Speed,
    Start,
    Union,
    every,
    inputs,
)
from pessoa.pipelines.queries import Delivery
from pessoa.pipelines.shapes import VALUE, WINDOW_COLUMNS, ColumnsUnknown, shape
from pessoa.pipelines.stages import Stage, Types, is_cut, stages, why_micro_batch, with_inputs
from pessoa.pipelines.topology_picture import DrawnQuery, mermaid
from pessoa.streams.flows import Stream, Table
from pessoa.streams.functions import Functions
from pessoa.streams.learning import learn_columns
from pessoa.streams.progress_report import ProgressReport
from pessoa.streams.serdes import Row, Serde, serde, string
from pessoa.streams.trial import Record

if TYPE_CHECKING:
    from pessoa.pipelines.table_shelf import TableShelf
    from pessoa.streams.queryable_state import Store, StoredTable
    from pessoa.streams.running import Running

K = TypeVar("K")
V = TypeVar("V")
# Columns as Spark writes them, or by name.
Columns = str | Mapping[str, object]
# It begins the names of queries, which are folders, groups and transactional ids.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


class App:
    """A streams application: its topics, pipelines and settings.

    `on_error` is for records that cannot be read or whose function fails: "stop", "skip", or "dead-letter", which
    writes them to `dead_letter_topic`, <id>-dead-letters if none is given.

    `keep_times` gives written records the time of their rows; Spark's own writer cannot do that, so ours is used, in
    micro-batches. Otherwise a record has the time at which it was written.

    `config` has Kafka's client settings (security.protocol, sasl.jaas.config, …), and the login at the registry
    (basic.auth.user.info, bearer.auth.token, schema.registry.ssl.truststore.location).

    `spark` is the address of a Spark Connect server, sc://host:port, by default $PESSOA_SPARK; without either, one is
    started on this machine.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        bootstrap_servers: str = "localhost:9092",
        *,
        schema_registry: str = "",
        on_error: OnError = "stop",
        dead_letter_topic: str = "",
        delivery: Delivery = "at-least-once",
        speed: Speed | None = None,
        keep_times: bool = False,
        spark: str | None = None,
        home: str | Path | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        if not _ID.match(id):
            raise PlanRefused(
                f"{id!r} cannot be the name of an app: it takes letters, digits, dots, dashes and underscores, and"
                " begins with a letter or a digit"
            )
        for name, given, words in (
            ("on_error", on_error, get_args(OnError)),
            ("delivery", delivery, get_args(Delivery)),
            ("speed", speed, (*get_args(Speed), None)),
        ):
            if given not in words:
                raise PlanRefused(f"{name} is {' or '.join(filter(None, words))}, not {given!r}")
        self.id = id
        self.kafka = KafkaSettings(bootstrap_servers, dict(config or {}), schema_registry)
        letters = dead_letter_topic or f"{id}-dead-letters"
        self.errors = Errors(on_error, letters if on_error == "dead-letter" else "")
        self.delivery = delivery
        self.speed = speed
        self.keep_times = keep_times
        self.spark = spark or os.environ.get("PESSOA_SPARK") or None
        self.home = Path(home) if home is not None else None
        self.functions = Functions()
        self._sinks: list[Sink] = []
        # The topics of pipelines that end in a function.
        self._effects: set[str] = set()
        # Names that `stored` gave, and their topics.
        self._stores: dict[str, str] = {}
        self._tables: TableShelf | None = None

    def __repr__(self) -> str:
        return f"<App {self.id} on {self.kafka.bootstrap_servers}, {len(self._sinks)} pipelines>"

    @overload
    def stream(
        self,
        topic: str,
        *,
        value: type[V] | Serde[V],
        timestamp: str = "",
        start: Start = "earliest",
    ) -> Stream[str, V]: ...
    @overload
    def stream(
        self,
        topic: str,
        *,
        value: Columns | None = None,
        timestamp: str = "",
        start: Start = "earliest",
    ) -> Stream[str, Row]: ...
    @overload
    def stream(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: type[V] | Serde[V],
        timestamp: str = "",
        start: Start = "earliest",
    ) -> Stream[K, V]: ...
    @overload
    def stream(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: Columns | None = None,
        timestamp: str = "",
        start: Start = "earliest",
    ) -> Stream[K, Row]: ...
    def stream(
        self,
        topic: str,
        *,
        key: Serde[object] = string,
        value: Serde[object] | Schema | None = None,
        timestamp: str = "",
        start: Start = "earliest",
    ) -> Stream[Any, Any]:
        """Return the records of a topic as a stream. `value` is a dataclass, columns or a serde; without one the
        records are JSON, and the columns are learnt from the first records. `avro()` and `protobuf()` take their
        columns from the schema registry. `timestamp` is an expression for the event time; the record's timestamp if
        it is empty."""
        made = serde(value)
        source = Source(topic, serde(key).format, made.format, False, timestamp, start, errors=self.errors)
        return Stream(self, source, made.type)

    @overload
    def table(self, topic: str, *, value: type[V] | Serde[V], timestamp: str = "") -> Table[str, V]: ...
    @overload
    def table(self, topic: str, *, value: Columns | None = None, timestamp: str = "") -> Table[str, Row]: ...
    @overload
    def table(self, topic: str, *, key: Serde[K], value: type[V] | Serde[V], timestamp: str = "") -> Table[K, V]: ...
    @overload
    def table(
        self, topic: str, *, key: Serde[K], value: Columns | None = None, timestamp: str = ""
    ) -> Table[K, Row]: ...
    def table(
        self,
        topic: str,
        *,
        key: Serde[object] = string,
        value: Serde[object] | Schema | None = None,
        timestamp: str = "",
    ) -> Table[Any, Any]:
        """Return the topic as a table: the latest value of each key; a record without a value deletes its key."""
        made = serde(value)
        source = Source(topic, serde(key).format, made.format, True, timestamp, errors=self.errors)
        return Table(self, source, made.type)

    def global_table(self, topic: str, *, key: Serde[object] = string, value: Any = None) -> Table[Any, Any]:
        """Return a table to look up rows in, by key or by any column of a stream: `stream.join(table,
        on="produto")`. It is read to its end before the join starts, and a stream's row is joined with the table as
        it is when the row comes; so the join runs in real time."""
        found: Table[Any, Any] = self.table(topic, key=key, value=value)
        found.is_global = True
        return found

    def add_sink(
        self,
        node: Node,
        topic: str,
        key: Serde[object] | str | None,
        value: Serde[object] | str | None,
        *,
        windows: bool = True,
    ) -> None:
        """Add the pipeline of a `to`: the node's rows are written to the topic."""
        if any(sink.topic == topic for sink in self._sinks):
            raise PlanRefused(f"two pipelines write to {topic}: unite them, or write to two topics")
        key_format = serde(key).format if key is not None else _key_format(node)
        self._sinks.append(Sink(node, topic, key_format, _sink_format(value), also=WINDOW_COLUMNS if windows else ()))

    def add_store(self, node: Node, name: str) -> None:
        """Add the table of a `stored`: it is written to a compacted topic of its own."""
        if not _ID.match(name):
            raise PlanRefused(f"{name!r} cannot be the name of a store: it takes letters, digits, dots and dashes")
        topic = changelog_of(self.id, name)
        self.add_sink(node, topic, None, None)
        self._stores[name] = topic

    def store_names(self, topic: str) -> list[str]:
        """Return the names of the stores (`Table.stored`) whose changelog is this topic."""
        return [name for name, stored in self._stores.items() if stored == topic]

    @property
    def changelogs(self) -> set[str]:
        """The compacted topics of the tables that are `stored`."""
        return set(self._stores.values())

    def add_effect(self, node: Node, name: str) -> None:
        """Add the pipeline of a `foreach`: a function is called with all rows, and nothing is written to its topic."""
        topics = {sink.topic for sink in self._sinks}
        base = re.sub(r"[^A-Za-z0-9._-]", "", name) or "foreach"
        topic, count = base, 1
        while topic in topics:
            count += 1
            topic = f"{base}-{count}"
        self._effects.add(topic)
        self._sinks.append(Sink(node, topic, Format(NOTHING), Format(NOTHING)))

    def is_effect(self, topic: str) -> bool:
        """Whether the topic is the placeholder of a `foreach`, to which nothing is written."""
        return topic in self._effects

    @property
    def plans(self) -> list[Sink]:
        """The pipelines as the user described them; columns that must be looked up are still missing."""
        return list(self._sinks)

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:  # noqa: A002
        """Return the app's pipelines as text, or as a diagram in Mermaid's language, without running them."""
        if format not in ("text", "mermaid"):
            raise PlanRefused(f"an app is explained as text or mermaid, not {format!r}")
        if not self._sinks:
            return f"{self.id} has no pipelines: end one with .to(topic)"
        sinks = []
        for sink in self._sinks:
            with contextlib.suppress(ColumnsUnknown):
                sink = cast("Sink", finish_sink(sink))
            sinks.append(sink)
        if format == "mermaid":
            return mermaid(self._draw(sink) for sink in sinks)
        texts = [f"{self.id}-{sink.topic}\n{tree(sink)}\n{self._explain_speed(sink)}" for sink in sinks]
        return "\n\n".join(texts)

    def _draw(self, sink: Sink) -> DrawnQuery:
        speed = "micro-batch" if self.why_slow(sink) else "real-time"
        return DrawnQuery(f"{self.id}-{sink.topic} · {speed}", sink, self.is_effect(sink.topic))

    def _explain_speed(self, sink: Sink) -> str:
        if not is_cut(sink, real_time=self.wants_real_time):
            return runs(self.why_slow(sink))
        try:
            # The types of the columns do not change how a plan is divided into queries.
            parts = self.queries_of(sink, lambda node: dict.fromkeys(shape(node).columns, "STRING"))
        except ColumnsUnknown:
            return "runs in several queries"
        lines = [f"{part.query} → {part.topic} {runs(self.why_slow(part.plan))}" for part in parts]
        return "\n".join(["runs in several queries:", *lines])

    @property
    def wants_real_time(self) -> bool:
        """Whether the app's settings allow real-time mode, so that each plan decides it."""
        return self.delivery != "exactly-once" and not self.keep_times and self.speed != "micro-batch"

    def why_slow(self, plan: Node) -> str | None:
        """Return why a query with this plan runs in micro-batches; None if it runs in real-time mode."""
        return why_micro_batch(plan, self.delivery, self.keep_times, self.speed)

    def queries_of(self, sink: Sink, types: Types) -> list[Stage]:
        """Return the queries that a pipeline is run as. `types` gives the columns of a node and their types in
        Spark."""
        return stages(sink, f"{self.id}-{sink.topic}", types, real_time=self.wants_real_time)

    def start(self) -> Running:
        """Start all pipelines and return. `with app.start() as running:` stops them at the end of the block."""
        return self._start(lambda _: None)

    def _start(self, say: Callable[[str], None]) -> Running:
        from pessoa.streams.running import Running

        if not self._sinks:
            raise PlanRefused(f"{self.id} has no pipelines: end one with .to(topic)")
        return Running(self, say)

    def run(self, *, http_port: int | None = None) -> None:
        """Start all pipelines, print the steps of the start and the queries that run, and wait until Ctrl-C. With
        `http_port` the app's queries and tables are served over HTTP, on this machine (`pipelines.api`). An error
        that prevents or ends the run ends the program with a sentence; `start` raises it."""
        from pessoa.streams.running import PipelineFailed

        try:
            self._run(http_port)
        except (PlanRefused, PipelineFailed) as refused:
            raise SystemExit(f"{self.id}: {refused}") from None
        except KeyboardInterrupt:
            # Ctrl-C before everything ran: what had been started is closed by now.
            raise SystemExit(130) from None

    def _run(self, http_port: int | None) -> None:
        with ProgressReport() as progress:
            progress.say(f"{self.id}: looking at {self.kafka.bootstrap_servers}")
            with self._start(progress.say) as running:
                progress.say(running.report())
                progress.rest()
                if http_port is not None:
                    progress.say(f"Queries and tables are at {running.serve(http_port)}")
                    progress.rest()
                running.wait()

    def store(self, name: str) -> Store:
        """Return the rows of a table of this app, by the name of its topic or that given by `stored`: see
        queryable_state.py."""
        from pessoa.pipelines.registry_values import registry_values
        from pessoa.streams.queryable_state import Store

        found = stored_tables(self)
        if name not in found:
            raise PlanRefused(f"{self.id} has no store {name}: it has {', '.join(sorted(found)) or 'none'}")
        registry = registry_values(self.kafka)
        return Store(found[name], self.tables.open(found[name].topic), registry)

    @property
    def tables(self) -> TableShelf:
        """The materialised tables that were queried, kept beside the app's checkpoints."""
        from pessoa.pipelines.launching import client_settings
        from pessoa.pipelines.table_shelf import TableShelf
        from pessoa.streams.running import home_of

        if self._tables is None or self._tables.is_closed:
            self._tables = TableShelf(client_settings(self.kafka), home_of(self) / "tables")
        return self._tables

    def close_tables(self) -> None:
        """Close the tables that were opened for queries; the next query opens them again."""
        if self._tables is not None:
            self._tables.close()

    def test(self, topics: Mapping[str, Sequence[object]], *, spark: Any = None) -> dict[str, list[Record]]:
        """Return the records that the pipelines write for these input records, by topic: see trial.py. `spark` is a
        session to use instead of a Spark that is started for this."""
        from pessoa.pipelines import in_memory
        from pessoa.pipelines.registry_formats import resolve_schemas
        from pessoa.streams import trial

        given = {topic: [trial.as_record(each) for each in records] for topic, records in topics.items()}
        samples = {
            topic: [trial.to_bytes(Format("json"), record.value) for record in records]
            for topic, records in given.items()
        }
        whole = [resolve_schemas(self.learn(sink, samples), self.kafka) for sink in self._sinks]
        sinks = [sink for plan in whole if isinstance(sink := trial.without_registry(finish_sink(plan)), Sink)]
        records = trial.encode_records(given, trial.sources_of(sinks))
        for topic in trial.sources_of(sinks):
            records.setdefault(topic, [])
        found: dict[str, list[Record]] = {}
        session = spark if spark is not None else in_memory.session()
        for sink in trial.in_order(sinks):
            if not self.is_effect(sink.topic):
                found.setdefault(sink.topic, [])
            for record in in_memory.run(sink, session, records, self.functions.by_name):
                is_letter = record.topic != sink.topic
                made = trial.decode_record(record, None if is_letter else sink, None if is_letter else shape(sink))
                found.setdefault(record.topic, []).append(made)
                if record.topic in records:
                    records[record.topic].append(record)
        return found

    def learn(self, plan: Node, samples: Mapping[str, Sequence[bytes | None]]) -> Node:
        """Return the plan with the columns of JSON sources that the user did not describe, learnt from samples of
        their topics. Raises PlanRefused if no sample is a JSON object."""
        whole = with_inputs(plan, tuple(self.learn(each, samples) for each in inputs(plan)))
        if not isinstance(whole, Source) or whole.value.kind != "json" or whole.value.columns:
            return whole
        columns = learn_columns(samples.get(whole.topic, ()))
        if not columns:
            raise PlanRefused(
                f"the columns of {whole.topic} are not known: no record of it is a JSON object. Say what it holds: "
                f'stream("{whole.topic}", value=…), a dataclass, columns such as "valor DOUBLE", or string'
            )
        return msgspec.structs.replace(whole, value=Format("json", columns))


def changelog_of(app_id: str, name: str) -> str:
    """Return the topic of a table that is kept under a name, as Kafka Streams calls it."""
    return f"{app_id}-{name}-changelog"


def stored_tables(app: App) -> dict[str, StoredTable]:
    """Return the tables that can be queried, by name: those that the app writes, and those that it reads."""
    from pessoa.streams.queryable_state import StoredTable

    found: dict[str, StoredTable] = {}
    for sink in app.plans:
        for node in every(sink):
            if isinstance(node, Source) and node.is_table:
                found[node.topic] = StoredTable(node.topic, node.key, node.value, node.window)
    for sink in app.plans:
        try:
            made = shape(sink)
            sink = cast("Sink", finish_sink(sink))
            is_table, window = made.is_table, made.window
        except ColumnsUnknown:
            above = next((node for node in reversed(every(sink)) if isinstance(node, Aggregate | Rekey)), None)
            is_table = isinstance(above, Aggregate)
            window = above.window if isinstance(above, Aggregate) else None
            if sink.value.kind == NOTHING:
                sink = msgspec.structs.replace(sink, value=Format("json"))
        if is_table and not app.is_effect(sink.topic):
            stored = StoredTable(sink.topic, sink.key, sink.value, window)
            found[sink.topic] = stored
            for name in app.store_names(sink.topic):
                found[name] = stored
    return found


def finish_sink(plan: Node) -> Node:
    """Return the sink with the format of its value, now that the columns are known, and with the window's columns if
    it has a window."""
    if not isinstance(plan, Sink):
        return plan
    made = shape(plan)
    value = plan.value
    if value.kind == NOTHING:
        value = STRING if _is_single_value(plan.input) else Format("json")
    also = plan.also if made.window is not None and value.kind not in PRIMITIVES else ()
    return msgspec.structs.replace(plan, value=value, also=also)


def _is_single_value(node: Node) -> bool:
    """Whether the node's value is a single value, and not an object with one field."""
    match node:
        case Source():
            return node.value.kind in PRIMITIVES
        case Project():
            return [column.name for column in node.columns] == [VALUE] and not node.keep
        case Apply() | Process():
            return struct_fields(node.function.returns) is None
        case FlatMap():
            return shape(node).values == (node.name,)
        case Aggregate() | Join() | ForeignKeyJoin():
            return False
        case _:
            return _is_single_value(inputs(node)[0])


def _sink_format(value: Serde[object] | str | None) -> Format:
    """Return the format of a sink; NOTHING means that the columns decide it."""
    if value is None:
        return Format(NOTHING)
    return msgspec.structs.replace(serde(value).format, columns="")


def _key_format(node: Node) -> Format:
    """Return the key's format: that of the source until a step changes the key."""
    match node:
        case Source():
            return msgspec.structs.replace(node.key, columns="")
        case Rekey():
            return STRING if len(node.columns) < 2 else Format("json")
        case Join() | ForeignKeyJoin():
            return _key_format(node.left)
        case Union():
            return _key_format(node.inputs[0])
        case _:
            return _key_format(inputs(node)[0])

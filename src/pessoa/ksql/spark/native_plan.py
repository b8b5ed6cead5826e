"""A logical plan as a plan of the pipelines: for what Spark's own operators mean as ksql does, or NotNative.

The passes, each printable (EXPLAIN shows them):

    steps        the row of steps from the source to the result, if there is nothing but those that Spark has
    reading      bytes → columns of the source, and which records are skipped, with an entry in the processing log
    rows         WHERE, PARTITION BY or GROUP BY with its window, SELECT: texts in Spark SQL
    plan         the pipelines' plan

Columns are called c0, c1 … in Spark: names of ksql may differ in case alone, which Spark does not tell apart. Key and
value leave as bytes, so that a plan's sink writes them as they are; a windowed key ends with 8 bytes of its start.

Windows. Spark forgets a window when its watermark has passed: the latest time that any partition had, less the grace,
as of the last batch. ksql counts by partition and record. So a window whose grace was chosen short goes the ordered
way; of one with the default grace of about a day, only records that are a day late can tell the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pessoa.ksql.analysis.logical_plan import (
    AggregateStep,
    FilterStep,
    JoinStep,
    LogicalPlan,
    ProjectStep,
    ReadSource,
    RekeyStep,
    Step,
)
from pessoa.ksql.analysis.pseudo_columns import ROWOFFSET, ROWPARTITION, ROWTIME, WINDOWEND, WINDOWSTART
from pessoa.ksql.analysis.source_catalogue import Source as KsqlSource
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.functions.aggregates import ResolvedAggregate
from pessoa.ksql.operators.query_settings import FAIL_ON_BAD_RECORD, FAIL_ON_BAD_TIMESTAMP, WRAP_SINGLE_VALUES
from pessoa.ksql.operators.records import FailureKind
from pessoa.ksql.spark.native_aggregates import aggregate_sql
from pessoa.ksql.spark.native_formats import Reading, json_time, read_key, read_value, write_side
from pessoa.ksql.spark.spark_expressions import NotNative, Sql, spark_type, translate
from pessoa.ksql.syntax.expression_nodes import Call
from pessoa.ksql.syntax.query_nodes import Emit, WindowKind
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import BIGINT, TIMESTAMP
from pessoa.pipelines.explain import tree
from pessoa.pipelines.formats import sql_text
from pessoa.pipelines.plan import (
    BYTES,
    NOTHING,
    Aggregate,
    Column,
    Filter,
    Format,
    Node,
    Project,
    Rekey,
    Sink,
    Source,
    Start,
    Window,
)

# The position of a row's record in an entry of the processing log. Behind an aggregate it is the sink's name.
_PLACE = "' (', rowtopic, '-', rowpartition, ' at ', rowoffset, ')'"
# Below this a window's grace was chosen, and is meant by partition.
LEAST_GRACE_MS = 12 * 3_600_000
WINDOWED_KEYS = {"partitioner.class": "pessoa.WindowedKeyPartitioner"}


@dataclass(frozen=True)
class NativePlan:
    plan: Sink
    # Settings of the producer: how it partitions windowed keys.
    producer_options: Mapping[str, str]
    # Titles and texts.
    passes: tuple[tuple[str, str], ...]


@dataclass
class _Draft:
    """The intermediate result of the passes."""

    node: Node
    # ksql's column → its text in Spark.
    columns: dict[str, str]
    # Whether the value is null; empty behind an aggregate.
    is_null: str
    is_windowed: bool = False
    # Where a row comes from, in an entry of the processing log.
    place: str = _PLACE
    # The number of columns with log entries so far: their names are numbered.
    logged: int = 0
    notes: list[str] = field(default_factory=list)


def leftmost_source(plan: LogicalPlan) -> KsqlSource:
    step = plan.root
    while not isinstance(step, ReadSource):
        step = step.left if isinstance(step, JoinStep) else step.below
    return step.source


def source_topics_of(plan: LogicalPlan) -> tuple[str, ...]:
    found: list[str] = []
    waiting: list[Step] = [plan.root]
    while waiting:
        step = waiting.pop()
        match step:
            case ReadSource(source):
                found.append(source.topic)
            case JoinStep():
                waiting += [step.right, step.left]
            case _:
                waiting.append(step.below)
    return tuple(dict.fromkeys(found))


def plan_native(plan: LogicalPlan, start: Start, properties: Mapping[str, str]) -> NativePlan:
    """Return the pipelines' plan of a persistent query. Raises NotNative with the reason."""
    steps = _steps(plan, properties)
    draft, reading = _read(steps[0], start)
    for step in steps[1:]:
        _apply(step, draft, plan)
    sink = _sink(plan, draft)
    passes = (
        ("Steps", "\n".join(_line(step) for step in steps)),
        ("Reading", _reading_text(reading)),
        ("Rows", "\n".join(draft.notes)),
        ("Plan", tree(sink)),
    )
    return NativePlan(sink, WINDOWED_KEYS if draft.is_windowed else {}, passes)


# Pass 1: the steps.


def _steps(plan: LogicalPlan, properties: Mapping[str, str]) -> list[Step]:
    if plan.sink is None:
        raise NotNative("it has no sink")
    if properties.get(FAIL_ON_BAD_RECORD, "").lower() == "true":
        raise NotNative(f"{FAIL_ON_BAD_RECORD} fails a query for a record")
    if properties.get(FAIL_ON_BAD_TIMESTAMP, "").lower() == "true":
        raise NotNative(f"{FAIL_ON_BAD_TIMESTAMP} fails a query for a record")
    if properties.get(WRAP_SINGLE_VALUES, "true").lower() != "true":
        raise NotNative("single values are not wrapped")
    found: list[Step] = []
    step = plan.root
    while not isinstance(step, ReadSource):
        found.append(_check_step(step))
        if isinstance(step, JoinStep):
            raise NotNative(f"a {step.form.value} join takes rows in their order")
        step = step.below
    source = step.source
    if source.kind is SourceKind.TABLE:
        raise NotNative(f"{source.name} is a table, whose rows replace each other")
    if source.window is not None:
        raise NotNative(f"{source.name} has windows in its keys")
    if source.headers:
        raise NotNative(f"{source.name} has columns of headers")
    return [step, *reversed(found)]


def _check_step(step: Step) -> Step:
    match step:
        case FilterStep(_, _, clause) if clause != "WHERE":
            raise NotNative("HAVING takes rows back that do not pass any more")
        case AggregateStep(_, _, _, window, emit) if window is not None:
            if window.kind is WindowKind.SESSION:
                raise NotNative("sessions merge, and take back what they were")
            if emit is Emit.FINAL:
                raise NotNative("EMIT FINAL waits for the time of a partition")
            if window.grace_ms < LEAST_GRACE_MS:
                raise NotNative("a short GRACE PERIOD is by the time of a partition")
        case JoinStep():
            raise NotNative(f"a {step.form.value} join takes rows in their order")
        case FilterStep() | RekeyStep() | AggregateStep() | ProjectStep():
            pass
        case _:
            raise NotNative("EXPLODE is ksql's own")
    return step


def _line(step: Step) -> str:
    if isinstance(step, ReadSource):
        return f"read {step.source.name} from {step.source.topic}"
    return {"FilterStep": "filter", "RekeyStep": "partition by", "AggregateStep": "aggregate",
            "ProjectStep": "project"}[type(step).__name__]  # fmt: skip


# Pass 2: reading.


def _read(step: Step, start: Start) -> tuple[_Draft, Reading]:
    assert isinstance(step, ReadSource)
    source, names = step.source, dict(step.names)
    key = read_key(source.key_format, source.key, source.key_options)
    value = read_value(source.value_format, source.value, source.value_options)
    records = Source(source.topic, key=BYTES, value=BYTES, start=start)
    node: Node = records if source.timestamp is None else _with_timestamp(records, source)
    for projection in value.steps:
        keep = (Column("value", "value"),)
        node = Project(node, (*keep, *(Column(name, text) for name, text in projection)))
    made: dict[str, str] = {}
    columns: list[Column] = []
    for index, (column, text) in enumerate(
        zip((*source.key, *source.value), (*key.columns, *value.columns), strict=True)
    ):
        columns.append(Column(f"c{index}", text))
        made[names[column.name]] = f"c{index}"
    columns += [
        Column("bad", _failure(key, value, is_timed=source.timestamp is not None)),
        Column("gone", value.is_null),
    ]
    node = _with_log_entry(Project(node, tuple(columns)), "bad", _PLACE, goes_on=False)
    prefix = step.names[0][1].removesuffix(step.names[0][0])
    made |= {
        prefix + ROWTIME: "unix_millis(rowtime)",
        prefix + ROWPARTITION: "rowpartition",
        prefix + ROWOFFSET: "rowoffset",
    }
    return _Draft(node, made, "gone"), value


def _with_timestamp(node: Source, source: KsqlSource) -> Source:
    """Return the source with the times of its TIMESTAMP column; a record without one gets the time -1, which no
    record can have."""
    column = next((one for one in source.value if one.name == source.timestamp), None)
    if column is None or source.value_format != "JSON" or column.type not in (BIGINT, TIMESTAMP):
        raise NotNative("the TIMESTAMP column is read by ksql's own codec")
    return msgspec.structs.replace(node, timestamp=f"coalesce({json_time(column)}, timestamp_millis(-1))")


def _failure(key: Reading, value: Reading, *, is_timed: bool) -> str:
    """Return the SQL for the processing log's entry about a skipped record; it is null for all others."""
    read = [one.mistake for one in (key, value) if one.mistake]
    kinds = [f"concat('{FailureKind.DESERIALISATION.name}: ', {one})" for one in read]
    whens = ["WHEN rowtime < timestamp_millis(0) THEN 'the time is negative, or there is none'"]
    if is_timed:
        whens.append(f"WHEN {value.is_null} THEN 'the TIMESTAMP column is null'")
    kinds.append(f"concat('{FailureKind.PROCESSING.name}: ', CASE {' '.join(whens)} END)")
    return f"coalesce({', '.join(kinds)})"


def _reading_text(reading: Reading) -> str:
    lines = [f"{name} = {text}" for step in reading.steps for name, text in step if name not in ("json", "names")]
    columns = [f"c{index} = {text}" for index, text in enumerate(reading.columns)]
    return "\n".join([*lines, *columns, f"skipped for {reading.mistake or 'nothing'}"])


# Pass 3: rows.


def _with_log_entry(node: Node, entry: str, place: str, *, goes_on: bool) -> Filter:
    """Return the rows, with an entry in the processing log for each whose column `entry` is not null.

    Spark calls a Java method of ours for it, which returns whether the row is kept.
    """
    method = "note" if goes_on else "skip"
    call = f"java_method('pessoa.ProcessingLog', '{method}', concat({entry}, {place}))"
    return Filter(node, f"IF({entry} IS NULL, true, CAST({call} AS BOOLEAN))")


def _log_failures(draft: _Draft, items: Sequence[tuple[str, Sql]]) -> None:
    """Log the rows for which an expression fails, with the names of the failed expressions."""
    listed = ", ".join(f"IF({sql.fails}, {sql_text(name)}, NULL)" for name, sql in items if sql.fails)
    if not listed:
        return
    failed = f"nullif(concat_ws(', ', {listed}), '')"
    entry = f"concat('{FailureKind.PROCESSING.name}: no value could be computed for ', {failed})"
    name = f"failed{draft.logged}"
    draft.logged += 1
    if draft.is_null:
        entry = f"IF({draft.is_null}, NULL, {entry})"
    elif not draft.is_windowed:
        # The table becomes the stream of its changes: a filter of a table would make tombstones.
        draft.node = Rekey(draft.node, (Column("key", "key"),))
    column = Column(name, entry)
    draft.node = _with_log_entry(Project(draft.node, (column,), keep=True), name, draft.place, goes_on=True)


def _apply(step: Step, draft: _Draft, plan: LogicalPlan) -> None:
    match step:
        case FilterStep(_, condition):
            decided = translate(condition, draft.columns)
            text = decided.is_true
            _log_failures(draft, [("WHERE", decided)])
            draft.notes.append(f"WHERE {text}")
            draft.node = Filter(draft.node, f"NOT {draft.is_null} AND {text}")
        case RekeyStep(_, keys):
            moved = [(name, translate(typed, draft.columns)) for name, typed in keys]
            _log_failures(draft, moved)
            for number, (name, sql) in enumerate(moved):
                _add(draft, f"p{number}", name, _partition_key_sql(draft, sql))
        case AggregateStep():
            _aggregate(step, draft, plan)
        case ProjectStep(_, columns):
            made: dict[str, str] = {}
            added: list[Column] = []
            found = [translate(typed, draft.columns) for _, typed in columns]
            _log_failures(draft, [(name, sql) for (name, _), sql in zip(columns, found, strict=True)])
            for number, ((name, typed), sql) in enumerate(zip(columns, found, strict=True)):
                text = f"CAST({sql.or_null} AS {spark_type(typed.type)})"
                draft.notes.append(f"o{number} = {text}  -- {name}")
                added.append(Column(f"o{number}", text))
                made[name] = f"o{number}"
            draft.node = Project(draft.node, tuple(added), keep=True)
            draft.columns = made


def _add(draft: _Draft, column: str, name: str, text: str) -> None:
    draft.notes.append(f"{column} = {text}  -- {name}")
    draft.node = Project(draft.node, (Column(column, text),), keep=True)
    draft.columns[name] = column


def _partition_key_sql(draft: _Draft, sql: Sql) -> str:
    """Return the SQL of a key of PARTITION BY: null for a record without a value."""
    return f"IF({draft.is_null}, NULL, {sql.or_null})"


def _aggregate(step: AggregateStep, draft: _Draft, plan: LogicalPlan) -> None:
    before = dict(draft.columns)
    _log_failures(draft, _inputs_of(step, before))
    groups: list[str] = []
    for number, (name, typed) in enumerate(step.keys):
        _add(draft, f"g{number}", name, f"CAST({translate(typed, before).or_null} AS {spark_type(typed.type)})")
        groups.append(f"g{number}")
    present = " AND ".join(f"{group} IS NOT NULL" for group in groups)
    draft.node = Filter(draft.node, f"NOT {draft.is_null} AND {present}")
    keys = _key_columns(plan)
    names = [draft.columns[name] for name in keys]
    bytes_ = write_side(plan.key_format, plan.key, names, plan.sink.key_options, is_key=True)  # type: ignore[union-attr]
    draft.node = Rekey(draft.node, (Column("key", bytes_),))
    aggregates: list[Column] = [Column(group, f"first({group})") for group in groups]
    after = {name: f"g{number}" for number, (name, _) in enumerate(step.keys)}
    for number, (name, typed) in enumerate(step.aggregates):
        text = _aggregate_text(typed, before)
        draft.notes.append(f"a{number} = {text}  -- {name}")
        aggregates.append(Column(f"a{number}", text))
        after[name] = f"a{number}"
    window = None
    if step.window is not None:
        kind = "hopping" if step.window.kind is WindowKind.HOPPING else "tumbling"
        window = Window(kind, step.window.size_ms, step.window.advance_ms, step.window.grace_ms)  # type: ignore[arg-type]
        draft.notes.append(
            f"window {kind}, {step.window.size_ms} ms, forgotten {step.window.grace_ms} ms after its end"
        )
    draft.node = Aggregate(draft.node, tuple(aggregates), window)
    if window is not None:
        bounds = (Column("ws", "unix_millis(window_start)"), Column("we", "unix_millis(window_end)"))
        draft.node = Project(draft.node, bounds, keep=True)
        after |= {WINDOWSTART: "ws", WINDOWEND: "we"}
        draft.is_windowed = True
        # A table becomes the stream of its changes, and windows before 1970 are none.
        windowed = "concat(key, unhex(lpad(hex(ws), 16, '0')))"
        draft.node = Filter(Rekey(draft.node, (Column("key", windowed),)), "ws >= 0")
    draft.columns, draft.is_null = after, ""
    assert plan.sink is not None
    draft.place = sql_text(f" (a group of {plan.sink.topic})")


def _inputs_of(step: AggregateStep, columns: Mapping[str, str]) -> list[tuple[str, Sql]]:
    """Return the expressions that an aggregate computes for a row: its keys and the arguments, by the names of their
    results."""
    inputs = [*step.keys, *((name, child) for name, typed in step.aggregates for child in typed.children)]
    return [(name, translate(typed, columns)) for name, typed in inputs]


def _key_columns(plan: LogicalPlan) -> list[str]:
    """Return the names that the result's keys have after the aggregation."""
    root = plan.root
    assert isinstance(root, ProjectStep)
    found = []
    for _, typed in root.columns[: root.key_count]:
        if not typed.column:
            raise NotNative("a key of the result is computed behind the aggregate")
        found.append(typed.column)
    return found


def _aggregate_text(typed: Typed, columns: Mapping[str, str]) -> str:
    if not isinstance(typed.call, ResolvedAggregate) or not isinstance(typed.node, Call):
        raise NotNative("an aggregate is part of an expression")
    spark_type(typed.type)
    if len(typed.children) > 1:
        raise NotNative(f"{typed.node.name} has more than one argument")
    arguments = [translate(child, columns).or_null for child in typed.children]
    return aggregate_sql(typed.node.name, arguments, [child.type for child in typed.children])


# Pass 4: the plan.


def _sink(plan: LogicalPlan, draft: _Draft) -> Sink:
    assert plan.sink is not None
    if plan.sink.timestamp is not None:
        raise NotNative("the sink's TIMESTAMP column sets the times of its records")
    results, wanted = (*plan.key, *plan.value), (*plan.sink.key, *plan.sink.value)
    if [column.type for column in results] != [column.type for column in wanted]:
        raise NotNative("the sink's columns have other types than the result's")
    values = [draft.columns[column.name] for column in plan.value]
    value = write_side(plan.value_format, plan.value, values, plan.sink.value_options, is_key=False)
    if draft.is_null:
        value = f"IF({draft.is_null}, NULL, {value})"
    if _has_aggregate(plan):
        return Sink(Project(draft.node, (Column("value", value),)), plan.sink.topic, BYTES, BYTES, windowed_key=False)
    keys = [draft.columns[column.name] for column in plan.key]
    key = write_side(plan.key_format, plan.key, keys, plan.sink.key_options, is_key=True)
    node: Node = Project(draft.node, (Column("kb", key), Column("vb", value)))
    node = Project(Rekey(node, (Column("key", "kb"),)), (Column("value", "vb"),))
    return Sink(node, plan.sink.topic, BYTES if plan.key else Format(NOTHING), BYTES)


def _has_aggregate(plan: LogicalPlan) -> bool:
    step = plan.root
    while not isinstance(step, ReadSource | JoinStep):
        if isinstance(step, AggregateStep):
            return True
        step = step.below
    return False

"""How a plan runs: at which speed, with which output mode, and in how many queries.

Spark runs a plan at one of two speeds. In real-time mode each record is taken and its result written by itself, in
milliseconds: a plan without state, and one whose state is an aggregate, in tumbling or hopping windows or none, which
writes a row whenever one changes; rows that are told apart; two tables, or a stream and a table as it is. Everything
else runs in micro-batches (`why_not_real_time` says what and why).

What leaves a plan in micro-batches depends on its state:

    update    aggregates, joins with tables, distinct rows: a row whenever one changes
    append    joins of two streams, session windows, windows that say only their final result, rows that are distinct
              within a time

Spark keeps one state of the update kind in a query, and no other state beside it. Kafka Streams would put a
repartition topic between two such steps, and so do we: `stages` cuts a plan there into several, each of which ends in
a topic that the next one reads. The topics in between hold JSON with the event time, and are named after the pipeline;
a plan may ask for one itself (Through). Each part runs at its own speed. Real-time mode asks for two more cuts, which
are made where nothing else is in its way:

    a union above state        Spark wants its unions first
    dead letters beside state  they would be such a union; a query without state reads the topic for them instead

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from pessoa.pipelines.columns import write_columns
from pessoa.pipelines.plan import (
    NOTHING,
    Aggregate,
    Apply,
    Column,
    Distinct,
    Errors,
    Filter,
    FlatMap,
    ForeignKeyJoin,
    Format,
    Function,
    Join,
    Node,
    Process,
    Project,
    PythonSink,
    PythonSource,
    Rekey,
    Sink,
    Source,
    Speed,
    Through,
    Union,
    Window,
    Within,
    every,
    inputs,
)
from pessoa.pipelines.shapes import ROWTIME, shape
from pessoa.pipelines.table_foreign_keys import expand

OutputMode: TypeAlias = Literal["append", "update"]
REGISTRY_FORMATS = ("avro", "protobuf")


def has_state(node: Node) -> bool:
    """Whether this node itself keeps state."""
    return isinstance(node, Aggregate | Distinct | ForeignKeyJoin | Join | Process)


def why_not_real_time(plan: Node) -> str | None:
    """Return the reason why a plan cannot run record by record, as one query; None if it can."""
    for node in every(plan):
        if reason := _why_slow(node):
            return reason
    if any(_has_too_much_state(node) for node in every(plan)):
        return "it keeps state after state"
    if any(_is_union_above_state(node) for node in every(plan)):
        return "it unites what an aggregate gives"
    if _letters_beside_state(plan):
        return "its bad records leave it beside an aggregate"
    return None


def why_micro_batch(plan: Node, delivery: str, keeps_times: bool, wanted: Speed | None) -> str | None:
    """Return the reason why a query with this plan and these settings runs in micro-batches; None for real-time
    mode."""
    if reason := why_not_real_time(plan):
        return reason
    if delivery == "exactly-once":
        return "transactions are of batches"
    if keeps_times:
        return "times are kept"
    return "the app wants it so" if wanted == "micro-batch" else None


def _why_slow(node: Node) -> str | None:
    match node:
        case Aggregate(window=Window(kind="session")):
            return "a session is told when it has ended"
        case Aggregate(window=Window(final=True)):
            return "it says final results only"
        case Join(within=Within()):
            return "it joins two streams"
        case Join(lookup="by-time") if not is_table(node.left):
            return (
                "a join with a table takes the rows of a batch in the order of their times (one that looks up the"
                " table's latest row would run in real time)"
            )
        case Distinct(within_ms=within_ms) if within_ms > 0:
            return "what it has seen is forgotten after a time"
        case ForeignKeyJoin():
            return "it joins tables by a foreign key, in Python"
        case PythonSource() | PythonSink():
            return "Python reads or writes its records"
    if any(isinstance(each, Function) for each in functions(node)):
        return "Spark gathers records before it hands them to Python functions"
    slow = [format_.kind for format_ in formats(node) if format_.kind in REGISTRY_FORMATS]
    return f"{slow[0]} is read and written in Python" if slow else None


def is_table(node: Node) -> bool:
    """Return whether the node is a table, as `shapes.shape` does, also while columns are unknown."""
    match node:
        case Source():
            return node.is_table
        case Aggregate():
            return True
        case Join():
            return is_table(node.left)
        case ForeignKeyJoin():
            return True
        case PythonSource() | Rekey() | Union() | FlatMap():
            return False
        case Process():
            return node.gives_table or node.window is not None
        case _:
            return is_table(node.input)


def lookups(plan: Node) -> list[Join]:
    """Return the joins of a stream with the current rows of a table, which must be read before the stream."""
    joins = [node for node in every(plan) if isinstance(node, Join) and node.lookup == "latest"]
    return [node for node in joins if node.within is None and not is_table(node.left)]


def _is_union_above_state(node: Node) -> bool:
    return isinstance(node, Union) and any(has_state(each) for each in every(node))


def _letters_beside_state(plan: Node) -> bool:
    return any(map(has_state, every(plan))) and any(map(_sends_letters, every(plan)))


def _sends_letters(node: Node) -> bool:
    return not isinstance(node, Sink) and getattr(node, "errors", Errors()).then == "dead-letter"


def functions(node: Node) -> list[object]:
    match node:
        case Apply() | Process():
            return [node.function]
        case Filter():
            return [node.condition]
        case FlatMap():
            return [node.each]
        case Rekey():
            return [node.function]
        case _:
            return []


def formats(node: Node) -> tuple[Format, ...]:
    return (node.key, node.value) if isinstance(node, Source | Sink) else ()


def speed(plan: Node) -> Speed:
    """Return the fastest mode in which the plan can run."""
    return "micro-batch" if why_not_real_time(plan) else "real-time"


def output_mode(plan: Node) -> OutputMode:
    modes = {_mode(node) for node in every(plan) if has_state(node)}
    return "update" if modes == {"update"} else "append"


def _mode(node: Node) -> OutputMode:
    if isinstance(node, Aggregate):
        return (
            "append" if node.window is not None and (node.window.final or node.window.kind == "session") else "update"
        )
    if isinstance(node, Distinct):
        return "append" if node.within_ms else "update"
    if isinstance(node, Process | ForeignKeyJoin):
        return "update"
    assert isinstance(node, Join)
    return "append" if node.within is not None else "update"


class Stage(NamedTuple):
    """One query. `topic` is the topic that it writes; it is internal if another stage reads it."""

    query: str
    plan: Node
    topic: str
    is_internal: bool
    # Of the topic, if it is created; -1 leaves it to the cluster.
    partitions: int = -1


# The event time in a topic between two stages.
_TIME = "__rowtime"
Types = Callable[[Node], Mapping[str, str]]


def stages(plan: Sink, name: str, types: Types, *, real_time: bool = False) -> list[Stage]:
    """Return the queries that a plan needs, sources first. `types` returns the columns of a node and their types in
    Spark.

    `real_time`: split further, so that the queries run in real-time mode, if no node of the plan prevents it.
    """
    is_fast = real_time and not any(map(_why_slow, every(plan)))
    splitter = _PlanSplitter(name, types, is_fast)
    last = splitter.split(plan)
    found = [*splitter.found, Stage(name, last, plan.topic, is_internal=False)]
    return [part for stage in found for part in _split_off_letters(stage)] if is_fast else found


def is_cut(plan: Node, *, real_time: bool = False) -> bool:
    """Whether a plan needs more than one query."""
    if any(_has_too_much_state(node) or isinstance(node, Through | ForeignKeyJoin) for node in every(plan)):
        return True
    is_fast = real_time and not any(map(_why_slow, every(plan)))
    return is_fast and why_not_real_time(plan) is not None


def _has_too_much_state(node: Node) -> bool:
    """Whether a node has state above state, or several inputs with state, which one Spark query does not support."""
    below = sum(any(has_state(each) for each in every(child)) for child in inputs(node))
    return below > 0 if has_state(node) else below > 1


def _split_off_letters(stage: Stage) -> list[Stage]:
    """Return the stage without bad records, and a stateless stage that writes its dead letters."""
    if not _letters_beside_state(stage.plan):
        return [stage]
    found: list[Stage] = []
    for node in every(stage.plan):
        if isinstance(node, Source) and _sends_letters(node):
            # No good row passes; bad ones pass every filter on their way to their topic.
            nothing_else = Sink(Filter(node, "false"), node.errors.topic, key=Format(NOTHING))
            query = f"{stage.query}-letters" + (f"-{len(found) + 1}" if found else "")
            found.append(Stage(query, nothing_else, node.errors.topic, is_internal=False))
    return [*found, stage._replace(plan=_skipping_bad_records(stage.plan))]


def _skipping_bad_records(node: Node) -> Node:
    made = with_inputs(node, tuple(map(_skipping_bad_records, inputs(node))))
    if isinstance(made, Source) and _sends_letters(made):
        return msgspec.structs.replace(made, errors=Errors("skip"))
    return made


class _PlanSplitter:
    def __init__(self, name: str, types: Types, is_fast: bool) -> None:
        self._name = name
        self._types = types
        self._is_fast = is_fast
        self.found: list[Stage] = []

    def split(self, node: Node) -> Node:
        """Return the node with a topic below it wherever the plan must be split into two queries; the stages that write
        those topics are in `found`."""
        if isinstance(node, Through):
            return self._through_a_topic(self.split(node.input), node.topic, node.partitions)
        if isinstance(node, ForeignKeyJoin):
            return self.split(expand(node, self._types(node.left), self._types(node.right)))
        ends_here = _has_too_much_state(node) or (self._is_fast and _is_union_above_state(node))
        children = []
        for child in inputs(node):
            whole = self.split(child)
            if ends_here and any(has_state(each) for each in every(whole)):
                whole = self._through_a_topic(whole)
            children.append(whole)
        return with_inputs(node, tuple(children))

    def _through_a_topic(self, node: Node, topic: str = "", partitions: int = -1) -> Node:
        number = len(self.found) + 1
        topic = topic or f"{self._name}-{number}-repartition"
        written = Project(node, (Column(_TIME, ROWTIME),), keep=True)
        sink = Sink(written, topic, key=Format("json"), whole_key=True)
        self.found.append(Stage(f"{self._name}-{number}", sink, topic, is_internal=True, partitions=partitions))
        return _read_back(node, topic, self._types(node))


def _read_back(node: Node, topic: str, known: Mapping[str, str]) -> Node:
    """Return a source node that gives the rows of a node again from the topic they were written to."""
    made = shape(node)
    keys = write_columns((column, known[column]) for column in made.keys)
    values = write_columns([(column, known[column]) for column in made.values] + [(_TIME, "TIMESTAMP")])
    source = Source(
        topic,
        key=Format("json", keys),
        value=Format("json", values),
        is_table=made.is_table,
        timestamp=_TIME,
        window=made.window,
        # What one of our own queries wrote can be read; if not, nothing after it would be right.
        errors=Errors("stop"),
    )
    return Project(source, tuple(Column(column, f"`{column}`") for column in made.values))


def with_inputs(node: Node, children: tuple[Node, ...]) -> Node:
    """Return the node with other inputs."""
    match node:
        case Source() | PythonSource():
            return node
        case Join() | ForeignKeyJoin():
            return msgspec.structs.replace(node, left=children[0], right=children[1])
        case Union():
            return msgspec.structs.replace(node, inputs=children)
        case _:
            return msgspec.structs.replace(node, input=children[0])

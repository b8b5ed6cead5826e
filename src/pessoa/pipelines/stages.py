"""How a plan runs: at which speed, with which output mode, and in how many queries.

Spark runs a plan without state in real-time mode, record by record. A plan with state runs in micro-batches, and what
leaves it depends on the state:

    update    aggregates, joins with tables: a row whenever one changes
    append    joins of two streams, session windows, windows that say only their final result

Spark keeps one state of the update kind in a query, and no other state beside it. Kafka Streams would put a
repartition topic between two such steps, and so do we: `stages` cuts a plan there into several, each of which ends in
a topic that the next one reads. The topics in between hold JSON with the event time, and are named after the pipeline.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from pessoa.pipelines.columns import write_columns
from pessoa.pipelines.plan import (
    Aggregate,
    Apply,
    Column,
    Errors,
    Filter,
    FlatMap,
    Format,
    Function,
    Join,
    Node,
    Project,
    PythonSink,
    PythonSource,
    Rekey,
    Sink,
    Source,
    Speed,
    Union,
    every,
    inputs,
)
from pessoa.pipelines.shapes import ROWTIME, shape

OutputMode: TypeAlias = Literal["append", "update"]
REGISTRY_FORMATS = ("avro", "protobuf")


def has_state(node: Node) -> bool:
    """Whether this node itself remembers rows."""
    return isinstance(node, Aggregate | Join)


def why_not_real_time(plan: Node) -> str | None:
    """What keeps a plan from running record by record; None if nothing does."""
    topics = set()
    for node in every(plan):
        if has_state(node):
            return "it keeps state"
        if isinstance(node, PythonSource | PythonSink):
            return "Python reads or writes its records"
        if any(isinstance(each, Function) for each in functions(node)):
            return "Spark gathers records before it hands them to Python functions"
        for format_ in formats(node):
            if format_.kind in REGISTRY_FORMATS:
                return f"{format_.kind} is read and written in Python"
        if isinstance(node, Source):
            if node.topic in topics:
                return f"it reads {node.topic} twice"
            topics.add(node.topic)
    return None


def functions(node: Node) -> list[object]:
    match node:
        case Apply():
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
    """The fastest way that the plan can run."""
    return "micro-batch" if why_not_real_time(plan) else "real-time"


def output_mode(plan: Node) -> OutputMode:
    modes = {_mode(node) for node in every(plan) if has_state(node)}
    return "update" if modes == {"update"} else "append"


def _mode(node: Node) -> OutputMode:
    if isinstance(node, Aggregate):
        return (
            "append" if node.window is not None and (node.window.final or node.window.kind == "session") else "update"
        )
    assert isinstance(node, Join)
    return "append" if node.within is not None else "update"


class Stage(NamedTuple):
    """One query. `topic` is the one that it writes, of ours if another stage reads it."""

    plan: Node
    topic: str
    is_internal: bool


# The event time in a topic between two stages.
_TIME = "__rowtime"


def stages(plan: Sink, name: str, types: Callable[[Node], Mapping[str, str]]) -> list[Stage]:
    """The queries that a plan needs, sources first. `types` gives the columns of a node and their types in Spark."""
    found: list[Stage] = []
    last = _cut(plan, name, types, found)
    return [*found, Stage(last, plan.topic, is_internal=False)]


def is_cut(plan: Node) -> bool:
    """Whether a plan needs more than one query."""
    return any(_too_much(node) for node in every(plan))


def _too_much(node: Node) -> bool:
    """State above state, or state side by side."""
    below = sum(any(has_state(each) for each in every(child)) for child in inputs(node))
    return below > 0 if has_state(node) else below > 1


def _cut(node: Node, name: str, types: Callable[[Node], Mapping[str, str]], found: list[Stage]) -> Node:
    children = []
    for child in inputs(node):
        whole = _cut(child, name, types, found)
        if _too_much(node) and any(has_state(each) for each in every(whole)):
            whole = _through_a_topic(whole, f"{name}-{len(found) + 1}-repartition", types, found)
        children.append(whole)
    return with_inputs(node, tuple(children))


def _through_a_topic(node: Node, topic: str, types: Callable[[Node], Mapping[str, str]], found: list[Stage]) -> Node:
    made, known = shape(node), types(node)
    written = Project(node, (Column(_TIME, ROWTIME),), keep=True)
    found.append(Stage(Sink(written, topic, key=Format("json"), whole_key=True), topic, is_internal=True))
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
    """The node on other inputs."""
    match node:
        case Source() | PythonSource():
            return node
        case Join():
            return msgspec.structs.replace(node, left=children[0], right=children[1])
        case Union():
            return msgspec.structs.replace(node, inputs=children)
        case _:
            return msgspec.structs.replace(node, input=children[0])

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

from typing import Literal, TypeAlias

from pessoa.pipelines.plan import (
    Aggregate,
    Apply,
    Filter,
    FlatMap,
    Format,
    Function,
    Join,
    Node,
    PythonSink,
    PythonSource,
    Rekey,
    Sink,
    Source,
    Speed,
    every,
)

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

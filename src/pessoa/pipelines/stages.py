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

from pessoa.pipelines.plan import Aggregate, Join, Node, Speed, every

OutputMode: TypeAlias = Literal["append", "update"]


def has_state(node: Node) -> bool:
    """Whether this node itself remembers rows."""
    return isinstance(node, Aggregate | Join)


def speed(plan: Node) -> Speed:
    """The fastest way that the plan can run."""
    return "micro-batch" if any(has_state(node) for node in every(plan)) else "real-time"


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

"""A plan as text, the end first and the sources last, as one reads "totais comes from a count of …".

    sink totais · key string, value json
    └─ aggregate count = count(*) by key, tumbling windows of 1 minute, 1 day of grace · table (key, …) → (count)
       └─ filter valor > 10 · stream (key) → (produto, valor)
          └─ source vendas · key string, value json · stream (key) → (produto, valor)

Pure.
"""

from __future__ import annotations

from typing import assert_never

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
    PlanRefused,
    Process,
    Project,
    PythonSink,
    PythonSource,
    Rekey,
    Sink,
    Source,
    Through,
    Union,
    Window,
    inputs,
)
from pessoa.pipelines.shapes import ColumnsUnknown, shape
from pessoa.pipelines.stages import has_state, why_not_real_time

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1))


def explain(plan: Node) -> str:
    """Return the plan as a tree, and how it runs."""
    return f"{tree(plan)}\n{runs(why_not_real_time(plan))}"


def runs(reason: str | None) -> str:
    """Return how a query runs; `reason` is why it needs micro-batches, None for real-time mode."""
    return f"runs in micro-batches: {reason}" if reason else "runs in real-time mode"


def tree(plan: Node) -> str:
    return "\n".join(_tree(plan, "", ""))


def describe(node: Node) -> str:
    """Return a short description of one node."""
    match node:
        case Source():
            kind = "table" if node.is_table else "source"
            return f"{kind} {node.topic} · {_formats(node.key, node.value)}{_errors(node.errors)}"
        case Project():
            return f"{'add' if node.keep else 'select'} {_columns(node.columns)}"
        case Apply():
            return f"map with {_function(node.function)}{_errors(node.errors)}"
        case Filter():
            condition = node.condition
            return f"filter {_function(condition) if isinstance(condition, Function) else condition}"
        case FlatMap():
            return f"flat map {_function(node.each) if isinstance(node.each, Function) else node.each}"
        case Rekey():
            return f"key by {_function(node.function) if node.function else _columns(node.columns)}"
        case Aggregate():
            window = f", {_window(node.window)}" if node.window else ""
            return f"aggregate {_columns(node.columns)}{window}"
        case Distinct():
            within = f" within {duration(node.within_ms)}" if node.within_ms else ""
            return f"distinct {', '.join(node.columns) or 'rows'}{within}"
        case Process():
            timers = "" if node.timers == "none" else f", with {node.timers}-time timers"
            return f"process with {_function(node.function)}{timers}{_errors(node.errors)}"
        case ForeignKeyJoin():
            return f"{node.how} join of tables by the foreign key {node.on}"
        case Through():
            count = f" of {node.partitions} partitions" if node.partitions > 0 else ""
            return f"through the topic {node.topic}{count}" if node.topic else f"through a topic{count}"
        case Join():
            return _join(node)
        case Union():
            return "union"
        case Sink():
            return f"sink {node.topic} · {_formats(node.key, node.value)}"
        case PythonSource():
            return f"reader {node.reader}"
        case PythonSink():
            return f"writer {node.writer}"
        case _:
            assert_never(node)


def duration(milliseconds: int) -> str:
    """Return a duration in the largest unit that divides it: 90000 is "90 seconds"."""
    for unit, size in _UNITS:
        if milliseconds % size == 0 and milliseconds >= size:
            count = milliseconds // size
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "0 milliseconds"


def _tree(node: Node, first: str, rest: str) -> list[str]:
    try:
        columns = "" if isinstance(node, Sink | PythonSink) else f" · {shape(node)}"
    except ColumnsUnknown:
        columns = " · columns as they will be found" if isinstance(node, Source) else ""
    except PlanRefused as wrong:
        columns = f" · {wrong}"
    state = " · keeps state" if has_state(node) else ""
    lines = [f"{first}{describe(node)}{state}{columns}"]
    below = inputs(node)
    for position, each in enumerate(below):
        is_last = position == len(below) - 1
        lines += _tree(each, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "))
    return lines


def _formats(key: Format, value: Format) -> str:
    # A value without a format gets the one that fits when its columns are known.
    return f"key {key.kind}, value {'as it fits' if value.kind == NOTHING else value.kind}"


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(
        column.name if column.name == column.expression else f"{column.name} = {column.expression}"
        for column in columns
    )


def _function(function: Function) -> str:
    style = "" if function.style == "row" else f", by {function.style}"
    return f"{function.name.rpartition(':')[2]}() → {function.returns}{style}"


def _errors(errors: Errors) -> str:
    if errors.then == "stop":
        return ""
    return " · bad records are skipped" if errors.then == "skip" else f" · bad records go to {errors.topic}"


def _window(window: Window) -> str:
    length = duration(window.size_ms)
    text = {
        "tumbling": f"windows of {length}",
        "hopping": f"windows of {length} every {duration(window.advance_ms or window.size_ms)}",
        "sliding": f"sliding windows of {length}",
        "session": f"sessions that end after {length} of silence",
    }[window.kind]
    final = ", final results only" if window.final else ""
    return f"{text}, {duration(window.grace_ms)} of grace{final}"


def _join(node: Join) -> str:
    if node.within is None:
        return f"{node.how} join with a table" + (" as it is" if node.lookup == "latest" else "")
    within = node.within
    return (
        f"{node.how} join within {duration(within.before_ms)} before and {duration(within.after_ms)} after, "
        f"{duration(within.grace_ms)} of grace"
    )

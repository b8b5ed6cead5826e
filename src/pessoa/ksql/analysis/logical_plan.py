"""What a query does, step by step: the plan that an engine translates, and that EXPLAIN prints.

A step has its input below it; a row of a step is a mapping of the names in `columns`. The steps, from the source up:

    ReadSource → Join* → Filter (WHERE) → FlatMap (EXPLODE) → Rekey (PARTITION BY) → Aggregate → Filter (HAVING)
    → Project
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from pessoa.ksql.analysis.source_catalogue import SchemaColumn, Source, SourceWindow
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.syntax.expression_text import expression_text
from pessoa.ksql.syntax.query_nodes import Emit, JoinKind, WindowKind
from pessoa.ksql.syntax.statement_nodes import SourceKind


@dataclass(frozen=True)
class ReadSource:
    source: Source
    # What each of the source's columns is called in rows; of a join, with the alias before it.
    names: tuple[tuple[str, str], ...]


class JoinForm(Enum):
    STREAM_STREAM = "stream-stream"
    STREAM_TABLE = "stream-table"
    TABLE_TABLE = "table-table"
    FOREIGN_KEY = "foreign key"


@dataclass(frozen=True)
class JoinStep:
    left: Step
    right: ReadSource
    kind: JoinKind
    form: JoinForm
    left_key: Typed
    right_key: Typed
    # The names of the key in rows, the first is the output's; of a synthetic one, ROWKEY.
    key_names: tuple[str, ...]
    synthetic: bool = False
    before_ms: int | None = None
    after_ms: int | None = None
    # None: eager, and matches are taken for a day.
    grace_ms: int | None = None
    repartition_left: bool = False
    repartition_right: bool = False


@dataclass(frozen=True)
class FilterStep:
    below: Step
    condition: Typed
    # WHERE or HAVING.
    clause: str


@dataclass(frozen=True)
class FlatMapStep:
    """Table functions: each gives a column, rows are zipped and padded with null."""

    below: Step
    calls: tuple[tuple[str, Typed], ...]


@dataclass(frozen=True)
class RekeyStep:
    """PARTITION BY: the rows get a new key; with no `keys` they have none."""

    below: Step
    keys: tuple[tuple[str, Typed], ...]


@dataclass(frozen=True)
class PlannedWindow:
    kind: WindowKind
    # The gap of a session.
    size_ms: int
    advance_ms: int
    grace_ms: int
    retention_ms: int


@dataclass(frozen=True)
class AggregateStep:
    below: Step
    keys: tuple[tuple[str, Typed], ...]
    aggregates: tuple[tuple[str, Typed], ...]
    window: PlannedWindow | None = None
    emit: Emit = Emit.CHANGES


@dataclass(frozen=True)
class ProjectStep:
    below: Step
    # Keys first.
    columns: tuple[tuple[str, Typed], ...]
    key_count: int


Step: TypeAlias = ReadSource | JoinStep | FilterStep | FlatMapStep | RekeyStep | AggregateStep | ProjectStep


@dataclass(frozen=True)
class LogicalPlan:
    """A whole query: its steps, and the columns, formats and sink of its result."""

    root: Step
    kind: SourceKind
    key: tuple[SchemaColumn, ...]
    value: tuple[SchemaColumn, ...]
    key_format: str
    value_format: str
    # Of the result's key.
    window: SourceWindow | None = None
    emit: Emit | None = None
    limit: int | None = None
    sink: Source | None = None
    warnings: tuple[str, ...] = ()

    def schema_text(self) -> str:
        return ", ".join([*(f"{one} KEY" for one in self.key), *map(str, self.value)])


def explain_text(plan: LogicalPlan) -> str:
    """Return the plan as readable text: one line per step, from the result down to the sources."""
    lines = []
    if plan.sink is not None:
        lines.append(f"> SINK {plan.sink.kind.value} {plan.sink.name}, topic {plan.sink.topic}, "
                     f"key {plan.key_format}, value {plan.value_format}")  # fmt: skip
    if plan.emit is not None or plan.limit is not None:
        words = [f"EMIT {plan.emit.value}"] if plan.emit is not None else []
        lines.append("> " + " ".join([*words, *([f"LIMIT {plan.limit}"] if plan.limit is not None else [])]))
    lines.append(f"> RESULT {plan.kind.value} [{plan.schema_text()}]")
    _explain(plan.root, 1, lines)
    return "\n".join(lines)


def _explain(step: Step, depth: int, lines: list[str]) -> None:
    indent = "  " * depth + "> "
    match step:
        case ReadSource(source, _):
            lines.append(f"{indent}SOURCE {source.kind.value} {source.name} [{source.schema_text()}]")
            return
        case JoinStep():
            lines.append(indent + _join_line(step))
            _explain(step.left, depth + 1, lines)
            _explain(step.right, depth + 1, lines)
            return
        case FilterStep(_, condition, clause):
            lines.append(f"{indent}{clause} {expression_text(condition.node)}")
        case FlatMapStep(_, calls):
            lines.append(f"{indent}FLAT MAP {_columns(calls)}")
        case RekeyStep(_, keys):
            lines.append(f"{indent}PARTITION BY {_columns(keys) or 'NULL'}")
        case AggregateStep(_, keys, aggregates, window, emit):
            shown = "" if window is None else f", {_window_line(window)}, EMIT {emit.value}"
            lines.append(f"{indent}AGGREGATE {_columns(aggregates)} BY {_columns(keys)}{shown}")
        case ProjectStep(_, columns, _):
            lines.append(f"{indent}PROJECT {_columns(columns)}")
    _explain(step.below, depth + 1, lines)


def _columns(columns: tuple[tuple[str, Typed], ...]) -> str:
    return ", ".join(
        name if expression_text(typed.node) == name else f"{expression_text(typed.node)} AS {name}"
        for name, typed in columns
    )


def _join_line(step: JoinStep) -> str:
    within = "" if step.before_ms is None else f", within ({step.before_ms} ms, {step.after_ms} ms)"
    grace = "" if step.grace_ms is None else f", grace {step.grace_ms} ms"
    sides = [name for name, flag in (("left", step.repartition_left), ("right", step.repartition_right)) if flag]
    moved = f", repartition {' and '.join(sides)}" if sides else ""
    left, right = expression_text(step.left_key.node), expression_text(step.right_key.node)
    return f"{step.kind.value} JOIN ({step.form.value}) ON {left} = {right}{within}{grace}{moved}"


def _window_line(window: PlannedWindow) -> str:
    if window.kind is WindowKind.SESSION:
        return f"SESSION gap {window.size_ms} ms, grace {window.grace_ms} ms"
    advance = f", advance {window.advance_ms} ms" if window.kind is WindowKind.HOPPING else ""
    return f"{window.kind.value} size {window.size_ms} ms{advance}, grace {window.grace_ms} ms"

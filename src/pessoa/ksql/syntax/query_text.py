"""Queries to SQL, one clause per line."""

from __future__ import annotations

from pessoa.ksql.syntax.expression_parser import POSTFIX
from pessoa.ksql.syntax.expression_text import bound_text, expression_text, name_text
from pessoa.ksql.syntax.query_nodes import (
    Duration,
    Join,
    JoinKind,
    Query,
    SelectAll,
    SelectItem,
    SelectStruct,
    SourceName,
    Window,
    WindowKind,
    Within,
)


def duration_text(duration: Duration) -> str:
    return f"{duration.count} {duration.unit}"


def query_text(query: Query) -> str:
    lines = [
        "SELECT " + ", ".join(map(item_text, query.items)),
        "FROM " + _source_text(query.source),
        *map(_join_text, query.joins),
    ]
    if query.window is not None:
        lines.append("WINDOW " + window_text(query.window))
    if query.where is not None:
        lines.append("WHERE " + expression_text(query.where))
    if query.group_by:
        lines.append("GROUP BY " + ", ".join(map(expression_text, query.group_by)))
    if query.partition_by:
        lines.append("PARTITION BY " + ", ".join(map(expression_text, query.partition_by)))
    if query.having is not None:
        lines.append("HAVING " + expression_text(query.having))
    if query.emit is not None:
        lines.append("EMIT " + query.emit.value)
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit}")
    return "\n".join(lines)


def item_text(item: SelectItem) -> str:
    if isinstance(item, SelectAll):
        return "*" if item.source is None else f"{name_text(item.source)}.*"
    if isinstance(item, SelectStruct):
        return f"{bound_text(item.expression, POSTFIX)}->*"
    text = expression_text(item.expression)
    return text if item.alias is None else f"{text} AS {name_text(item.alias)}"


def _source_text(source: SourceName) -> str:
    return name_text(source.name) + ("" if source.alias is None else f" AS {name_text(source.alias)}")


def _join_text(join: Join) -> str:
    word = "JOIN" if join.kind is JoinKind.INNER else f"{join.kind.value} JOIN"
    within = "" if join.within is None else f" {_within_text(join.within)}"
    return f"{word} {_source_text(join.source)}{within} ON {expression_text(join.condition)}"


def _within_text(within: Within) -> str:
    if within.before == within.after:
        text = "WITHIN " + duration_text(within.before)
    else:
        text = f"WITHIN ({duration_text(within.before)}, {duration_text(within.after)})"
    return text + ("" if within.grace is None else f" GRACE PERIOD {duration_text(within.grace)}")


def window_text(window: Window) -> str:
    size = duration_text(window.size)
    parts = [size if window.kind is WindowKind.SESSION else f"SIZE {size}"]
    options = (("ADVANCE BY", window.advance), ("RETENTION", window.retention), ("GRACE PERIOD", window.grace))
    parts += [f"{word} {duration_text(value)}" for word, value in options if value is not None]
    name = "" if window.name is None else name_text(window.name) + " "
    return f"{name}{window.kind.value} ({', '.join(parts)})"

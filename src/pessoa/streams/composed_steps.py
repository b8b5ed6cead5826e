"""Steps that are made of others: a join by a column that is not the key, aggregates of several streams, windows that
speak once. Nodes in, nodes out; pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pessoa.pipelines.formats import sql_name
from pessoa.pipelines.plan import (
    Aggregate,
    Column,
    Filter,
    How,
    Join,
    Lookup,
    Node,
    PlanRefused,
    Project,
    Rekey,
    Union,
    Window,
)
from pessoa.pipelines.shapes import shape

# Where the stream's own key waits while it is joined by another.
_KEPT = "__key_"


def join_on(left: Node, right: Node, on: str, how: How, prefix: str, lookup: Lookup) -> Node:
    """Return the stream's rows joined with the table's row whose key the expression `on` gives; the key is kept."""
    stream, table = shape(left), shape(right)
    if stream.is_table or not table.is_table:
        raise PlanRefused("on=… is for a stream and a table; two tables are joined by key, or with foreign_key=…")
    if len(table.keys) != 1:
        raise PlanRefused(f"on=… gives one column, and the table's key has these: {', '.join(table.keys)}")
    kept = Project(left, tuple(Column(_KEPT + name, sql_name(name)) for name in stream.keys), keep=True)
    by_other = Rekey(kept, (Column("__on", on),))
    joined = Join(by_other, right, how, right_prefix=prefix, lookup=lookup)
    rekeyed = Rekey(joined, tuple(Column(name, sql_name(_KEPT + name)) for name in stream.keys))
    wanted = [name for name in shape(joined).values if not name.startswith(_KEPT)]
    return Project(rekeyed, tuple(Column(name, sql_name(name)) for name in wanted))


def cogroup(sides: Mapping[str, Node]) -> Node:
    """Return the rows of all sides, each with its value in the column named like its side, null in the others."""
    if len(sides) < 2:
        raise PlanRefused("cogroup takes two groups or more, by name: cogroup(vendas=…, devolucoes=…)")
    keys = {name: shape(node).keys for name, node in sides.items()}
    first = next(iter(keys.values()))
    for name, found in keys.items():
        if found != first:
            raise PlanRefused(
                f"groups that are aggregated together have one key: ({', '.join(first)}), and {name} has"
                f" ({', '.join(found)})"
            )
        if shape(sides[name]).is_table:
            raise PlanRefused(f"{name} is a table: cogroup takes streams")
    parts: list[Node] = []
    for name, node in sides.items():
        own = ", ".join(sql_name(column) for column in shape(node).values)
        columns = (Column(side, f"struct({own})" if side == name else "NULL") for side in sides)
        # A record without a value counts for nothing; as a struct of nulls it would.
        parts.append(Project(Filter(node, "NOT rowdeleted"), tuple(columns)))
    return Union(tuple(parts))


def suppressed(node: Node) -> Node:
    """Return the windowed aggregate with final results only: each is emitted once, when its window closes."""
    match node:
        case Aggregate(window=Window(kind="session")):
            return node
        case Aggregate(window=Window() as window):
            return msgspec.structs.replace(node, window=msgspec.structs.replace(window, final=True))
        case Aggregate():
            raise PlanRefused("suppress waits until windows are closed, and this aggregate has none: .window(…) first")
        case _:
            raise PlanRefused("suppress comes right behind a windowed aggregate: .window(…).count().suppress()")

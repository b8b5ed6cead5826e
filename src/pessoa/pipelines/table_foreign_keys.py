"""Two tables joined by a column of the left one: orders with their clients, where a client has many orders.

The rows of a result are the left table's, so a change of either side must find them:

    Subscribe   by left key      remembers the foreign key of a row. Tells the right side's key that the row is there
                                 (its payload and version), and the key that it had before that it is gone
    Respond     by foreign key   keeps the right row and all left rows that name it; gives a result for a left row that
                                 comes, and for all of them when the right row changes
    Newest      by left key      lets a result pass unless one of a later version of its left row did

Three steps with state, so three queries with topics in between. What `Newest` is for: the results of a row whose
foreign key has changed come from two keys, on two ways, and the old one may come last. `Subscribe` counts the versions.

`expand` writes the join as these steps; it needs the columns' types, since rows travel and are kept as JSON. A left row
without a foreign key has no result. Kafka Streams does the same with its subscription and response topics (KIP-213).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pessoa.pipelines.columns import struct_of, write_columns
from pessoa.pipelines.formats import sql_name, sql_text
from pessoa.pipelines.plan import (
    Column,
    Filter,
    ForeignKeyJoin,
    Function,
    How,
    Node,
    Process,
    Project,
    Rekey,
    Union,
)
from pessoa.pipelines.row_process import Context
from pessoa.pipelines.shapes import shape

_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
_MAP = "map(" + ", ".join(f"{sql_text(name)}, {sql_text(value)}" for name, value in _OPTIONS.items()) + ")"
Value = dict[str, Any] | None
_FOREIGN, _OWN = "__foreign", "__own"


class Subscribe:
    """Step 1 of the join. State: the foreign key of the left row, and the version of the row."""

    def process(self, context: Context, key: object, value: Value) -> Iterator[dict[str, Any]]:
        old, new = context.state.get("foreign"), value["foreign"] if value else None
        version = context.state.get("version", 0) + 1
        # It outlives the row: a row that comes again is a later version of it.
        context.state["version"] = version
        context.state["foreign"] = new
        message = {"own": key, "version": version, "payload": None}
        if old is not None and old != new:
            # Without a new foreign key, the old one reports that the row has no result any more.
            yield {**message, "foreign": old, "kind": "leave" if new is not None else "end"}
        if value is not None and new is not None:
            yield {**message, "foreign": new, "kind": "come", "payload": value["payload"]}


class Respond:
    """Step 2 of the join. State: the right row, and the left rows that refer to it: [key, version, payload] each."""

    def __init__(self, how: How) -> None:
        self._how = how

    def process(self, context: Context, key: object, value: Value) -> Iterator[dict[str, Any]]:
        if value is None or value["kind"] == "right":
            context.state["right"] = None if value is None else value["payload"]
            for own, version, payload in context.state.get("lefts", []):
                yield self._result(context, own, version, payload)
            return
        own, version = value["own"], value["version"]
        others = [left for left in context.state.get("lefts", []) if left[0] != own]
        if value["kind"] == "come":
            others.append([own, version, value["payload"]])
            yield self._result(context, own, version, value["payload"])
        elif value["kind"] == "end":
            yield {"own": own, "version": version, "left": None, "right": None, "ended": True}
        context.state["lefts"] = others

    def _result(self, context: Context, own: object, version: int, payload: str) -> dict[str, Any]:
        right = context.state.get("right")
        ended = right is None and self._how == "inner"
        return {"own": own, "version": version, "left": payload, "right": right, "ended": ended}


class Newest:
    """Step 3 of the join. State: the latest version of the left row that had a result."""

    def process(self, context: Context, key: object, value: Value) -> Iterator[dict[str, Any]]:
        if value is not None and value["version"] >= context.state.get("version", 0):
            context.state["version"] = value["version"]
            yield {name: value[name] for name in ("left", "right", "ended")}


# The names under which the compiler finds them.
SUBSCRIBE, RESPOND_INNER, RESPOND_LEFT, NEWEST = Subscribe(), Respond("inner"), Respond("left"), Newest()


def expand(node: ForeignKeyJoin, left_types: Mapping[str, str], right_types: Mapping[str, str]) -> Node:
    left, right, made = shape(node.left), shape(node.right), shape(node)
    own, foreign = left_types[left.keys[0]], right_types[right.keys[0]]
    changes = Project(
        Rekey(node.left, tuple(Column(name, sql_name(name)) for name in left.keys)),
        (Column("foreign", f"CAST(({node.on}) AS {foreign})"), Column("payload", _payload(left.values))),
    )
    told = f"foreign {foreign}, kind STRING, own {own}, version BIGINT, payload STRING"
    subscribed = Process(changes, _function("SUBSCRIBE", told))
    lefts = Rekey(subscribed, (Column(_FOREIGN, "foreign"),))
    rights = Project(
        Rekey(node.right, (Column(_FOREIGN, sql_name(right.keys[0])),)),
        (
            Column("foreign", f"CAST(NULL AS {foreign})"),
            Column("kind", "'right'"),
            Column("own", f"CAST(NULL AS {own})"),
            Column("version", "CAST(NULL AS BIGINT)"),
            Column("payload", _payload(right.values)),
        ),
    )
    respond = "RESPOND_LEFT" if node.how == "left" else "RESPOND_INNER"
    result = "left STRING, right STRING, ended BOOLEAN"
    responses = Process(Union((lefts, rights)), _function(respond, f"own {own}, version BIGINT, {result}"))
    by_own = Rekey(responses, (Column(left.keys[0], "own"),))
    newest = Filter(Process(by_own, _function("NEWEST", result), gives_table=True), "NOT ended")
    parsed = Project(
        newest,
        (
            Column(_OWN, _parse_sql("left", left.values, left_types)),
            Column(_FOREIGN, _parse_sql("right", right.values, right_types)),
        ),
    )
    names = [(_OWN, name, name) for name in left.values]
    names += [(_FOREIGN, name, node.right_prefix + name) for name in right.values]
    assert tuple(name for _, _, name in names) == made.values
    return Project(parsed, tuple(Column(name, f"{side}.{sql_name(column)}") for side, column, name in names))


def _payload(values: tuple[str, ...]) -> str:
    return f"to_json(struct({', '.join(map(sql_name, values))}), {_MAP})"


def _parse_sql(payload: str, values: tuple[str, ...], types: Mapping[str, str]) -> str:
    schema = write_columns((name, types[name]) for name in values)
    return f"from_json(`{payload}`, {sql_text(schema)}, {_MAP})"


def _function(name: str, columns: str) -> Function:
    return Function(f"{__name__}:{name}", struct_of(columns))

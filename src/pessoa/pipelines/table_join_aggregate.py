"""A join with a table in real-time mode: an aggregate over the rows of both sides, by key.

Spark takes aggregates in real-time mode and no stateful processors from Python (docs/decisions/0015). In that mode each
row is merged into its group by itself, and the group gives its result at once; so what a join needs is in the group:

    table    the row of the table with the highest offset: a key is in one partition, so it is the latest
    came     the row that was merged last

    stream × table    told if the row that came last is the stream's, with the table's row (and without one, if `left`)
    table × table     told with the latest row of either side; as a deletion where there is no result and a row was
                      ever deleted. A deletion may be told of a key that never had a result, which changes no table

The rows stay columns of their own types all the way. In micro-batches rows of a stream that came in one batch would be
merged into one; `table_join.py` is for those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.pipelines.formats import sql_name
from pessoa.pipelines.plan import Join
from pessoa.pipelines.shapes import ROWDELETED, ROWTIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pessoa.pipelines.compiler import Flow

LEFT, RIGHT = 1, 0
_SIDES = {LEFT: "left_row", RIGHT: "right_row"}
# What the latest row of each side is called in the group.
_LATEST = {LEFT: "latest_left", RIGHT: "latest_right"}


def join_in_real_time(node: Join, left: Flow, right: Flow) -> DataFrame:
    from pyspark.sql import functions as F

    keys = [f"__key{position}" for position in range(len(left.shape.keys))]
    types = {
        side: flow.frame.select(*map(sql_name, flow.shape.values)).schema
        for side, flow in ((LEFT, left), (RIGHT, right))
    }
    both = _rows(left, LEFT, keys, types).unionByName(_rows(right, RIGHT, keys, types))
    came = "last(struct(side, time, left_row))" if not left.shape.is_table else "last(struct(side, time))"
    results = [
        F.expr(f"max_by({_SIDES[side]}, position) FILTER (WHERE side = {side})").alias(_LATEST[side])
        for side in ((LEFT, RIGHT) if left.shape.is_table else (RIGHT,))
    ]
    grouped = both.groupBy(*keys).agg(F.expr(came).alias("came"), F.expr("bool_or(deleted)").alias("deleted"), *results)
    told, deleted, left_row = _rules(node, left.shape.is_table)
    return grouped.filter(told).select(
        *(F.col(key).alias(name) for key, name in zip(keys, left.shape.keys, strict=True)),
        *(F.expr(f"{left_row}.{sql_name(name)}").alias(node.left_prefix + name) for name in left.shape.values),
        *(F.expr(f"{_LATEST[RIGHT]}.{sql_name(name)}").alias(node.right_prefix + name) for name in right.shape.values),
        F.expr("came.time").alias(ROWTIME),
        F.expr(deleted).alias(ROWDELETED),
    )


def _rules(node: Join, left_is_table: bool) -> tuple[str, str, str]:
    """Return SQL for when a group emits a result, for whether that is a deletion, and for its left row."""
    if not left_is_table:
        found = "" if node.how == "left" else f" AND {_LATEST[RIGHT]} IS NOT NULL"
        return f"came.side = {LEFT} AND came.left_row IS NOT NULL{found}", "false", "came.left_row"
    has_left, has_right = (f"{_LATEST[side]} IS NOT NULL" for side in (LEFT, RIGHT))
    has_result = {
        "inner": f"({has_left} AND {has_right})", "left": f"({has_left})", "outer": f"({has_left} OR {has_right})"
    }[node.how]  # fmt: skip
    return f"{has_result} OR deleted", f"NOT {has_result}", _LATEST[LEFT]


def _rows(flow: Flow, side: int, keys: list[str], types: dict[int, StructType]) -> DataFrame:
    from pyspark.sql import functions as F

    rows = {other: F.lit(None).cast(kind) for other, kind in types.items()}
    rows[side] = F.when(F.expr(f"NOT {ROWDELETED}"), F.struct(*(F.col(sql_name(name)) for name in flow.shape.values)))
    present = " AND ".join(f"{sql_name(name)} IS NOT NULL" for name in flow.shape.keys)
    position = "rowoffset" if flow.shape.has_origin else "CAST(0 AS BIGINT)"
    return flow.frame.filter(present).select(
        *(F.col(sql_name(name)).alias(key) for key, name in zip(keys, flow.shape.keys, strict=True)),
        F.lit(side).alias("side"),
        F.col(ROWTIME).alias("time"),
        F.expr(position).alias("position"),
        F.expr(ROWDELETED).alias("deleted"),
        *(rows[other].alias(_SIDES[other]) for other in (LEFT, RIGHT)),
    )

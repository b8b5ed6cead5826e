"""Aggregates and joins as Spark's streaming operators.

    aggregate        Spark's own, by key, or by key and window with the window's grace as watermark
    stream × stream  Spark's own join, with both sides' grace as watermark and the time bound as condition
    … × table        rows of both sides by key, through `table_join.py`, which keeps the latest row of the table; in
                     real-time mode as an aggregate (`table_join_aggregate.py`)
    distinct         Spark's own dropDuplicates

Kafka's rules that Spark does not have: rows without a key or a value are no part of an aggregate; a result's time is
that of the latest row in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.pipelines.compiler import Flow
from pessoa.pipelines.formats import sql_name
from pessoa.pipelines.plan import Aggregate, Distinct, Join, Window
from pessoa.pipelines.shapes import ROWDELETED, ROWTIME, WINDOW_COLUMNS, shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Both sides of a join in one row, before their keys are merged.
_LEFT, _RIGHT = "__left_", "__right_"


def aggregate(node: Aggregate, below: Flow) -> Flow:
    from pyspark.sql import functions as F

    made = shape(node)
    keys = [name for name in made.keys if name not in WINDOW_COLUMNS or node.window is None]
    present = " AND ".join([f"NOT {ROWDELETED}", *(f"{sql_name(name)} IS NOT NULL" for name in keys)])
    frame = below.frame.filter(present)
    groups: list[Column] = [F.col(sql_name(name)) for name in keys]
    if node.window is not None:
        frame = frame.withWatermark(ROWTIME, _milliseconds(node.window.grace_ms))
        groups.append(_window(node.window).alias("__window"))
    results = [F.expr(column.expression).alias(column.name) for column in node.columns]
    grouped = frame.groupBy(*groups).agg(*results, F.max(ROWTIME).alias("__time"))
    # Spark lets a session end when the silence after it does, Kafka with its last row.
    silence = node.window.size_ms if node.window is not None and node.window.kind == "session" else 0
    end = F.expr(f"__window.end - INTERVAL {silence} MILLISECONDS")
    edges = [F.col("__window.start").alias("window_start"), end.alias("window_end")]
    frame = grouped.select(
        *(F.col(sql_name(name)) for name in keys),
        *(edges if node.window is not None else []),
        *(F.col(sql_name(name)) for name in made.values),
        F.col("__time").alias(ROWTIME),
        F.lit(False).alias(ROWDELETED),
    )
    return Flow(frame, made, letters=below.letters)


def _window(window: Window) -> Column:
    from pyspark.sql import functions as F

    if window.kind == "session":
        return F.session_window(ROWTIME, _milliseconds(window.size_ms))
    return F.window(ROWTIME, _milliseconds(window.size_ms), _milliseconds(window.advance_ms or window.size_ms))


def _milliseconds(number: int) -> str:
    return f"{number} milliseconds"


def distinct(node: Distinct, below: Flow) -> Flow:
    columns = [*(node.columns or (*below.shape.columns, ROWDELETED))]
    if node.within_ms:
        watched = below.frame.withWatermark(ROWTIME, _milliseconds(node.within_ms))
        return below._replace(frame=watched.dropDuplicatesWithinWatermark(columns))
    return below._replace(frame=below.frame.dropDuplicates(columns))


def join(node: Join, left: Flow, right: Flow, real_time: bool = False) -> Flow:
    if right.shape.is_table and real_time:
        from pessoa.pipelines.table_join_aggregate import join_in_real_time

        frame = join_in_real_time(node, left, right)
    elif right.shape.is_table:
        from pessoa.pipelines.table_join import join_with_table

        frame = join_with_table(node, left, right)
    else:
        frame = _join_streams(node, left, right)
    return Flow(frame, shape(node), letters=left.letters + right.letters)


def _join_streams(node: Join, left: Flow, right: Flow) -> DataFrame:
    from pyspark.sql import functions as F

    assert node.within is not None
    grace = _milliseconds(node.within.grace_ms)
    sides = [_side(flow, prefix, grace) for flow, prefix in ((left, _LEFT), (right, _RIGHT))]
    left_time, right_time = _LEFT + ROWTIME, _RIGHT + ROWTIME
    before, after = (f"INTERVAL {number} MILLISECONDS" for number in (node.within.before_ms, node.within.after_ms))
    pairs = zip(left.shape.keys, right.shape.keys, strict=True)
    condition = " AND ".join(
        [f"{sql_name(_LEFT + ours)} = {sql_name(_RIGHT + theirs)}" for ours, theirs in pairs]
        + [f"{right_time} >= {left_time} - {before}", f"{right_time} <= {left_time} + {after}"]
    )
    how = {"inner": "inner", "left": "left_outer", "outer": "full_outer"}[node.how]
    joined = sides[0].join(sides[1], F.expr(condition), how)
    pairs = zip(left.shape.keys, right.shape.keys, strict=True)
    return joined.select(
        *(F.coalesce(sql_name(_LEFT + ours), sql_name(_RIGHT + theirs)).alias(ours) for ours, theirs in pairs),
        *(F.col(sql_name(_LEFT + name)).alias(node.left_prefix + name) for name in left.shape.values),
        *(F.col(sql_name(_RIGHT + name)).alias(node.right_prefix + name) for name in right.shape.values),
        F.greatest(left_time, right_time).alias(ROWTIME),
        F.lit(False).alias(ROWDELETED),
    )


def _side(flow: Flow, prefix: str, grace: str) -> DataFrame:
    """Return a stream whose columns have the prefix of its side; rows without key or value, which match nothing, are
    left out."""
    from pyspark.sql import functions as F

    present = " AND ".join([f"NOT {ROWDELETED}", *(f"{sql_name(name)} IS NOT NULL" for name in flow.shape.keys)])
    columns = [*flow.shape.columns, ROWTIME]
    return (
        flow.frame.filter(present)
        .select(*(F.col(sql_name(name)).alias(prefix + name) for name in columns))
        .withWatermark(prefix + ROWTIME, grace)
    )

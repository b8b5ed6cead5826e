"""A join with a table: the latest row of each key is kept as state, and looked up or replaced as rows arrive.

Both sides' rows come together by key, in the order of their times (at the same time the table goes first), and

    stream × table    a row of the stream goes out with the table's row of that moment; a row of the table only changes
                      the state
    table × table     a row of either side replaces its state, and the pair goes out; where the join has no result any
                      more, a deletion does

Rows of a key that arrive in one batch are sorted, so the result does not depend on how batches were cut as long as
both topics were read as far. The values are not looked into here: they travel and are kept as JSON, and become
columns again afterwards.

The rules (`Joined`) are pure; Spark's stateful processor around them only loads and saves the state.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pessoa.pipelines.formats import sql_name, sql_text
from pessoa.pipelines.plan import How, Join
from pessoa.pipelines.shapes import ROWDELETED, ROWTIME

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from pessoa.pipelines.compiler import Flow

LEFT, RIGHT = 1, 0
_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}


class Row(NamedTuple):
    side: int
    time: datetime.datetime
    position: int
    # None deletes.
    payload: str | None


class Result(NamedTuple):
    time: datetime.datetime
    deleted: bool
    left: str | None
    right: str | None


class Joined:
    """The state of one key: the latest payload of each side that is a table."""

    def __init__(self, how: How, left_is_table: bool, left: str | None, right: str | None) -> None:
        self._how = how
        self._left_is_table = left_is_table
        self.left = left
        self.right = right

    def take(self, rows: Iterable[Row]) -> Iterator[Result]:
        for row in sorted(rows, key=lambda row: (row.time, row.side, row.position)):
            if self._left_is_table:
                yield from self._table_row(row)
            elif row.side == RIGHT:
                self.right = row.payload
            elif row.payload is not None and (self._how == "left" or self.right is not None):
                yield Result(row.time, False, row.payload, self.right)

    def _table_row(self, row: Row) -> Iterator[Result]:
        had_result = self._has_result()
        if row.side == LEFT:
            self.left = row.payload
        else:
            self.right = row.payload
        if self._has_result():
            yield Result(row.time, False, self.left, self.right)
        elif had_result:
            yield Result(row.time, True, None, None)

    def _has_result(self) -> bool:
        if self._how == "outer":
            return self.left is not None or self.right is not None
        return self.left is not None and (self._how == "left" or self.right is not None)


def join_with_table(node: Join, left: Flow, right: Flow) -> DataFrame:
    from pyspark.sql import functions as F

    keys = [f"__key{position}" for position in range(len(left.shape.keys))]
    sides = [(_LEFT, left, LEFT), (_RIGHT, right, RIGHT)]
    types = {name: flow.frame.select(*map(sql_name, flow.shape.values)).schema for name, flow, _ in sides}
    both = _rows(left, LEFT, keys).unionByName(_rows(right, RIGHT, keys))
    output = _output(both.select(*keys).schema)
    joined = both.groupBy(*keys).transformWithState(
        statefulProcessor=_processor(node.how, left.shape.is_table, output.names),
        outputStructType=output,
        outputMode="Update",
        timeMode="None",
    )
    parsed = joined.withColumn(_LEFT, _from_json("left_payload", types[_LEFT])).withColumn(
        _RIGHT, _from_json("right_payload", types[_RIGHT])
    )
    return parsed.select(
        *(F.col(key).alias(name) for key, name in zip(keys, left.shape.keys, strict=True)),
        *(F.expr(f"{_LEFT}.{sql_name(name)}").alias(node.left_prefix + name) for name in left.shape.values),
        *(F.expr(f"{_RIGHT}.{sql_name(name)}").alias(node.right_prefix + name) for name in right.shape.values),
        F.col("time").alias(ROWTIME),
        F.col("deleted").alias(ROWDELETED),
    )


_LEFT, _RIGHT = "__left", "__right"


def _rows(flow: Flow, side: int, keys: list[str]) -> DataFrame:
    from pyspark.sql import functions as F

    options = ", ".join(f"{sql_text(name)}, {sql_text(value)}" for name, value in _OPTIONS.items())
    payload = f"to_json(struct({', '.join(map(sql_name, flow.shape.values))}), map({options}))"
    position = "rowoffset" if flow.shape.has_origin else "CAST(0 AS BIGINT)"
    present = " AND ".join(f"{sql_name(name)} IS NOT NULL" for name in flow.shape.keys)
    return flow.frame.filter(present).select(
        *(F.col(sql_name(name)).alias(key) for key, name in zip(keys, flow.shape.keys, strict=True)),
        F.lit(side).alias("side"),
        F.col(ROWTIME).alias("time"),
        F.expr(position).alias("position"),
        F.expr(f"IF({ROWDELETED}, NULL, {payload})").alias("payload"),
    )


def _output(key: StructType) -> StructType:
    """Return the output columns: those of the key, and those of Result."""
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

    kinds = {"time": TimestampType(), "deleted": BooleanType(), "left_payload": StringType(),
             "right_payload": StringType()}  # fmt: skip
    return StructType([*key, *(StructField(name, kind) for name, kind in kinds.items())])


def _from_json(column: str, schema: StructType) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.from_json(column, schema, _OPTIONS)


def _processor(how: How, left_is_table: bool, columns: list[str]) -> StatefulProcessor:
    from pessoa.pipelines.table_join_state import TableJoinProcessor

    return TableJoinProcessor(how, left_is_table, columns)

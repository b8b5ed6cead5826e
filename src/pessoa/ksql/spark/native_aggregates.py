"""Aggregate functions as Spark's aggregates with ksql's meaning, over an argument that is null where it fails.

Whole numbers wrap, nothing counted is 0, and what came last or first is by the order of processing, as in ksql.
"""

from __future__ import annotations

from pessoa.ksql.spark.spark_expressions import SPARK_TYPES, NotNative
from pessoa.ksql.types.sql_types import BIGINT, DOUBLE, INTEGER, SqlType

_NUMBERS = (INTEGER, BIGINT, DOUBLE)


def aggregate_sql(name: str, arguments: list[str], kinds: list[SqlType]) -> str:
    """Return the aggregate as Spark's SQL. Raises NotNative if Spark's aggregate differs, or keeps another kind of
    state."""
    if name == "COUNT":
        return f"count({arguments[0]})" if arguments else "count(*)"
    if len(arguments) != 1 or kinds[0] not in SPARK_TYPES:
        raise NotNative(f"{name} is computed by ksql's own aggregate")
    argument, kind = arguments[0], kinds[0]
    if name in ("SUM", "AVG") and kind in _NUMBERS:
        held = SPARK_TYPES[kind]
        wide = "DOUBLE" if kind == DOUBLE else "BIGINT"
        total = f"CAST(coalesce(sum(CAST({argument} AS {wide})), 0) AS {held})"
        if name == "SUM":
            return total
        return f"IF(count({argument}) = 0, CAST(0 AS DOUBLE), CAST({total} AS DOUBLE) / count({argument}))"
    if name in ("MIN", "MAX"):
        return f"{name.lower()}({argument})"
    if name in ("LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"):
        return f"{'last' if name.startswith('LATEST') else 'first'}({argument}, true)"
    raise NotNative(f"{name} is computed by ksql's own aggregate")

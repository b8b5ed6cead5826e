"""Spark's side of `row_process.py`: the stateful operator of a Process node, with one value of state for each key, and
timers.

A file of its own because it must derive from a class of pyspark, which is not imported before it is needed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from pessoa.pipelines.formats import sql_name
from pessoa.pipelines.plan import Process
from pessoa.pipelines.row_process import InputRow, RowProcessor, Session
from pessoa.pipelines.shapes import ROWDELETED, ROWTIME, shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pessoa.pipelines.compiler import Flow

_STATE = "payload STRING"
_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
# The fields of what the operator gives, behind the key's: those of `row_process.Output`.
_OUTPUT = "time TIMESTAMP, payload STRING, error STRING"


class RowProcessState(StatefulProcessor):
    def __init__(
        self, processor: RowProcessor, takes: Callable[..., object] | None, is_plain: bool, key_count: int,
        columns: list[str], has_watermark: bool,
    ) -> None:  # fmt: skip
        self._processor = processor
        self._takes = takes
        self._is_plain = is_plain
        self._key_count = key_count
        self._row = SparkRow(*columns)
        self._has_watermark = has_watermark

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("state", _STATE)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[SparkRow],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[SparkRow]:
        session, before = self._session(timerValues)
        given = [_input_row(*tuple(row)[self._key_count :]) for row in rows]
        for output in session.take(_plain_key(key), given):
            yield self._row(*key, *output)
        self._keep(session, before)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[SparkRow]:
        session, before = self._session(timerValues)
        for output in session.expire(_plain_key(key), _moment(expiredTimerInfo.getExpiryTimeInMs())):
            yield self._row(*key, *output)
        self._keep(session, before)

    def close(self) -> None:
        pass

    def _session(self, times: TimerValues) -> tuple[Session, str | None]:
        kept = self._state.get()
        state = None if kept is None else kept[0]
        watermark = _moment(times.getCurrentWatermarkInMs()) if self._has_watermark else None
        return Session(self._processor, self._takes, self._is_plain, state, watermark), state

    def _keep(self, session: Session, before: str | None) -> None:
        if session.state is None and before is not None:
            self._state.clear()
        elif session.state is not None and session.state != before:
            self._state.update((session.state,))
        for timer in session.unwanted:
            self._handle.deleteTimer(timer)
        for timer in session.wanted:
            self._handle.registerTimer(timer)


def _input_row(time: datetime.datetime, position: int, payload: SparkRow | dict[str, Any] | None) -> InputRow:
    # Spark gives structs as dicts on one of its ways, and as rows on the other.
    columns = payload.asDict(recursive=True) if isinstance(payload, SparkRow) else payload
    return InputRow(_in_utc(time), position, _in_utc(columns))


def _in_utc(value: Any) -> Any:
    """Return the time in UTC: Spark gives naive datetimes in the machine's time zone."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC)
    if isinstance(value, dict):
        return {name: _in_utc(each) for name, each in value.items()}
    return [_in_utc(each) for each in value] if isinstance(value, list) else value


def _plain_key(key: Any) -> object:
    parts = tuple(key)
    return parts[0] if len(parts) == 1 else parts


def _moment(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)


def process_rows(node: Process, below: Flow, processor: RowProcessor, takes: Callable[..., object] | None) -> DataFrame:
    """Return rows with the columns of the key and of the result, its time, and `__error` for a failure of the
    processor."""
    made = shape(node)
    values = below.shape.values
    payload = f"struct({', '.join(map(sql_name, values))})"
    present = " AND ".join(f"{sql_name(name)} IS NOT NULL" for name in below.shape.keys)
    keys = [f"__key{position}" for position in range(len(below.shape.keys))]
    rows = below.frame.filter(present)
    if node.timers == "event":
        rows = rows.withWatermark(ROWTIME, f"{node.grace_ms} milliseconds")
    rows = rows.select(
        *(F.col(sql_name(name)).alias(key) for key, name in zip(keys, below.shape.keys, strict=True)),
        F.col(ROWTIME).alias("time"),
        F.expr("rowoffset" if below.shape.has_origin else "CAST(0 AS BIGINT)").alias("position"),
        F.expr(f"IF({ROWDELETED}, NULL, {payload})").alias("payload"),
    )
    empty = rows.select(*keys).selectExpr("*", *_nulls(_OUTPUT))
    is_plain = values == ("value",) and takes is None
    given = rows.groupBy(*keys).transformWithState(
        statefulProcessor=RowProcessState(processor, takes, is_plain, len(keys), empty.columns, node.timers == "event"),
        outputStructType=empty.schema,
        outputMode="Update",
        timeMode={"none": "None", "processing": "ProcessingTime", "event": "EventTime"}[node.timers],
    )
    parsed = given.withColumn("__made", F.from_json("payload", f"value {node.function.returns}", _OPTIONS))
    is_struct = node.function.returns.strip().upper().startswith("STRUCT")
    own = [name for name in made.keys if name not in below.shape.keys]
    return parsed.select(
        *(F.col(key).alias(name) for key, name in zip(keys, below.shape.keys, strict=True)),
        *(
            F.expr(f"__made.value.{sql_name(name)}" if is_struct else "__made.value").alias(name)
            for name in (*own, *made.values)
        ),
        F.col("time").alias(ROWTIME),
        F.lit(False).alias(ROWDELETED),
        F.expr("IF(error IS NULL AND __made.value IS NULL, 'what it gave is not of the declared type', error)").alias(
            "__error"
        ),
    )


def _nulls(columns: str) -> list[str]:
    return [f"CAST(NULL AS {kind}) AS {name}" for name, kind in (each.split() for each in columns.split(", "))]

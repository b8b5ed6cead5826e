"""Spark's stateful processor around the rules of `table_join.py`: two values of state for each key.

A file of its own because it must derive from a class of pyspark, which is not imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues, ValueState

from pessoa.pipelines.plan import How
from pessoa.pipelines.table_join import Joined, Result, Row

_STATE = "payload STRING"


class TableJoinProcessor(StatefulProcessor):
    def __init__(self, how: How, left_is_table: bool, columns: list[str]) -> None:
        self._how: How = how
        self._left_is_table = left_is_table
        self._key_count = len(columns) - len(Result._fields)
        self._row = SparkRow(*columns)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._left = handle.getValueState("left", _STATE)
        self._right = handle.getValueState("right", _STATE)

    def handleInputRows(  # noqa: N802
        self,
        key: Iterable[object],
        rows: Iterator[SparkRow],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[SparkRow]:
        left = _payload(self._left) if self._left_is_table else None
        right = _payload(self._right)
        joined = Joined(self._how, self._left_is_table, left, right)
        given = [Row(*tuple(row)[self._key_count :]) for row in rows]
        for result in joined.take(given):
            yield self._row(*key, *result)
        if joined.left != left:
            _keep(self._left, joined.left)
        if joined.right != right:
            _keep(self._right, joined.right)

    def close(self) -> None:
        pass


def _payload(state: ValueState) -> str | None:
    kept = state.get()
    return None if kept is None else kept[0]


def _keep(state: ValueState, payload: str | None) -> None:
    if payload is None:
        state.clear()
    else:
        state.update((payload,))

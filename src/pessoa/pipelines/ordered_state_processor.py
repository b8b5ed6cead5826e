"""Spark's stateful processor around a program of `ordered_state.py`: one map of bytes is the state of each task.

A file of its own because it must derive from a class of pyspark, which is not imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from pessoa.pipelines.ordered_state import OUTPUT_COLUMNS, CachedState, load, output_row

_OUTPUT_ROW = Row(*OUTPUT_COLUMNS)


class OrderedProcessor(StatefulProcessor):
    def __init__(self, program: str, argument: bytes) -> None:
        self._program = program
        self._argument = argument

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._entries = handle.getMapState("entries", "name STRING, key BINARY", "value BINARY")

    def handleInputRows(  # noqa: N802
        self,
        key: Iterable[object],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        (task,) = key
        assert isinstance(task, int)
        state = CachedState(self._entries)
        taken = [bytes(row["row"]) for row in rows]
        # All steps are made before the first is told: what Spark does not fetch must not be missing in the state.
        program = load(self._program, self._argument)
        made = [_OUTPUT_ROW(*output_row(task, record)) for record in program.run(task, taken, state)]
        state.flush()
        return iter(made)

    def close(self) -> None:
        pass

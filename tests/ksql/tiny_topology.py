"""A topology of one stage without ksql: it counts the records of each value in time order, or copies them."""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.state_store import StateStore
from pessoa.ksql.operators.task_rows import TaskRow
from pessoa.ksql.operators.topology import StageInput, StageOutput, Topology


class CountingTask:
    def __init__(self, state: StateStore) -> None:
        self._state = state

    def take(self, row: TaskRow) -> list[OutputRecord]:
        count = int(self._state.get("counts", row.payload) or b"0") + 1
        self._state.put("counts", row.payload, b"%d" % count)
        if row.payload == b"gone":
            self._state.delete("counts", row.payload)
        return [OutputRecord(row.payload, b"%d" % count, row.timestamp_ms, (("from", b"tiny"),), row.payload)]


class CountingStage:
    inputs = (StageInput(None, "in", repartitioned=True),)
    output = StageOutput(internal="out")

    def __init__(self, has_state: bool) -> None:
        self.has_state = has_state

    def prepare(self, input_index: int, record: KafkaRecord) -> list[TaskRow]:
        if record.value is None:
            return []
        return [TaskRow(input_index, record.partition, record.offset, record.timestamp_ms, record.value, record.value)]

    def make_task(self, state: StateStore) -> CountingTask | CopyingTask:
        return CountingTask(state) if self.has_state else CopyingTask()

    def task_count(self, partitions: Mapping[str, int]) -> int:
        return partitions["in"]


class CopyingTask:
    def take(self, row: TaskRow) -> list[OutputRecord]:
        return [OutputRecord(row.payload, row.payload, row.timestamp_ms, (), row.payload)]


def counting() -> Topology:
    return Topology((CountingStage(True),))


def copying() -> Topology:
    return Topology((CountingStage(False),))

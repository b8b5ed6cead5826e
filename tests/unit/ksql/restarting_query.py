"""A query in process as it would run on Spark: rows are encoded, and tasks are restarted from their state."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.operators.compiled_stages import StageTask
from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.operators.state_store import MemoryState
from pessoa.ksql.operators.task_rows import TaskRow

_INTERNAL_PARTITIONS = 5


class RestartingQuery(InProcessQuery):
    """A query whose tasks are randomly restarted before a row, and whose rows are encoded and decoded."""

    def __init__(
        self, plan: LogicalPlan, settings: QuerySettings, schemas: SchemaSource, partitions: Mapping[str, int] | int,
        *, chance: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(plan, settings, schemas, partitions)
        self._states: dict[tuple[int, int], dict[tuple[str, bytes], bytes]] = {}
        self._chance = chance
        self._random = random.Random(seed)

    def _take(
        self, number: int, index: int, record: KafkaRecord, pending: deque[KafkaRecord], out: list[OutputRecord]
    ) -> None:
        stage = self.stages[number]
        count = self._task_counts[number]
        for row in [TaskRow.from_bytes(one.to_bytes()) for one in stage.prepare(index, record)]:
            task = self._task(number, row.task(count))
            records = task.take(row)
            if stage.output.internal:
                pending.extend(self._internal(stage.output.internal, one) for one in records)
            else:
                out.extend(records)

    def _task(self, number: int, task_number: int) -> StageTask:
        place = number, task_number
        if place not in self._tasks or self._random.random() < self._chance:
            # Other objects than before, in another dict.
            copied = {
                (str(name), bytes(key)): bytes(value) for (name, key), value in self._states.get(place, {}).items()
            }
            self._states[place] = copied
            self._tasks[place] = self.stages[number].make_task(MemoryState(copied))
        return self._tasks[place]

    def _internal(self, suffix: str, record: OutputRecord) -> KafkaRecord:
        # An internal topic may have another number of partitions than its reader has tasks.
        partition = 0 if record.partition_key is None else partition_of(record.partition_key, _INTERNAL_PARTITIONS)
        return KafkaRecord(suffix, partition, -1, record.timestamp_ms, record.key, record.value, record.headers)

"""A query that runs in micro-batches: each stage runs by itself on the records that have arrived so far.

Topics have partitions and offsets. A batch of a stage takes some of the new records of its inputs, prepares them, and
gives each task its rows in stream order. The next stage and the size of its batch are random.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.schema_source import MemorySchemas
from pessoa.ksql.operators.state_store import MemoryState
from pessoa.ksql.operators.stream_order import merge_in_stream_order
from pessoa.ksql.operators.task_rows import TaskRow
from pessoa.ksql.operators.topology import build_topology

_INTERNAL_PARTITIONS = 5


class BatchedQuery:
    def __init__(self, plan: LogicalPlan, partitions: Mapping[str, int], seed: int) -> None:
        self._stages = build_topology(plan, QuerySettings(), MemorySchemas()).stages
        self._counts = dict(partitions)
        self._random = random.Random(seed)
        # (topic, partition) → records; (stage, input, partition) → how many of them were taken.
        self._topics: dict[tuple[str, int], list[KafkaRecord]] = defaultdict(list)
        self._taken: dict[tuple[int, int, int], int] = defaultdict(int)
        self._states: dict[tuple[int, int], dict[tuple[str, bytes], bytes]] = defaultdict(dict)
        self.written: list[OutputRecord] = []

    def add(self, record: KafkaRecord) -> None:
        log = self._topics[record.topic, record.partition]
        log.append(record._replace(offset=len(log)))

    def run(self) -> list[OutputRecord]:
        """Run batches until no record is left, and return what the last stage wrote."""
        waiting = list(range(len(self._stages)))
        while waiting:
            number = self._random.choice(waiting)
            if self._batch(number):
                waiting = list(range(len(self._stages)))
            elif all(not self._new(number, index) for index in range(len(self._stages[number].inputs))):
                waiting.remove(number)
        return self.written

    def _new(self, number: int, index: int) -> list[tuple[int, list[KafkaRecord]]]:
        topic = self._stages[number].inputs[index].topic
        found = [(partition, log) for (one, partition), log in sorted(self._topics.items()) if one == topic]
        return [(partition, log[self._taken[number, index, partition] :]) for partition, log in found
                if len(log) > self._taken[number, index, partition]]  # fmt: skip

    def _batch(self, number: int) -> bool:
        stage = self._stages[number]
        tasks: dict[int, list[TaskRow]] = defaultdict(list)
        count = stage.task_count(self._counts)
        some = False
        for index in range(len(stage.inputs)):
            for partition, records in self._new(number, index):
                amount = self._random.randint(0, len(records))
                self._taken[number, index, partition] += amount
                some = some or amount > 0
                for record in records[:amount]:
                    for row in stage.prepare(index, record):
                        tasks[row.task(count)].append(TaskRow.from_bytes(row.to_bytes()))
        for task, rows in sorted(tasks.items()):
            running = stage.make_task(MemoryState(self._states[number, task]))
            for row in merge_in_stream_order(rows):
                for written in running.take(row):
                    self._write(stage.output.internal, written)
        return some

    def _write(self, internal: str, record: OutputRecord) -> None:
        if not internal:
            self.written.append(record)
            return
        if record.partition_key is None:
            partition = self._random.randrange(_INTERNAL_PARTITIONS)
        else:
            partition = partition_of(record.partition_key, _INTERNAL_PARTITIONS)
        self.add(KafkaRecord(internal, partition, 0, record.timestamp_ms, record.key, record.value))

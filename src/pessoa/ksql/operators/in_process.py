"""A whole query in one process: every stage, every task, internal topics as queues. Push queries and the cases run so.

Records are taken one by one in the order in which they come; all that a record gives comes out before the next is
taken. State lives as long as the object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import cast

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.operators.compiled_stages import CompiledStage, StageTask
from pessoa.ksql.operators.flow_events import Event
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.result_rows import ResultRow
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.operators.state_store import MemoryState, StateStore
from pessoa.ksql.operators.topology import build_topology

# The state of a task, by the numbers of its stage and of the task.
MakeState = Callable[[int, int], StateStore]


class InProcessQuery:
    def __init__(
        self,
        plan: LogicalPlan,
        settings: QuerySettings,
        schemas: SchemaSource,
        partitions: Mapping[str, int] | int = 1,
        make_state: MakeState | None = None,
    ) -> None:
        """`partitions` are the partition counts of the source topics, by topic, or one number for all."""
        topology = build_topology(plan, settings, schemas)
        self.plan = plan
        self.stages = tuple(cast("CompiledStage", stage) for stage in topology.stages)
        topics = {one.source.topic for stage in self.stages for one in stage.inputs if one.source is not None}
        counts = {topic: partitions if isinstance(partitions, int) else partitions.get(topic, 1) for topic in topics}
        self._task_counts: list[int] = []
        for stage in self.stages:
            self._task_counts.append(stage.task_count(counts))
        # By topic, or by the suffix of an internal one: which inputs of which stages read it.
        self._readers: dict[str, list[tuple[int, int]]] = {}
        for number, stage in enumerate(self.stages):
            for index, one in enumerate(stage.inputs):
                self._readers.setdefault(one.topic, []).append((number, index))
        self._make_state = make_state or (lambda _, __: MemoryState())
        self._tasks: dict[tuple[int, int], StageTask] = {}
        self._rows_left = plan.limit
        # The rows of the record that was taken last.
        self.rows: list[ResultRow] = []

    def __repr__(self) -> str:
        return f"<InProcessQuery of {', '.join(self.topics)}, {len(self.stages)} stages>"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the query reads."""
        found = [one.source.topic for stage in self.stages for one in stage.inputs if one.source is not None]
        return tuple(dict.fromkeys(found))

    @property
    def is_finished(self) -> bool:
        """Whether LIMIT is reached: no more rows are returned."""
        return self._rows_left is not None and self._rows_left <= 0

    def take(self, record: KafkaRecord) -> list[OutputRecord]:
        """Return the output records for this input record; `rows` has them as values."""
        self.rows = []
        out: list[OutputRecord] = []
        pending = deque([record])
        while pending:
            one = pending.popleft()
            for number, index in self._readers.get(one.topic, ()):
                self._take(number, index, one, pending, out)
        return out

    def _take(
        self, number: int, index: int, record: KafkaRecord, pending: deque[KafkaRecord], out: list[OutputRecord]
    ) -> None:
        stage = self.stages[number]
        count = self._task_counts[number]
        for event, key in stage.events(index, record):
            task_number = record.partition % count if key is None else partition_of(key, count)
            task = self._task(number, task_number)
            found = task.take_event(index, event)
            if stage.output.internal:
                pending.extend(self._internal(stage.output.internal, one) for one in task.records(found))
            else:
                self._finish(task, found, out)

    def _internal(self, suffix: str, record: OutputRecord) -> KafkaRecord:
        number, _ = self._readers[suffix][0]
        count = self._task_counts[number]
        partition = 0 if record.partition_key is None else partition_of(record.partition_key, count)
        return KafkaRecord(suffix, partition, -1, record.timestamp_ms, record.key, record.value, record.headers)

    def _finish(self, task: StageTask, events: list[Event], out: list[OutputRecord]) -> None:
        for row, written in task.results(events):
            if self.is_finished:
                return
            if self._rows_left is not None:
                self._rows_left -= 1
            self.rows.append(row)
            if written is not None:
                out.append(written)

    def _task(self, number: int, task_number: int) -> StageTask:
        task = self._tasks.get((number, task_number))
        if task is None:
            state = self._make_state(number, task_number)
            task = self._tasks[number, task_number] = self.stages[number].make_task(state)
        return task

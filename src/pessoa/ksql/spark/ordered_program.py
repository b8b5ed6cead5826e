"""A stage of ksql's operators as a program of pipelines' ordered operator: what runs in Spark's Python workers.

    record ─ Stage.prepare ─ (task number, TaskRow as bytes) … merge_in_stream_order ─ Task.take ─ records

A `StageArgument` is packed by the driver, and each worker makes the topology of it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pessoa.ksql.functions.user_functions import user_modules
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord, ProcessingFailure
from pessoa.ksql.operators.stream_order import merge_in_stream_order
from pessoa.ksql.operators.task_rows import TaskRow
from pessoa.ksql.operators.topology import Topology
from pessoa.pipelines.ordered_state import OrderedProgram, ReadRecord, TaskState, WrittenRecord, pack, unpack

PROGRAM = "pessoa.ksql.spark.ordered_program:load"

log = logging.getLogger("pessoa.ksql.processing")


@dataclass(frozen=True)
class StageArgument:
    make_topology: Callable[[], Topology]
    stage: int
    # The topic of each input of the stage, in their order; one may come twice.
    input_topics: tuple[str, ...]
    task_count: int
    output_topic: str
    output_partitions: int

    def to_bytes(self) -> bytes:
        return pack(self, user_modules())


def load(argument: bytes) -> OrderedProgram:
    found = unpack(argument)
    assert isinstance(found, StageArgument)
    return StageProgram(found)


class StageProgram:
    def __init__(self, argument: StageArgument) -> None:
        self._stage = argument.make_topology().stages[argument.stage]
        self._task_count = argument.task_count
        self._topic = argument.output_topic
        self._partitions = argument.output_partitions
        self._inputs: dict[str, list[int]] = {}
        for index, topic in enumerate(argument.input_topics):
            self._inputs.setdefault(topic, []).append(index)

    def __repr__(self) -> str:
        return f"<StageProgram {', '.join(self._inputs)} → {self._topic}, {self._task_count} tasks>"

    @property
    def has_state(self) -> bool:
        return self._stage.has_state

    def prepare(self, record: ReadRecord) -> Iterator[tuple[int, bytes]]:
        for index in self._inputs[record.topic]:
            for row in self._stage.prepare(index, KafkaRecord(*record)):
                yield row.task(self._task_count), row.to_bytes()

    def run(self, task: int, rows: list[bytes], state: TaskState) -> Iterable[WrittenRecord]:
        running = self._stage.make_task(state)
        for row in merge_in_stream_order(map(TaskRow.from_bytes, rows)):
            for record in running.take(row):
                yield self._to_written(record)

    def _to_written(self, record: OutputRecord) -> WrittenRecord:
        # The producer places a record by its own key; a windowed key lies where its inner key does.
        partition = None
        if record.partition_key is not None and record.partition_key != record.key:
            partition = partition_of(record.partition_key, self._partitions)
        return WrittenRecord(
            self._topic, partition, record.key, record.value, max(0, record.timestamp_ms), record.headers
        )


def log_failure(failure: ProcessingFailure) -> None:
    """Write a processing failure to Spark's log, which is the processing log of a worker."""
    log.warning(
        "%s: %s (%s-%d at %d)", failure.kind.name, failure.message, failure.topic, failure.partition, failure.offset
    )

"""Stages that run: a tree of operators between inputs that are read and an output that is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pessoa.ksql.operators.flow_events import Emit, Event, EventPacker, FlowShape, Place, TaskContext
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.result_rows import Projection, ResultRow, ResultWriter
from pessoa.ksql.operators.row_operators import Operator
from pessoa.ksql.operators.stage_nodes import StageNode
from pessoa.ksql.operators.state_store import MemoryState, StateStore
from pessoa.ksql.operators.task_rows import TaskRow
from pessoa.ksql.operators.topology import StageInput, StageOutput

PartitionKey = Callable[[Event], bytes | None]


@dataclass
class InputProgram:
    """The functions that turn records of an input into events of a task."""

    stage_input: StageInput
    read: Callable[[KafkaRecord], Event | None]
    shape: FlowShape
    operators: list[Operator] = field(default_factory=list)
    # None: rows stay in the task of their partition.
    partition_key: PartitionKey | None = None


@dataclass(frozen=True)
class InternalOutput:
    """Events for a later stage, as records of an internal topic."""

    suffix: str
    shape: FlowShape
    partition_key: PartitionKey


@dataclass(frozen=True)
class FinalOutput:
    projection: Projection
    # None: a push query, whose rows are not written.
    writer: ResultWriter | None
    is_table: bool


class _PreparedInput:
    """An input whose operators are bound: it turns a record into events."""

    def __init__(self, program: InputProgram, place: Place) -> None:
        self.program = program
        self.packer = EventPacker(program.shape)
        self._out: list[Event] = []
        context = TaskContext(MemoryState(), place)
        emit: Emit = self._out.append
        for operator in reversed(program.operators):
            emit = operator(context, emit)
        self._emit = emit

    def events(self, record: KafkaRecord) -> list[Event]:
        event = self.program.read(record)
        if event is None:
            return []
        self._out.clear()
        self._emit(event)
        return list(self._out)


class CompiledStage:
    def __init__(
        self, inputs: list[InputProgram], root: StageNode, output: InternalOutput | FinalOutput, place: Place,
        has_state: bool, sink_output: StageOutput,
    ) -> None:  # fmt: skip
        self._inputs = [_PreparedInput(one, place) for one in inputs]
        self._root = root
        self._output = output
        self._place = place
        self._has_state = has_state
        self._stage_output = sink_output

    def __repr__(self) -> str:
        topics = ", ".join(one.topic for one in self.inputs)
        return f"<CompiledStage {topics} → {self._stage_output.internal or 'sink'}>"

    @property
    def inputs(self) -> tuple[StageInput, ...]:
        return tuple(one.program.stage_input for one in self._inputs)

    @property
    def output(self) -> StageOutput:
        return self._stage_output

    @property
    def has_state(self) -> bool:
        return self._has_state

    def events(self, input_index: int, record: KafkaRecord) -> list[tuple[Event, bytes | None]]:
        """Return the result of `prepare` before it is packed: events, and the key that decides about their task."""
        self._place.set(record.topic, record.partition, record.offset)
        one = self._inputs[input_index]
        events = one.events(record)
        partition_key = one.program.partition_key
        return [(event, None if partition_key is None else partition_key(event)) for event in events]

    def prepare(self, input_index: int, record: KafkaRecord) -> list[TaskRow]:
        packer = self._inputs[input_index].packer
        return [
            TaskRow(input_index, record.partition, record.offset, event.timestamp_ms, partition_key, packer.pack(event))
            for event, partition_key in self.events(input_index, record)
        ]

    def make_task(self, state: StateStore) -> StageTask:
        packers = [one.packer for one in self._inputs]
        return StageTask(TaskContext(state, self._place), self._root, self._output, self.inputs, packers)

    def task_count(self, partitions: Mapping[str, int]) -> int:
        inputs = [one for one in self.inputs if one.topic in partitions]
        # Rows that stay where they are decide; rows with a new key follow.
        fixed = [partitions[one.topic] for one in inputs if not one.repartitioned and one.source is not None]
        counts = fixed or [partitions[one.topic] for one in inputs] or list(partitions.values())
        return max(counts, default=1)


class StageTask:
    """A task of a stage: operators bound to its state."""

    def __init__(
        self, context: TaskContext, root: StageNode, output: InternalOutput | FinalOutput,
        inputs: tuple[StageInput, ...], packers: list[EventPacker],
    ) -> None:  # fmt: skip
        self._place = context.place
        self._inputs = inputs
        self._packers = packers
        self._output = output
        self._events: list[Event] = []
        self._entries = root.bind(context, self._events.append)
        if isinstance(output, InternalOutput):
            self._packer = EventPacker(output.shape)

    def __repr__(self) -> str:
        return f"<StageTask of {', '.join(one.topic for one in self._inputs)}>"

    def take(self, row: TaskRow) -> list[OutputRecord]:
        self._place.set(self._inputs[row.input].topic, row.partition, row.offset)
        return self.records(self.take_event(row.input, self._packers[row.input].unpack(row.payload)))

    def take_event(self, input_index: int, event: Event) -> list[Event]:
        """Return the events that come out of the stage's last operator."""
        self._events.clear()
        self._entries[input_index](event)
        return list(self._events)

    def records(self, events: list[Event]) -> list[OutputRecord]:
        if isinstance(self._output, InternalOutput):
            return [self._internal(event, self._output.partition_key(event)) for event in events]
        return [record for _, record in self.results(events) if record is not None]

    def _internal(self, event: Event, key: bytes | None) -> OutputRecord:
        return OutputRecord(key, self._packer.pack(event), event.timestamp_ms, (), key)

    def results(self, events: list[Event]) -> list[tuple[ResultRow, OutputRecord | None]]:
        """Return the rows of the result, with their records unless the query is a push query."""
        output = self._output
        assert isinstance(output, FinalOutput)
        rows = [output.projection.result(event) for event in events]
        writer = output.writer
        if writer is None:
            # A stream's record without a value is no row that could be shown.
            return [(row, None) for row in rows if output.is_table or not row.is_tombstone]
        return [(row, writer.record(row)) for row in rows]

"""A logical plan becomes stages.

The plan is walked from its sources up. A *flow* is what has been built of a step: an input that is only read so far, or
an open stage with operators. Steps without state on a stream that is only read go into `prepare`; the others into the
tree of the stage. A stage is closed, and another opened behind an internal topic, where rows that have state behind
them get a new key: a join on another column, GROUP BY over a join or a table, and the two turns of a foreign-key join.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pessoa.ksql.analysis.format_rules import check_columns
from pessoa.ksql.analysis.logical_plan import (
    AggregateStep,
    FilterStep,
    FlatMapStep,
    JoinForm,
    JoinStep,
    LogicalPlan,
    ProjectStep,
    ReadSource,
    RekeyStep,
    Step,
)
from pessoa.ksql.analysis.pseudo_columns import WINDOW_BOUNDS
from pessoa.ksql.analysis.source_catalogue import SchemaColumn
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.operators import foreign_key_join as fk
from pessoa.ksql.operators.compiled_stages import (
    CompiledStage,
    FinalOutput,
    InputProgram,
    InternalOutput,
    PartitionKey,
)
from pessoa.ksql.operators.flow_events import Emit, Event, EventPacker, FlowShape, Place, StateKeys, TaskContext
from pessoa.ksql.operators.format_codecs import CodecFailure, Side, key_side, side_codec
from pessoa.ksql.operators.group_aggregation import (
    aggregate_operator,
    group_key_function,
    stream_grouping_operator,
    table_grouping_operator,
)
from pessoa.ksql.operators.group_states import GroupAggregates
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord
from pessoa.ksql.operators.result_rows import Projection, ResultWriter
from pessoa.ksql.operators.row_operators import (
    Operator,
    filter_operator,
    flat_map_operator,
    key_function,
    partition_by_operator,
)
from pessoa.ksql.operators.row_packing import pack_any
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.operators.session_aggregation import session_aggregate_operator
from pessoa.ksql.operators.source_reading import SourceReader
from pessoa.ksql.operators.stage_nodes import InputNode, JoinBinding, JoinNode, OperatorNode, StageNode
from pessoa.ksql.operators.stream_stream_join import LEFT, RIGHT, StreamStreamJoin, StreamStreamRule
from pessoa.ksql.operators.table_joins import KeyOf, stream_table_join, table_table_join
from pessoa.ksql.operators.table_state import remember_operator
from pessoa.ksql.operators.topology import StageInput, StageOutput, Topology
from pessoa.ksql.operators.window_aggregation import window_aggregate_operator
from pessoa.ksql.syntax.expression_nodes import Column
from pessoa.ksql.syntax.query_nodes import Emit as EmitClause
from pessoa.ksql.syntax.query_nodes import JoinKind, WindowKind
from pessoa.ksql.types.sql_types import Value

_REGISTRY_FORMATS = ("AVRO", "JSON_SR", "PROTOBUF")


@dataclass
class _Stage:
    """A stage that is being built."""

    inputs: list[InputProgram]
    root: StageNode
    has_state: bool = False


@dataclass
class _Flow:
    stage: _Stage
    shape: FlowShape
    # Nothing but reading and `operators` of its only input so far.
    is_bare: bool = True
    # How the key is written where the rows lie: what a side that moves to them must do.
    key_side: Side | None = None


@dataclass
class TopologyBuilder:
    plan: LogicalPlan
    settings: QuerySettings
    schemas: SchemaSource
    stages: list[CompiledStage] = field(default_factory=list)
    _stores: int = 0

    def __post_init__(self) -> None:
        self._used = _used_columns(self.plan.root)
        self._around = self.settings.evaluation_context
        self._place = Place(self.settings)

    def build(self) -> Topology:
        project = self.plan.root
        assert isinstance(project, ProjectStep)
        flow = self._flow(project.below, needs_old=False)
        stage = flow.stage
        projection = Projection(project, flow.shape, self._around, self._place)
        sink = self.plan.sink
        writer = None if sink is None else ResultWriter(self.plan, self.schemas, self.settings, self._place)
        output = FinalOutput(projection, writer, flow.shape.is_table)
        self._finish(stage, output, StageOutput(sink))
        return Topology(tuple(self.stages))

    def _finish(self, stage: _Stage, output: InternalOutput | FinalOutput, stage_output: StageOutput) -> None:
        self.stages.append(CompiledStage(stage.inputs, stage.root, output, self._place, stage.has_state, stage_output))

    def _store(self, kind: str) -> str:
        """Return a name for a state store: the operators of a plan are always built in the same order."""
        self._stores += 1
        return f"{self._stores}-{kind}"

    # Steps

    def _flow(self, step: Step, needs_old: bool) -> _Flow:
        """Return the flow of a step. With `needs_old`, changes of a table must contain the row before the change."""
        match step:
            case ReadSource():
                flow = self._read(step)
                if needs_old and flow.shape.is_table:
                    self._add(flow, remember_operator(self._store("table"), flow.shape), has_state=True)
                return flow
            case JoinStep():
                return self._join(step, needs_old)
            case FilterStep(below, condition, _):
                flow = self._flow(below, needs_old=True)
                operator = filter_operator(condition, flow.shape.is_table, self._around, self._place)
                return self._add(flow, operator)
            case FlatMapStep(below, calls):
                flow = self._flow(below, needs_old)
                added = tuple((name, typed.type) for name, typed in calls)
                shape = replace(flow.shape, columns=(*flow.shape.columns, *added))
                return self._add(flow, flat_map_operator(calls, self._around, self._place), shape)
            case RekeyStep(below, keys):
                flow = self._flow(below, needs_old)
                operator = partition_by_operator(keys, flow.shape, self._around, self._place)
                shape = replace(
                    flow.shape,
                    key_names=tuple((name,) for name, _ in keys),
                    key_types=tuple(typed.type for _, typed in keys),
                )
                return self._add(flow, operator, shape)
            case AggregateStep():
                return self._aggregate(step, needs_old)
        raise AssertionError(f"no operator for {type(step).__name__}")

    def _read(self, step: ReadSource) -> _Flow:
        reader = SourceReader(step, self.schemas, self.settings, self._place)
        shape = self._prune(reader.shape)
        program = InputProgram(StageInput(step.source), reader.read, shape)
        side = key_side(step.source) if step.source.key else None
        return _Flow(_Stage([program], InputNode(0)), shape, key_side=side)

    def _prune(self, shape: FlowShape) -> FlowShape:
        """Return the shape without unused columns: they need not be stored or sent."""
        keys = {name for names in shape.key_names for name in names}
        return replace(shape, columns=tuple(one for one in shape.columns if one[0] in self._used or one[0] in keys))

    def _add(
        self, flow: _Flow, operator: Operator, shape: FlowShape | None = None, *, has_state: bool = False
    ) -> _Flow:
        """Add an operator on top of the flow: to `prepare`, if no operator there has state."""
        if flow.is_bare and not has_state and not flow.shape.is_table:
            flow.stage.inputs[0].operators.append(operator)
            flow.stage.inputs[0].shape = shape or flow.shape
        else:
            flow.stage.root = OperatorNode(flow.stage.root, operator)
            flow.stage.has_state = flow.stage.has_state or has_state
            flow.is_bare = False
        flow.shape = shape or flow.shape
        return flow

    # Repartitioning

    def _repartition(self, flow: _Flow, partition_key: PartitionKey, key_side_: Side | None) -> _Flow:
        """Return the flow repartitioned by its new key."""
        if flow.is_bare:
            program = flow.stage.inputs[0]
            program.partition_key = partition_key
            program.stage_input = replace(program.stage_input, repartitioned=True)
            flow.key_side = key_side_
            return flow
        suffix = f"{len(self.stages) + 1}-repartition"
        self._finish(flow.stage, InternalOutput(suffix, flow.shape, partition_key), StageOutput(internal=suffix))
        return self._internal_flow(suffix, flow.shape, partition_key, key_side_)

    def _internal_flow(
        self, suffix: str, shape: FlowShape, partition_key: PartitionKey, key_side_: Side | None
    ) -> _Flow:
        packer = EventPacker(shape)

        def read(record: KafkaRecord) -> Event | None:
            assert record.value is not None
            return packer.unpack(record.value)

        # The topic may have another number of partitions than its reader has tasks, so keys are placed once more.
        program = InputProgram(StageInput(None, suffix, repartitioned=True), read, shape, [], partition_key)
        return _Flow(_Stage([program], InputNode(0)), shape, key_side=key_side_)

    def _partition_key(self, side: Side | None) -> PartitionKey:
        """Return the function for an event's partition key: as the side serialises it, else in our own form."""
        if side is None:
            return lambda event: None if event.key is None else pack_any(event.key)
        codec = side_codec(side, self.schemas)

        def key(event: Event) -> bytes | None:
            try:
                return codec.encode(event.key)
            except CodecFailure as failure:
                self._place.log(str(failure))
                return None

        return key

    # Aggregates

    def _aggregate(self, step: AggregateStep, needs_old: bool) -> _Flow:
        flow = self._flow(step.below, needs_old=True)
        group = group_key_function(step.keys, self._around, self._place)
        is_table = flow.shape.is_table
        stays = not is_table and _groups_by_key(step, flow.shape)
        operator = table_grouping_operator(group) if is_table else stream_grouping_operator(group)
        kinds = tuple(typed.type for _, typed in step.keys)
        grouped = FlowShape(is_table, tuple((name,) for name, _ in step.keys), kinds, flow.shape.columns)
        flow = self._add(flow, operator, grouped)
        if not stays:
            flow = self._repartition(flow, self._partition_key(None), None)
        return self._add(
            flow, self._aggregate_operator(step, flow, needs_old), self._aggregate_shape(step), has_state=True
        )

    def _aggregate_operator(self, step: AggregateStep, flow: _Flow, needs_old: bool) -> Operator:
        groups = GroupAggregates([name for name, _ in step.keys], step.aggregates, self.settings, self._place)
        keys = StateKeys(tuple(typed.type for _, typed in step.keys))
        name = self._store("aggregate")
        if step.window is None:
            return aggregate_operator(name, keys, groups, needs_old)
        is_final = step.emit is EmitClause.FINAL
        make = session_aggregate_operator if step.window.kind is WindowKind.SESSION else window_aggregate_operator
        return make(name, keys, groups, step.window, is_final, needs_old)

    def _aggregate_shape(self, step: AggregateStep) -> FlowShape:
        columns = [(name, typed.type) for name, typed in (*step.keys, *step.aggregates)]
        if step.window is not None:
            columns += list(WINDOW_BOUNDS.items())
        kinds = tuple(typed.type for _, typed in step.keys)
        names = tuple((name,) for name, _ in step.keys)
        return FlowShape(True, names, kinds, tuple(columns), step.window is not None)

    # Joins

    def _join(self, step: JoinStep, needs_old: bool) -> _Flow:
        left, right = self._flow(step.left, needs_old=False), self._read(step.right)
        if step.form is JoinForm.FOREIGN_KEY:
            return self._foreign_key(step, left, right, needs_old)
        left_key, right_key = self._join_key(step.left_key, left), self._join_key(step.right_key, right)
        target = self._target_side(step, left, right)
        if step.repartition_left:
            left = self._repartition_by(left, left_key, step.left_key, target)
            left_key = _own_key
        if step.repartition_right:
            right = self._repartition_by(right, right_key, step.right_key, target)
            right_key = _own_key
        synthetic = step.key_names if step.synthetic else ()
        shapes = self._with_key_type(left, step.left_key), self._with_key_type(right, step.right_key)
        keeps = (step.kind in (JoinKind.LEFT, JoinKind.FULL), step.kind in (JoinKind.RIGHT, JoinKind.FULL))
        binding = self._binding(step, shapes, keeps, synthetic, left_key, right_key)
        flow = self._merge_stages(left, right, binding)
        flow.key_side = target if step.repartition_left else left.key_side
        columns = (*shapes[0].columns, *shapes[1].columns, *((name, step.left_key.type) for name in synthetic))
        is_table = step.form is JoinForm.TABLE_TABLE
        flow.shape = FlowShape(
            is_table, (step.key_names,), (step.left_key.type,), columns, left.shape.windowed
        )  # fmt: skip
        return flow

    def _binding(
        self, step: JoinStep, shapes: tuple[FlowShape, FlowShape], keeps: tuple[bool, bool],
        synthetic: tuple[str, ...], left_key: KeyOf, right_key: KeyOf,
    ) -> JoinBinding:  # fmt: skip
        if step.form is JoinForm.STREAM_TABLE:
            name = self._store("table")
            return lambda context, emit: stream_table_join(name, shapes[1], left_key, keeps[0], context, emit)
        if step.form is JoinForm.TABLE_TABLE:
            name = self._store("tables")
            return lambda context, emit: table_table_join(name, shapes, keeps, synthetic, context, emit)
        assert step.before_ms is not None
        assert step.after_ms is not None
        rule = StreamStreamRule(
            self._store("streams"), step.before_ms, step.after_ms, step.grace_ms, keeps, shapes, synthetic
        )

        def bind(context: TaskContext, emit: Emit) -> tuple[Emit, Emit]:
            join = StreamStreamJoin(rule, context, emit)
            return (
                lambda event: join.take(LEFT, event, left_key(event)),
                lambda event: join.take(RIGHT, event, right_key(event)),
            )

        return bind

    def _join_key(self, typed: Typed, flow: _Flow) -> KeyOf:
        return key_function(typed, flow.shape, self._around, self._place)

    def _with_key_type(self, flow: _Flow, typed: Typed) -> FlowShape:
        """Return the shape of a join's side with the type of the join key."""
        return replace(flow.shape, key_types=(typed.type,))

    def _target_side(self, step: JoinStep, left: _Flow, right: _Flow) -> Side | None:
        """Return the format of the keys by which the joined rows are partitioned."""
        if not step.repartition_right:
            return right.key_side
        if not step.repartition_left:
            return left.key_side
        # Both move. A later join that needs no move goes by the left source's format.
        form = "" if left.key_side is None else left.key_side.format
        if form in ("", "NONE", *_REGISTRY_FORMATS):
            return None
        column = SchemaColumn("KEY", step.left_key.type)
        try:
            check_columns(form, (column,), "Key")
        except SemanticFailure:
            return None
        return Side("", True, form, (column,))

    def _repartition_by(self, flow: _Flow, key_of: KeyOf, typed: Typed, side: Side | None) -> _Flow:
        def rekey(_: TaskContext, emit: Emit) -> Emit:
            def take(event: Event) -> None:
                key = key_of(event)
                emit(replace(event, key=None if key is None else (key,)))

            return take

        names = ((typed.column,),) if isinstance(typed.node, Column) else ((),)
        shape = replace(flow.shape, key_names=names, key_types=(typed.type,))
        flow = self._add(flow, rekey, shape)
        return self._repartition(flow, self._partition_key(side), side)

    def _merge_stages(self, left: _Flow, right: _Flow, binding: JoinBinding) -> _Flow:
        """Return both stages as one: the right side becomes another input."""
        index = len(left.stage.inputs)
        stage = left.stage
        stage.inputs = [*stage.inputs, *right.stage.inputs]
        # The right side is only read, so its operators are all in `prepare`.
        stage.root = JoinNode(stage.root, InputNode(index), binding)
        stage.has_state = True
        return _Flow(stage, left.shape, is_bare=False)

    def _foreign_key(self, step: JoinStep, left: _Flow, right: _Flow, needs_old: bool) -> _Flow:
        keeps_left = step.kind is JoinKind.LEFT
        key_of = self._join_key(step.left_key, left)
        left_shape, right_shape = left.shape, right.shape
        operator = fk.order_operator(self._store("orders"), left_shape, key_of, keeps_left)
        orders = FlowShape(
            False, ((),), (step.right_key.type,), (*left_shape.columns, *fk.ORDER_COLUMNS)
        )  # fmt: skip
        left_side = left.key_side
        flow = self._add(left, operator, orders, has_state=True)
        flow = self._repartition(flow, self._partition_key(right.key_side), right.key_side)
        name = self._store("foreign")

        def bind(context: TaskContext, emit: Emit) -> tuple[Emit, Emit]:
            rows = fk.ForeignKeyRows(name, left_shape, right_shape, keeps_left, context, emit)
            return rows.take_order, rows.take_right

        flow = self._merge_stages(flow, right, bind)
        columns = (*left_shape.columns, *right_shape.columns)
        flow.shape = FlowShape(True, left_shape.key_names, left_shape.key_types, (*columns, *fk.RESULT_COLUMNS))
        flow = self._repartition(flow, self._partition_key(left_side), left_side)
        shape = replace(flow.shape, columns=columns)
        return self._add(flow, fk.result_operator(self._store("results"), shape, needs_old), shape, has_state=True)


def _own_key(event: Event) -> Value:
    return None if event.key is None else event.key[0]


def _groups_by_key(step: AggregateStep, shape: FlowShape) -> bool:
    """Return whether a stream is grouped by its own key: then its rows need no repartitioning."""
    if shape.windowed or len(step.keys) != len(shape.key_names):
        return False
    pairs = zip(step.keys, shape.key_names, strict=True)
    return all(isinstance(typed.node, Column) and typed.column in names for (_, typed), names in pairs)


def _used_columns(step: Step) -> set[str]:
    """Return the names of all columns that expressions of the plan read."""
    match step:
        case ReadSource():
            return set()
        case JoinStep():
            return {
                *_used_columns(step.left), *_names_in(step.left_key), *_names_in(step.right_key), *step.key_names,
            }  # fmt: skip
        case FilterStep(below, condition, _):
            return _used_columns(below) | _names_in(condition)
        case FlatMapStep(below, pairs) | RekeyStep(below, pairs) | ProjectStep(below, pairs, _):
            return _used_columns(below).union(*(_names_in(typed) for _, typed in pairs))
        case AggregateStep(below, keys, aggregates, _, _):
            return _used_columns(below).union(*(_names_in(typed) for _, typed in (*keys, *aggregates)))


def _names_in(typed: Typed) -> set[str]:
    own = {typed.column} if typed.column else set()
    return own.union(*(_names_in(child) for child in typed.children))

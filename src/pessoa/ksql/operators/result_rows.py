"""The last step of every query: the columns of the result, and the record that a sink's formats make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pessoa.ksql.analysis.logical_plan import LogicalPlan, ProjectStep
from pessoa.ksql.analysis.source_catalogue import SchemaColumn
from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.operators.flow_events import Event, FlowShape, Place
from pessoa.ksql.operators.format_codecs import CodecFailure, KeyCodec, TimeWindow, key_side, side_codec, value_side
from pessoa.ksql.operators.query_settings import WRAP_SINGLE_VALUES, QuerySettings
from pessoa.ksql.operators.records import FailureKind, Headers, OutputRecord
from pessoa.ksql.operators.row_operators import row_functions
from pessoa.ksql.operators.row_packing import Keys
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.operators.source_reading import timestamp_reader
from pessoa.ksql.types.explicit_casts import Caster, caster
from pessoa.ksql.types.sql_types import EvaluationFailure, Value


class ResultRow(NamedTuple):
    """A row of the result. For a persistent query the key is separate; a push query has all columns in `values`."""

    key: Keys | None
    # Of a tombstone: null in every column that is not the key's.
    values: list[Value]
    is_tombstone: bool
    timestamp_ms: int
    window: TimeWindow | None = None
    headers: Headers = ()


class Projection:
    """Makes rows of the result from events."""

    def __init__(self, step: ProjectStep, shape: FlowShape, around: EvaluationContext, place: Place) -> None:
        self._shape = shape
        self._compute = row_functions([typed for _, typed in step.columns[step.key_count :]], around, place)
        self._has_key = step.key_count > 0

    def result(self, event: Event) -> ResultRow:
        row = event.row
        is_tombstone = row is None
        if row is None:
            row = self._shape.key_row(event)
        values = [compute(row) for compute in self._compute]
        key = event.key if self._has_key else None
        return ResultRow(key, values, is_tombstone, event.timestamp_ms, event.window, event.headers)


class ResultWriter:
    """Makes records of the sink topic from rows of the result."""

    def __init__(self, plan: LogicalPlan, schemas: SchemaSource, settings: QuerySettings, place: Place) -> None:
        sink = plan.sink
        assert sink is not None
        wraps = settings.is_true(WRAP_SINGLE_VALUES, True)
        self._place = place
        self._key = KeyCodec(side_codec(key_side(sink, wraps), schemas), sink.window)
        self._value = side_codec(value_side(sink, wraps), schemas)
        # INSERT INTO … SELECT: the sink's types may be wider than the query's.
        self._key_casts = _casts(plan.key, sink.key)
        self._value_casts = _casts(plan.value, sink.value)
        self._time = timestamp_reader(sink.timestamp, sink.timestamp_format, (*sink.key, *sink.value))
        names = [column.name for column in (*sink.key, *sink.value)]
        self._time_index = -1 if sink.timestamp is None else names.index(sink.timestamp)
        self._key_count = len(sink.key)

    def record(self, result: ResultRow) -> OutputRecord | None:
        """Return the record of a row; None, and an entry in the log, if the sink's formats cannot hold it."""
        try:
            key = None if result.key is None else self._cast(result.key, self._key_casts)
            values = None if result.is_tombstone else self._cast(result.values, self._value_casts)
            timestamp = self._timestamp(result, key, values)
            encoded = self._key.encode(key, result.window)
            value = self._value.encode(values)
        except CodecFailure as failure:
            self._place.log(f"Error serializing row: {failure}", FailureKind.SERIALISATION)
            return None
        except EvaluationFailure as failure:
            self._place.log(str(failure))
            return None
        return OutputRecord(encoded.key, value, timestamp, result.headers, encoded.inner)

    def _timestamp(self, result: ResultRow, key: Sequence[Value] | None, values: Sequence[Value] | None) -> int:
        if self._time is None or values is None:
            return result.timestamp_ms
        found = [*(key or [None] * self._key_count), *values][self._time_index]
        if found is None:
            raise EvaluationFailure("the sink's TIMESTAMP column is null")
        return self._time(found)

    def _cast(self, values: Sequence[Value], casts: list[Caster | None] | None) -> Sequence[Value]:
        if casts is None:
            return values
        found: list[Value] = []
        for value, cast in zip(values, casts, strict=True):
            try:
                found.append(value if cast is None else cast(value))
            except EvaluationFailure as failure:
                self._place.log(str(failure))
                found.append(None)
        return found


def _casts(given: Sequence[SchemaColumn], wanted: Sequence[SchemaColumn]) -> list[Caster | None] | None:
    if all(own.type == other.type for own, other in zip(given, wanted, strict=True)):
        return None
    return [
        None if own.type == other.type else caster(own.type, other.type)
        for own, other in zip(given, wanted, strict=True)
    ]

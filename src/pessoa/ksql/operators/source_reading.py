"""The first step of every query: a record of a source's topic becomes a row.

    key and value columns, headers, ROWTIME (the record's, or the TIMESTAMP column's), ROWPARTITION, ROWOFFSET, and
    WINDOWSTART and WINDOWEND of a windowed source

A record that cannot be read is logged and skipped; so is one without a time, and a table's without a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pessoa.ksql.analysis.logical_plan import ReadSource
from pessoa.ksql.analysis.pseudo_columns import (
    ROWOFFSET,
    ROWPARTITION,
    ROWTIME,
    WINDOWEND,
    WINDOWSTART,
    pseudo_columns_of,
)
from pessoa.ksql.analysis.source_catalogue import HeaderColumn, SchemaColumn, Source
from pessoa.ksql.functions.java_time_patterns import time_pattern
from pessoa.ksql.operators.flow_events import Event, FlowShape, Place
from pessoa.ksql.operators.format_codecs import CodecFailure, KeyCodec, key_side, side_codec, value_side
from pessoa.ksql.operators.query_settings import (
    FAIL_ON_BAD_RECORD,
    FAIL_ON_BAD_TIMESTAMP,
    WRAP_SINGLE_VALUES,
    QuerySettings,
)
from pessoa.ksql.operators.records import FailureKind, Headers, KafkaRecord, QueryFailure
from pessoa.ksql.operators.row_packing import Row
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import STRING, EvaluationFailure, Value
from pessoa.ksql.types.time_text import moment_ms


def timestamp_reader(
    kind_name: str | None, pattern: str | None, columns: tuple[SchemaColumn, ...]
) -> TimeReader | None:
    """Return the function that reads a record's time from its TIMESTAMP column; None if there is no such column."""
    if kind_name is None:
        return None
    kind = next(column.type for column in columns if column.name == kind_name)
    if kind != STRING:
        return lambda value: cast("int", value)
    assert pattern is not None
    parsed = time_pattern(pattern)
    from datetime import UTC

    return lambda value: moment_ms(parsed.parse(cast("str", value), UTC))


TimeReader = Callable[[Value], int]


class SourceReader:
    """Reads the records of one source of a query."""

    def __init__(self, step: ReadSource, schemas: SchemaSource, settings: QuerySettings, place: Place) -> None:
        source = step.source
        wraps = settings.is_true(WRAP_SINGLE_VALUES, True)
        names = dict(step.names)
        first_column, first_name = step.names[0]
        prefix = first_name.removesuffix(first_column)
        self.source = source
        self._place = place
        self._settings = settings
        self._key = KeyCodec(side_codec(key_side(source, wraps), schemas), source.window)
        self._value = side_codec(value_side(source, wraps), schemas)
        self._key_names = [names[column.name] for column in source.key]
        self._value_names = [names[column.name] for column in source.value]
        self._headers = [(names[column.name], column) for column in source.headers]
        self._rowtime, self._rowpartition = prefix + ROWTIME, prefix + ROWPARTITION
        self._rowoffset = prefix + ROWOFFSET
        self._bounds = prefix + WINDOWSTART, prefix + WINDOWEND
        self._is_table = source.kind is SourceKind.TABLE
        self._time = timestamp_reader(source.timestamp, source.timestamp_format, (*source.key, *source.value))
        self._time_name = "" if source.timestamp is None else names[source.timestamp]
        self.shape = _shape(source, names, prefix)

    def read(self, record: KafkaRecord) -> Event | None:
        """Return the event of a record; None if it is skipped."""
        try:
            key, window = self._key.decode(record.key)
            values = self._value.decode(record.value)
        except CodecFailure as failure:
            self._refuse(FailureKind.DESERIALISATION, str(failure), FAIL_ON_BAD_RECORD)
            return None
        if self._is_table and (key is None or key == (None,) or record.key is None):
            self._place.log("a table's record without a key is skipped")
            return None
        row: Row | None = None
        if values is not None:
            row = dict(zip(self._value_names, values, strict=True))
        elif not self._value_names and record.value is not None:
            row = {}
        timestamp = record.timestamp_ms
        if self._time is not None:
            try:
                timestamp = self._row_time(row, key)
            except (EvaluationFailure, TypeError, ValueError) as failure:
                self._refuse(FailureKind.PROCESSING, f"Failed to extract timestamp: {failure}", FAIL_ON_BAD_TIMESTAMP)
                return None
        if timestamp < 0:
            self._refuse(FailureKind.PROCESSING, f"the timestamp {timestamp} is negative", FAIL_ON_BAD_TIMESTAMP)
            return None
        if row is not None:
            self._add_key_and_pseudo_columns(row, record, key, window, timestamp)
        return Event(key, row, timestamp, window, None, record.headers)

    def _row_time(self, row: Row | None, key: tuple[Value, ...] | None) -> int:
        assert self._time is not None
        if self._time_name in self._key_names:
            value = None if key is None else key[self._key_names.index(self._time_name)]
        else:
            value = None if row is None else row.get(self._time_name)
        if value is None:
            raise EvaluationFailure("the TIMESTAMP column is null")
        return self._time(value)

    def _add_key_and_pseudo_columns(
        self,
        row: Row,
        record: KafkaRecord,
        key: tuple[Value, ...] | None,
        window: tuple[int, int] | None,
        timestamp: int,
    ) -> None:
        if key is not None:
            for name, value in zip(self._key_names, key, strict=True):
                row[name] = value
        row[self._rowtime] = timestamp
        row[self._rowpartition] = record.partition
        row[self._rowoffset] = record.offset
        if window is not None:
            row[self._bounds[0]], row[self._bounds[1]] = window
        for name, column in self._headers:
            row[name] = header_value(column, record.headers)

    def _refuse(self, kind: FailureKind, message: str, setting: str) -> None:
        self._place.log(message, kind)
        if self._settings.is_true(setting):
            place = self._place
            raise QueryFailure(f"{place.topic}, partition {place.partition}, offset {place.offset}: {message}")


def header_value(column: HeaderColumn, headers: Headers) -> Value:
    """Return all headers, or the last one of a name."""
    if column.header is None:
        return [{"KEY": name, "VALUE": value} for name, value in headers]
    return next((value for name, value in reversed(headers) if name == column.header), None)


def _shape(source: Source, names: dict[str, str], prefix: str) -> FlowShape:
    columns = [(names[column.name], column.type) for column in source.columns()]
    columns += [(prefix + name, kind) for name, kind in pseudo_columns_of(source).items()]
    return FlowShape(
        source.kind is SourceKind.TABLE,
        tuple((names[column.name],) for column in source.key),
        tuple(column.type for column in source.key),
        tuple(columns),
        source.window is not None,
    )

"""A table as the last row of each key: what turns records into changes (old row, new row)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

from pessoa.ksql.operators.flow_events import Emit, Event, FlowShape, StateKeys, TaskContext
from pessoa.ksql.operators.format_codecs import TimeWindow
from pessoa.ksql.operators.row_operators import Operator
from pessoa.ksql.operators.row_packing import Keys, Row, RowShape, pack, unpack
from pessoa.ksql.operators.state_store import StateStore


class StoredRow(NamedTuple):
    timestamp_ms: int
    row: Row


class TableRows:
    """The rows of a table in the state store of this name."""

    def __init__(self, name: str, shape: FlowShape) -> None:
        self._name = name
        self._rows = RowShape(shape.columns)
        self._keys = StateKeys(shape.key_types)

    def get(self, state: StateStore, key: Keys, window: TimeWindow | None = None) -> StoredRow | None:
        data = state.get(self._name, self._keys.of(key, window))
        if data is None:
            return None
        timestamp, values = cast("list[object]", unpack(data))
        row = self._rows.to_row(values)
        assert row is not None
        return StoredRow(cast("int", timestamp), row)

    def put(self, state: StateStore, event: Event) -> None:
        """Store the event's row; delete the stored row if the event is a deletion."""
        assert event.key is not None
        key = self._keys.of(event.key, event.window)
        if event.row is None:
            state.delete(self._name, key)
        else:
            state.put(self._name, key, pack([event.timestamp_ms, self._rows.to_list(event.row)]))


def remember_operator(name: str, shape: FlowShape) -> Operator:
    """Return the operator that adds to every change of a table the row that it replaces."""
    rows = TableRows(name, shape)

    def bind(context: TaskContext, emit: Emit) -> Emit:
        def take(event: Event) -> None:
            assert event.key is not None
            old = rows.get(context.state, event.key, event.window)
            rows.put(context.state, event)
            emit(replace(event, old=None if old is None else old.row))

        return take

    return bind

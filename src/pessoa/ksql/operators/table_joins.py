"""Joins with tables: stream-table, and table-table on the primary keys.

A stream's row meets the table's row of that moment; a change of the table sends nothing. Of two tables either change
makes the row anew: it is gone when the side that it needs is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from pessoa.ksql.operators.flow_events import Emit, Event, FlowShape, TaskContext
from pessoa.ksql.operators.row_operators import merged
from pessoa.ksql.operators.row_packing import Row
from pessoa.ksql.operators.table_state import StoredRow, TableRows
from pessoa.ksql.types.sql_types import Value

KeyOf = Callable[[Event], Value]


def stream_table_join(
    name: str, table: FlowShape, key_of: KeyOf, keeps_left: bool, context: TaskContext, emit: Emit
) -> tuple[Emit, Emit]:
    """Return the consumers of the stream's events and of the table's changes."""
    rows = TableRows(name, table)
    state = context.state

    def left(event: Event) -> None:
        if event.row is None:
            return
        key = key_of(event)
        found = None if key is None else rows.get(state, (key,), event.window)
        if found is not None or keeps_left:
            joined = merged(event.row, None if found is None else found.row)
            own = None if key is None else (key,)
            emit(Event(own, joined, event.timestamp_ms, event.window, None, event.headers))

    def right(event: Event) -> None:
        rows.put(state, event)

    return left, right


def table_table_join(
    name: str,
    shapes: tuple[FlowShape, FlowShape],
    keeps: tuple[bool, bool],
    synthetic: tuple[str, ...],
    context: TaskContext,
    emit: Emit,
) -> tuple[Emit, Emit]:
    """Return the consumers of the left and of the right table's changes. An outer side needs no partner."""
    tables = (TableRows(f"{name}-left", shapes[0]), TableRows(f"{name}-right", shapes[1]))
    state = context.state

    def joined(side: int, own: Row | None, other: Row | None, key: Value) -> Row | None:
        left, right = (own, other) if side == 0 else (other, own)
        if (left is None and not keeps[1]) or (right is None and not keeps[0]) or (left is None and right is None):
            return None
        return merged(left, right, synthetic, key)

    def take(side: int, event: Event) -> None:
        assert event.key is not None
        before = tables[side].get(state, event.key, event.window)
        tables[side].put(state, event)
        partner = tables[1 - side].get(state, event.key, event.window)
        if not _affects_result(side, event, before, partner):
            return
        other = None if partner is None else partner.row
        time = event.timestamp_ms if partner is None else max(event.timestamp_ms, partner.timestamp_ms)
        key = event.key[0] if event.key else None
        old = joined(side, None if before is None else before.row, other, key)
        emit(Event(event.key, joined(side, event.row, other, key), time, event.window, old, event.headers))

    def _affects_result(side: int, event: Event, before: StoredRow | None, partner: StoredRow | None) -> bool:
        """Return whether the change can affect the result: not if a required partner is missing before and after."""
        if partner is not None:
            return True
        return keeps[side] and not (event.row is None and before is None)

    return (lambda event: take(0, event)), (lambda event: take(1, event))

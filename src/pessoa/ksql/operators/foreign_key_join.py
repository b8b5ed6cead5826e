"""Foreign-key joins of tables: left rows by any expression, the right row by its primary key.

    stage A, by the left's key:   a change of a left row becomes orders to foreign keys, with a version that counts up
    stage B, by the foreign key:  the right row, and all left rows that name it; each change makes results
    stage C, by the left's key:   a result goes out unless a newer version of its left row has been seen

A left row that changes its foreign key is taken back from the old one without a result, and given to the new one. A
result of the old one that is still under way has the older version, and is left out by stage C.

The left rows of a foreign key are numbered 0 … n - 1 in the state; the last one takes the place of one that leaves.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from pessoa.ksql.operators.flow_events import Emit, Event, FlowShape, StateKeys, TaskContext
from pessoa.ksql.operators.row_operators import Operator, merged
from pessoa.ksql.operators.row_packing import Keys, Row, RowShape, pack, pack_any, plain, unpack
from pessoa.ksql.operators.table_joins import KeyOf
from pessoa.ksql.operators.table_state import TableRows
from pessoa.ksql.types.sql_types import BIGINT, BYTES, STRING, SqlType

# The kinds of orders that stage A sends to stage B.
ADD, ADD_QUIETLY, REMOVE, REMOVE_QUIETLY = "ADD", "ADD_QUIETLY", "REMOVE", "REMOVE_QUIETLY"
# Columns of the orders and of the results, beside the row's own. No column of a source can be called so.
ORDER, VERSION, LEFT_KEY, IS_GONE = "=order", "=version", "=left key", "=is gone"
ORDER_COLUMNS: tuple[tuple[str, SqlType], ...] = ((ORDER, STRING), (VERSION, BIGINT), (LEFT_KEY, BYTES))
RESULT_COLUMNS: tuple[tuple[str, SqlType], ...] = ((VERSION, BIGINT), (IS_GONE, BIGINT))


def order_operator(name: str, left: FlowShape, key_of: KeyOf, keeps_left: bool) -> Operator:
    """Return the operator of stage A: changes of left rows become orders to foreign keys."""
    keys = StateKeys(left.key_types)

    def bind(context: TaskContext, emit: Emit) -> Emit:
        state = context.state

        def take(event: Event) -> None:
            assert event.key is not None
            place = keys.of(event.key)
            data = state.get(name, place)
            # The version is kept when the row is deleted: a later row must have a newer one.
            version, had_row, old_key = (
                (0, False, None) if data is None else cast("tuple[int, bool, object]", unpack(data))
            )
            new_key = None if event.row is None else key_of(event)
            version += 1
            state.put(name, place, pack([version, event.row is not None, plain(new_key)]))

            def order(foreign: object, order_kind: str) -> None:
                row: Row = {**(event.row or {}), ORDER: order_kind, VERSION: version, LEFT_KEY: pack_any(event.key)}
                own = None if foreign is None else (foreign,)
                emit(Event(cast("Keys", own), row, event.timestamp_ms, None, None, event.headers))

            if event.row is None:
                order(old_key, REMOVE)
                return
            if new_key is None and not keeps_left:
                context.place.log("Skipping record due to null foreign key.")
                if old_key is not None:
                    order(old_key, REMOVE)
                return
            if old_key is not None and old_key != new_key:
                order(old_key, REMOVE_QUIETLY)
            order(new_key, ADD if keeps_left or (had_row and old_key is not None) else ADD_QUIETLY)

        return take

    return bind


class _Place(NamedTuple):
    """The keys of the state store for one foreign key."""

    foreign: bytes

    def size(self) -> bytes:
        return b"n" + self.foreign

    def slot(self, index: int) -> bytes:
        return b"s" + index.to_bytes(6, "big") + self.foreign

    def position(self, left_key: bytes) -> bytes:
        return b"p" + len(left_key).to_bytes(4, "big") + left_key + self.foreign


class ForeignKeyRows:
    """Stage B in one task: the right row, and the left rows that refer to it."""

    def __init__(
        self, name: str, left: FlowShape, right: FlowShape, keeps_left: bool, context: TaskContext, emit: Emit
    ) -> None:
        self._name = f"{name}-left"
        self._state = context.state
        self._emit = emit
        self._keeps_left = keeps_left
        self._left = RowShape(left.columns)
        self._right = TableRows(f"{name}-right", right)
        self._keys = StateKeys(right.key_types)

    def take_order(self, event: Event) -> None:
        row = event.row
        assert row is not None
        order_kind, version, left_key = cast("str", row[ORDER]), cast("int", row[VERSION]), cast("bytes", row[LEFT_KEY])
        if event.key is None:
            # No right row has a null key: a left row without a foreign key is padded, or has no result.
            self._send(left_key, version, None if order_kind == REMOVE else merged(row, None), event.timestamp_ms)
            return
        place = _Place(self._keys.of(event.key))
        if order_kind in (REMOVE, REMOVE_QUIETLY):
            self._remove(place, left_key)
            if order_kind == REMOVE:
                self._send(left_key, version, None, event.timestamp_ms)
            return
        self._put(place, left_key, version, event)
        right = self._right.get(self._state, event.key)
        if right is not None:
            self._send(left_key, version, merged(row, right.row), max(event.timestamp_ms, right.timestamp_ms))
        elif order_kind == ADD:
            self._send(left_key, version, merged(row, None) if self._keeps_left else None, event.timestamp_ms)

    def take_right(self, event: Event) -> None:
        assert event.key is not None
        before = self._right.get(self._state, event.key)
        self._right.put(self._state, event)
        if event.row is None and before is None:
            return
        place = _Place(self._keys.of(event.key))
        for index in range(self._count(place)):
            left_key, version, time, values = self._slot(place, index)
            left = self._left.to_row(values)
            is_deleted = event.row is None and not self._keeps_left
            self._send(
                left_key, version, None if is_deleted else merged(left, event.row), max(time, event.timestamp_ms)
            )

    def _send(self, left_key: bytes, version: int, row: Row | None, time: int) -> None:
        key = tuple(cast("Keys", unpack(left_key)))
        shown: Row = {**(row or {}), VERSION: version, IS_GONE: 0 if row is not None else 1}
        self._emit(Event(key, shown, time))

    def _count(self, place: _Place) -> int:
        data = self._state.get(self._name, place.size())
        return 0 if data is None else int.from_bytes(data, "big")

    def _slot(self, place: _Place, index: int) -> tuple[bytes, int, int, object]:
        data = self._state.get(self._name, place.slot(index))
        assert data is not None
        left_key, version, time, values = cast("tuple[bytes, int, int, object]", unpack(data))
        return left_key, version, time, values

    def _put(self, place: _Place, left_key: bytes, version: int, event: Event) -> None:
        data = self._state.get(self._name, place.position(left_key))
        count = self._count(place)
        index = count if data is None else int.from_bytes(data, "big")
        if data is None:
            self._state.put(self._name, place.position(left_key), index.to_bytes(6, "big"))
            self._state.put(self._name, place.size(), (count + 1).to_bytes(6, "big"))
        packed = pack([left_key, version, event.timestamp_ms, self._left.to_list(event.row)])
        self._state.put(self._name, place.slot(index), packed)

    def _remove(self, place: _Place, left_key: bytes) -> None:
        data = self._state.get(self._name, place.position(left_key))
        if data is None:
            return
        index, last = int.from_bytes(data, "big"), self._count(place) - 1
        self._state.delete(self._name, place.position(left_key))
        if index != last:
            moved = self._state.get(self._name, place.slot(last))
            assert moved is not None
            self._state.put(self._name, place.slot(index), moved)
            other = cast("list[bytes]", unpack(moved))[0]
            self._state.put(self._name, place.position(other), index.to_bytes(6, "big"))
        self._state.delete(self._name, place.slot(last))
        if last:
            self._state.put(self._name, place.size(), last.to_bytes(6, "big"))
        else:
            self._state.delete(self._name, place.size())


def result_operator(name: str, shape: FlowShape, needs_old: bool) -> Operator:
    """Return the operator of stage C: results of outdated left rows are dropped."""
    keys = StateKeys(shape.key_types)
    rows = RowShape(shape.columns)

    def bind(context: TaskContext, emit: Emit) -> Emit:
        state = context.state

        def take(event: Event) -> None:
            assert event.key is not None
            assert event.row is not None
            place = keys.of(event.key)
            data = state.get(name, place)
            seen, values = (0, None) if data is None else cast("tuple[int, object]", unpack(data))
            version = cast("int", event.row.pop(VERSION))
            if version < seen:
                return
            row = None if event.row.pop(IS_GONE) else event.row
            old = rows.to_row(values)
            state.put(name, place, pack([version, rows.to_list(row) if needs_old else None]))
            emit(Event(event.key, row, event.timestamp_ms, None, old, event.headers))

        return take

    return bind

"""GROUP BY without a window, over streams and over tables.

Every event gives one row, also if the aggregate is what it was. Of a table, an event takes back what the old row gave
and adds the new one; if the row changed its group there were two events, the old group's first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.evaluate.row_functions import group_key
from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.operators.flow_events import Emit, Event, Place, StateKeys, TaskContext
from pessoa.ksql.operators.group_states import GroupAggregates, States
from pessoa.ksql.operators.row_operators import Operator
from pessoa.ksql.operators.row_packing import Keys, Row, pack, unpack

GroupKey: TypeAlias = "Callable[[Row], Keys | None]"


def group_key_function(keys: Sequence[tuple[str, Typed]], around: EvaluationContext, place: Place) -> GroupKey:
    return group_key([compile_expression(typed, around) for _, typed in keys], place.log)


def stream_grouping_operator(group: GroupKey) -> Operator:
    """Return the operator that gives every event of a stream the key of its group; events without one are dropped."""

    def bind(_: TaskContext, emit: Emit) -> Emit:
        def take(event: Event) -> None:
            key = None if event.row is None else group(event.row)
            if key is not None:
                emit(Event(key, event.row, event.timestamp_ms, None, None, event.headers))

        return take

    return bind


def table_grouping_operator(group: GroupKey) -> Operator:
    """Return the operator that splits a change of a table's row into changes of groups: one if the group is the
    same, else the old group's before the new one's."""

    def bind(_: TaskContext, emit: Emit) -> Emit:
        def take(event: Event) -> None:
            old_key = None if event.old is None else group(event.old)
            new_key = None if event.row is None else group(event.row)
            if old_key is not None and old_key == new_key:
                emit(replace(event, key=new_key, window=None))
                return
            if old_key is not None:
                emit(replace(event, key=old_key, row=None, window=None))
            if new_key is not None:
                emit(replace(event, key=new_key, old=None, window=None))

        return take

    return bind


def aggregate_operator(name: str, keys: StateKeys, groups: GroupAggregates, needs_old: bool) -> Operator:
    def bind(context: TaskContext, emit: Emit) -> Emit:
        state = context.state

        def take(event: Event) -> None:
            assert event.key is not None
            place = keys.of(event.key)
            data = state.get(name, place)
            timestamp = event.timestamp_ms
            before: Row | None = None
            if data is None:
                states = groups.initial()
            else:
                seen, states = cast("tuple[int, States]", unpack(data))
                timestamp = max(timestamp, seen)
                before = groups.row(event.key, states) if needs_old else None
                if event.old is not None:
                    states = groups.undo(states, event.old)
            if event.row is not None:
                states = groups.add(states, event.row)
            state.put(name, place, pack([timestamp, groups.to_list(states)]))
            emit(Event(event.key, groups.row(event.key, states), timestamp, None, before, event.headers))

        return take

    return bind

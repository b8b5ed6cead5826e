"""Operators without state: WHERE and HAVING, EXPLODE, PARTITION BY.

An operator is bound to a task and to what comes behind it, and is then a function that takes an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias, cast

from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.evaluate.expression_functions import RowFunction, compile_expression
from pessoa.ksql.evaluate.row_functions import condition, or_null
from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.operators.flow_events import Emit, Event, FlowShape, Place, TaskContext
from pessoa.ksql.operators.row_packing import Row
from pessoa.ksql.syntax.expression_nodes import Column
from pessoa.ksql.types.sql_types import Value

Operator: TypeAlias = Callable[[TaskContext, Emit], Emit]


def filter_operator(typed: Typed, is_table: bool, around: EvaluationContext, place: Place) -> Operator:
    """Return the operator of WHERE and HAVING. A stream's row passes or is dropped; a table's row that no longer
    passes is deleted."""
    compute = compile_expression(typed, around)
    passes = condition(compute, place.log)
    # What failed for the old row was logged when it was new.
    passed = condition(compute, lambda _: None)

    def stream(_: TaskContext, emit: Emit) -> Emit:
        def take(event: Event) -> None:
            if event.row is not None and passes(event.row):
                emit(event)

        return take

    def table(_: TaskContext, emit: Emit) -> Emit:
        def take(event: Event) -> None:
            old = event.old if event.old is not None and passed(event.old) else None
            if event.row is not None and passes(event.row):
                emit(replace(event, old=old))
            elif old is not None:
                emit(replace(event, row=None, old=old))

        return take

    return table if is_table else stream


def flat_map_operator(calls: Sequence[tuple[str, Typed]], around: EvaluationContext, place: Place) -> Operator:
    """Return the operator of EXPLODE and other table functions: a row for each element, the calls beside one
    another, padded with null."""
    compiled = [(name, or_null(compile_expression(typed, around), place.log)) for name, typed in calls]
    names = [name for name, _ in compiled]

    def bind(_: TaskContext, emit: Emit) -> Emit:
        def take(event: Event) -> None:
            row = event.row
            if row is None:
                return
            lists = [cast("list[Value]", compute(row) or []) for _, compute in compiled]
            for values in zip_longest(*lists):
                emit(replace(event, row={**row, **dict(zip(names, values, strict=True))}))

        return take

    return bind


def partition_by_operator(
    keys: Sequence[tuple[str, Typed]], shape: FlowShape, around: EvaluationContext, place: Place
) -> Operator:
    """Return the operator of PARTITION BY: a new key, null if all its parts are. The row is sent on in any case."""
    compiled = [or_null(compile_expression(typed, around), place.log) for _, typed in keys]
    # Of a record without a value only its key is known.
    of_key = [_uses_only(typed, {name for names in shape.key_names for name in names}) for _, typed in keys]

    def bind(_: TaskContext, emit: Emit) -> Emit:
        def take(event: Event) -> None:
            if event.row is not None:
                values = tuple(compute(event.row) for compute in compiled)
            else:
                row = shape.key_row(event)
                values = tuple(compute(row) if known else None for compute, known in zip(compiled, of_key, strict=True))
            emit(replace(event, key=None if all(value is None for value in values) else values))

        return take

    return bind


def _uses_only(typed: Typed, names: set[str]) -> bool:
    if isinstance(typed.node, Column) and typed.column not in names:
        return False
    return all(_uses_only(child, names) for child in typed.children)


def key_function(typed: Typed, shape: FlowShape, around: EvaluationContext, place: Place) -> Callable[[Event], Value]:
    """Return the function for an event's join key: the event's own key if ON names it."""
    if isinstance(typed.node, Column) and len(shape.key_names) == 1 and typed.column in shape.key_names[0]:
        # Behind an outer join the column of the side that is missing is null, and the key is not.
        return lambda event: None if event.key is None else event.key[0]
    compute = or_null(compile_expression(typed, around), place.log)
    return lambda event: None if event.row is None else compute(event.row)


def row_functions(typed: Sequence[Typed], around: EvaluationContext, place: Place) -> list[RowFunction]:
    """Return the functions for columns; a failure gives null and is logged."""
    return [or_null(compile_expression(one, around), place.log) for one in typed]


def merged(left: Row | None, right: Row | None, names: Sequence[str] = (), key: Value = None) -> Row:
    """Return the row of a join; the columns of a missing side are absent, and read as null."""
    row: Row = {**(left or {}), **(right or {})}
    for name in names:
        row[name] = key
    return row

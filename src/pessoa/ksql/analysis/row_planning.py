"""Passes between the sources and the grouping: WHERE, table functions, PARTITION BY."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

from pessoa.ksql.analysis.expression_scopes import ColumnScope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.logical_plan import FilterStep, FlatMapStep, RekeyStep
from pessoa.ksql.analysis.pseudo_columns import uses_window_bounds
from pessoa.ksql.analysis.query_draft import Item, KeyPart, QueryDraft
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.functions.aggregates import aggregate_functions
from pessoa.ksql.functions.table_functions import table_functions
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Call, Column, Expression, Literal, walk
from pessoa.ksql.syntax.expression_rewrites import rewrite
from pessoa.ksql.syntax.expression_text import expression_text
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import BOOLEAN


def plan_filter(draft: QueryDraft) -> QueryDraft:
    """Return the draft with a step for WHERE: a condition on the rows of the sources."""
    if draft.where is None:
        return draft
    refuse_calls(draft.where, "WHERE")
    if draft.query.window is not None and (bound := uses_window_bounds(draft.where)) is not None:
        raise window_bound_misplaced(bound)
    where = draft.where
    condition = as_written(draft, "WHERE", lambda: clause_condition(where, "WHERE", draft))
    return replace(draft, step=FilterStep(draft.below, condition, "WHERE"))


def clause_condition(node: Expression, clause: str, draft: QueryDraft) -> Typed:
    """Return the condition of WHERE or HAVING."""
    typed = type_expression(node, ColumnScope(draft.columns, clause))
    if typed.type != BOOLEAN:
        shown = expression_text(node)
        raise SemanticFailure(f"Should evaluate to boolean but is {shown} ({typed.type}) instead.", node.at)
    return typed


def as_written(draft: QueryDraft, clause: str, compute: Callable[[], Typed]) -> Typed:
    """Return the result of `compute`; its error names the clause, and replaces generated columns by what they stand
    for."""
    try:
        return compute()
    except SemanticFailure as failure:
        for name, text in draft.generated.items():
            failure.message = re.sub(rf"\b{name}\b", text.replace("\\", r"\\"), failure.message)
        if clause:
            start = "Type error" if failure.message.startswith("Should evaluate") else "Error"
            failure.message = f"{start} in {clause} expression: {failure.message}"
        raise


def window_bound_misplaced(bound: Column) -> SemanticFailure:
    return SemanticFailure(
        f"Window bounds column {bound.name} can only be used in the SELECT clause of windowed aggregations", bound.at,
        length=len(bound.name), hint="It can be used anywhere in a query on the resulting table.",
    )  # fmt: skip


def refuse_calls(node: Expression, clause: str) -> None:
    """Raise SemanticFailure if the expression contains an aggregate or a table function: the clause allows neither."""
    for one in walk(node):
        if isinstance(one, Call) and one.name in aggregate_functions():
            hint = "Write HAVING for conditions on aggregates." if clause == "WHERE" else ""
            raise SemanticFailure(f"{clause} must not contain the aggregate function {one.name}", one.at, hint=hint)
        if isinstance(one, Call) and one.name in table_functions():
            raise SemanticFailure(f"{clause} must not contain the table function {one.name}", one.at)


def plan_table_functions(draft: QueryDraft) -> QueryDraft:
    """Return the draft with a step for EXPLODE and other table functions: each call becomes a column of its own."""
    calls = [call for item in draft.items for call in _table_calls(item.expression)]
    if not calls:
        return draft
    if draft.kind is SourceKind.TABLE:
        raise SemanticFailure("Table source is not supported with table functions", calls[0].at)
    if draft.group_by:
        raise SemanticFailure("Table functions cannot be used with aggregations.", calls[0].at)
    scope = ColumnScope(draft.columns)
    names: dict[Expression, str] = {}
    planned: list[tuple[str, Typed]] = []
    for call in calls:
        if call not in names:
            names[call] = f"KSQL_SYNTH_{len(names)}"
            planned.append((names[call], type_expression(call, scope)))
    columns = {**draft.columns, **{name: typed.type for name, typed in planned}}
    items = tuple(
        Item(item.name, rewrite(item.expression, lambda node, _: _column_for(node, names)), item.aliased, item.at)
        for item in draft.items
    )
    return replace(draft, items=items, columns=columns, step=FlatMapStep(draft.below, tuple(planned)))


def _column_for(node: Expression, names: dict[Expression, str]) -> Expression | None:
    name = names.get(node)
    return None if name is None else Column(name, at=node.at)


def _table_calls(expression: Expression) -> list[Call]:
    found = [one for one in walk(expression) if _is_table_call(one)]
    for call in found:
        if any(_is_table_call(inner) for argument in call.arguments for inner in walk(argument)):
            raise SemanticFailure("Table functions can not be nested", call.at)
    return found


def _is_table_call(node: Expression) -> TypeGuard[Call]:
    return isinstance(node, Call) and node.name in table_functions()


def plan_partitioning(draft: QueryDraft) -> QueryDraft:
    """Return the draft with a step for PARTITION BY: a new key, made from the sources' columns."""
    if not draft.partition_by:
        return draft
    at = draft.partition_by[0].at
    if draft.kind is SourceKind.TABLE or draft.group_by:
        raise SemanticFailure("PARTITION BY is only supported on streams, and not with GROUP BY.", at)
    if draft.window is not None:
        raise SemanticFailure("PARTITION BY is not supported on windowed streams.", at)
    nulls = [one for one in draft.partition_by if isinstance(one, Literal) and one.value is None]
    if nulls:
        if len(draft.partition_by) > 1:
            raise SemanticFailure("Cannot PARTITION BY multiple columns including NULL", nulls[0].at)
        return replace(draft, key=(), keyless=True, step=RekeyStep(draft.below, ()))
    scope = ColumnScope(draft.columns, "PARTITION BY")
    keys: list[tuple[str, Typed]] = []
    parts: list[KeyPart] = []
    for expression in draft.partition_by:
        refuse_calls(expression, "PARTITION BY")
        typed = type_expression(expression, scope)
        name = next((item.name for item in draft.items if item.expression == expression), expression_text(expression))
        if any(typed.node == other.node for _, other in keys):
            raise SemanticFailure(f"Duplicate PARTITION BY expression: {expression_text(expression)}", expression.at)
        keys.append((name, typed))
        parts.append(KeyPart((expression,), "partitioning expression", (expression_text(expression),)))
    if [one.choices for one in draft.key] == [one.choices for one in parts]:
        return draft  # The rows have this key, and lie where they should.
    return replace(draft, key=tuple(parts), step=RekeyStep(draft.below, tuple(keys)))

"""Pass: GROUP BY, aggregates, WINDOW and HAVING.

Behind the aggregation a row has the group's key and KSQL_AGG_VARIABLE_0, 1 … for the distinct aggregate calls; what is
selected, and HAVING, are rewritten to these columns. What is left over of the input is the error.
"""

from __future__ import annotations

from dataclasses import replace

from pessoa.ksql.analysis.expression_scopes import ColumnScope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.format_rules import has_map
from pessoa.ksql.analysis.logical_plan import AggregateStep, FilterStep
from pessoa.ksql.analysis.pseudo_columns import WINDOW_BOUNDS, uses_window_bounds
from pessoa.ksql.analysis.query_draft import Item, KeyPart, QueryDraft
from pessoa.ksql.analysis.row_planning import as_written, clause_condition, refuse_calls, window_bound_misplaced
from pessoa.ksql.analysis.source_catalogue import SourceWindow
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.analysis.window_planning import plan_window
from pessoa.ksql.functions.aggregates import ResolvedAggregate, aggregate_functions
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Call, Column, Expression, Literal, walk
from pessoa.ksql.syntax.expression_rewrites import rewrite
from pessoa.ksql.syntax.expression_text import expression_text
from pessoa.ksql.syntax.query_nodes import Emit, WindowKind
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import SqlType

_VARIABLE = "KSQL_AGG_VARIABLE_"


def plan_aggregation(draft: QueryDraft) -> QueryDraft:
    calls = _aggregate_calls(draft)
    if not draft.group_by:
        _check_ungrouped(draft, calls)
        return draft
    if not calls:
        raise SemanticFailure(
            "GROUP BY requires aggregate functions in either the SELECT or HAVING clause.", draft.query.group_by[0].at
        )
    _check_emit(draft)
    keys = _keys(draft)
    aggregates = _aggregates(draft, calls)
    planned = None if draft.query.window is None else plan_window(draft.query.window, draft.query.emit)
    emit = draft.query.emit or Emit.CHANGES
    step = AggregateStep(draft.below, keys, aggregates, planned, emit)
    columns: dict[str, SqlType] = {name: typed.type for name, typed in (*keys, *aggregates)}
    if planned is not None:
        columns |= WINDOW_BOUNDS
    grouped = {typed.node: name for name, typed in keys}
    variables = {typed.node: name for name, typed in aggregates}
    items = tuple(_rewrite_item(item, "SELECT", draft, grouped, variables) for item in draft.items)
    parts = tuple(
        KeyPart((Column(name),), "grouping expression", (expression_text(typed.node),)) for name, typed in keys
    )
    window = None
    if planned is not None:
        window = SourceWindow(planned.kind, None if planned.kind is WindowKind.SESSION else planned.size_ms)
    draft = replace(
        draft, step=step, columns=columns, items=items, kind=SourceKind.TABLE, key=parts, window=window,
        planned_window=planned, generated={name: expression_text(typed.node) for name, typed in aggregates},
    )  # fmt: skip
    return draft if draft.having is None else _plan_having(draft, grouped, variables)


def _aggregate_calls(draft: QueryDraft) -> list[Call]:
    expressions = [*(item.expression for item in draft.items), *([] if draft.having is None else [draft.having])]
    found: dict[Call, None] = {}
    for expression in expressions:
        for one in walk(expression):
            if isinstance(one, Call) and one.name in aggregate_functions():
                inner = [other for part in one.arguments for other in walk(part)]
                nested = next((o for o in inner if isinstance(o, Call) and o.name in aggregate_functions()), None)
                if nested is not None:
                    raise SemanticFailure(
                        f"Aggregate functions can not be nested: {one.name}({nested.name}(…))", nested.at
                    )
                found.setdefault(one)
    return list(found)


def _check_ungrouped(draft: QueryDraft, calls: list[Call]) -> None:
    query = draft.query
    if calls:
        raise SemanticFailure(
            "Use of aggregate functions requires a GROUP BY clause. "
            f"Aggregate function(s): {', '.join(dict.fromkeys(call.name for call in calls))}",
            calls[0].at,
            hint="GROUP BY an expression.",
        )
    if query.window is not None:
        raise SemanticFailure("WINDOW clause requires a GROUP BY clause.", query.window.at)
    if query.having is not None:
        raise SemanticFailure("HAVING clause requires a GROUP BY clause.", query.having.at, hint="Write WHERE.")
    if query.emit is Emit.FINAL:
        raise SemanticFailure("EMIT FINAL is only supported for windowed aggregations.", query.at)


def _check_emit(draft: QueryDraft) -> None:
    query = draft.query
    if query.emit is Emit.FINAL and query.window is None:
        raise SemanticFailure("EMIT FINAL is only supported for windowed aggregations.", query.at)
    if query.window is not None and draft.kind is SourceKind.TABLE:
        raise SemanticFailure("WINDOW clause is only supported on streams.", query.window.at)
    if query.window is not None and draft.window is not None:
        raise SemanticFailure("WINDOW clause is not supported on a source that is windowed already.", query.window.at)


def _keys(draft: QueryDraft) -> tuple[tuple[str, Typed], ...]:
    """Return the group's expressions with the names that they get, in the order of GROUP BY."""
    scope = ColumnScope(draft.columns, "GROUP BY")
    found: list[tuple[str, Typed]] = []
    for written, expression in zip(draft.query.group_by, draft.group_by, strict=True):
        refuse_calls(expression, "GROUP BY")
        if draft.query.window is not None and (bound := uses_window_bounds(expression)) is not None:
            raise window_bound_misplaced(bound)
        if isinstance(expression, Literal):
            raise SemanticFailure(f"Cannot GROUP BY constant: {expression_text(written)}", written.at)
        if any(expression == typed.node for _, typed in found):
            raise SemanticFailure(f"Duplicate GROUP BY expression: {expression_text(written)}", written.at)
        typed = type_expression(expression, scope)
        if has_map(typed.type):
            raise SemanticFailure(f"GROUP BY on a MAP is not supported: {expression_text(written)}", written.at)
        named = [item.name for item in draft.items if item.expression == expression]
        name = named[0] if named else f"KSQL_GROUP_{len(found)}"
        found.append((name, typed))
    return tuple(found)


def _aggregates(draft: QueryDraft, calls: list[Call]) -> tuple[tuple[str, Typed], ...]:
    scope = ColumnScope(draft.columns)
    found: list[tuple[str, Typed]] = []
    for call in calls:
        if draft.query.window is not None and (bound := uses_window_bounds(call)) is not None:
            raise window_bound_misplaced(bound)
        plain = replace(call, star=False) if call.star else call
        found.append((f"{_VARIABLE}{len(found)}", replace(type_expression(plain, scope), node=call)))
    if draft.kind is SourceKind.TABLE:
        stuck = [typed.call.name for _, typed in found
                 if isinstance(typed.call, ResolvedAggregate) and not typed.call.can_undo]  # fmt: skip
        if stuck:
            raise SemanticFailure(
                f"The aggregation function(s) ({', '.join(dict.fromkeys(stuck))}) cannot be applied to a table source, "
                "only to a stream source.",
                calls[0].at,
            )
    return tuple(found)


def _rewrite_item(
    item: Item, clause: str, draft: QueryDraft, grouped: dict[Expression, str], variables: dict[Expression, str]
) -> Item:
    expression = _rewrite_expression(item.expression, clause, draft, grouped, variables)
    return Item(item.name, expression, item.aliased, item.at)


def _rewrite_expression(
    expression: Expression,
    clause: str,
    draft: QueryDraft,
    grouped: dict[Expression, str],
    variables: dict[Expression, str],
) -> Expression:
    """Return the expression over the columns that the aggregation gives. Raises SemanticFailure if it uses another
    column of the input."""

    def change(node: Expression, bound: frozenset[str]) -> Expression | None:
        name = grouped.get(node) or variables.get(node)
        if name is not None:
            return Column(name, at=node.at)
        if not isinstance(node, Column) or node.name in bound:
            return None
        if clause == "SELECT" and node.name in WINDOW_BOUNDS and draft.query.window is not None:
            return node
        if node.name in WINDOW_BOUNDS and draft.query.window is not None:
            raise window_bound_misplaced(node)
        raise SemanticFailure(
            f"Non-aggregate {clause} expression(s) not part of GROUP BY: {node.name}",
            node.at,
            length=len(node.name),
            hint="Either add the column(s) to the GROUP BY or remove them.",
        )

    return rewrite(expression, change)


def _plan_having(draft: QueryDraft, grouped: dict[Expression, str], variables: dict[Expression, str]) -> QueryDraft:
    assert draft.having is not None
    having = _rewrite_expression(draft.having, "HAVING", draft, grouped, variables)
    condition = as_written(draft, "HAVING", lambda: clause_condition(having, "HAVING", draft))
    return replace(draft, step=FilterStep(draft.below, condition, "HAVING"))

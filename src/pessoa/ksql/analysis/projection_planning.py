"""Pass: the columns of the result: keys first, then values in the order of the projection."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pessoa.ksql.analysis.expression_scopes import ColumnScope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.logical_plan import ProjectStep
from pessoa.ksql.analysis.pseudo_columns import RESERVED_NAMES
from pessoa.ksql.analysis.query_draft import Item, KeyPart, QueryDraft
from pessoa.ksql.analysis.row_planning import as_written
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.types.sql_types import NULL_TYPE, quoted


def plan_projection(draft: QueryDraft) -> QueryDraft:
    if draft.persistent:
        _refuse_reserved(draft)
        keys = [_key_item(part, draft) for part in draft.key]
    else:
        keys = []
    values = [item for item in draft.items if not any(item is key for key in keys)]
    if draft.persistent and not values:
        raise SemanticFailure("The projection contains no value columns.", draft.query.at)
    _refuse_duplicates(keys, values)
    scope = ColumnScope(draft.columns)
    columns: list[tuple[str, Typed]] = []
    for item in [*keys, *values]:
        typed = as_written(draft, "", partial(type_expression, item.expression, scope))
        if typed.type == NULL_TYPE:
            raise SemanticFailure(
                f"the column {item.name} has no type: it is NULL", item.at, hint="Write CAST(NULL AS …)."
            )
        columns.append((item.name, typed))
    return replace(draft, step=ProjectStep(draft.below, tuple(columns), len(keys)))


def _refuse_reserved(draft: QueryDraft) -> None:
    for item in draft.items:
        if item.name in RESERVED_NAMES:
            raise SemanticFailure(
                f"Reserved column name in select: {quoted(item.name)}. Please remove or alias the column.", item.at
            )


def _key_item(part: KeyPart, draft: QueryDraft) -> Item:
    """Return the selected item that is this part of the key."""
    for choice in part.choices:
        found = [item for item in draft.items if item.expression == choice]
        if len(found) > 1:
            names = " and ".join(item.name for item in found)
            own = getattr(choice, "name", part.shown)
            raise SemanticFailure(
                f"The projection contains a key column ({quoted(own)}) more than once, aliased as: {names}.",
                found[1].at,
                hint="Copy the key with AS_VALUE(…).",
            )
        if found:
            return found[0]
    synthetic = draft.query.joins and part.names == (draft.synthetic_key,)
    raise SemanticFailure(
        f"Key missing from projection (ie, SELECT).\nThe query used to build {quoted(draft.sink_name or '')} must "
        f"include the {part.shown} in its projection (eg, SELECT {part.names[0]}...).",
        draft.query.at,
        length=len("SELECT"),
        hint=f"{part.names[0]} is a key that no source column is; it may be aliased." if synthetic else "",
    )


def _refuse_duplicates(keys: list[Item], values: list[Item]) -> None:
    seen: set[str] = set()
    for item in [*keys, *values]:
        if item.name in seen:
            raise SemanticFailure(
                f"Duplicate value columns found in schema: {quoted(item.name)}", item.at, hint="Give an alias with AS."
            )
        seen.add(item.name)

"""A query becomes a logical plan: the row of passes.

Each pass takes the draft of the one before it and adds its part, or raises SemanticFailure; they can be run one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from pessoa.ksql.analysis.aggregate_planning import plan_aggregation
from pessoa.ksql.analysis.format_rules import check_columns
from pessoa.ksql.analysis.join_planning import plan_joins
from pessoa.ksql.analysis.logical_plan import LogicalPlan, ProjectStep
from pessoa.ksql.analysis.name_resolution import resolve_names
from pessoa.ksql.analysis.projection_planning import plan_projection
from pessoa.ksql.analysis.query_draft import QueryDraft
from pessoa.ksql.analysis.row_planning import plan_filter, plan_partitioning, plan_table_functions
from pessoa.ksql.analysis.source_binding import bind_sources
from pessoa.ksql.analysis.source_catalogue import Catalogue, SchemaColumn
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.query_nodes import Query

DEFAULT_KEY_FORMAT = "KAFKA"

PASSES: tuple[Callable[[QueryDraft], QueryDraft], ...] = (
    bind_sources,
    resolve_names,
    plan_joins,
    plan_filter,
    plan_table_functions,
    plan_partitioning,
    plan_aggregation,
    plan_projection,
)


def draft_query(query: Query, catalogue: Catalogue, sink_name: str | None) -> QueryDraft:
    """Return the draft after the last pass."""
    draft = QueryDraft(query, catalogue, sink_name)
    for one in PASSES:
        draft = one(draft)
    return draft


def plan_query(
    query: Query,
    catalogue: Catalogue,
    sink_name: str | None = None,
    key_format: str | None = None,
    value_format: str | None = None,
    *,
    check_formats: bool = True,
) -> LogicalPlan:
    """Return the plan of a query. With a sink it is persistent: its key must be selected, and its formats must
    support its columns."""
    draft = draft_query(query, catalogue, sink_name)
    step = draft.below
    assert isinstance(step, ProjectStep)
    columns = tuple(SchemaColumn(name, typed.type) for name, typed in step.columns)
    key, value = columns[: step.key_count], columns[step.key_count :]
    left = draft.left.source
    chosen_key = _key_format(draft, key, key_format)
    chosen_value = value_format or left.value_format
    if draft.persistent and check_formats:
        check_columns(chosen_key, key, "Key", query.at)
        check_columns(chosen_value, value, "Value", query.at)
    return LogicalPlan(
        step, draft.kind, key, value, chosen_key, chosen_value, draft.window, query.emit, query.limit,
        warnings=draft.warnings,
    )  # fmt: skip


def _key_format(draft: QueryDraft, key: tuple[SchemaColumn, ...], given: str | None) -> str:
    """Return the key's format: the left source's, the default if that had no key, NONE if the result has none."""
    if draft.keyless:
        if given is not None and given != "NONE":
            raise SemanticFailure("Key format specified for stream without key columns.", draft.query.at)
        return "NONE"
    if given is not None:
        return given
    own = draft.left.source.key_format
    return DEFAULT_KEY_FORMAT if own == "NONE" and key else own

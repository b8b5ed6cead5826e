"""SELECT by itself: a push query (EMIT), which continues with new records, or a pull query of the present rows.

A query without EMIT that cannot be a pull query is what 5.x knew: it is run as a push query, with a warning.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.analysis.query_analysis import plan_query
from pessoa.ksql.analysis.source_catalogue import Catalogue
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.query_nodes import Emit, Query
from pessoa.ksql.syntax.statement_nodes import SourceKind


class QueryMode(Enum):
    PUSH = "push"
    PULL = "pull"


def plan_select(query: Query, catalogue: Catalogue) -> tuple[LogicalPlan, QueryMode, tuple[str, ...]]:
    """Return the plan, the mode and warnings."""
    if query.limit is not None and query.limit < 0:
        raise SemanticFailure("LIMIT must not be negative", query.at)
    if query.emit is not None:
        plan = plan_query(query, catalogue)
        return plan, QueryMode.PUSH, plan.warnings
    reason = _pull_problem(query, catalogue)
    if not reason:
        plan = plan_query(query, catalogue)
        return plan, QueryMode.PULL, plan.warnings
    plan = replace(plan_query(query, catalogue), emit=Emit.CHANGES)
    warning = f"Without EMIT this would be a pull query, but {reason}. It is run as a push query: write EMIT CHANGES."
    return plan, QueryMode.PUSH, (*plan.warnings, warning)


def _pull_problem(query: Query, catalogue: Catalogue) -> str:
    """Return why a query cannot be a pull query; "" if it can."""
    clauses = (
        ("JOIN", query.joins),
        ("WINDOW", query.window),
        ("GROUP BY", query.group_by),
        ("PARTITION BY", query.partition_by),
        ("HAVING", query.having),
    )
    for word, clause in clauses:
        if clause:
            return f"pull queries don't support {word} clauses"
    source = catalogue.find(query.source.name, query.source.at)
    if source.kind is SourceKind.TABLE and not source.materialised:
        return f"the table {source.name} is not materialised"
    return ""

"""Statements to decisions: what a server has to do, checked against the catalogue.

`analyse` changes nothing: it returns a `Decision`, whose `catalogue` is the image afterwards. Statements that only show
or steer have nothing to check here and come back as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pessoa.ksql.analysis.alteration_analysis import alter_source, drop_source, replace_source
from pessoa.ksql.analysis.definition_analysis import define_source
from pessoa.ksql.analysis.insert_analysis import PlannedInsert, plan_insert_values
from pessoa.ksql.analysis.logical_plan import LogicalPlan, explain_text
from pessoa.ksql.analysis.query_kinds import QueryMode, plan_select
from pessoa.ksql.analysis.sink_analysis import plan_create_as, plan_insert_select
from pessoa.ksql.analysis.source_catalogue import Catalogue, Source
from pessoa.ksql.ksql_errors import KsqlError, SemanticFailure
from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.parser import ParsedStatement
from pessoa.ksql.syntax.statement_nodes import Statement


@dataclass(frozen=True)
class Defaults:
    """The server's settings that change what statements mean."""

    # ksql.persistence.default.format.value
    value_format: str | None = None
    # ksql.output.topic.name.prefix
    topic_prefix: str = ""


@dataclass(frozen=True)
class Decision:
    statement: Statement
    catalogue: Catalogue
    # What is created, altered or dropped.
    source: Source | None = None
    plan: LogicalPlan | None = None
    insert: PlannedInsert | None = None
    mode: QueryMode | None = None
    query_id: str | None = None
    # For people: why nothing is done (IF NOT EXISTS), or EXPLAIN's text.
    message: str = ""
    warnings: tuple[str, ...] = ()


def analyse(parsed: ParsedStatement, catalogue: Catalogue, defaults: Defaults | None = None) -> Decision:
    """Return the decision about the statement. Raises SemanticFailure with a caret under the statement's own text."""
    try:
        decision = _decide(parsed.statement, catalogue, defaults or Defaults())
    except KsqlError as error:
        raise error.with_text(parsed.source_text) from None
    if decision.source is not None:
        decision = replace(decision, source=replace(decision.source, statement=parsed.text))
        if decision.source is not None and decision.source.name in decision.catalogue.sources:
            decision = replace(decision, catalogue=decision.catalogue.with_source(decision.source))
    return replace(decision, warnings=(*parsed.warnings, *decision.warnings))


def _decide(statement: Statement, catalogue: Catalogue, defaults: Defaults) -> Decision:
    match statement:
        case nodes.CreateSource() | nodes.CreateAsSelect():
            return _create(statement, catalogue, defaults)
        case nodes.InsertSelect():
            plan, query_id = plan_insert_select(statement, catalogue)
            return Decision(statement, catalogue, plan=plan, query_id=query_id, warnings=plan.warnings)
        case nodes.InsertValues():
            return Decision(statement, catalogue, insert=plan_insert_values(statement, catalogue))
        case nodes.QueryStatement(query):
            plan, mode, warnings = plan_select(query, catalogue)
            return Decision(statement, catalogue, plan=plan, mode=mode, warnings=warnings)
        case nodes.Explain(subject) if not isinstance(subject, str):
            inner = _decide(subject, catalogue, defaults)
            if inner.plan is None:
                raise SemanticFailure("EXPLAIN explains queries, and this statement has none", statement.at)
            return replace(
                inner, statement=statement, catalogue=catalogue, message=explain_text(inner.plan), source=None
            )
        case nodes.AlterSource():
            source = alter_source(statement, catalogue)
            return Decision(statement, catalogue.with_source(source), source)
        case nodes.DropSource():
            return _drop(statement, catalogue)
        case nodes.CreateType() | nodes.DropType():
            return _change_type(statement, catalogue)
        case nodes.DescribeSource(name):
            return Decision(statement, catalogue, catalogue.find(name, statement.at))
    return Decision(statement, catalogue)


def _create(statement: nodes.CreateSource | nodes.CreateAsSelect, catalogue: Catalogue, defaults: Defaults) -> Decision:
    old = catalogue.sources.get(statement.name)
    if old is not None and not statement.or_replace:
        kind = statement.kind.value.lower()
        was = old.kind.value.lower()
        message = f"Cannot add {kind} '{statement.name}': A {was} with the same name already exists"
        if statement.if_not_exists:
            return Decision(statement, catalogue, message=message, warnings=(message,))
        raise SemanticFailure(message, statement.at, hint="CREATE OR REPLACE changes it, IF NOT EXISTS leaves it.")
    if isinstance(statement, nodes.CreateSource):
        source, warnings = define_source(statement, catalogue, defaults.value_format)
        plan = None
    else:
        plan = plan_create_as(statement, catalogue, defaults.topic_prefix)
        assert plan.sink is not None
        source, warnings = plan.sink, list(plan.warnings)
    if old is not None:
        replace_source(old, source, statement.at)
    return Decision(statement, catalogue.with_source(source), source, plan, warnings=tuple(warnings))


def _drop(statement: nodes.DropSource, catalogue: Catalogue) -> Decision:
    if statement.name not in catalogue.sources and statement.if_exists:
        message = f"Source {statement.name} does not exist."
        return Decision(statement, catalogue, message=message, warnings=(message,))
    source = drop_source(statement, catalogue)
    return Decision(statement, catalogue.without_source(source.name), source)


def _change_type(statement: nodes.CreateType | nodes.DropType, catalogue: Catalogue) -> Decision:
    known = statement.name in catalogue.types
    if isinstance(statement, nodes.CreateType):
        if known:
            message = (
                f"Cannot register custom type '{statement.name}' since it is already registered with type: "
                + str(catalogue.types[statement.name])
            )
            if statement.if_not_exists:
                return Decision(statement, catalogue, message=message, warnings=(message,))
            raise SemanticFailure(message, statement.at)
        kind = catalogue.resolve_type(statement.type, statement.at)
        message = f"Registered custom type with name '{statement.name}' and SQL type {kind}"
        return Decision(statement, catalogue.with_type(statement.name, kind), message=message)
    if not known and not statement.if_exists:
        raise SemanticFailure(f"Type {statement.name} does not exist.", statement.at)
    types = {name: kind for name, kind in catalogue.types.items() if name != statement.name}
    message = f"Dropped type '{statement.name}'" if known else f"Type '{statement.name}' does not exist"
    return Decision(statement, replace(catalogue, types=types), message=message)

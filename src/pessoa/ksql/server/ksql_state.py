"""The state that all commands together make: streams, tables, types and persistent queries, as an image.

`apply_command` takes the image and a command and returns the next image and what to tell the client; it is the only way
to change it, on the live path (`statement_execution.py` tries a command on it before it is written) and on load alike.
Servers that read one command topic have the same image at every offset.

The offset of a command is the number in the id of its query: CSAS_PAGEVIEWS_7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pessoa.ksql.analysis.analyser import Decision, Defaults, analyse
from pessoa.ksql.analysis.logical_plan import AggregateStep, JoinStep, LogicalPlan, ReadSource, RekeyStep, Step
from pessoa.ksql.analysis.source_catalogue import Catalogue, Source
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.query_runner import PersistentQuery
from pessoa.ksql.server.commands import Command
from pessoa.ksql.server.server_config import check_query_property, query_property_name
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.parser import parse_statement
from pessoa.ksql.syntax.statement_nodes import QueryAction, SourceKind


@dataclass(frozen=True)
class KsqlState:
    catalogue: Catalogue = field(default_factory=Catalogue)
    queries: Mapping[str, PersistentQuery] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    # The properties of ALTER SYSTEM: they apply to queries that do not set them, also to those that run already.
    system: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Applied:
    """The image after a command, and the command's effects."""

    state: KsqlState
    message: str
    query_id: str | None = None
    source: Source | None = None
    warnings: tuple[str, ...] = ()
    # False: IF NOT EXISTS or IF EXISTS left all as it was.
    changed: bool = True


def apply_command(state: KsqlState, command: Command, offset: int, defaults: Defaults | None = None) -> Applied:
    """Return the image after the command, and the command's effects. Raises KsqlError if it cannot be executed."""
    decision = analyse(parse_statement(command.statement), state.catalogue, defaults)
    match decision.statement:
        case nodes.CreateSource() | nodes.CreateAsSelect():
            return _create(state, command, decision, offset)
        case nodes.InsertSelect():
            return _insert(state, command, decision, offset)
        case nodes.AlterSource(kind):
            assert decision.source is not None
            statement = state.catalogue.sources[decision.source.name].statement
            altered = replace(decision.source, statement=statement)
            changed = replace(state, catalogue=decision.catalogue.with_source(altered))
            return Applied(changed, f"{kind.value.capitalize()} {altered.name} altered successfully.", source=altered)
        case nodes.DropSource():
            return _drop(state, decision)
        case nodes.CreateType() | nodes.DropType():
            same = decision.catalogue is state.catalogue
            changed = replace(state, catalogue=decision.catalogue)
            return Applied(changed, decision.message, warnings=decision.warnings, changed=not same)
        case nodes.ControlQuery(action, query_id):
            return _control(state, action, query_id)
        case nodes.AlterSystem(name, value):
            if wrong := check_query_property(name, value):
                raise SemanticFailure(wrong, decision.statement.at, hint="SHOW PROPERTIES; lists those that there are.")
            changed = replace(state, system={**state.system, query_property_name(name) or name: value})
            return Applied(changed, f"System property {name} was set to {value}.")
    raise SemanticFailure("This statement cannot stand in a command topic.")


def sources_of(step: Step) -> Iterator[Source]:
    """Yield the sources that a plan reads, the left-most first."""
    match step:
        case ReadSource(source):
            yield source
        case JoinStep():
            yield from sources_of(step.left)
            yield from sources_of(step.right)
        case _:
            yield from sources_of(step.below)


def _create(state: KsqlState, command: Command, decision: Decision, offset: int) -> Applied:
    source, statement = decision.source, decision.statement
    assert isinstance(statement, (nodes.CreateSource, nodes.CreateAsSelect))
    if source is None:
        return Applied(state, decision.message, warnings=decision.warnings, changed=False)
    source = replace(
        source, partitions=source.partitions or command.partitions, replicas=source.replicas or command.replicas
    )
    warnings = decision.warnings
    if decision.plan is None:
        old = state.catalogue.sources.get(source.name)
        if old is not None and old.query_id is not None:
            raise SemanticFailure(
                f"Cannot upgrade data source: {source.name} is written by the query {old.query_id}.", statement.at
            )
        message = f"{source.kind.value.capitalize()} created"
        catalogue = decision.catalogue.with_source(source)
        return Applied(replace(state, catalogue=catalogue), message, source=source, warnings=warnings)
    old = state.catalogue.sources.get(source.name)
    if old is not None:
        query_id = _upgraded_query_id(state, old, decision.plan, statement)
        state = _without_query(state, query_id)
    else:
        prefix = "CSAS" if source.kind is SourceKind.STREAM else "CTAS"
        query_id = f"{prefix}_{source.name}_{offset}"
    source = replace(source, query_id=query_id)
    catalogue = state.catalogue.with_source(source)
    plan = replace(decision.plan, sink=source)
    for name in dict.fromkeys(one.name for one in sources_of(plan.root)):
        catalogue = replace(catalogue, derived=_add_to(catalogue.derived, name, source.name))
    query = PersistentQuery(query_id, command.statement, plan, dict(command.streams_properties))
    state = _with_query(replace(state, catalogue=catalogue), query)
    return Applied(state, f"Created query with ID {query_id}", query_id, source, warnings)


def _upgraded_query_id(
    state: KsqlState, old: Source, plan: LogicalPlan, statement: nodes.CreateSource | nodes.CreateAsSelect
) -> str:
    """Return the id of the query that CREATE OR REPLACE changes: filters and columns of simple queries may change."""
    before = state.queries.get(old.query_id or "")
    if before is None:
        raise SemanticFailure(
            f"Cannot upgrade data source: {old.name} was not made by a query.", statement.at,
            hint=f"DROP {old.kind.value} {old.name}; and create it again.",
        )  # fmt: skip
    for one in (before.plan, plan):
        for word, kind in (("joins", JoinStep), ("aggregations", AggregateStep)):
            if any(isinstance(step, kind) for step in _steps(one.root)):
                raise SemanticFailure(
                    f"Upgrades not yet supported for {word}", statement.at, hint=f"DROP {old.kind.value} {old.name};"
                )
    same = (
        ("source", [one.name for one in sources_of(before.plan.root)], [one.name for one in sources_of(plan.root)]),
        ("PARTITION BY", _rekeys(before.plan.root), _rekeys(plan.root)),
    )
    for what, had, has in same:
        if had != has:
            raise SemanticFailure(f"Query is not upgradeable. The {what} must stay the same.", statement.at)
    return before.id


def _steps(step: Step) -> Iterator[Step]:
    while True:
        yield step
        if isinstance(step, ReadSource):
            return
        step = step.left if isinstance(step, JoinStep) else step.below


def _rekeys(step: Step) -> list[str]:
    from pessoa.ksql.syntax.expression_text import expression_text

    return [expression_text(key.node) for one in _steps(step) if isinstance(one, RekeyStep) for _, key in one.keys]


def _insert(state: KsqlState, command: Command, decision: Decision, offset: int) -> Applied:
    assert decision.plan is not None
    query_id = (decision.query_id or f"INSERTQUERY_{offset}").upper()
    if query_id in state.queries:
        raise SemanticFailure(f"Query ID '{query_id}' already exists.", decision.statement.at)
    query = PersistentQuery(query_id, command.statement, decision.plan, dict(command.streams_properties))
    return Applied(_with_query(state, query), f"Created query with ID {query_id}", query_id, warnings=decision.warnings)


def _drop(state: KsqlState, decision: Decision) -> Applied:
    source = decision.source
    if source is None:
        return Applied(state, decision.message, warnings=decision.warnings, changed=False)
    own = source.query_id
    if own is not None and own in state.queries:
        state = _without_query(state, own)
    catalogue = state.catalogue.without_source(source.name)
    derived = {name: tuple(one for one in ones if one != source.name) for name, ones in catalogue.derived.items()}
    state = replace(state, catalogue=replace(catalogue, derived=derived))
    return Applied(state, f"Source `{source.name}` (topic: {source.topic}) was dropped.", own, source)


def _control(state: KsqlState, action: QueryAction, query_id: str | None) -> Applied:
    chosen = list(state.queries) if query_id is None else [_find_query(state, query_id)]
    words = {QueryAction.TERMINATE: "terminated", QueryAction.PAUSE: "paused", QueryAction.RESUME: "resumed"}
    for one in chosen:
        match action:
            case QueryAction.TERMINATE:
                state = _without_query(state, one)
            case QueryAction.PAUSE:
                state = replace(state, paused=state.paused | {one})
            case QueryAction.RESUME:
                state = replace(state, paused=state.paused - {one})
    return Applied(state, f"Query {words[action]}.", query_id)


def _find_query(state: KsqlState, query_id: str) -> str:
    found = next((one for one in state.queries if one.upper() == query_id.upper()), None)
    if found is None:
        raise SemanticFailure(
            f"Unknown queryId: {query_id}", hint=did_you_mean(query_id.upper(), state.queries) or "SHOW QUERIES;"
        )
    return found


def _with_query(state: KsqlState, query: PersistentQuery) -> KsqlState:
    catalogue = state.catalogue
    for name in dict.fromkeys(one.name for one in sources_of(query.plan.root)):
        catalogue = replace(catalogue, readers=_add_to(catalogue.readers, name, query.id))
    if query.plan.sink is not None:
        catalogue = replace(catalogue, writers=_add_to(catalogue.writers, query.plan.sink.name, query.id))
    return replace(state, catalogue=catalogue, queries={**state.queries, query.id: query})


def _without_query(state: KsqlState, query_id: str) -> KsqlState:
    catalogue = replace(
        state.catalogue,
        readers=_remove_from(state.catalogue.readers, query_id),
        writers=_remove_from(state.catalogue.writers, query_id),
    )
    queries = {name: query for name, query in state.queries.items() if name != query_id}
    return replace(state, catalogue=catalogue, queries=queries, paused=state.paused - {query_id})


def _add_to(table: Mapping[str, tuple[str, ...]], name: str, one: str) -> dict[str, tuple[str, ...]]:
    present = table.get(name, ())
    return {**table, name: present if one in present else (*present, one)}


def _remove_from(table: Mapping[str, tuple[str, ...]], removed: str) -> dict[str, tuple[str, ...]]:
    left = {name: tuple(one for one in ones if one != removed) for name, ones in table.items()}
    return {name: ones for name, ones in left.items() if ones}

"""SHOW, DESCRIBE and EXPLAIN: the state of the image, Kafka and the runner, as entities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.ksql.analysis.analyser import Defaults, analyse
from pessoa.ksql.analysis.logical_plan import explain_text
from pessoa.ksql.functions.aggregates import aggregate_functions
from pessoa.ksql.functions.function_table import known_names, scalar_functions
from pessoa.ksql.functions.table_functions import table_functions
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.query_runner import PersistentQuery, RunnerStatus
from pessoa.ksql.server import entities
from pessoa.ksql.server.entities import Entity, Json
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, KsqlProblem
from pessoa.ksql.server.server_config import QUERY_PROPERTIES
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.parser import ParsedStatement
from pessoa.ksql.syntax.statement_nodes import Shown, SourceKind, Statement

if TYPE_CHECKING:
    from pessoa.ksql.server.statement_execution import Engine
    from pessoa.ksql.server.statement_session import Session

_SECRET_WORDS = ("password", "secret", "jaas", "user.info", "token", "key.location", "ssl.key")


def show(engine: Engine, statement: Statement, text: str, session: Session) -> Entity:
    assert isinstance(statement, nodes.Show)
    catalogue = engine.commands.state.catalogue
    match statement.what:
        case Shown.STREAMS | Shown.TABLES:
            kind = SourceKind.STREAM if statement.what is Shown.STREAMS else SourceKind.TABLE
            if statement.extended:
                return describe_all(engine, nodes.DescribeAll(kind, extended=True), text)
            rows_of = entities.source_list(kind, catalogue)
            if kind is SourceKind.STREAM:
                return entities.entity("streams", text, streams=rows_of)
            return entities.entity("tables", text, tables=rows_of)
        case Shown.TOPICS:
            return _topics(engine, text, with_internal=statement.all, extended=statement.extended)
        case Shown.QUERIES:
            return _queries(engine, text, extended=statement.extended)
        case Shown.FUNCTIONS:
            return entities.entity("function_names", text, functions=list(function_list()))
        case Shown.PROPERTIES:
            return _properties(engine, text, session)
        case Shown.VARIABLES:
            rows: list[Json] = [{"name": name, "value": value} for name, value in sorted(session.variables.items())]
            return entities.entity("variables", text, variables=rows)
        case Shown.TYPES:
            return entities.entity("type_list", text, types=entities.type_list(catalogue.types))
        case Shown.CONNECTOR_PLUGINS:
            return engine.connectors.for_caller(session.authorization).plugins(text)


# Topics and queries.


def _topics(engine: Engine, text: str, *, with_internal: bool, extended: bool) -> Entity:
    found = [
        one
        for name, one in sorted(engine.clients.topics().items())
        if with_internal or not (name.startswith(("_confluent", "__")) or name == "_schemas")
    ]
    rows: list[Json] = [entities.topic_row(one) for one in found]
    if not extended:
        return entities.entity("kafka_topics", text, topics=rows)
    readers = engine.clients.readers_of([one.name for one in found])
    detailed: list[Json] = [
        {**entities.topic_row(one), "consumerCount": readers[one.name][0], "consumerGroupCount": readers[one.name][1]}
        for one in found
    ]
    return entities.entity("kafka_topics_extended", text, topics=detailed)


def _queries(engine: Engine, text: str, *, extended: bool) -> Entity:
    state = engine.commands.state
    if extended:
        described: list[Json] = [
            entities.query_description(one, engine.supervisor.status(one.id), explain_text(one.plan), ())
            for one in state.queries.values()
        ]
        return entities.entity("query_descriptions", text, queryDescriptions=described)
    rows: list[Json] = [entities.query_row(one, engine.supervisor.status(one.id)) for one in state.queries.values()]
    rows += [entities.push_query_row(query_id, sql) for query_id, sql in engine.push.listed()]
    return entities.entity("queries", text, queries=rows)


# Functions.


def function_list() -> list[dict[str, Json]]:
    """Return every function with its kind and category."""
    rows: list[dict[str, Json]] = [
        {"name": one.name, "type": "SCALAR", "category": one.category} for one in scalar_functions().values()
    ]
    rows += [{"name": name, "type": "AGGREGATE", "category": "AGGREGATE"} for name in aggregate_functions()]
    rows += [{"name": name, "type": "TABLE", "category": "TABLE"} for name in table_functions()]
    return sorted(rows, key=lambda one: str(one["name"]))


def describe_function(statement: Statement, text: str) -> Entity:
    assert isinstance(statement, nodes.DescribeFunction)
    name = statement.name.upper()
    scalar, aggregate = scalar_functions().get(name), aggregate_functions().get(name)
    table = table_functions().get(name)
    kind, found = ("SCALAR", scalar) if scalar else ("AGGREGATE", aggregate) if aggregate else ("TABLE", table)
    if found is None:
        raise SemanticFailure(
            f"Can't find any functions with the name '{name}'", statement.at, hint=did_you_mean(name, known_names())
        )
    variants: list[Json] = [
        {"arguments": [], "signature": f"{name}{one.signature}", "returnType": "", "description": ""}
        for one in getattr(found, "variants", ())
    ]  # fmt: skip
    return entities.entity(
        "describe_function", text, name=name, description=found.doc, author="Pessoa", version="",
        path="internal", functions=variants, type=kind,
    )  # fmt: skip


# Properties.


def _properties(engine: Engine, text: str, session: Session) -> Entity:
    rows: list[Json] = []
    settings = engine.config.settings
    system = engine.commands.state.system
    for name in sorted({*QUERY_PROPERTIES, *settings}):
        if name.startswith(("ssl.", "sasl.", "listeners.")) or any(word in name for word in _SECRET_WORDS):
            # A user who may see a statement's properties need not be allowed to see the server's keys.
            continue
        long = f"ksql.streams.{name}" if name in QUERY_PROPERTIES and not name.startswith("ksql.") else name
        if long != name and long in settings:
            continue
        value = system.get(name) or settings.get(long) or settings.get(name) or QUERY_PROPERTIES.get(name, "")
        short = long.removeprefix("ksql.streams.")
        scope = "KAFKA_STREAMS" if long.startswith("ksql.streams.") else "KSQL"
        rows.append({"name": long, "scope": scope, "value": session.properties.get(short, value),
                     "editable": short in QUERY_PROPERTIES, "level": "QUERY"})  # fmt: skip
    return entities.entity(
        "properties", text, properties=rows, overwrittenProperties=sorted(session.properties), defaultProperties=[]
    )


# DESCRIBE and EXPLAIN.


def describe_source(engine: Engine, statement: Statement, text: str) -> Entity:
    assert isinstance(statement, nodes.DescribeSource)
    state = engine.commands.state
    try:
        source = state.catalogue.find(statement.name, statement.at)
    except SemanticFailure as missing:
        message = f"Could not find STREAM/TABLE '{statement.name}' in the Metastore"
        raise KsqlProblem(BAD_STATEMENT, f"{message}\n{missing.hint}".rstrip(), text) from None
    described = _describe_source(engine, source.name, extended=statement.extended)
    return entities.entity("sourceDescription", text, sourceDescription=described)


def describe_all(engine: Engine, statement: Statement, text: str) -> Entity:
    assert isinstance(statement, nodes.DescribeAll)
    names = [one.name for one in engine.commands.state.catalogue.sources.values() if one.kind is statement.kind]
    described: list[Json] = [_describe_source(engine, name, extended=statement.extended) for name in sorted(names)]
    return entities.entity("source_descriptions", text, sourceDescriptions=described)


def _describe_source(engine: Engine, name: str, *, extended: bool) -> dict[str, Json]:
    state = engine.commands.state
    source = state.catalogue.sources[name]
    statuses = {one: engine.supervisor.status(one) for one in state.queries}
    topic = engine.clients.topic(source.topic) if extended else None
    return entities.source_description(source, state.catalogue, state.queries, statuses, topic, extended=extended)


def explain(engine: Engine, parsed: ParsedStatement, session: Session) -> Entity:
    statement = parsed.statement
    assert isinstance(statement, nodes.Explain)
    state = engine.commands.state
    if isinstance(statement.subject, str):
        wanted = statement.subject.upper()
        query = next((one for one in state.queries.values() if one.id.upper() == wanted), None)
        if query is None:
            hint = did_you_mean(wanted, state.queries) or "SHOW QUERIES;"
            raise KsqlProblem(BAD_STATEMENT, f"Query with id:{wanted} does not exist, use SHOW QUERIES\n{hint}",
                              parsed.text)  # fmt: skip
        status = engine.supervisor.status(query.id)
    else:
        decision = analyse(parsed, state.catalogue, Defaults(engine.config.value_format, engine.config.topic_prefix))
        assert decision.plan is not None
        query = PersistentQuery("", parsed.text, decision.plan, dict(session.properties))
        status = RunnerStatus("STARTING")
    if query.plan.sink is not None:
        lines = engine.supervisor.explain(query.plan)
    else:
        lines = ["It runs in the server itself: no Spark."]
    described = entities.query_description(query, status, explain_text(query.plan), lines)
    return entities.entity("queryDescription", parsed.text, queryDescription=described)

"""One statement of `POST /ksql`, from its tree to its entity.

A statement that changes something goes through these steps; each may refuse it, and only the last changes the image:

    columns from the registry → try it on the image → its topic (checked or created) → its schemas (registered)
    → append to the command topic → replayed

The others only look (`statement_shows.py`), or speak to Kafka, Connect and the registry.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pessoa.client.topic_creation import TopicSpec
from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.server import entities, ksql_problems
from pessoa.ksql.server.assertions import assert_schema, assert_topic
from pessoa.ksql.server.command_log import CommandLog
from pessoa.ksql.server.commands import Command, command_id
from pessoa.ksql.server.connector_statements import Connectors
from pessoa.ksql.server.entities import Entity
from pessoa.ksql.server.insert_values import Inserter
from pessoa.ksql.server.kafka_clients import KafkaClients, KafkaRefused, TopicFacts
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, KsqlProblem
from pessoa.ksql.server.ksql_state import Applied
from pessoa.ksql.server.query_supervisor import QuerySupervisor
from pessoa.ksql.server.registry_access import ServerSchemas, with_inferred_columns
from pessoa.ksql.server.server_config import KsqlConfig
from pessoa.ksql.server.statement_session import Session
from pessoa.ksql.server.statement_shows import describe_all, describe_function, describe_source, explain, show
from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.parser import ParsedStatement, parse_statements
from pessoa.ksql.syntax.statement_nodes import SourceKind, Statement
from pessoa.ksql.syntax.statement_text import statement_text

if TYPE_CHECKING:
    from pessoa.ksql.server.push_queries import PushQueries

log = logging.getLogger("pessoa.ksql")

# How long DROP … DELETE TOPIC waits for the query that writes the topic to end.
_SETTLE_S = 30.0


@dataclass
class Engine:
    """The components of a server that statements use."""

    config: KsqlConfig
    clients: KafkaClients
    commands: CommandLog
    supervisor: QuerySupervisor
    schemas: ServerSchemas
    connectors: Connectors
    inserter: Inserter
    push: PushQueries
    executing: threading.Lock = field(default_factory=threading.Lock)


class StatementExecution:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def execute(self, text: str, session: Session) -> list[Entity]:
        """Run all statements of a text, in order, and return their entities. A KsqlProblem that is raised contains
        the entities of the statements before it."""
        parsed = self.parse(text, session)
        done: list[Entity] = []
        for one in parsed:
            try:
                found = self._execute_one(one, session)
            except KsqlProblem as problem:
                problem.entities = tuple(done)
                raise
            except KsqlError as wrong:
                raise KsqlProblem(BAD_STATEMENT, str(wrong.with_text(one.source_text)), one.text, tuple(done)) from None
            except KafkaRefused as refused:
                raise KsqlProblem(_code_of(refused), str(refused), one.text, tuple(done)) from None
            if found is not None:
                done.append(found)
        return done

    def parse(self, text: str, session: Session) -> list[ParsedStatement]:
        """Return the statements of a text. Raises KsqlProblem if one cannot be parsed, or there are none."""
        variables = session.variables if self._engine.config.substitutes else {}
        try:
            found = parse_statements(text, variables)
        except KsqlError as wrong:
            raise KsqlProblem(BAD_STATEMENT, str(wrong), text) from None
        if not found:
            raise KsqlProblem(ksql_problems.BAD_REQUEST, "No statements to execute")
        return found

    def _execute_one(self, parsed: ParsedStatement, session: Session) -> Entity | None:
        statement = parsed.statement
        engine = self._engine
        match statement:
            case nodes.QueryStatement() | nodes.PrintTopic():
                raise KsqlProblem(
                    ksql_problems.QUERY_ENDPOINT,
                    "The following statement types should be issued to the websocket endpoint '/query':\n"
                    "\t* PRINT\n\t* SELECT",
                    parsed.text,
                )
            case nodes.SetProperty(name, value):
                session.set(name, value, parsed.text)
                return None
            case nodes.UnsetProperty(name):
                session.unset(name)
                return None
            case nodes.DefineVariable(name, value):
                session.variables[name.upper()] = value
                return None
            case nodes.UndefineVariable(name):
                session.variables.pop(name.upper(), None)
                return None
            case nodes.InsertValues():
                engine.inserter.insert(parsed, engine.commands.state.catalogue)
                return None
            case nodes.RunScript() | nodes.AssertValues() | nodes.AssertSource():
                raise KsqlProblem(
                    BAD_STATEMENT, "This statement works in the ksql command line and in test files only.", parsed.text
                )
        if command_id(statement) is not None:
            return self._run_command(parsed, session)
        return self._execute_without_command(parsed, statement, session)

    def _execute_without_command(
        self, parsed: ParsedStatement, statement: Statement, session: Session
    ) -> Entity | None:
        engine, text = self._engine, parsed.text
        handlers: dict[type, Callable[[], Entity]] = {
            nodes.Show: lambda: show(engine, statement, text, session),
            nodes.DescribeSource: lambda: describe_source(engine, statement, text),
            nodes.DescribeAll: lambda: describe_all(engine, statement, text),
            nodes.DescribeFunction: lambda: describe_function(statement, text),
            nodes.Explain: lambda: explain(engine, parsed, session),
            nodes.AssertTopic: lambda: assert_topic(engine.clients, statement, text),
            nodes.AssertSchema: lambda: assert_schema(engine.schemas, statement, text),
        }
        found = handlers.get(type(statement))
        entity = found() if found is not None else self._connectors(session).execute(statement, text)
        if parsed.warnings:
            entity["warnings"] = [*_as_list(entity.get("warnings")), *({"message": one} for one in parsed.warnings)]
        return entity

    def _connectors(self, session: Session) -> Connectors:
        return self._engine.connectors.for_caller(session.authorization)

    # What changes something.

    def _run_command(self, parsed: ParsedStatement, session: Session) -> Entity:
        engine = self._engine
        with engine.executing:
            statement = with_inferred_columns(parsed.statement, engine.schemas, self._default_format(session))
            is_changed = statement is not parsed.statement or "${" in parsed.text
            text = statement_text(statement) if is_changed else parsed.text
            command = Command(text, dict(session.properties))
            tried = engine.commands.try_command(command)
            if not tried.changed:
                return entities.entity("warning_entity", parsed.text, message=tried.message)
            self._check_limits(tried, parsed)
            facts = self._prepare_topic(statement, tried, parsed.text)
            if facts is not None:
                command = Command(text, dict(session.properties), 1, facts.partitions, facts.replicas[0])
                # Joins look at partitions, which are known only now.
                tried = engine.commands.try_command(command)
            self._register(statement, tried)
            key = command_id(statement)
            assert key is not None
            outcome = engine.commands.append(key, command)
        if outcome.applied is None:
            raise KsqlProblem(BAD_STATEMENT, outcome.message, parsed.text)
        self._clean_up(statement, outcome.applied)
        warnings = (*parsed.warnings, *outcome.applied.warnings)
        return entities.current_status(parsed.text, str(key), outcome, dict.fromkeys(warnings))

    def _default_format(self, session: Session) -> str | None:
        return session.properties.get("ksql.persistence.default.format.value") or self._engine.config.value_format

    def _check_limits(self, tried: Applied, parsed: ParsedStatement) -> None:
        limit = self._engine.config.max_persistent
        if len(tried.state.queries) > max(limit, len(self._engine.commands.state.queries)):
            raise KsqlProblem(
                BAD_STATEMENT,
                f"Not executing statement(s) as it would cause the number of active, persistent queries to exceed the "
                f"configured limit of {limit} (ksql.query.persistent.active.limit). Terminate some of them first.",
                parsed.text,
            )

    def _prepare_topic(self, statement: Statement, tried: Applied, text: str) -> TopicFacts | None:
        """Return the topic of a new source. If it does not exist, it is created for CREATE … AS SELECT, and where
        PARTITIONS is given."""
        source = tried.source
        if source is None or not isinstance(statement, (nodes.CreateSource, nodes.CreateAsSelect)):
            return None
        clients = self._engine.clients
        found = clients.topic(source.topic)
        is_query = isinstance(statement, nodes.CreateAsSelect)
        if found is not None:
            _check_topic(found, statement, text)
            return found
        if not is_query and not _property_number(statement, "PARTITIONS"):
            raise KsqlProblem(
                BAD_STATEMENT,
                f"Kafka topic does not exist: {source.topic}\n"
                "With PARTITIONS=1 in the WITH clause it would be created.",
                text,
            )
        spec = TopicSpec(source.topic, source.partitions or 1, source.replicas or -1, _topic_config(statement, source))
        return clients.create_topic(spec)

    def _register(self, statement: Statement, tried: Applied) -> None:
        if tried.source is not None and isinstance(statement, (nodes.CreateSource, nodes.CreateAsSelect)):
            self._engine.schemas.register_source(tried.source)

    def _clean_up(self, statement: Statement, applied: Applied) -> None:
        if isinstance(statement, nodes.DropSource) and statement.delete_topic and applied.source is not None:
            self._engine.supervisor.wait_until_settled(_SETTLE_S)
            self._engine.clients.delete_topic(applied.source.topic)
            self._engine.schemas.delete_source(applied.source)


def _code_of(refused: KafkaRefused) -> int:
    return ksql_problems.FORBIDDEN_KAFKA if refused.is_denied else ksql_problems.SERVER_ERROR


def _as_list(value: entities.Json) -> list[entities.Json]:
    return list(value) if isinstance(value, list) else []


def _property_number(statement: nodes.CreateSource | nodes.CreateAsSelect, name: str) -> int | None:
    found = next((one.value.value for one in statement.properties if one.name.upper() == name), None)
    return None if found is None else int(str(found))


def _check_topic(found: TopicFacts, statement: nodes.CreateSource | nodes.CreateAsSelect, text: str) -> None:
    partitions, replicas = _property_number(statement, "PARTITIONS"), _property_number(statement, "REPLICAS")
    if (partitions or found.partitions) != found.partitions or (
        replicas is not None and replicas > 0 and replicas != found.replicas[0]
    ):
        raise KsqlProblem(
            BAD_STATEMENT,
            f"A Kafka topic with the name '{found.name}' already exists, with different partition/replica "
            f"configuration than required. KSQL expects {partitions or found.partitions} partitions (topic has "
            f"{found.partitions}), and {replicas or found.replicas[0]} replication factor (topic has "
            f"{found.replicas[0]}).",
            text,
        )


def _topic_config(statement: nodes.CreateSource | nodes.CreateAsSelect, source: Source) -> dict[str, str]:
    given = {one.name.upper(): str(one.value.value) for one in statement.properties}
    config: dict[str, str] = {}
    if source.kind is SourceKind.TABLE and isinstance(statement, nodes.CreateAsSelect):
        config["cleanup.policy"] = "compact" if source.window is None else "compact,delete"
    if "CLEANUP_POLICY" in given:
        config["cleanup.policy"] = given["CLEANUP_POLICY"].lower()
    if "RETENTION_MS" in given:
        config["retention.ms"] = given["RETENTION_MS"]
    return config

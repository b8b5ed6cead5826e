"""ASSERT TOPIC and ASSERT SCHEMA: wait until Kafka or the registry is as a script needs it, or fail with 41700."""

from __future__ import annotations

import time
from collections.abc import Callable

from pessoa.ksql.server import entities
from pessoa.ksql.server.entities import Entity
from pessoa.ksql.server.kafka_clients import KafkaClients
from pessoa.ksql.server.ksql_problems import ASSERTION_FAILED, KsqlProblem
from pessoa.ksql.server.registry_access import ServerSchemas
from pessoa.ksql.syntax.query_nodes import Duration
from pessoa.ksql.syntax.statement_nodes import AssertSchema, AssertTopic, Statement

# ksql.assert.*.default.timeout.ms
_DEFAULT_S = 1.0
_PAUSE_S = 0.05


def assert_topic(clients: KafkaClients, statement: Statement, text: str) -> Entity:
    assert isinstance(statement, AssertTopic)
    wanted = {one.name.upper(): int(str(one.value.value)) for one in statement.properties}

    def problem() -> str:
        found = clients.topic(statement.topic)
        if not statement.exists:
            return "" if found is None else f"Topic {statement.topic} exists"
        if found is None:
            return f"Topic {statement.topic} does not exist"
        has = {"PARTITIONS": found.partitions, "REPLICAS": found.replicas[0] if found.replicas else 0}
        wrong = [f"\n\tExpected: {value} but found: {has[name]} ({name})" for name, value in wanted.items()
                 if name in has and has[name] != value]  # fmt: skip
        return f"Mismatching configs for topic {statement.topic}:{''.join(wrong)}" if wrong else ""

    _wait(problem, statement.timeout, text)
    return entities.entity("assert_topic", text, topicName=statement.topic, exists=statement.exists)


def assert_schema(schemas: ServerSchemas, statement: Statement, text: str) -> Entity:
    assert isinstance(statement, AssertSchema)
    subject_and_id = " ".join(
        filter(None, [f"subject {statement.subject}" if statement.subject else "",
                      f"id {statement.id}" if statement.id is not None else ""])
    )  # fmt: skip

    def problem() -> str:
        is_there = schemas.exists(statement.subject, statement.id)
        if is_there == statement.exists:
            return ""
        return f"Schema with {subject_and_id} {'exists' if is_there else 'does not exist'}"

    _wait(problem, statement.timeout, text)
    return entities.entity("assert_schema", text, subject=statement.subject, id=statement.id, exists=statement.exists)


def _wait(problem: Callable[[], str], timeout: Duration | None, text: str) -> None:
    deadline_s = time.monotonic() + (_DEFAULT_S if timeout is None else timeout.ms / 1000)
    while found := problem():
        if time.monotonic() > deadline_s:
            raise KsqlProblem(ASSERTION_FAILED, found, text)
        time.sleep(_PAUSE_S)

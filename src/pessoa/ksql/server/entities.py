"""The bodies of answers to statements: an entity per statement, with `@type`, `statementText` and `warnings`.

Pure: they are made of the image and of what Kafka, Connect and the runner said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from pessoa.ksql.analysis.source_catalogue import Catalogue, HeaderColumn, Source
from pessoa.ksql.query_runner import PersistentQuery, RunnerStatus
from pessoa.ksql.server.command_log import Outcome
from pessoa.ksql.server.kafka_clients import TopicFacts
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import Array, Decimal, Map, SqlType, Struct, quoted

# What JSON can hold.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Entity: TypeAlias = dict[str, Json]


def entity(kind: str, statement: str, warnings: Iterable[str] = (), **members: Json) -> Entity:
    return {
        "@type": kind,
        "statementText": statement,
        **members,
        "warnings": [{"message": one} for one in warnings],
    }


def current_status(statement: str, command_id: str, outcome: Outcome, warnings: Iterable[str] = ()) -> Entity:
    query_id = outcome.applied.query_id if outcome.applied is not None else None
    status: Json = {"status": outcome.status, "message": outcome.message, "queryId": query_id}
    return entity(
        "currentStatus", statement, warnings, commandId=command_id, commandStatus=status,
        commandSequenceNumber=outcome.offset,
    )  # fmt: skip


# Sources.


def source_list(kind: SourceKind, catalogue: Catalogue) -> list[Json]:
    return [
        {
            "type": kind.value,
            "name": one.name,
            "topic": one.topic,
            "keyFormat": one.key_format,
            "valueFormat": one.value_format,
            "isWindowed": one.window is not None,
        }
        for one in sorted(catalogue.sources.values(), key=lambda one: one.name)
        if one.kind is kind
    ]


def schema_of(kind: SqlType) -> dict[str, Json]:
    """Return a type as the REST API shows it."""
    match kind:
        case Array(element):
            return {"type": "ARRAY", "fields": None, "memberSchema": schema_of(element)}
        case Map(_, value):
            return {"type": "MAP", "fields": None, "memberSchema": schema_of(value)}
        case Struct(fields):
            inner: list[Json] = [{"name": name, "schema": schema_of(one)} for name, one in fields]
            return {"type": "STRUCT", "fields": inner, "memberSchema": None}
        case Decimal(precision, scale):
            parameters: Json = {"precision": precision, "scale": scale}
            return {"type": "DECIMAL", "fields": None, "memberSchema": None, "parameters": parameters}
    return {"type": str(kind), "fields": None, "memberSchema": None}


def fields_of(source: Source) -> list[Json]:
    fields: list[Json] = [{"name": one.name, "schema": schema_of(one.type), "type": "KEY"} for one in source.key]
    fields += [{"name": one.name, "schema": schema_of(one.type)} for one in source.value]
    fields += [_header_field(one) for one in source.headers]
    return fields


def _header_field(column: HeaderColumn) -> Json:
    field: dict[str, Json] = {"name": column.name, "schema": schema_of(column.type), "type": "HEADER"}
    return field if column.header is None else {**field, "headerKey": column.header}


def source_description(
    source: Source,
    catalogue: Catalogue,
    queries: Mapping[str, PersistentQuery],
    statuses: Mapping[str, RunnerStatus],
    topic: TopicFacts | None,
    *,
    extended: bool,
) -> dict[str, Json]:
    def used(ids: Iterable[str]) -> list[Json]:
        return [query_row(queries[one], statuses[one]) for one in ids if one in queries]

    described: dict[str, Json] = {
        "name": source.name,
        "windowType": None if source.window is None else source.window.kind.value,
        "readQueries": used(catalogue.readers.get(source.name, ())),
        "writeQueries": used(catalogue.writers.get(source.name, ())),
        "fields": fields_of(source),
        "type": source.kind.value,
        "timestamp": source.timestamp or "",
        "statistics": _statistics(source, catalogue, statuses) if extended else "",
        "errorStats": "",
        "extended": extended,
        "keyFormat": source.key_format,
        "valueFormat": source.value_format,
        "topic": source.topic,
        "partitions": 0 if topic is None or not extended else topic.partitions,
        "replication": 0 if topic is None or not extended else topic.replicas[0],
        "statement": source.statement,
        "queryOffsetSummaries": [],
        "sourceConstraints": list(catalogue.derived.get(source.name, ())),
    }
    if extended:
        described["queryOffsetSummaries"] = [
            _offsets(one, statuses[one]) for one in catalogue.readers.get(source.name, ()) if one in statuses
        ]
    return described


def _statistics(source: Source, catalogue: Catalogue, statuses: Mapping[str, RunnerStatus]) -> str:
    rate = sum(statuses[one].rows_per_second for one in catalogue.writers.get(source.name, ()) if one in statuses)
    return f"messages-per-sec: {rate:9.2f}"


def _offsets(query_id: str, status: RunnerStatus) -> Json:
    topics: dict[str, list[Json]] = {}
    for (topic, partition), lag in sorted(status.lag.items()):
        topics.setdefault(topic, []).append({"partition": partition, "lag": lag})
    return {
        "groupId": query_id,
        "topicSummaries": [{"kafkaTopic": name, "offsets": rows} for name, rows in topics.items()],
    }


# Queries.


def query_row(query: PersistentQuery, status: RunnerStatus) -> dict[str, Json]:
    sink = query.plan.sink
    state = {"STARTING": "RUNNING"}.get(status.state, status.state)
    return {
        "queryString": query.sql,
        "sinks": [] if sink is None else [sink.name],
        "sinkKafkaTopics": [] if sink is None else [sink.topic],
        "id": query.id,
        "statusCount": {state: 1},
        "queryType": "PERSISTENT",
        "state": state,
    }


def push_query_row(query_id: str, sql: str) -> dict[str, Json]:
    return {
        "queryString": sql, "sinks": [], "sinkKafkaTopics": [], "id": query_id, "statusCount": {"RUNNING": 1},
        "queryType": "PUSH", "state": "RUNNING",
    }  # fmt: skip


def query_description(
    query: PersistentQuery, status: RunnerStatus, plan_text: str, lines: Sequence[str]
) -> dict[str, Json]:
    from pessoa.ksql.server.ksql_state import sources_of

    plan = query.plan
    columns: list[Json] = [{"name": one.name, "schema": schema_of(one.type), "type": "KEY"} for one in plan.key]
    columns += [{"name": one.name, "schema": schema_of(one.type)} for one in plan.value]
    state = "RUNNING" if status.state == "STARTING" else status.state
    errors: list[Json] = [{"errorMessage": status.error, "type": "UNKNOWN"}] if status.error else []
    return {
        "id": query.id,
        "statementText": query.sql,
        "windowType": None if plan.window is None else plan.window.kind.value,
        "fields": columns,
        "sources": sorted({one.name for one in sources_of(plan.root)}),
        "sinks": [] if plan.sink is None else [plan.sink.name],
        "topology": "\n".join(lines),
        "executionPlan": plan_text,
        "overriddenProperties": dict(query.properties),
        "ksqlHostQueryStatus": {},
        "queryType": "PERSISTENT" if plan.sink is not None else "PUSH",
        "queryErrors": errors,
        "tasksMetadata": [],
        "state": state,
        "speed": status.speed,
        "why": status.why,
    }


# Topics.


def topic_row(topic: TopicFacts) -> dict[str, Json]:
    return {"name": topic.name, "replicaInfo": list(topic.replicas)}


def type_list(types: Mapping[str, SqlType]) -> dict[str, Json]:
    return {name: schema_of(kind) for name, kind in sorted(types.items())}


def quoted_schema(columns: Iterable[tuple[str, SqlType, bool]]) -> str:
    """Return the schema text of a query's header: `K` STRING KEY, `V` INTEGER."""
    return ", ".join(f"{quoted(name)} {kind}{' KEY' if is_key else ''}" for name, kind, is_key in columns)

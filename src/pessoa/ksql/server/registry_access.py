"""The schema registry, as statements use it.

columns of a subject      CREATE STREAM … without columns takes those of `<topic>-value` (and `-key`), the latest
schemas of a source       registered when it is created, deleted with DROP … DELETE TOPIC
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from pessoa.client.registry_client import RegistryClient, RegistryFailed, RegistryRefused, delete_subject
from pessoa.ksql.analysis.format_rules import FORMATS
from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.operators.schema_source import KnownSchema
from pessoa.ksql.registry_schemas import RegistrySchemas
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, NO_REGISTRY, SERVER_ERROR, KsqlProblem
from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.statement_nodes import ColumnDefinition, ColumnRole, SourceKind, Statement

log = logging.getLogger("pessoa.ksql")


class _Side(NamedTuple):
    # key or value
    word: str
    format: str
    role: ColumnRole


class ServerSchemas(RegistrySchemas):
    """A schema registry client with the operations that statements need. Without a registry every operation is
    refused with 42801."""

    def __init__(self, settings: Mapping[str, str] | None) -> None:
        super().__init__(settings or {})
        self.is_there = settings is not None

    @property
    def client(self) -> RegistryClient:
        if not self.is_there:
            raise KsqlProblem(
                NO_REGISTRY,
                "KSQL is not configured to use a schema registry. To enable it, please set ksql.schema.registry.url",
            )
        return super().client

    def latest_of_subject(self, subject: str) -> KnownSchema | None:
        try:
            return super().latest_of_subject(subject)
        except RegistryRefused:
            raise
        except RegistryFailed as failure:
            raise KsqlProblem(SERVER_ERROR, f"The schema registry does not answer: {failure}") from None

    def register(self, subject: str, schema_type: str, text: str) -> int:
        # Statements, and people, delete subjects while a server runs.
        self.forget_registered()
        return super().register(subject, schema_type, text)

    # Operations for statements.

    def exists(self, subject: str | None, schema_id: int | None) -> bool:
        if schema_id is not None and self.by_id(schema_id) is None:
            return False
        if subject is None:
            return True
        found = self.latest_of_subject(subject)
        return found is not None and (schema_id is None or found.id == schema_id)

    def register_source(self, source: Source) -> None:
        """Register the schemas of a source's columns, where its formats use schemas and the subject has none."""
        from pessoa.ksql.operators.format_codecs import key_side, value_side
        from pessoa.ksql.server.source_codecs import written_schema

        for side in (key_side(source), value_side(source)):
            if not side.columns or not FORMATS[side.format].registry or self.latest_of_subject(side.subject):
                continue
            schema_type, text = written_schema(side)
            try:
                self.register(side.subject, schema_type, text)
            except RegistryFailed as failure:
                raise KsqlProblem(
                    BAD_STATEMENT, f"Could not register schema for topic: {source.topic}: {failure}"
                ) from None

    def delete_source(self, source: Source) -> None:
        for side, format_name in (("key", source.key_format), ("value", source.value_format)):
            if FORMATS[format_name].registry:
                try:
                    self.client.ask(delete_subject(f"{source.topic}-{side}"))
                except RegistryFailed as failure:
                    log.warning("the subject %s-%s stays: %s", source.topic, side, failure)


def with_inferred_columns(statement: Statement, schemas: ServerSchemas, default_format: str | None) -> Statement:
    """Return CREATE with the columns of the registry, if it declares none for a side whose format has schemas."""
    if not isinstance(statement, nodes.CreateSource):
        return statement
    given = {one.name.upper(): str(one.value.value) for one in statement.properties}
    both = given.get("FORMAT")
    value_format = (given.get("VALUE_FORMAT") or both or default_format or "").upper()
    key_format = (given.get("KEY_FORMAT") or both or "KAFKA").upper()
    key_role = ColumnRole.KEY if statement.kind is SourceKind.STREAM else ColumnRole.PRIMARY_KEY
    added: list[ColumnDefinition] = []
    for side in (_Side("key", key_format, key_role), _Side("value", value_format, ColumnRole.VALUE)):
        declared = any((column.role in (ColumnRole.KEY, ColumnRole.PRIMARY_KEY)) == (side.word == "key")
                       and column.role not in (ColumnRole.HEADER, ColumnRole.HEADERS)
                       for column in statement.columns)  # fmt: skip
        known = FORMATS.get(side.format)
        if not declared and known is not None and known.registry and "KAFKA_TOPIC" in given:
            added += _columns_of(side, given, schemas, statement)
    if not added:
        return statement
    keys = [one for one in (*added, *statement.columns) if one.role is key_role]
    others = [one for one in (*statement.columns, *added) if one.role is not key_role]
    kept = tuple(one for one in statement.properties if not one.name.upper().endswith("_SCHEMA_ID"))
    return replace(statement, columns=(*keys, *others), properties=kept)


def _columns_of(
    side: _Side, given: Mapping[str, str], schemas: ServerSchemas, statement: nodes.CreateSource
) -> list[ColumnDefinition]:
    from pessoa.ksql.server.schema_columns import columns_of_schema

    subject = f"{given['KAFKA_TOPIC']}-{side.word}"
    wanted = given.get(f"{side.word.upper()}_SCHEMA_ID")
    found = schemas.latest_of_subject(subject) if wanted is None else schemas.by_id(int(wanted))
    if found is None:
        if side.word == "key" and wanted is None and statement.kind is SourceKind.STREAM and statement.columns:
            return []
        what = f"subject {subject}" if wanted is None else f"id {wanted}"
        raise KsqlProblem(
            BAD_STATEMENT,
            f"Schema for message {side.word}s on topic '{given['KAFKA_TOPIC']}' does not exist in the Schema Registry "
            f"({what}).\nDeclare the columns, or register a schema.",
        )
    columns = columns_of_schema(found, is_key=side.word == "key")
    return [ColumnDefinition(name, kind, side.role, at=statement.at) for name, kind in columns]

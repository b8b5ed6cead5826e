"""ASSERT: of topics and schemas (for scripts), of rows and definitions (for tests)."""

from __future__ import annotations

from pessoa.ksql.ksql_errors import Position
from pessoa.ksql.syntax import definition_parser
from pessoa.ksql.syntax.query_nodes import Duration
from pessoa.ksql.syntax.query_parser import parse_duration
from pessoa.ksql.syntax.sql_tokens import TokenKind
from pessoa.ksql.syntax.statement_nodes import (
    AssertSchema,
    AssertSource,
    AssertTopic,
    AssertValues,
    CreateSource,
    SourceKind,
    Statement,
)
from pessoa.ksql.syntax.token_cursor import TokenCursor


def parse_assert(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("ASSERT").at
    exists = not cursor.take_word("NOT", "EXISTS")
    if cursor.take_word("TOPIC"):
        return _parse_topic(cursor, exists, at)
    if cursor.take_word("SCHEMA"):
        return _parse_schema(cursor, exists, at)
    if exists and cursor.take_word("VALUES"):
        return _parse_values(cursor, at, tombstone=False)
    if exists and cursor.take_word("NULL", "VALUES"):
        return _parse_values(cursor, at, tombstone=True)
    for kind in SourceKind:
        if exists and cursor.take_word(kind.value):
            return _parse_source(cursor, kind, at)
    words = ["TOPIC", "SCHEMA", "VALUES", "NULL VALUES", "STREAM", "TABLE"] if exists else ["TOPIC", "SCHEMA"]
    raise cursor.unexpected(" or ".join(words), words)


def _parse_timeout(cursor: TokenCursor) -> Duration | None:
    return parse_duration(cursor) if cursor.take_word("TIMEOUT") else None


def _parse_topic(cursor: TokenCursor, exists: bool, at: Position) -> AssertTopic:
    token = cursor.token
    name = cursor.next().value if token.kind is TokenKind.STRING else cursor.expect_name("the name of a topic")
    # A topic has a case, whatever columns do.
    topic = token.text if token.kind is TokenKind.NAME and "${" not in token.text else name
    properties = definition_parser.parse_properties(cursor) if cursor.at_word("WITH") else ()
    return AssertTopic(topic, exists, properties, _parse_timeout(cursor), at=at)


def _parse_schema(cursor: TokenCursor, exists: bool, at: Position) -> AssertSchema:
    subject = schema_id = None
    if cursor.take_word("SUBJECT"):
        token = cursor.token
        if token.kind is TokenKind.STRING:
            subject = cursor.next().value
        else:
            name = cursor.expect_name("a subject")
            subject = token.text if token.kind is TokenKind.NAME and "${" not in token.text else name
    if cursor.take_word("ID"):
        schema_id = cursor.expect_integer("the id of a schema")
    if subject is None and schema_id is None:
        raise cursor.unexpected("SUBJECT or ID", ["SUBJECT", "ID"])
    return AssertSchema(subject, schema_id, exists, _parse_timeout(cursor), at=at)


def _parse_values(cursor: TokenCursor, at: Position, *, tombstone: bool) -> AssertValues:
    source = cursor.expect_name("the name of a stream or table")
    columns = definition_parser.parse_names(cursor) if cursor.at_symbol("(") else ()
    # ASSERT NULL VALUES s (key) KEY (…) and VALUES (…) are both seen.
    if not (tombstone and cursor.take_word("KEY")):
        cursor.expect_word("VALUES")
    return AssertValues(source, columns, definition_parser.parse_row(cursor), tombstone, at=at)


def _parse_source(cursor: TokenCursor, kind: SourceKind, at: Position) -> AssertSource:
    name = cursor.expect_name(f"the name of the {kind.value.lower()}")
    columns = definition_parser.parse_columns(cursor) if cursor.at_symbol("(") else ()
    properties = definition_parser.parse_properties(cursor) if cursor.at_word("WITH") else ()
    return AssertSource(CreateSource(kind, name, columns, properties, at=at), at=at)

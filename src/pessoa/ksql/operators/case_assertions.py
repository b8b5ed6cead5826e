"""ASSERT of ksqlDB's test files, as statements of a case: rows that were written, and what a source is.

    ASSERT VALUES o (id, d, ROWTIME) VALUES ('a', 4, 10);    the next record of O; other columns are null
    ASSERT NULL VALUES t (id) KEY ('a');                     the next record is a tombstone of this key
    ASSERT STREAM o (id STRING KEY, d INT) WITH (KAFKA_TOPIC='O', VALUE_FORMAT='JSON');

Rows are looked at when all records have gone through; each ASSERT of a source takes one of its records, so their order
counts, and records behind the last one may be anything. A source is looked at where the statement stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pessoa.ksql.analysis.definition_analysis import define_source
from pessoa.ksql.analysis.insert_analysis import plan_insert_values
from pessoa.ksql.analysis.source_catalogue import Catalogue, Source
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.operators.inserted_rows import inserted_record
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.syntax.expression_nodes import Literal
from pessoa.ksql.syntax.statement_nodes import (
    AssertSource,
    AssertValues,
    ColumnDefinition,
    ColumnRole,
    InsertValues,
    Property,
    SourceKind,
)
from pessoa.ksql.types.sql_types import STRING

# Properties that are compared, and where a source has them.
_FIELDS = {
    "KAFKA_TOPIC": "topic",
    "KEY_FORMAT": "key_format",
    "VALUE_FORMAT": "value_format",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_FORMAT": "timestamp_format",
}


class FailedAssertion(Exception):
    """An ASSERT statement does not hold."""


def assert_source(statement: AssertSource, catalogue: Catalogue) -> None:
    """Raise FailedAssertion unless the source has this definition; properties that are not given are not compared."""
    wanted = statement.definition
    known = catalogue.find(wanted.name, statement.at)
    given = {one.name.upper() for one in wanted.properties}
    compared = given | ({"KEY_FORMAT", "VALUE_FORMAT"} if "FORMAT" in given else set())
    filled = tuple(
        Property(name, Literal(getattr(known, _FIELDS[name]), STRING))
        for name in ("KAFKA_TOPIC", "KEY_FORMAT", "VALUE_FORMAT")
        if name not in compared
    )
    _expect("kind", wanted.kind.value, known.kind.value)
    columns = wanted.columns or _columns_of(known)
    whole = replace(wanted, columns=columns, properties=(*wanted.properties, *filled))
    defined, _ = define_source(whole, catalogue)
    _expect("schema", defined.schema_text(), known.schema_text())
    for name, field in _FIELDS.items():
        if name in compared:
            _expect(name, getattr(defined, field), getattr(known, field))


def _columns_of(source: Source) -> tuple[ColumnDefinition, ...]:
    role = ColumnRole.KEY if source.kind is SourceKind.STREAM else ColumnRole.PRIMARY_KEY
    header = ((one, ColumnRole.HEADERS if one.header is None else ColumnRole.HEADER) for one in source.headers)
    return (
        *(ColumnDefinition(one.name, one.type, role) for one in source.key),
        *(ColumnDefinition(one.name, one.type) for one in source.value),
        *(ColumnDefinition(one.name, one.type, kind, one.header) for one, kind in header),
    )


def _expect(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise FailedAssertion(f"Expected the {what}\n  {expected}\nbut it is\n  {found}")


class AssertedRows:
    """The rows that ASSERT VALUES and ASSERT NULL VALUES expect, in the order of their statements."""

    def __init__(self, settings: QuerySettings, schemas: SchemaSource) -> None:
        self._settings = settings
        self._schemas = schemas
        self._expected: list[tuple[Source, OutputRecord, bool]] = []

    def add(self, statement: AssertValues, catalogue: Catalogue) -> None:
        source = catalogue.find(statement.source, statement.at)
        # A windowed or read-only source takes no INSERT, and still has rows.
        if source.window is not None:
            raise SemanticFailure(f"ASSERT VALUES knows no windowed keys: {source.name}", statement.at)
        writable = catalogue.with_source(replace(source, read_only=False))
        columns = statement.columns
        if statement.tombstone and not columns:
            columns = tuple(column.name for column in source.key)
        insert = plan_insert_values(
            InsertValues(statement.source, columns, statement.values, at=statement.at), writable
        )
        record = inserted_record(insert, self._settings, self._schemas)
        if statement.tombstone:
            record = record._replace(value=None)
        self._expected.append((source, record, insert.rowtime is not None))

    def check(self, records: Mapping[str, Sequence[KafkaRecord]]) -> None:
        """Raise FailedAssertion unless the records of each topic begin with the expected ones."""
        taken: dict[str, int] = {}
        for source, wanted, is_timed in self._expected:
            number = taken.get(source.topic, 0)
            taken[source.topic] = number + 1
            topic_records = records.get(source.topic, ())
            where = f"{source.name}, record {number + 1}"
            if number >= len(topic_records):
                raise FailedAssertion(f"{where}: expected\n  {_record_text(wanted)}\nbut there is nothing more")
            found_record = topic_records[number]
            same = (wanted.key, wanted.value) == (found_record.key, found_record.value)
            if not same or (is_timed and wanted.timestamp_ms != found_record.timestamp_ms):
                found = OutputRecord(found_record.key, found_record.value, found_record.timestamp_ms)
                raise FailedAssertion(
                    f"{where}: expected\n  {_record_text(wanted)}\nbut it is\n  {_record_text(found)}"
                )


def _record_text(record: OutputRecord) -> str:
    return f"{record.key!r} {record.value!r} @{record.timestamp_ms}"

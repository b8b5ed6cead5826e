"""The sources that statements may name: an image, replaced whole when a statement changes it.

A column is KEY, VALUE or HEADER. Names are as they count: upper-cased unless they were quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pessoa.ksql.ksql_errors import NOWHERE, Position, SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax.query_nodes import WindowKind
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import Array, CustomType, Map, SqlType, Struct, quoted


@dataclass(frozen=True)
class SchemaColumn:
    name: str
    type: SqlType

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type}"


@dataclass(frozen=True)
class HeaderColumn(SchemaColumn):
    # None: all headers.
    header: str | None = None


@dataclass(frozen=True)
class SourceWindow:
    """The window that is part of a source's key; a session has no size."""

    kind: WindowKind
    size_ms: int | None = None


@dataclass(frozen=True)
class FormatOptions:
    """The settings of a source's key or value format, such as the delimiter."""

    delimiter: str = ","
    # Whether a single value column is wrapped in an object; None: as the server's setting.
    wrap: bool | None = None
    # The full name of the record in a schema registry.
    schema_name: str | None = None
    # Data is written with exactly this schema.
    schema_id: int | None = None
    # Protobuf: OPTIONAL or WRAPPER keeps nulls apart from zeros.
    nullable: str | None = None


PLAIN_OPTIONS = FormatOptions()


@dataclass(frozen=True)
class Source:
    name: str
    kind: SourceKind
    topic: str
    key: tuple[SchemaColumn, ...] = ()
    value: tuple[SchemaColumn, ...] = ()
    headers: tuple[HeaderColumn, ...] = ()
    key_format: str = "KAFKA"
    value_format: str = "JSON"
    window: SourceWindow | None = None
    timestamp: str | None = None
    timestamp_format: str | None = None
    partitions: int | None = None
    replicas: int | None = None
    # CREATE SOURCE …: nothing may be written.
    read_only: bool = False
    # A table that can be looked up: made by a query, or a SOURCE TABLE.
    materialised: bool = False
    # The query that writes it (CSAS_S_1), if it was made by AS SELECT.
    query_id: str | None = None
    statement: str = ""
    key_options: FormatOptions = PLAIN_OPTIONS
    value_options: FormatOptions = PLAIN_OPTIONS

    def columns(self) -> tuple[SchemaColumn, ...]:
        """Return the columns of SELECT *: keys, values, headers."""
        return (*self.key, *self.value, *self.headers)

    def schema_text(self) -> str:
        keyword = "KEY" if self.kind is SourceKind.STREAM else "PRIMARY KEY"
        return ", ".join([*(f"{one} {keyword}" for one in self.key), *map(str, (*self.value, *self.headers))])


@dataclass(frozen=True)
class Catalogue:
    sources: Mapping[str, Source] = field(default_factory=dict)
    types: Mapping[str, SqlType] = field(default_factory=dict)
    # Query ids by the sources that they read and write; and sources by those that were derived from them.
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    writers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    derived: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def find(self, name: str, at: Position = NOWHERE) -> Source:
        found = self.sources.get(name)
        if found is None:
            hint = did_you_mean(name, self.sources) or "SHOW STREAMS; and SHOW TABLES; list what there is."
            raise SemanticFailure(f"{name} does not exist.", at, length=len(name), hint=hint)
        return found

    def with_source(self, source: Source) -> Catalogue:
        return replace(self, sources={**self.sources, source.name: source})

    def without_source(self, name: str) -> Catalogue:
        return replace(self, sources={key: one for key, one in self.sources.items() if key != name})

    def with_type(self, name: str, kind: SqlType) -> Catalogue:
        return replace(self, types={**self.types, name: kind})

    def resolve_type(self, kind: SqlType, at: Position = NOWHERE) -> SqlType:
        """Return the type with names of CREATE TYPE replaced by their types."""
        match kind:
            case CustomType(name):
                if name not in self.types:
                    raise SemanticFailure(
                        f"Cannot resolve unknown type: {name}", at, hint=did_you_mean(name, [*self.types, *_KNOWN])
                    )
                return self.types[name]
            case Array(element):
                return Array(self.resolve_type(element, at))
            case Map(key, value):
                keys = self.resolve_type(key, at)
                if isinstance(keys, (Array, Map, Struct)):
                    raise SemanticFailure(f"The key of a map cannot be of type {keys}", at)
                return Map(keys, self.resolve_type(value, at))
            case Struct(fields):
                return Struct(tuple((name, self.resolve_type(one, at)) for name, one in fields))
        return kind


_KNOWN = "BOOLEAN INT INTEGER BIGINT DOUBLE DECIMAL VARCHAR STRING BYTES DATE TIME TIMESTAMP ARRAY MAP STRUCT".split()

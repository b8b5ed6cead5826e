"""What a ksql server has: streams and tables with their columns, running queries with their topics, speed and plan.

    STATEMENTS   one request of four statements, whose answers `read_catalogue` reads
    Catalogue    sources, queries and functions; `words` are those that the editor completes

A query names streams and tables; a source names its topic. Together they say which topics a query reads and writes,
which is what the lineage draws. Fields that another server leaves out (`speed` and `why` are ours) are empty. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from pessoa.base.json_value import JsonValue

STATEMENTS = "DESCRIBE STREAMS; DESCRIBE TABLES; SHOW QUERIES EXTENDED; SHOW FUNCTIONS;"
KEYWORDS = (
    "ADD", "ALTER", "AND", "ARRAY", "AS", "ASSERT", "BEGINNING", "BETWEEN", "BIGINT", "BOOLEAN", "BY", "BYTES", "CASE",
    "CAST", "CHANGES", "COLUMN", "CONNECTOR", "CONNECTORS", "CREATE", "DATE", "DAYS", "DECIMAL", "DELETE", "DESCRIBE",
    "DISTINCT", "DOUBLE", "DROP", "ELSE", "EMIT", "END", "EXISTS", "EXPLAIN", "EXTENDED", "FINAL", "FROM", "FULL",
    "FUNCTIONS", "GRACE PERIOD", "GROUP BY", "HAVING", "HEADERS", "HOPPING", "HOURS", "IF NOT EXISTS", "IN", "INNER",
    "INSERT INTO", "INT", "INTEGER", "IS NOT NULL", "IS NULL", "JOIN", "KEY", "LEFT", "LIKE", "LIMIT", "LIST", "MAP",
    "MILLISECONDS", "MINUTES", "NOT", "NULL", "ON", "OR", "OUTER", "PARTITION BY", "PAUSE", "PRIMARY KEY", "PRINT",
    "PROPERTIES", "QUERIES", "REPLACE", "RESUME", "RETENTION", "SECONDS", "SELECT", "SESSION", "SET", "SHOW", "SINK",
    "SIZE", "SOURCE", "STREAM", "STREAMS", "STRING", "STRUCT", "TABLE", "TABLES", "TERMINATE", "THEN", "TIME",
    "TIMESTAMP", "TOPIC", "TOPICS", "TUMBLING", "TYPE", "TYPES", "UNSET", "VALUES", "VARCHAR", "WHEN", "WHERE",
    "WINDOW", "WINDOWSTART", "WINDOWEND", "WITH", "WITHIN",
)  # fmt: skip
_Object = dict[str, JsonValue]


class Source(NamedTuple):
    name: str
    kind: str  # STREAM or TABLE
    topic: str
    key_format: str
    value_format: str
    window: str
    # Names and types of its columns; keys say so in their type.
    columns: tuple[tuple[str, str], ...]


class Query(NamedTuple):
    id: str
    text: str
    state: str
    speed: str
    why: str
    plan: str
    # Topics.
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    errors: tuple[str, ...]


class Completion(NamedTuple):
    label: str
    # What CodeMirror shows a symbol for.
    type: str
    detail: str = ""


class Catalogue(NamedTuple):
    sources: tuple[Source, ...] = ()
    queries: tuple[Query, ...] = ()
    functions: tuple[str, ...] = ()

    def words(self) -> list[Completion]:
        found = [Completion(one, "keyword") for one in KEYWORDS]
        found += [Completion(f"{name}(", "function") for name in self.functions]
        for source in self.sources:
            found.append(Completion(source.name, "class", source.kind.lower()))
            found += [Completion(name, "property", f"{source.name}: {kind}") for name, kind in source.columns]
        return list({(one.label, one.type): one for one in found}.values())


def read_catalogue(answer: JsonValue) -> Catalogue:
    """Return the catalogue in the response to STATEMENTS; entries of another form are left out."""
    parts = _objects(answer)
    sources = tuple(_source(one) for part in parts for one in _objects(part.get("sourceDescriptions")))
    topics = {one.name: one.topic for one in sources}
    queries = tuple(_query(one, topics) for part in parts for one in _objects(part.get("queryDescriptions")))
    functions = tuple(_text(one, "name") for part in parts for one in _objects(part.get("functions")))
    return Catalogue(sources, queries, functions)


def _source(given: _Object) -> Source:
    columns = tuple((_text(one, "name"), _column_type(one)) for one in _objects(given.get("fields")))
    return Source(
        _text(given, "name"), _text(given, "type"), _text(given, "topic"), _text(given, "keyFormat"),
        _text(given, "valueFormat"), _text(given, "windowType"), columns,
    )  # fmt: skip


def _column_type(field: _Object) -> str:
    is_key = field.get("type") == "KEY"
    return f"{_type(field.get('schema'))} KEY" if is_key else _type(field.get("schema"))


def _type(schema: JsonValue) -> str:
    if not isinstance(schema, dict):
        return "?"
    name = str(schema.get("type") or "?")
    if name in ("ARRAY", "MAP"):
        inner = _type(schema.get("memberSchema"))
        return f"ARRAY<{inner}>" if name == "ARRAY" else f"MAP<STRING, {inner}>"
    return name


def _query(given: _Object, topics: dict[str, str]) -> Query:
    def of(key: str) -> tuple[str, ...]:
        names = given.get(key)
        found = {topics.get(str(one), str(one)) for one in names} if isinstance(names, list) else set()
        return tuple(sorted(found))

    errors = tuple(_text(one, "errorMessage") or _text(one, "message") for one in _objects(given.get("queryErrors")))
    return Query(
        _text(given, "id"), _text(given, "statementText"), _text(given, "state"), _text(given, "speed"),
        _text(given, "why"), _text(given, "executionPlan"), of("sources"), of("sinks"), errors,
    )  # fmt: skip


def _objects(value: JsonValue) -> list[_Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: _Object, key: str) -> str:
    found = value.get(key)
    return "" if found is None else str(found)

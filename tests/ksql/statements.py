"""Make a catalogue and plans from the text of statements, and run a plan over records in the pure runtime."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.analysis.source_catalogue import Catalogue
from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord
from pessoa.ksql.operators.schema_source import MemorySchemas
from pessoa.ksql.syntax.parser import parse_statement, parse_statements

# Key, value, time.
Row = tuple[bytes | None, object, int]


def catalogue_of(text: str) -> Catalogue:
    catalogue = Catalogue()
    for parsed in parse_statements(text):
        catalogue = analyse(parsed, catalogue).catalogue
    return catalogue


def plan_of(text: str, catalogue: Catalogue) -> LogicalPlan:
    found = analyse(parse_statement(text), catalogue).plan
    assert found is not None
    return found


def in_process(plan: LogicalPlan, records: Iterable[KafkaRecord]) -> list[Row]:
    query = InProcessQuery(plan, QuerySettings(), MemorySchemas())
    return [row(one.key, one.value, one.timestamp_ms) for record in records for one in query.take(record)]


def row(key: bytes | None, value: bytes | None, timestamp_ms: int) -> Row:
    """Return a row whose value is parsed as JSON, if it is JSON: 1.0E10 and 10000000000.0 are the same number."""
    try:
        return key, None if value is None else json.loads(value), timestamp_ms
    except ValueError:
        return key, value, timestamp_ms


def by_key(rows: Iterable[Row]) -> dict[bytes | None, list[tuple[object, int]]]:
    """Return the values and timestamps of each key in order; records of different keys have no order."""
    found: dict[bytes | None, list[tuple[object, int]]] = {}
    for key, value, timestamp_ms in rows:
        found.setdefault(key, []).append((value, timestamp_ms))
    return found

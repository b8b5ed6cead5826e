"""Pull queries: SELECT without EMIT, answered from a materialised table, or from a stream read to its end.

    WHERE → keys (key_lookups.py) → rows of the table (bytes) → columns → WHERE → SELECT → LIMIT

A look-up by key is a read of the local store: no consumer, no Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pessoa.ksql.analysis.logical_plan import FilterStep, LogicalPlan, ProjectStep, ReadSource
from pessoa.ksql.analysis.pseudo_columns import ROWOFFSET, ROWPARTITION, ROWTIME, WINDOWEND, WINDOWSTART
from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.evaluate.expression_functions import Row, RowFunction, compile_expression
from pessoa.ksql.evaluate.row_functions import condition, or_null
from pessoa.ksql.operators.format_codecs import CodecFailure
from pessoa.ksql.server.key_lookups import Lookup, plan_lookup
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, KsqlProblem
from pessoa.ksql.server.materialised_tables import MaterialisedTables
from pessoa.ksql.server.query_rows import ResultRow
from pessoa.ksql.server.source_codecs import SourceCodec, SourceCodecs
from pessoa.ksql.syntax.query_nodes import WindowKind
from pessoa.ksql.system_evaluation_context import SystemEvaluationContext
from pessoa.ksql.types.sql_types import Value

if TYPE_CHECKING:
    from pessoa.pipelines.materialised_table import MaterialisedTable
    from pessoa.pipelines.table_store import Entry

processing_log = logging.getLogger("processing")

_SESSION_TAIL = 16


class PullQueries:
    def __init__(self, tables: MaterialisedTables, codecs: SourceCodecs, *, may_scan: bool) -> None:
        self._tables = tables
        self._codecs = codecs
        self._may_scan = may_scan
        self._around = SystemEvaluationContext()

    def rows(self, plan: LogicalPlan, text: str, *, may_scan: bool | None = None) -> Iterator[ResultRow]:
        """Yield the rows of a query over a table. Raises KsqlProblem if it needs a table scan and scans are
        disabled."""
        source, where, columns = _parts(plan)
        lookup = plan_lookup(where.condition if where is not None else None, source, self._around)
        if lookup.keys is None and not (self._may_scan if may_scan is None else may_scan):
            raise KsqlProblem(
                BAD_STATEMENT,
                "The query does a table scan, and ksql.query.pull.table.scan.enabled is false.\n"
                f"Name the key: WHERE {' AND '.join(f'{one.name} = …' for one in source.key)}",
                text,
            )
        if lookup.keys is None and source.window is not None and source.window.kind is WindowKind.SESSION:
            raise KsqlProblem(
                BAD_STATEMENT, "Table scans of session-windowed tables are not supported: name the key in WHERE.", text
            )
        return self._read(plan, source, where, columns, lookup)

    def _read(
        self, plan: LogicalPlan, source: Source, where: FilterStep | None, columns: tuple[RowFunction, ...],
        lookup: Lookup,
    ) -> Iterator[ResultRow]:  # fmt: skip
        passes = condition(compile_expression(where.condition, self._around), processing_log.warning) if where else None
        codec = self._codecs.of(source)
        left = plan.limit
        for entry in _entries(self._tables.of(source), source, codec, lookup):
            if left == 0:
                return
            row = _row(source, codec, entry)
            if row is None or (passes is not None and not passes(row)):
                continue
            yield ResultRow([one(row) for one in columns])
            if left is not None:
                left -= 1


def _parts(plan: LogicalPlan) -> tuple[Source, FilterStep | None, tuple[RowFunction, ...]]:
    step = plan.root
    assert isinstance(step, ProjectStep)
    around = SystemEvaluationContext()
    columns = tuple(or_null(compile_expression(typed, around), processing_log.warning) for _, typed in step.columns)
    below = step.below
    where = below if isinstance(below, FilterStep) else None
    read = where.below if where is not None else below
    assert isinstance(read, ReadSource), read
    return read.source, where, columns


def _entries(table: MaterialisedTable, source: Source, codec: SourceCodec, lookup: Lookup) -> Iterator[Entry]:
    if lookup.keys is None:
        yield from table.scan()
        return
    for values in lookup.keys:
        key = codec.encode_key(values)
        if key is None:
            continue
        if source.window is None:
            found = table.get(key)
            if found is not None:
                yield found
        elif source.window.kind is WindowKind.SESSION:
            # A longer key may begin with the same bytes.
            yield from (one for one in table.prefix(key) if len(one.key) == len(key) + _SESSION_TAIL)
        else:
            yield from table.windows(key, lookup.start_ms, lookup.end_ms)


def _row(source: Source, codec: SourceCodec, entry: Entry) -> Row | None:
    """Return the columns of a row; None if it cannot be decoded."""
    try:
        key = codec.key.decode(entry.key)
        values = codec.value.decode(entry.value)
    except CodecFailure as failure:
        processing_log.warning("DESERIALISATION: %s (%s)", failure, source.topic)
        return None
    if key.values is None or values is None:
        return None
    row: dict[str, Value] = {column.name: one for column, one in zip(source.key, key.values, strict=True)}
    row.update((column.name, one) for column, one in zip(source.value, values, strict=True))
    row[ROWTIME], row[ROWPARTITION], row[ROWOFFSET] = entry.timestamp_ms, entry.partition, entry.offset
    if key.window is not None:
        row[WINDOWSTART], row[WINDOWEND] = key.window
    return row

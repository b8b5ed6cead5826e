"""INSERT INTO … VALUES as a record: its expressions are computed once, here.

A column that is not given is null. A row of nulls is a row: only a record without a value deletes one from a table, and
INSERT writes none such.
"""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.ksql.analysis.insert_analysis import PlannedInsert
from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.operators.format_codecs import Codec, CodecFailure, KeyCodec, key_side, side_codec, value_side
from pessoa.ksql.operators.query_settings import WRAP_SINGLE_VALUES, QuerySettings
from pessoa.ksql.operators.records import OutputRecord
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import EvaluationFailure, Value


def inserted_row(insert: PlannedInsert, around: EvaluationContext) -> tuple[dict[str, Value], int]:
    """Return the values by column, and the record's time. Raises SemanticFailure if a value cannot be computed."""
    try:
        row = {name: compile_expression(typed, around)({}) for name, typed in insert.columns}
        time = around.now_ms if insert.rowtime is None else compile_expression(insert.rowtime, around)({})
    except EvaluationFailure as failure:
        raise _insert_failure(insert.target, str(failure)) from None
    if not isinstance(time, int):
        raise _insert_failure(insert.target, "ROWTIME is null.")
    return row, time


def encode_row(
    target: Source, row: Mapping[str, Value], key: KeyCodec, value: Codec
) -> tuple[bytes | None, bytes | None]:
    """Return key and value as bytes. Raises SemanticFailure if a table's key is null, or a value cannot be written."""
    key_values = [row.get(column.name) for column in target.key]
    if target.kind is SourceKind.TABLE and any(one is None for one in key_values):
        raise _insert_failure(target, "Primary key columns must not be null.")
    try:
        given = key_values if any(one is not None for one in key_values) else None
        return key.encode(given, None).key, value.encode([row.get(column.name) for column in target.value])
    except CodecFailure as failure:
        raise _insert_failure(target, str(failure)) from None


def inserted_record(insert: PlannedInsert, settings: QuerySettings, schemas: SchemaSource) -> OutputRecord:
    """Return the record to write. Raises SemanticFailure if a value cannot be computed or written."""
    target = insert.target
    wraps = settings.is_true(WRAP_SINGLE_VALUES, True)
    row, time = inserted_row(insert, settings.evaluation_context)
    key_codec = KeyCodec(side_codec(key_side(target, wraps), schemas), None)
    key, value = encode_row(target, row, key_codec, side_codec(value_side(target, wraps), schemas))
    return OutputRecord(key, value, time, (), key)


def _insert_failure(target: Source, why: str) -> SemanticFailure:
    return SemanticFailure(f"Failed to insert values into '{target.name}'. {why}")

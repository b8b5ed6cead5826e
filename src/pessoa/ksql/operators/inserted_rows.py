"""INSERT INTO … VALUES as a record: its expressions are computed once, here."""

from __future__ import annotations

from pessoa.ksql.analysis.insert_analysis import PlannedInsert
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.operators.format_codecs import CodecFailure, key_side, side_codec, value_side
from pessoa.ksql.operators.query_settings import WRAP_SINGLE_VALUES, QuerySettings
from pessoa.ksql.operators.records import OutputRecord
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.evaluation_failures import EvaluationFailure


def inserted_record(insert: PlannedInsert, settings: QuerySettings, schemas: SchemaSource) -> OutputRecord:
    """Return the record to write. Raises SemanticFailure if a value cannot be computed or written."""
    target = insert.target
    wraps = settings.is_true(WRAP_SINGLE_VALUES, True)
    around = settings.surroundings
    try:
        values = {name: compile_expression(typed, around)({}) for name, typed in insert.columns}
        time = around.now_ms if insert.rowtime is None else compile_expression(insert.rowtime, around)({})
        key_values = [values.get(column.name) for column in target.key]
        if target.kind is SourceKind.TABLE and any(value is None for value in key_values):
            raise SemanticFailure(
                f"Failed to insert values into '{target.name}'. Primary key columns must not be null."
            )
        given_key = target.key and any(value is not None for value in key_values)
        key = side_codec(key_side(target, wraps), schemas).encode(key_values) if given_key else None
        given = [values.get(column.name) for column in target.value]
        # A table's row of which only the key is given is a tombstone.
        is_gone = target.kind is SourceKind.TABLE and not any(column.name in values for column in target.value)
        value = None if is_gone else side_codec(value_side(target, wraps), schemas).encode(given)
    except (EvaluationFailure, CodecFailure) as failure:
        raise SemanticFailure(f"Failed to insert values into '{target.name}'. {failure}") from None
    if not isinstance(time, int):
        raise SemanticFailure(f"Failed to insert values into '{target.name}'. ROWTIME is null.")
    return OutputRecord(key, value, time, (), key)

"""Columns that every row has without being declared, and that no column may be called like."""

from __future__ import annotations

from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.ksql_errors import NOWHERE, Position, SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Column, Expression, walk
from pessoa.ksql.types.sql_types import BIGINT, INTEGER, SqlType

ROWTIME, ROWPARTITION, ROWOFFSET = "ROWTIME", "ROWPARTITION", "ROWOFFSET"
WINDOWSTART, WINDOWEND = "WINDOWSTART", "WINDOWEND"
WINDOW_BOUNDS: dict[str, SqlType] = {WINDOWSTART: BIGINT, WINDOWEND: BIGINT}
PSEUDO_COLUMNS: dict[str, SqlType] = {ROWTIME: BIGINT, ROWPARTITION: INTEGER, ROWOFFSET: BIGINT}
RESERVED_NAMES = frozenset([*PSEUDO_COLUMNS, *WINDOW_BOUNDS])


def pseudo_columns_of(source: Source) -> dict[str, SqlType]:
    return PSEUDO_COLUMNS | (WINDOW_BOUNDS if source.window is not None else {})


def refuse_reserved(name: str, at: Position = NOWHERE) -> None:
    """Raise if a column or an alias is called like a pseudo column."""
    if name in RESERVED_NAMES:
        raise SemanticFailure(
            f"`{name}` is a reserved column name.", at, length=len(name), hint="You cannot use it as a name or alias."
        )


def uses_window_bounds(node: Expression) -> Column | None:
    """Return the first use of WINDOWSTART or WINDOWEND."""
    return next((one for one in walk(node) if isinstance(one, Column) and one.name in WINDOW_BOUNDS), None)

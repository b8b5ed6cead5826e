"""INSERT INTO … VALUES: the expressions become one record's key, value and time."""

from __future__ import annotations

from dataclasses import dataclass

from pessoa.ksql.analysis.expression_scopes import NoColumns
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.pseudo_columns import RESERVED_NAMES, ROWTIME
from pessoa.ksql.analysis.source_catalogue import Catalogue, Source
from pessoa.ksql.analysis.typed_expressions import Typed, cast_to
from pessoa.ksql.ksql_errors import Position, SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax.expression_nodes import Cast, Expression
from pessoa.ksql.syntax.expression_rewrites import rewrite
from pessoa.ksql.syntax.expression_text import expression_text
from pessoa.ksql.syntax.statement_nodes import InsertValues, SourceKind
from pessoa.ksql.types.implicit_casts import fits_column
from pessoa.ksql.types.sql_types import BIGINT, SqlType, quoted


@dataclass(frozen=True)
class PlannedInsert:
    """A record to write: expressions by column; a column that is not there is null."""

    target: Source
    columns: tuple[tuple[str, Typed], ...]
    # None: the time of writing.
    rowtime: Typed | None = None


def plan_insert_values(statement: InsertValues, catalogue: Catalogue) -> PlannedInsert:
    target = catalogue.find(statement.target, statement.at)
    if target.read_only:
        raise SemanticFailure(
            f"Cannot insert values into read-only {target.kind.value.lower()}: {target.name}", statement.at
        )
    if target.window is not None:
        raise SemanticFailure(f"Cannot insert values into windowed stream/table: {target.name}", statement.at)
    kinds = {column.name: column.type for column in (*target.key, *target.value)}
    names = statement.columns or tuple(kinds)
    _check_names(statement, target, names, kinds)
    if len(names) != len(statement.values):
        raise SemanticFailure(
            f"Expected a value for each column. Expected Columns: [{', '.join(names)}]. "
            f"Got {len(statement.values)} values.",
            statement.at,
            hint="There must be as many values as columns.",
        )
    found: list[tuple[str, Typed]] = []
    rowtime = None
    for name, value in zip(names, statement.values, strict=True):
        typed = _type_value(value, name, BIGINT if name == ROWTIME else kinds[name], catalogue)
        if name == ROWTIME:
            rowtime = typed
        else:
            found.append((name, typed))
    if target.kind is SourceKind.TABLE:
        missing = [column.name for column in target.key if column.name not in names]
        if missing:
            raise SemanticFailure(
                f"Failed to insert values into '{target.name}'. Value for primary key column(s) {', '.join(missing)} "
                "is required for tables",
                statement.at,
            )
    return PlannedInsert(target, tuple(found), rowtime)


def _check_names(statement: InsertValues, target: Source, names: tuple[str, ...], kinds: dict[str, SqlType]) -> None:
    headers = {column.name for column in target.headers}
    seen: set[str] = set()
    for name in names:
        if name in headers:
            raise SemanticFailure(f"Cannot insert into HEADER columns: {name}", statement.at)
        if name in RESERVED_NAMES and name != ROWTIME:
            raise SemanticFailure(f"Inserting into column {quoted(name)} is not allowed.", statement.at)
        if name not in kinds and name != ROWTIME:
            raise SemanticFailure(
                f"Column name {quoted(name)} does not exist in {target.name}.",
                statement.at,
                hint=did_you_mean(name, kinds),
            )
        if name in seen:
            raise SemanticFailure(f"the column {name} is given twice", statement.at)
        seen.add(name)


def _type_value(value: Expression, name: str, wanted: SqlType, catalogue: Catalogue) -> Typed:
    def change(node: Expression, _: frozenset[str]) -> Expression | None:
        if isinstance(node, Cast):
            return Cast(rewrite(node.operand, change), catalogue.resolve_type(node.type, node.at), at=node.at)
        return None

    typed = type_expression(rewrite(value, change), NoColumns())
    if not fits_column(typed.type, wanted):
        raise _type_mismatch(value, typed, name, wanted, value.at)
    return cast_to(typed, wanted)


def _type_mismatch(value: Expression, typed: Typed, name: str, wanted: SqlType, at: Position) -> SemanticFailure:
    return SemanticFailure(
        f"Expected type {wanted} for field {quoted(name)} but got {typed.type}({expression_text(value)})", at,
        hint=f"Write CAST({expression_text(value)} AS {wanted}).",
    )  # fmt: skip

"""ALTER, DROP and OR REPLACE: the checks on changes of a source that exists."""

from __future__ import annotations

from dataclasses import replace

from pessoa.ksql.analysis.format_rules import check_columns
from pessoa.ksql.analysis.pseudo_columns import refuse_reserved
from pessoa.ksql.analysis.source_catalogue import Catalogue, SchemaColumn, Source
from pessoa.ksql.ksql_errors import Position, SemanticFailure
from pessoa.ksql.syntax.statement_nodes import AlterSource, DropSource, SourceKind
from pessoa.ksql.types.sql_types import quoted


def alter_source(statement: AlterSource, catalogue: Catalogue) -> Source:
    """Return the source with the columns that are added to its value."""
    source = _find(statement.name, statement.kind, "ALTER", statement.at, catalogue)
    if source.read_only:
        raise SemanticFailure(
            f"Cannot alter {source.kind.value.lower()} '{source.name}': it is read-only.", statement.at
        )
    if source.query_id is not None or source.statement.upper().find(" AS SELECT") >= 0:
        raise SemanticFailure(
            f"ALTER command is not supported for CREATE ... AS statements: {source.name}", statement.at,
            hint="CREATE OR REPLACE … AS SELECT changes the query.",
        )  # fmt: skip
    value = list(source.value)
    names = {column.name for column in source.columns()}
    for column in statement.columns:
        refuse_reserved(column.name, column.at)
        if column.name in names:
            raise SemanticFailure(
                f"Cannot add column {quoted(column.name)} to schema. A column with the same name already exists.",
                column.at,
            )
        names.add(column.name)
        value.append(SchemaColumn(column.name, catalogue.resolve_type(column.type, column.at)))
    check_columns(source.value_format, tuple(value), "Value", statement.at)
    return replace(source, value=tuple(value))


def drop_source(statement: DropSource, catalogue: Catalogue) -> Source:
    """Return the source to drop. Raises SemanticFailure while queries use it or sources were made of it."""
    source = _find(statement.name, statement.kind, "DROP", statement.at, catalogue)
    if source.read_only and statement.delete_topic:
        raise SemanticFailure(f"Cannot delete topic for read-only source: {source.name}", statement.at)
    own = {source.query_id}
    readers = [one for one in catalogue.readers.get(source.name, ()) if one not in own]
    writers = [one for one in catalogue.writers.get(source.name, ()) if one not in own]
    if readers or writers:
        raise SemanticFailure(
            f"Cannot drop {source.name}.\nThe following queries read from this source: [{', '.join(readers)}].\n"
            f"The following queries write into this source: [{', '.join(writers)}].\n"
            f"You need to terminate them before dropping {source.name}.",
            statement.at,
        )
    derived = catalogue.derived.get(source.name, ())
    if derived:
        raise SemanticFailure(
            f"Cannot drop {source.name}.\nThe following streams and/or tables read from this source: "
            f"[{', '.join(derived)}].\nYou need to drop them before dropping {source.name}.",
            statement.at,
        )
    return source


def _find(name: str, kind: SourceKind, verb: str, at: Position, catalogue: Catalogue) -> Source:
    source = catalogue.find(name, at)
    if source.kind is not kind:
        raise SemanticFailure(
            f"Incompatible data source type is {source.kind.value}, but statement was {verb} {kind.value}", at,
            hint=f"Write {verb} {source.kind.value} {name}.",
        )  # fmt: skip
    return source


def replace_source(old: Source, new: Source, at: Position) -> None:
    """Raise unless OR REPLACE keeps everything but the end of the value's columns."""
    if old.read_only or new.read_only:
        raise SemanticFailure(f"Cannot upgrade read-only source {old.name}.", at)
    kept = (
        ("kind", old.kind, new.kind),
        ("topic", old.topic, new.topic),
        ("key format", old.key_format, new.key_format),
        ("value format", old.value_format, new.value_format),
        ("window", old.window, new.window),
    )
    for what, before, after in kept:
        if before != after:
            raise SemanticFailure(f"Cannot upgrade data source: {quoted(old.name)} must keep its {what}.", at)
    if old.key != new.key:
        raise SemanticFailure("Cannot upgrade data source: key columns must stay the same.", at)
    if new.value[: len(old.value)] != old.value:
        raise SemanticFailure(
            "Cannot upgrade data source: the following columns are changed, missing or reordered: "
            f"[{', '.join(str(one) for one in old.value if one not in new.value) or 'order'}]",
            at,
            hint="Columns may be added behind those that there are.",
        )

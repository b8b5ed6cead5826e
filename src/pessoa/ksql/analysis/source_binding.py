"""Pass: FROM and JOIN name sources that exist, each once."""

from __future__ import annotations

from dataclasses import replace

from pessoa.ksql.analysis.logical_plan import ReadSource
from pessoa.ksql.analysis.pseudo_columns import pseudo_columns_of
from pessoa.ksql.analysis.query_draft import BoundSource, QueryDraft
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import SqlType


def bind_sources(draft: QueryDraft) -> QueryDraft:
    """Return the draft with its sources, and with the columns of their rows."""
    query = draft.query
    names = [query.source, *(join.source for join in query.joins)]
    bound: list[BoundSource] = []
    for name in names:
        source = draft.catalogue.find(name.name, name.at)
        for other in bound:
            if other.source.name == source.name:
                raise SemanticFailure(
                    f"Can not join '{other.source.name}' to '{source.name}': self joins are not yet supported.", name.at
                )
            if other.label == name.label:
                raise SemanticFailure(f"The name {name.label} is used twice in FROM", name.at, hint="Give it an alias.")
        bound.append(BoundSource(name.label, source, prefixed=bool(query.joins)))
    _check_formats(draft, bound)
    left = bound[0]
    if draft.persistent and any(one.source.window and one.source.kind is SourceKind.TABLE for one in bound):
        raise SemanticFailure("KSQL does not support persistent queries on windowed tables.", query.source.at)
    return replace(
        draft,
        bound=tuple(bound),
        columns={name: kind for one in bound for name, kind in columns_of(one).items()},
        step=read_step(left),
        kind=left.source.kind,
        window=left.source.window,
    )


def columns_of(bound: BoundSource) -> dict[str, SqlType]:
    """Return the columns that a source gives to rows, pseudo columns among them."""
    declared = {bound.row_name(column.name): column.type for column in bound.source.columns()}
    return declared | {bound.row_name(name): kind for name, kind in pseudo_columns_of(bound.source).items()}


def read_step(bound: BoundSource) -> ReadSource:
    return ReadSource(
        bound.source, tuple((column.name, bound.row_name(column.name)) for column in bound.source.columns())
    )


def _check_formats(draft: QueryDraft, bound: list[BoundSource]) -> None:
    """Raise SemanticFailure if a source of format KAFKA is grouped or joined: its value has room for a single
    column."""
    raw = [one.source.name for one in bound if one.source.value_format == "KAFKA"]
    clause = "JOIN" if draft.query.joins else "GROUP BY" if draft.query.group_by else ""
    if raw and clause:
        raise SemanticFailure(
            f"Source(s) {', '.join(raw)} are using the 'KAFKA' value format. "
            f"This format does not yet support {clause}.",
            draft.query.source.at,
        )

"""Pass: every column of the query's clauses gets the name that rows have for it, and stars become columns.

`t.id` and `id` become the same column, so that later passes compare expressions as they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pessoa.ksql.analysis.expression_scopes import ColumnScope, unresolved
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.pseudo_columns import WINDOW_BOUNDS, pseudo_columns_of, refuse_reserved
from pessoa.ksql.analysis.query_draft import ROWKEY, BoundSource, Item, QueryDraft
from pessoa.ksql.ksql_errors import Position, SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax.expression_nodes import Cast, Column, Dereference, Expression, Literal
from pessoa.ksql.syntax.expression_rewrites import rewrite
from pessoa.ksql.syntax.query_nodes import SelectAll, SelectExpression, SelectItem, SelectStruct
from pessoa.ksql.types.sql_types import Struct


class ColumnFinder:
    """Finds columns among the sources of a query."""

    def __init__(self, draft: QueryDraft) -> None:
        self._bound = draft.bound
        self._owners = _owners(draft.bound)
        self._synthetic = draft.synthetic_key if draft.query.joins else None
        self._windowed = draft.query.window is not None
        self.warnings: list[str] = []

    def find(self, column: Column, clause: str) -> Column:
        """Return the column by the name that rows have for it. Raises if there is none, or more than one."""
        if column.source is not None:
            return self._qualified(column, clause)
        owners = self._owners.get(column.name, [])
        if len(owners) > 1:
            places = " or ".join(f"{one.label}.{column.name}" for one in owners)
            raise SemanticFailure(
                f"Column '{column.name}' is ambiguous. Could be {places}.", column.at, length=len(column.name)
            )
        if owners:
            return Column(owners[0].row_name(column.name), at=column.at)
        if column.name in WINDOW_BOUNDS and self._windowed:
            return Column(column.name, at=column.at)
        if column.name == self._synthetic:
            return Column(column.name, at=column.at)
        if column.name == ROWKEY and len(self._bound) == 1:
            return self._row_key(column, clause)
        names = [name.name for one in self._bound for name in one.source.columns()]
        raise unresolved(column, clause, [*names, *pseudo_columns_of(self._bound[0].source)])

    def _qualified(self, column: Column, clause: str) -> Column:
        owner = next((one for one in self._bound if one.label == column.source), None)
        labels = [one.label for one in self._bound]
        if owner is None:
            # A struct's field is reached with ->, which many write as a dot.
            arrow = f"Write {column.source}->{column.name} for a field of a struct." if self._struct(column) else ""
            raise SemanticFailure(
                f"'{column.source}' is not a valid stream/table name or alias.",
                column.at,
                length=len(column.source or ""),
                hint=arrow or did_you_mean(column.source or "", labels),
            )
        if owner not in self._owners.get(column.name, []):
            raise unresolved(column, clause, [one.name for one in owner.source.columns()])
        return Column(owner.row_name(column.name), at=column.at)

    def _struct(self, column: Column) -> bool:
        return any(one.name == column.source for bound in self._bound for one in bound.source.columns())

    def _row_key(self, column: Column, clause: str) -> Column:
        source = self._bound[0].source
        if len(source.key) != 1:
            raise unresolved(column, clause, [one.name for one in source.columns()])
        self.warnings.append(f"ROWKEY is the key column of 5.x; write {source.key[0].name}.")
        return Column(source.key[0].name, at=column.at)

    def canonical(self, draft: QueryDraft, clause: str) -> Callable[[Expression], Expression]:
        """Return the function that gives an expression the names of rows, and resolves the types that it casts to."""

        def change(node: Expression, bound: frozenset[str]) -> Expression | None:
            if isinstance(node, Column):
                return node if node.source is None and node.name in bound else self.find(node, clause)
            if isinstance(node, Cast):
                kind = draft.catalogue.resolve_type(node.type, node.at)
                inner = rewrite(node.operand, lambda one, more: change(one, bound | more))
                return replace(node, operand=inner, type=kind)
            return None

        return lambda expression: rewrite(expression, change)


def _owners(bound: tuple[BoundSource, ...]) -> dict[str, list[BoundSource]]:
    """Return the sources that have a column, or pseudo column, of each name."""
    found: dict[str, list[BoundSource]] = {}
    for one in bound:
        for name in dict.fromkeys([*(column.name for column in one.source.columns()), *pseudo_columns_of(one.source)]):
            found.setdefault(name, []).append(one)
    return found


def resolve_names(draft: QueryDraft) -> QueryDraft:
    query = draft.query
    finder = ColumnFinder(draft)
    in_select, in_where = finder.canonical(draft, "SELECT"), finder.canonical(draft, "WHERE")
    in_group, in_partition = finder.canonical(draft, "GROUP BY"), finder.canonical(draft, "PARTITION BY")
    in_having, in_join = finder.canonical(draft, "HAVING"), finder.canonical(draft, "JOIN")
    partition_by = tuple(map(in_partition, query.partition_by))
    draft = replace(
        draft,
        conditions=tuple(in_join(join.condition) for join in query.joins),
        where=None if query.where is None else in_where(query.where),
        group_by=tuple(map(in_group, query.group_by)),
        partition_by=partition_by,
        having=None if query.having is None else in_having(query.having),
    )
    namer = _Namer(draft)
    items = [item for one in query.items for item in _items(one, draft, namer, in_select)]
    return replace(draft, items=tuple(items), warnings=(*draft.warnings, *finder.warnings))


class _Namer:
    """Names for selected expressions that have none: KSQL_COL_0, KSQL_COL_1 …, and FIELD, FIELD_1 … for fields."""

    def __init__(self, draft: QueryDraft) -> None:
        aliases = [item.alias for item in draft.query.items if isinstance(item, SelectExpression) and item.alias]
        self._reserved_names = {*aliases, *(column.name for one in draft.bound for column in one.source.columns())}
        self._used_names: set[str] = set()
        self._count = 0
        # A column has its own name; of a join, with the alias before it if several sources have the name.
        self._names = {
            one.row_name(name): name
            for name, owners in _owners(draft.bound).items()
            if len(owners) == 1
            for one in owners
        }

    def name(self, expression: Expression) -> str:
        if isinstance(expression, Column):
            return self._names.get(expression.name, expression.name)
        if isinstance(expression, Dereference):
            return self._field(expression.field_name)
        while f"KSQL_COL_{self._count}" in self._reserved_names:
            self._count += 1
        found = f"KSQL_COL_{self._count}"
        self._count += 1
        return found

    def _field(self, name: str) -> str:
        found, count = name, 0
        while found in self._used_names:
            count += 1
            found = f"{name}_{count}"
        self._used_names.add(found)
        return found


def _items(
    item: SelectItem, draft: QueryDraft, namer: _Namer, canonical: Callable[[Expression], Expression]
) -> list[Item]:
    if isinstance(item, SelectAll):
        return _star(item, draft, namer)
    expression = canonical(item.expression)
    if isinstance(item, SelectStruct):
        return _fields(expression, draft, namer, item.at)
    if item.alias is not None:
        refuse_reserved(item.alias, item.at)
        return [Item(item.alias, expression, aliased=True, at=item.at)]
    return [Item(namer.name(expression), expression, at=item.at)]


def _star(item: SelectAll, draft: QueryDraft, namer: _Namer) -> list[Item]:
    chosen = [one for one in draft.bound if item.source in (None, one.label)]
    if not chosen:
        raise SemanticFailure(
            f"'{item.source}' is not a valid stream/table name or alias.",
            item.at,
            hint=did_you_mean(item.source or "", [one.label for one in draft.bound]),
        )
    # The new key of PARTITION BY belongs to the row; a column is among the others anyway.
    made = [expression for expression in draft.partition_by if not isinstance(expression, (Column, Literal))]
    found = [Item(namer.name(expression), expression, at=item.at) for expression in made]
    if item.source is None and draft.query.joins and not draft.partition_by:
        name = draft.synthetic_key
        found.append(Item(name, Column(name, at=item.at), at=item.at, synthetic=True))
    for one in chosen:
        source = one.source
        key, rest = [column.name for column in source.key], [column.name for column in (*source.value, *source.headers)]
        # Bare, they would be reserved names in a sink; with the alias of a join before them they are not.
        bounds = list(WINDOW_BOUNDS) if source.window is not None and (one.prefixed or not draft.persistent) else []
        names = [*bounds, *rest, *key] if draft.partition_by else [*key, *bounds, *rest]
        found += [Item(one.row_name(name), Column(one.row_name(name), at=item.at), at=item.at) for name in names]
    return found


def _fields(expression: Expression, draft: QueryDraft, namer: _Namer, at: Position) -> list[Item]:
    kind = type_expression(expression, ColumnScope(draft.columns)).type
    if not isinstance(kind, Struct):
        raise SemanticFailure(f"->* takes the fields of a STRUCT, but this is {kind}", at)
    fields = [Dereference(expression, name, at=at) for name, _ in kind.fields]
    return [Item(namer.name(field), field, at=at) for field in fields]

"""The draft of a query: the intermediate result of the passes. Each pass returns a new draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count

from pessoa.ksql.analysis.logical_plan import PlannedWindow, Step
from pessoa.ksql.analysis.source_catalogue import Catalogue, Source, SourceWindow
from pessoa.ksql.ksql_errors import NOWHERE, Position
from pessoa.ksql.syntax.expression_nodes import Expression
from pessoa.ksql.syntax.query_nodes import Query
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.types.sql_types import SqlType

# The key of a join that no column of its sources is; and the key column of every source of 5.x.
ROWKEY = "ROWKEY"


@dataclass(frozen=True)
class BoundSource:
    """A source of the query under the name by which it is referred to."""

    label: str
    source: Source
    # Of a join: columns of rows are called LABEL_COLUMN.
    prefixed: bool

    def row_name(self, column: str) -> str:
        return f"{self.label}_{column}" if self.prefixed else column


@dataclass(frozen=True)
class Item:
    """A selected expression and the name of its column; columns in it have the names that rows use."""

    name: str
    expression: Expression
    # False: the name was made from the expression.
    aliased: bool = False
    at: Position = NOWHERE
    # The key that no source has, as * of a join selects it; only if the join turns out to have one.
    synthetic: bool = False


@dataclass(frozen=True)
class KeyPart:
    """A column that the result's key needs: the projection must contain one of the expressions in `choices`."""

    choices: tuple[Expression, ...]
    # For the error, if none is there: "key column", "grouping expression", and the choices as people write them.
    what: str
    names: tuple[str, ...]

    @property
    def shown(self) -> str:
        *others, last = self.names
        return f"{self.what} {', '.join(others)} or {last}" if others else f"{self.what} {last}"


@dataclass(frozen=True)
class QueryDraft:
    query: Query
    catalogue: Catalogue
    # The stream or table that the query makes or writes into; None for a push or pull query.
    sink_name: str | None
    bound: tuple[BoundSource, ...] = ()
    # The query's clauses with names of rows.
    items: tuple[Item, ...] = ()
    conditions: tuple[Expression, ...] = ()
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    # The plan so far, and the columns of its rows.
    step: Step | None = None
    columns: Mapping[str, SqlType] = field(default_factory=dict)
    kind: SourceKind = SourceKind.STREAM
    key: tuple[KeyPart, ...] = ()
    window: SourceWindow | None = None
    planned_window: PlannedWindow | None = None
    keyless: bool = False
    # What generated columns stand for, for messages.
    generated: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def persistent(self) -> bool:
        return self.sink_name is not None

    @property
    def below(self) -> Step:
        assert self.step is not None
        return self.step

    @property
    def left(self) -> BoundSource:
        return self.bound[0]

    @property
    def synthetic_key(self) -> str:
        """The name of a join's key that is no column of a source: ROWKEY, or ROWKEY_1 … if a source has a column of
        that name."""
        taken = {column.name for one in self.bound for column in one.source.columns()}
        names = chain([ROWKEY], (f"{ROWKEY}_{number}" for number in count(1)))
        return next(name for name in names if name not in taken)

    def row_columns(self) -> dict[str, str]:
        """Return the label of the source that each column of rows comes from."""
        return {one.row_name(column.name): one.label for one in self.bound for column in one.source.columns()}

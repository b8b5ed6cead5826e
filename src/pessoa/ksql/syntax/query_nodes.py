"""The tree of a query: SELECT … FROM … WINDOW … WHERE … GROUP BY … PARTITION BY … HAVING … EMIT … LIMIT …."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from pessoa.ksql.syntax.expression_nodes import Expression, Node
from pessoa.ksql.syntax.sql_tokens import UNIT_MS


@dataclass(frozen=True)
class Duration(Node):
    """5 MINUTES; the unit is always plural."""

    count: int
    unit: str

    @property
    def ms(self) -> int:
        return self.count * UNIT_MS[self.unit]


@dataclass(frozen=True)
class SelectExpression(Node):
    expression: Expression
    alias: str | None = None


@dataclass(frozen=True)
class SelectAll(Node):
    """* or source.*"""

    source: str | None = None


@dataclass(frozen=True)
class SelectStruct(Node):
    """expression->*: every field of a struct."""

    expression: Expression


SelectItem: TypeAlias = SelectExpression | SelectAll | SelectStruct


@dataclass(frozen=True)
class SourceName(Node):
    """A stream or table in FROM or JOIN."""

    name: str
    alias: str | None = None

    @property
    def label(self) -> str:
        """The name by which columns refer to it."""
        return self.alias if self.alias is not None else self.name


class JoinKind(Enum):
    INNER = "INNER"
    LEFT = "LEFT OUTER"
    RIGHT = "RIGHT OUTER"
    FULL = "FULL OUTER"


@dataclass(frozen=True)
class Within(Node):
    """The time that two rows of a stream-stream join may be apart: right - left lies in [-before, after]."""

    before: Duration
    after: Duration
    grace: Duration | None = None


@dataclass(frozen=True)
class Join(Node):
    kind: JoinKind
    source: SourceName
    within: Within | None
    condition: Expression


class WindowKind(Enum):
    TUMBLING = "TUMBLING"
    HOPPING = "HOPPING"
    SESSION = "SESSION"


@dataclass(frozen=True)
class Window(Node):
    """A WINDOW clause. `size` is the gap of a session; only HOPPING has an advance."""

    kind: WindowKind
    size: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None
    name: str | None = None


class Emit(Enum):
    CHANGES = "CHANGES"
    FINAL = "FINAL"


@dataclass(frozen=True)
class Query(Node):
    items: tuple[SelectItem, ...]
    source: SourceName
    joins: tuple[Join, ...] = ()
    window: Window | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    emit: Emit | None = None
    limit: int | None = None

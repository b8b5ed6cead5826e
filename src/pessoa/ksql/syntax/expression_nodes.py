"""The tree of an expression. Nodes are values: equal trees are equal, wherever they stood in the text.

`at` is where the node begins (an operator: where the operator stands), for messages; it takes no part in equality.
A chain of AND or OR is one flat node, so a thousand conditions are not a thousand levels.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass, field
from typing import TypeAlias

from pessoa.ksql.ksql_errors import NOWHERE, Position
from pessoa.ksql.types.sql_types import SqlType


@dataclass(frozen=True, kw_only=True)
class Node:
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Literal(Node):
    """A value with its type: a whole number is INTEGER or BIGINT by its size, 1.5 a DECIMAL(2, 1), 1e0 a DOUBLE."""

    value: bool | int | float | decimal.Decimal | str | None
    type: SqlType


@dataclass(frozen=True)
class TypedLiteral(Node):
    """DATE '2026-11-17': text that is read as the type when the plan is made."""

    type: SqlType
    text: str


@dataclass(frozen=True)
class Column(Node):
    """`name` or `source.name`."""

    name: str
    source: str | None = None


@dataclass(frozen=True)
class IntervalUnit(Node):
    """DAYS, HOURS … as an argument of a function."""

    unit: str


@dataclass(frozen=True)
class Dereference(Node):
    """base->field"""

    base: Expression
    field_name: str


@dataclass(frozen=True)
class Subscript(Node):
    """base[index]"""

    base: Expression
    index: Expression


@dataclass(frozen=True)
class Negate(Node):
    """-operand; of a literal the sign is part of the literal."""

    operand: Expression


@dataclass(frozen=True)
class Arithmetic(Node):
    """+ - * / %, and || which joins texts."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class AtTimeZone(Node):
    operand: Expression
    zone: str


@dataclass(frozen=True)
class Comparison(Node):
    """= <> < <= > >=, IS DISTINCT FROM, IS NOT DISTINCT FROM; != is <>."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Logical(Node):
    """AND or OR over two operands or more, none of which is the same operator."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Not(Node):
    operand: Expression


@dataclass(frozen=True)
class IsNull(Node):
    operand: Expression
    negated: bool = False


@dataclass(frozen=True)
class Between(Node):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True)
class InList(Node):
    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True)
class Like(Node):
    operand: Expression
    pattern: Expression
    escape: str | None = None
    negated: bool = False


@dataclass(frozen=True)
class When(Node):
    condition: Expression
    result: Expression


@dataclass(frozen=True)
class Case(Node):
    """With an operand, each WHEN is compared with it; without, each is a condition."""

    operand: Expression | None
    whens: tuple[When, ...]
    otherwise: Expression | None = None


@dataclass(frozen=True)
class Cast(Node):
    operand: Expression
    type: SqlType


@dataclass(frozen=True)
class ArrayConstructor(Node):
    items: tuple[Expression, ...]


@dataclass(frozen=True)
class MapConstructor(Node):
    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True)
class StructConstructor(Node):
    fields: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class LambdaFunction(Node):
    """x => e, (x, y) => e; only an argument of a function."""

    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True)
class Call(Node):
    """name(arguments); COUNT(*) has `star` and no arguments."""

    name: str
    arguments: tuple[Expression, ...]
    star: bool = False


Expression: TypeAlias = (
    Literal | TypedLiteral | Column | IntervalUnit | Dereference | Subscript | Negate | Arithmetic | AtTimeZone
    | Comparison | Logical | Not | IsNull | Between | InList | Like | Case | Cast | ArrayConstructor | MapConstructor
    | StructConstructor | LambdaFunction | Call
)  # fmt: skip


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly under a node, in the order of the text."""
    match node:
        case Dereference(base):
            return (base,)
        case Subscript(base, index):
            return (base, index)
        case Negate(operand) | AtTimeZone(operand) | Not(operand) | IsNull(operand) | Cast(operand):
            return (operand,)
        case Arithmetic(_, left, right) | Comparison(_, left, right):
            return (left, right)
        case Logical(_, operands):
            return operands
        case Between(operand, low, high):
            return (operand, low, high)
        case InList(operand, items):
            return (operand, *items)
        case Like(operand, pattern):
            return (operand, pattern)
        case Case(maybe_operand, whens, otherwise):
            inner = [part for when in whens for part in (when.condition, when.result)]
            return tuple(part for part in (maybe_operand, *inner, otherwise) if part is not None)
        case ArrayConstructor(items):
            return items
        case MapConstructor(entries):
            return tuple(part for entry in entries for part in entry)
        case StructConstructor(fields):
            return tuple(value for _, value in fields)
        case LambdaFunction(_, body):
            return (body,)
        case Call(_, arguments):
            return arguments
        case _:
            return ()


def walk(root: Expression) -> list[Expression]:
    """Return the node and everything below it, parents first, without recursion."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(reversed(children(node)))
    return found


def depth(root: Expression) -> int:
    """Return the number of levels of a tree, without recursion."""
    deepest, level = 0, [root]
    while level:
        deepest += 1
        level = [child for node in level for child in children(node)]
    return deepest

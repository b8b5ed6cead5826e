"""An expression whose types are known: the tree that is evaluated, and translated for an engine.

`children` are the operands in the order of `expression_nodes.children`, with casts put in where types must meet, so
what reads a typed tree never casts by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pessoa.ksql.functions.aggregates import ResolvedAggregate
from pessoa.ksql.functions.function_table import Resolved
from pessoa.ksql.syntax.expression_nodes import Cast, Expression, Literal
from pessoa.ksql.types.sql_types import SqlType, Value


@dataclass(frozen=True)
class Typed:
    node: Expression
    type: SqlType
    children: tuple[Typed, ...] = ()
    # Of a call: its variant.
    call: Resolved | ResolvedAggregate | None = None
    # Of a column: the name under which a row has the value.
    column: str = ""
    # Of a literal of any kind: its value.
    value: Value = None

    @property
    def is_literal(self) -> bool:
        return isinstance(self.node, Literal)


def cast_to(typed: Typed, target: SqlType) -> Typed:
    """Return the expression, with a cast if it is not of the target type."""
    if typed.type == target:
        return typed
    return Typed(Cast(typed.node, target, at=typed.node.at), target, (typed,))

"""Trees made of other trees: the same node with other children, and a whole tree with some nodes replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.syntax.expression_nodes import Expression, children


def with_children(node: Expression, parts: tuple[Expression, ...]) -> Expression:
    """Return the node with these children, in the order of `children`."""
    match node:
        case nodes.Dereference():
            return replace(node, base=parts[0])
        case nodes.Subscript():
            return replace(node, base=parts[0], index=parts[1])
        case nodes.Negate() | nodes.AtTimeZone() | nodes.Not() | nodes.IsNull() | nodes.Cast():
            return replace(node, operand=parts[0])
        case nodes.Arithmetic() | nodes.Comparison():
            return replace(node, left=parts[0], right=parts[1])
        case nodes.Logical():
            return replace(node, operands=parts)
        case nodes.Between():
            return replace(node, operand=parts[0], low=parts[1], high=parts[2])
        case nodes.InList():
            return replace(node, operand=parts[0], items=parts[1:])
        case nodes.Like():
            return replace(node, operand=parts[0], pattern=parts[1])
        case nodes.Case():
            return _case_with(node, list(parts))
        case nodes.ArrayConstructor():
            return replace(node, items=parts)
        case nodes.MapConstructor():
            pairs = zip(parts[::2], parts[1::2], strict=True)
            return replace(node, entries=tuple(pairs))
        case nodes.StructConstructor():
            return replace(node, fields=tuple((name, one) for (name, _), one in zip(node.fields, parts, strict=True)))
        case nodes.LambdaFunction():
            return replace(node, body=parts[0])
        case nodes.Call():
            return replace(node, arguments=parts)
    assert not parts
    return node


def _case_with(node: nodes.Case, parts: list[Expression]) -> nodes.Case:
    operand = parts.pop(0) if node.operand is not None else None
    otherwise = parts.pop() if node.otherwise is not None else None
    pairs = zip(node.whens, parts[::2], parts[1::2], strict=True)
    whens = tuple(replace(when, condition=condition, result=result) for when, condition, result in pairs)
    return replace(node, operand=operand, whens=whens, otherwise=otherwise)


def rewrite(node: Expression, change: Callable[[Expression, frozenset[str]], Expression | None]) -> Expression:
    """Return the tree with each node replaced for which `change` returns another; a replacement is not rewritten again.

    `change` also gets the names that lambdas around the node bind: those are no columns.
    """
    return _rewrite(node, change, frozenset())


def _rewrite(
    node: Expression, change: Callable[[Expression, frozenset[str]], Expression | None], bound: frozenset[str]
) -> Expression:
    found = change(node, bound)
    if found is not None:
        return found
    if isinstance(node, nodes.LambdaFunction):
        bound |= frozenset(node.parameters)
    parts = children(node)
    if not parts:
        return node
    changed = tuple(_rewrite(part, change, bound) for part in parts)
    return node if changed == parts else with_children(node, changed)

"""Types of what holds several expressions that must have one type: CASE, IN, ARRAY[…], MAP(…); and STRUCT(…).

Literals among them give way: beside a number, '1' is one; beside a text, 1 is '1'.
"""

from __future__ import annotations

from collections.abc import Sequence

from pessoa.ksql.analysis.expression_scopes import Scope
from pessoa.ksql.analysis.expression_typing import boolean, compared, type_expression
from pessoa.ksql.analysis.typed_expressions import Typed, cast_to
from pessoa.ksql.ksql_errors import Position, SemanticFailure
from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.syntax.expression_nodes import Expression
from pessoa.ksql.types.implicit_casts import common_type, literal_fits, number_type_of
from pessoa.ksql.types.sql_types import BOOLEAN, NULL_TYPE, STRING, Array, Map, SqlType, Struct


def type_list(node: Expression, scope: Scope) -> Typed:
    match node:
        case nodes.Case():
            return _case(node, scope)
        case nodes.InList():
            return _in_list(node, scope)
        case nodes.ArrayConstructor(items):
            if not items:
                raise SemanticFailure(
                    "Array constructor cannot be empty. Please supply at least one element.", node.at,
                    hint="Write CAST(NULL AS ARRAY<…>) for one without a value.",
                )  # fmt: skip
            typed = [type_expression(item, scope) for item in items]
            kind = one_type(typed, node.at, "an array's elements")
            return Typed(node, Array(kind), tuple(cast_to(one, kind) for one in typed))
        case nodes.MapConstructor():
            return _map(node, scope)
        case nodes.StructConstructor(fields):
            names = [name for name, _ in fields]
            if len(set(names)) < len(names):
                raise SemanticFailure("Duplicate field names found in STRUCT", node.at)
            values = tuple(type_expression(value, scope) for _, value in fields)
            kinds = tuple((name, value.type) for name, value in zip(names, values, strict=True))
            return Typed(node, Struct(kinds), values)
        case nodes.LambdaFunction():
            raise SemanticFailure("a lambda can only be an argument of a function", node.at)
    raise AssertionError(f"no type for {type(node).__name__}")


def one_type(items: Sequence[Typed], at: Position, what: str) -> SqlType:
    """Return the one type of the items, for which their literals give way."""
    fixed = [item for item in items if not (item.is_literal and item.type == STRING)]
    texts = [item.value for item in items if item.is_literal and isinstance(item.value, str)]
    kind: SqlType | None = NULL_TYPE
    for item in fixed:
        kind = None if kind is None else common_type(kind, item.type)
    if kind is not None and texts:
        kind = _with_texts(kind, texts, fixed)
    if kind is None and all(item.is_literal or item.type == STRING for item in items):
        return STRING
    if kind is None or kind == NULL_TYPE:
        types = ", ".join(dict.fromkeys(str(item.type) for item in items))
        raise SemanticFailure(f"Cannot determine one type of {what}: {types}", at, hint="Write CAST(… AS …).")
    return kind


def _with_texts(kind: SqlType, texts: Sequence[str], fixed: Sequence[Typed]) -> SqlType | None:
    """Return the type when string literals stand among others of `kind`."""
    if kind in (NULL_TYPE, STRING):
        return STRING
    if all(literal_fits(text, kind) for text in texts):
        return kind
    numbers = [number_type_of(text) for text in texts]
    wider: SqlType | None = kind
    for number in numbers:
        wider = None if wider is None or number is None else common_type(wider, number)
    if wider is not None:
        return wider
    return STRING if all(item.is_literal for item in fixed) else None


def _case(node: nodes.Case, scope: Scope) -> Typed:
    """Return conditions and results in turn, then the result of ELSE; a CASE with an operand is one of comparisons."""
    operand = None if node.operand is None else type_expression(node.operand, scope)
    conditions: list[Typed] = []
    for when in node.whens:
        if operand is None:
            conditions.append(boolean(when.condition, scope))
        else:
            assert node.operand is not None
            comparison = nodes.Comparison("=", node.operand, when.condition, at=when.at)
            sides = compared(comparison, "=", operand, type_expression(when.condition, scope))
            conditions.append(Typed(comparison, BOOLEAN, sides))
    results = [type_expression(when.result, scope) for when in node.whens]
    otherwise = nodes.Literal(None, NULL_TYPE, at=node.at) if node.otherwise is None else node.otherwise
    results.append(type_expression(otherwise, scope))
    kind: SqlType | None = NULL_TYPE
    for result in results:
        kind = None if kind is None else common_type(kind, result.type)
    if kind is None:
        types = ", ".join(dict.fromkeys(str(result.type) for result in results))
        raise SemanticFailure(
            f"Invalid Case expression. All branches must have one type, but they have {types}", node.at
        )
    if kind == NULL_TYPE:
        raise SemanticFailure("Invalid Case expression. All case branches have NULL type", node.at)
    results = [cast_to(result, kind) for result in results]
    pairs = [part for pair in zip(conditions, results[:-1], strict=True) for part in pair]
    return Typed(node, kind, (*pairs, results[-1]))


def _in_list(node: nodes.InList, scope: Scope) -> Typed:
    operand = type_expression(node.operand, scope)
    items = [type_expression(item, scope) for item in node.items]
    if all(item.type == NULL_TYPE for item in items):
        return Typed(node, BOOLEAN, (operand, *items))
    if operand.type == NULL_TYPE:
        raise SemanticFailure("NULL is in no list", node.at, hint="Write IS NULL.")
    fitted = [_fit_item(node, operand, item) for item in items]
    return Typed(node, BOOLEAN, (operand, *fitted))


def _fit_item(node: nodes.InList, operand: Typed, item: Typed) -> Typed:
    if item.type == NULL_TYPE:
        return cast_to(item, operand.type)
    if item.is_literal and item.type != operand.type:
        if operand.type == STRING:
            return cast_to(item, STRING)
        if isinstance(item.value, str) and literal_fits(item.value, operand.type):
            return cast_to(item, operand.type)
    return compared(node, "=", operand, item)[1]


def _map(node: nodes.MapConstructor, scope: Scope) -> Typed:
    if not node.entries:
        raise SemanticFailure("Map constructor cannot be empty. Please supply at least one key value pair.", node.at)
    keys = [type_expression(key, scope) for key, _ in node.entries]
    values = [type_expression(value, scope) for _, value in node.entries]
    key_type = one_type(keys, node.at, "a map's keys")
    value_type = one_type(values, node.at, "a map's values")
    parts = [
        part
        for key, value in zip(keys, values, strict=True)
        for part in (cast_to(key, key_type), cast_to(value, value_type))
    ]
    return Typed(node, Map(key_type, value_type), tuple(parts))

"""Types of what holds several expressions that must have one type: CASE, IN, ARRAY[…], MAP(…); and STRUCT(…).

Literals among them give way: beside a number, '1' is one; beside a text, 1 is '1'.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence

from pessoa.ksql.analysis.expression_scopes import Scope
from pessoa.ksql.analysis.expression_typing import boolean, compared, type_expression
from pessoa.ksql.analysis.typed_expressions import Typed, cast_to
from pessoa.ksql.ksql_errors import Position, SemanticFailure
from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.syntax.expression_nodes import Expression
from pessoa.ksql.types.implicit_casts import common_type, literal_fits, literal_value, number_type_of
from pessoa.ksql.types.sql_types import BOOLEAN, NULL_TYPE, STRING, Array, Map, SqlType, Struct, is_number


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
            kind = one_type(typed, node.at, "an array", "element")
            return Typed(node, Array(kind), tuple(fitted(one, kind) for one in typed))
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


def one_type(items: Sequence[Typed], at: Position, what: str, parts: str) -> SqlType:
    """Return the common type of the items: that of the columns among them, or else of the first literal that is not
    null."""
    named = [item for item in items if item.type != NULL_TYPE]
    if not named:
        raise SemanticFailure(
            f"Cannot construct {what} with all NULL {parts}s.", at, hint="You may cast a NULL to the desired type."
        )
    leading = [item for item in named if not item.is_literal] or named[:1]
    kind: SqlType | None = leading[0].type
    for item in leading:
        kind = None if kind is None else common_type(kind, item.type)
    for item in named:
        kind = None if kind is None else _with_literal(kind, item)
    if kind is None:
        types = ", ".join(dict.fromkeys(str(item.type) for item in items))
        message = f"Cannot construct {what} with mismatching {parts} types ([{types}])."
        raise SemanticFailure(message, at, hint="Write CAST(… AS …).")
    return kind


def _with_literal(kind: SqlType, item: Typed) -> SqlType | None:
    """Return the type, wider if a literal needs it: beside an INTEGER, '1.5' is a DECIMAL."""
    if kind == STRING and item.is_literal:
        return STRING
    if not item.is_literal or not isinstance(item.value, str):
        return common_type(kind, item.type)
    if literal_fits(item.value, kind):
        return kind
    number = number_type_of(item.value) if is_number(kind) else None
    if number is None:
        raise SemanticFailure(f'invalid input syntax for type {kind}: "{item.value}"', item.node.at)
    return common_type(kind, number)


def fitted(item: Typed, kind: SqlType) -> Typed:
    """Return an item converted to the type; a text among numbers is parsed here."""
    if item.is_literal and isinstance(item.value, str) and kind != STRING:
        value = literal_value(item.value, kind)
        assert value is None or isinstance(value, (bool, int, float, str, decimal.Decimal))
        return Typed(nodes.Literal(value, kind, at=item.node.at), kind, value=value)
    return cast_to(item, kind)


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
        if isinstance(item.value, str) and (is_number(operand.type) or operand.type == BOOLEAN):
            kind = _with_literal(operand.type, item)
            assert kind is not None
            return fitted(item, kind)
    return compared(node, "=", operand, item)[1]


def _map(node: nodes.MapConstructor, scope: Scope) -> Typed:
    if not node.entries:
        raise SemanticFailure("Map constructor cannot be empty. Please supply at least one key value pair.", node.at)
    keys = [type_expression(key, scope) for key, _ in node.entries]
    values = [type_expression(value, scope) for _, value in node.entries]
    key_type = one_type(keys, node.at, "a map", "key")
    if isinstance(key_type, (Array, Map, Struct)):
        raise SemanticFailure(f"The key of a map cannot be of type {key_type}", node.at)
    value_type = one_type(values, node.at, "a map", "value")
    parts = [
        part
        for key, value in zip(keys, values, strict=True)
        for part in (fitted(key, key_type), fitted(value, value_type))
    ]
    return Typed(node, Map(key_type, value_type), tuple(parts))

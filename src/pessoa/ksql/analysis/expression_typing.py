"""The types pass: an expression and a scope give a typed expression, or the error that says what does not fit.

Casts are put in where two types must meet: a text beside a TIMESTAMP, branches of CASE, arguments of a function.
Collections, CASE and lists are in `list_typing.py`, calls in `call_typing.py`.
"""

from __future__ import annotations

from pessoa.ksql.analysis.expression_scopes import Scope
from pessoa.ksql.analysis.typed_expressions import Typed, cast_to
from pessoa.ksql.ksql_errors import Position, SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.syntax.expression_nodes import Expression
from pessoa.ksql.syntax.expression_text import expression_text
from pessoa.ksql.types.explicit_casts import caster
from pessoa.ksql.types.operator_types import arithmetic_type, can_compare
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    INTEGER,
    INTERVAL_UNIT,
    NULL_TYPE,
    STRING,
    TIMES,
    TIMESTAMP,
    Array,
    EvaluationFailure,
    Map,
    SqlType,
    Struct,
    is_number,
)
from pessoa.ksql.types.time_text import parse_timestamp

# Milliseconds that people compare with text.
_TIME_COLUMNS = ("ROWTIME", "WINDOWSTART", "WINDOWEND")
_OPERATOR_NAMES = {
    "=": "EQUAL", "<>": "NOT_EQUAL", "<": "LESS_THAN", "<=": "LESS_THAN_OR_EQUAL", ">": "GREATER_THAN",
    ">=": "GREATER_THAN_OR_EQUAL", "IS DISTINCT FROM": "IS_DISTINCT_FROM",
    "IS NOT DISTINCT FROM": "IS_NOT_DISTINCT_FROM",
}  # fmt: skip


def type_expression(node: Expression, scope: Scope) -> Typed:
    """Return the expression with its types. Raises SemanticFailure."""
    match node:
        case nodes.Literal(value, kind):
            return Typed(node, kind, value=value)
        case nodes.TypedLiteral(kind, text):
            return Typed(node, kind, value=_literal_value(text, kind, node.at))
        case nodes.IntervalUnit(unit):
            return Typed(node, INTERVAL_UNIT, value=unit)
        case nodes.Column():
            column, kind = scope.find(node)
            return Typed(node, kind, column=column)
        case nodes.Arithmetic():
            return _arithmetic(node, scope)
        case nodes.Negate(operand):
            typed = type_expression(operand, scope)
            if not is_number(typed.type):
                raise SemanticFailure(f"Negation is not supported for type {typed.type}", node.at)
            return Typed(node, typed.type, (typed,))
        case nodes.Comparison():
            return _comparison(node, scope)
        case nodes.Between():
            return _between(node, scope)
        case nodes.Logical(_, operands):
            return Typed(node, BOOLEAN, tuple(boolean(operand, scope) for operand in operands))
        case nodes.Not(operand):
            return Typed(node, BOOLEAN, (boolean(operand, scope),))
        case nodes.IsNull(operand):
            return Typed(node, BOOLEAN, (type_expression(operand, scope),))
        case nodes.Like(operand, pattern):
            return Typed(node, BOOLEAN, (_text(operand, scope), _text(pattern, scope)))
        case nodes.AtTimeZone(operand):
            raise SemanticFailure(
                "AT TIME ZONE is not supported", node.at, hint="Write CONVERT_TZ(timestamp, from, to)."
            )
        case nodes.Cast(operand, kind):
            return _cast(node, type_expression(operand, scope), kind)
        case nodes.Dereference():
            return _dereference(node, scope)
        case nodes.Subscript():
            return _subscript(node, scope)
    from pessoa.ksql.analysis import call_typing, list_typing

    if isinstance(node, nodes.Call):
        return call_typing.type_call(node, scope)
    return list_typing.type_list(node, scope)


def _literal_value(text: str, kind: SqlType, at: Position) -> int:
    cast = caster(STRING, kind)
    assert cast is not None
    try:
        value = cast(text)
    except EvaluationFailure as failure:
        raise SemanticFailure(str(failure), at, length=len(text) + 2) from None
    assert isinstance(value, int)
    return value


def boolean(node: Expression, scope: Scope) -> Typed:
    """Return the expression, which must be a condition."""
    typed = type_expression(node, scope)
    if typed.type not in (BOOLEAN, NULL_TYPE):
        raise SemanticFailure(f"expected a BOOLEAN, but {expression_text(node)} is {typed.type}", node.at)
    return cast_to(typed, BOOLEAN)


def _text(node: Expression, scope: Scope) -> Typed:
    typed = type_expression(node, scope)
    if typed.type != STRING:
        raise SemanticFailure(f"LIKE compares texts, but {expression_text(node)} is {typed.type}", node.at)
    return typed


def _arithmetic(node: nodes.Arithmetic, scope: Scope) -> Typed:
    left, right = type_expression(node.left, scope), type_expression(node.right, scope)
    result = arithmetic_type(node.operator, left.type, right.type)
    if result is None:
        hint = "Write CAST(… AS STRING)." if STRING in (left.type, right.type) else ""
        raise SemanticFailure(
            f"Unsupported arithmetic types. {left.type} {node.operator} {right.type}", node.at, hint=hint
        )
    return Typed(node, result, (left, right))


def _comparison(node: nodes.Comparison, scope: Scope) -> Typed:
    left, right = type_expression(node.left, scope), type_expression(node.right, scope)
    left, right = compared(node, node.operator, left, right)
    return Typed(node, BOOLEAN, (left, right))


def compared(node: Expression, operator: str, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return both sides with casts that make them comparable."""
    if NULL_TYPE in (left.type, right.type):
        if operator.startswith("IS "):
            return (cast_to(left, right.type), right) if left.type == NULL_TYPE else (left, cast_to(right, left.type))
        raise SemanticFailure(
            f"Comparison with NULL not supported: {expression_text(node)}",
            node.at,
            hint="Write IS NULL or IS NOT NULL.",
        )
    left, right = _parse_compared_time(left, right), _parse_compared_time(right, left)
    if not can_compare(operator, left.type, right.type):
        raise SemanticFailure(
            f"Cannot compare {expression_text(left.node)} ({left.type}) to {expression_text(right.node)} "
            f"({right.type}) with {_OPERATOR_NAMES[operator]}.",
            node.at,
            hint="Write CAST(… AS …)." if STRING in (left.type, right.type) else "",
        )
    if left.type == STRING and right.type in TIMES:
        return cast_to(left, right.type), right
    if right.type == STRING and left.type in TIMES:
        return left, cast_to(right, left.type)
    if {left.type, right.type} == {DATE, TIMESTAMP}:
        return cast_to(left, TIMESTAMP), cast_to(right, TIMESTAMP)
    return left, right


def _parse_compared_time(side: Typed, other: Typed) -> Typed:
    """Return the text that ROWTIME is compared with as a literal in milliseconds."""
    column = other.node
    if not (isinstance(column, nodes.Column) and column.name in _TIME_COLUMNS and other.type == BIGINT):
        return side
    if not (isinstance(side.node, nodes.Literal) and isinstance(side.node.value, str)):
        return side
    try:
        moment = parse_timestamp(side.node.value)
    except EvaluationFailure as failure:
        raise SemanticFailure(str(failure), side.node.at, length=len(side.node.value) + 2) from None
    return Typed(nodes.Literal(moment, BIGINT, at=side.node.at), BIGINT, value=moment)


def _between(node: nodes.Between, scope: Scope) -> Typed:
    """Return the operand twice, each beside its bound: the two comparisons may cast it differently."""
    operand = type_expression(node.operand, scope)
    above, low = compared(node, ">=", operand, type_expression(node.low, scope))
    below, high = compared(node, "<=", operand, type_expression(node.high, scope))
    return Typed(node, BOOLEAN, (above, low, below, high))


def _cast(node: nodes.Cast, typed: Typed, target: SqlType) -> Typed:
    if caster(typed.type, target) is None:
        raise SemanticFailure(f"Cast of {typed.type} to {target} is not supported", node.at)
    return Typed(node, target, (typed,))


def _dereference(node: nodes.Dereference, scope: Scope) -> Typed:
    base = type_expression(node.base, scope)
    if not isinstance(base.type, Struct):
        raise SemanticFailure(f"Expected STRUCT type, got: {base.type}", node.at, hint="-> takes a field of a STRUCT.")
    kind = base.type.field(node.field_name)
    if kind is None:
        names = [name for name, _ in base.type.fields]
        raise SemanticFailure(
            f"Could not find field '{node.field_name}' in '{expression_text(node.base)}'.",
            node.at,
            hint=did_you_mean(node.field_name, names) or f"Its fields are {', '.join(names)}.",
        )
    return Typed(node, kind, (base,))


def _subscript(node: nodes.Subscript, scope: Scope) -> Typed:
    base, index = type_expression(node.base, scope), type_expression(node.index, scope)
    match base.type:
        case Array(element):
            if index.type not in (INTEGER, BIGINT):
                raise SemanticFailure(f"Array index must be an INTEGER, but it is {index.type}", node.at)
            return Typed(node, element, (base, index))
        case Map(key, value):
            if index.type != key:
                raise SemanticFailure(f"Map key must be a {key}, but it is {index.type}", node.at)
            return Typed(node, value, (base, index))
    raise SemanticFailure(f"Subscript expression is only supported on ARRAY or MAP, but this is {base.type}", node.at)

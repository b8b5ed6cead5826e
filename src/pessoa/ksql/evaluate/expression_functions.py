"""A typed expression becomes a function from a row to a value.

- A row is a mapping from column names to values; None is null.
- Arithmetic with a null fails, and with it the whole expression; a *call or a field* that fails as an argument of a
  call or in a CAST is null for that one alone.
- CASE, AND and OR evaluate only what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal as Exact
from typing import TypeAlias, cast

from pessoa.ksql.analysis.expression_scopes import parameter_column
from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.functions.function_table import Resolved
from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.types.explicit_casts import caster
from pessoa.ksql.types.number_arithmetic import fit_decimal, operation, wrap_bigint, wrap_integer
from pessoa.ksql.types.sql_types import BIGINT, BYTES, INTEGER, STRING, Decimal, EvaluationFailure, Value

Row: TypeAlias = Mapping[str, Value]
RowFunction: TypeAlias = Callable[[Row], Value]


def compile_expression(typed: Typed, around: EvaluationContext) -> RowFunction:
    """Return the function that computes the expression for a row. It raises EvaluationFailure."""
    node = typed.node
    match node:
        case nodes.Literal() | nodes.TypedLiteral() | nodes.IntervalUnit():
            value = typed.value
            return lambda _: value
        case nodes.Column():
            name = typed.column
            return lambda row: row.get(name)
        case nodes.Arithmetic(operator):
            return _arithmetic(operator, typed, around)
        case nodes.Negate():
            return _negate(typed, around)
        case nodes.Cast():
            return _cast(typed, around)
        case nodes.Dereference(_, field_name):
            return _dereference(field_name, compile_expression(typed.children[0], around))
        case nodes.Subscript():
            return _subscript(typed, around)
        case nodes.Call():
            return _call(typed, around)
        case nodes.Case():
            return _case(typed, around)
        case nodes.ArrayConstructor():
            items = _compile_children(typed, around)
            return lambda row: [item(row) for item in items]
        case nodes.MapConstructor():
            parts = _compile_children(typed, around)
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            return lambda row: {key(row): value(row) for key, value in pairs}
        case nodes.StructConstructor(fields):
            named = [(name, value) for (name, _), value in zip(fields, _compile_children(typed, around), strict=True)]
            return lambda row: {name: value(row) for name, value in named}
    from pessoa.ksql.evaluate.predicate_functions import compile_predicate

    return compile_predicate(typed, around)


def _compile_children(typed: Typed, around: EvaluationContext) -> list[RowFunction]:
    return [compile_expression(child, around) for child in typed.children]


def _arithmetic(operator: str, typed: Typed, around: EvaluationContext) -> RowFunction:
    left, right = _compile_children(typed, around)
    if operator == "||":
        return _concat(left, right, typed.type == BYTES)
    if typed.type == STRING:
        return lambda row: _java_text(left(row)) + _java_text(right(row))
    compute = operation(operator, typed.children[0].type, typed.children[1].type, typed.type)

    def computed(row: Row) -> Value:
        first, second = left(row), right(row)
        if first is None or second is None:
            raise EvaluationFailure(f"an operand of {operator} is null")
        return compute(first, second)

    return computed


def _java_text(value: Value) -> str:
    """Return a text as Java's + prints it: null becomes `null`."""
    return "null" if value is None else cast("str", value)


def _concat(left: RowFunction, right: RowFunction, binary: bool) -> RowFunction:
    if binary:
        return lambda row: b"".join(cast("bytes", part) for part in (left(row), right(row)) if part is not None)
    return lambda row: "".join(cast("str", part) for part in (left(row), right(row)) if part is not None)


def _negate(typed: Typed, around: EvaluationContext) -> RowFunction:
    (operand,) = _compile_children(typed, around)
    wrap = wrap_integer if typed.type == INTEGER else wrap_bigint if typed.type == BIGINT else None

    def negated(row: Row) -> Value:
        value = operand(row)
        if value is None:
            raise EvaluationFailure("the operand of - is null")
        return wrap(-cast("int", value)) if wrap is not None else -cast("float", value)

    return negated


def _cast(typed: Typed, around: EvaluationContext) -> RowFunction:
    operand = _compile_leniently(typed.children[0], around)
    change = caster(typed.children[0].type, typed.type)
    assert change is not None
    return lambda row: change(operand(row))


def _dereference(name: str, base: RowFunction) -> RowFunction:
    def field(row: Row) -> Value:
        value = base(row)
        return value.get(name) if isinstance(value, dict) else None

    return field


def _subscript(typed: Typed, around: EvaluationContext) -> RowFunction:
    base, index = _compile_children(typed, around)

    def element(row: Row) -> Value:
        container, key = base(row), index(row)
        if isinstance(container, dict):
            return container.get(key)
        if not isinstance(container, list) or not isinstance(key, int) or key == 0:
            return None
        position = key - 1 if key > 0 else len(container) + key
        return container[position] if 0 <= position < len(container) else None

    return element


def _call(typed: Typed, around: EvaluationContext) -> RowFunction:
    resolved = typed.call
    assert isinstance(resolved, Resolved), f"{typed.node} is an aggregate"
    variant = resolved.variant
    arguments = [_argument(child, around) for child in typed.children]
    compute, sees_null, result = variant.compute, variant.sees_null, resolved.result
    name = typed.node.name if isinstance(typed.node, nodes.Call) else ""
    before: tuple[object, ...] = (around,) if variant.takes_context else ()
    if variant.typed:
        before = (*before, tuple(child.type for child in typed.children))

    def called(row: Row) -> Value:
        values = [argument(row) for argument in arguments]
        if not sees_null and any(value is None for value in values):
            return None
        try:
            found = cast("Value", compute(*before, *values))
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            # A function may be a user's. It fails for this row, and the query continues.
            raise EvaluationFailure(f"{name} failed: {error!r}") from error
        # CEIL(9.9) is no DECIMAL(2, 1).
        return fit_decimal(found, result) if isinstance(found, Exact) and isinstance(result, Decimal) else found

    return called


def _argument(typed: Typed, around: EvaluationContext) -> Callable[[Row], object]:
    """Return the function that computes an argument of a call; for a lambda, one that returns a function. A call
    that fails gives null."""
    if isinstance(typed.node, nodes.LambdaFunction):
        return _lambda(typed.node, compile_expression(typed.children[0], around))
    return _compile_leniently(typed, around)


def _compile_leniently(typed: Typed, around: EvaluationContext) -> RowFunction:
    """Return the function that computes an operand of a call or a cast: a call or a field that fails gives null."""
    compute = compile_expression(typed, around)
    if not isinstance(typed.node, (nodes.Call, nodes.Dereference, nodes.Subscript)):
        return compute

    def or_null(row: Row) -> Value:
        try:
            return compute(row)
        except EvaluationFailure:
            return None

    return or_null


def _lambda(node: nodes.LambdaFunction, body: RowFunction) -> Callable[[Row], object]:
    names = [parameter_column(name) for name in node.parameters]

    def bound(row: Row) -> object:
        return lambda *values: body({**row, **dict(zip(names, values, strict=True))})

    return bound


def _case(typed: Typed, around: EvaluationContext) -> RowFunction:
    parts = _compile_children(typed, around)
    branches = list(zip(parts[:-1:2], parts[1:-1:2], strict=True))
    otherwise = parts[-1]

    def chosen(row: Row) -> Value:
        for condition, result in branches:
            if condition(row):
                return result(row)
        return otherwise(row)

    return chosen

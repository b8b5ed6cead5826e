"""Types of calls: the variant of the function, and its arguments cast to what the variant takes."""

from __future__ import annotations

from pessoa.ksql.analysis.expression_scopes import LambdaScope, Scope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.typed_expressions import Typed, cast_to
from pessoa.ksql.functions.aggregates import ResolvedAggregate, aggregate_functions, resolve_aggregate
from pessoa.ksql.functions.function_table import find_scalar, resolve
from pessoa.ksql.functions.signatures import Argument, LambdaArgument
from pessoa.ksql.functions.table_functions import table_functions
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Call, Expression, LambdaFunction
from pessoa.ksql.types.sql_types import Lambda, SqlType, Value


def type_call(node: Call, scope: Scope) -> Typed:
    if node.name in aggregate_functions():
        return _aggregate(node, scope)
    if node.star:
        raise SemanticFailure(f"{node.name}(*) is not possible: only COUNT takes a star", node.at)
    function = table_functions().get(node.name) or find_scalar(node.name, node.at)
    typed = [None if isinstance(one, LambdaFunction) else type_expression(one, scope) for one in node.arguments]
    arguments: list[Argument] = [
        _lambda(argument, scope) if own is None else own.type
        for argument, own in zip(node.arguments, typed, strict=True)
    ]
    resolved = resolve(function, arguments, node.at)
    children = [
        _typed_lambda(argument, wanted, scope) if own is None else cast_to(own, wanted)
        for argument, own, wanted in zip(node.arguments, typed, resolved.parameters, strict=True)
    ]
    return Typed(node, resolved.result, tuple(children), call=resolved)


def _lambda(node: Expression, scope: Scope) -> LambdaArgument:
    """Return the function that types the body, once the types of the parameters are known."""
    assert isinstance(node, LambdaFunction)

    def type_body(parameters: tuple[SqlType, ...]) -> SqlType:
        return _body(node, parameters, scope).type

    return type_body


def _body(node: LambdaFunction, parameters: tuple[SqlType, ...], scope: Scope) -> Typed:
    if len(parameters) != len(node.parameters):
        raise SemanticFailure(
            f"the lambda has {len(node.parameters)} parameters, but the function gives {len(parameters)}", node.at
        )
    if len(set(node.parameters)) < len(node.parameters):
        raise SemanticFailure("the parameters of a lambda must have different names", node.at)
    return type_expression(node.body, LambdaScope(scope, dict(zip(node.parameters, parameters, strict=True))))


def _typed_lambda(node: Expression, wanted: SqlType, scope: Scope) -> Typed:
    assert isinstance(node, LambdaFunction)
    assert isinstance(wanted, Lambda)
    return Typed(node, wanted, (cast_to(_body(node, wanted.arguments, scope), wanted.result),))


def _aggregate(node: Call, scope: Scope) -> Typed:
    """Return an aggregate with its columns as children; the literals behind them are in the aggregate."""
    arguments = [type_expression(argument, scope) for argument in node.arguments]
    literals: list[Value] = []
    for argument in reversed(arguments):
        if not argument.is_literal:
            break
        literals.insert(0, argument.value)
    try:
        resolved: ResolvedAggregate = resolve_aggregate(node.name, [one.type for one in arguments], literals, node.at)
    except SemanticFailure as failure:
        failure.at = failure.at if failure.at.line else node.at
        raise
    columns = arguments[: len(resolved.parameters)]
    children = tuple(cast_to(one, kind) for one, kind in zip(columns, resolved.parameters, strict=True))
    return Typed(node, resolved.result, children, call=resolved)

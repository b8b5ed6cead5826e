"""Types of calls: the variant of the function, and its arguments cast to what the variant takes."""

from __future__ import annotations

from pessoa.ksql.analysis.expression_scopes import LambdaScope, Scope
from pessoa.ksql.analysis.expression_typing import type_expression
from pessoa.ksql.analysis.typed_expressions import Typed, cast_to
from pessoa.ksql.functions.aggregates import ResolvedAggregate, aggregate_functions, resolve_aggregate
from pessoa.ksql.functions.function_table import find_scalar, resolve
from pessoa.ksql.functions.signatures import Argument
from pessoa.ksql.functions.table_functions import table_functions
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.expression_nodes import Call, LambdaFunction
from pessoa.ksql.types.sql_types import Lambda, SqlType, Value


def type_call(node: Call, scope: Scope) -> Typed:
    if node.name in aggregate_functions():
        return _aggregate(node, scope)
    if node.star:
        raise SemanticFailure(f"{node.name}(*) is not possible: only COUNT takes a star", node.at)
    function = table_functions().get(node.name) or find_scalar(node.name, node.at)
    typed = [
        _Lambda(argument, scope) if isinstance(argument, LambdaFunction) else type_expression(argument, scope)
        for argument in node.arguments
    ]
    arguments: list[Argument] = [one if isinstance(one, _Lambda) else one.type for one in typed]
    resolved = resolve(function, arguments, node.at)
    children = [
        one.typed(wanted) if isinstance(one, _Lambda) else cast_to(one, wanted)
        for one, wanted in zip(typed, resolved.parameters, strict=True)
    ]
    return Typed(node, resolved.result, tuple(children), call=resolved)


class _Lambda:
    """A lambda whose body is typed when the types of its parameters are known.

    Each variant of a function may need the type of the body; it is cached, or lambdas in lambdas would take exponential
    time.
    """

    def __init__(self, node: LambdaFunction, scope: Scope) -> None:
        self._node = node
        self._scope = scope
        self._bodies: dict[tuple[SqlType, ...], Typed] = {}

    def __call__(self, parameters: tuple[SqlType, ...]) -> SqlType:
        return self._body(parameters).type

    def typed(self, wanted: SqlType) -> Typed:
        assert isinstance(wanted, Lambda)
        return Typed(self._node, wanted, (cast_to(self._body(wanted.arguments), wanted.result),))

    def _body(self, parameters: tuple[SqlType, ...]) -> Typed:
        if parameters not in self._bodies:
            self._bodies[parameters] = self._type_body(parameters)
        return self._bodies[parameters]

    def _type_body(self, parameters: tuple[SqlType, ...]) -> Typed:
        node = self._node
        if len(parameters) != len(node.parameters):
            raise SemanticFailure(
                f"the lambda has {len(node.parameters)} parameters, but the function gives {len(parameters)}", node.at
            )
        if len(set(node.parameters)) < len(node.parameters):
            raise SemanticFailure("the parameters of a lambda must have different names", node.at)
        names = dict(zip(node.parameters, parameters, strict=True))
        return type_expression(node.body, LambdaScope(self._scope, names))


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

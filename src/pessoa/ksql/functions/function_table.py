"""The one table of scalar functions, and how the variant for a call is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pessoa.ksql.functions.function_rows import Function, Variant
from pessoa.ksql.functions.signatures import Argument, Match
from pessoa.ksql.ksql_errors import NOWHERE, Position, SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.types.sql_types import SqlType


@dataclass(frozen=True)
class Resolved:
    """The function variant of a call: the types that its arguments are cast to, and its result type."""

    variant: Variant
    parameters: tuple[SqlType, ...]
    result: SqlType


@cache
def scalar_functions() -> dict[str, Function]:
    """Return every scalar function by its name."""
    from pessoa.ksql.functions import (
        collection_functions,
        json_functions,
        mask_functions,
        numeric_functions,
        regex_functions,
        text_functions,
        time_functions,
        url_functions,
        value_functions,
    )

    topics = (
        numeric_functions, collection_functions, text_functions, mask_functions, regex_functions, json_functions,
        value_functions, time_functions, url_functions,
    )  # fmt: skip
    found: dict[str, Function] = {}
    for row in (row for topic in topics for row in topic.ROWS):
        assert row.name not in found, row.name
        found[row.name] = row
    return found


def find_scalar(name: str, at: Position = NOWHERE) -> Function:
    found = scalar_functions().get(name)
    if found is None:
        raise SemanticFailure(
            f"Can't find any functions with the name '{name}'",
            at,
            length=len(name),
            hint=did_you_mean(name, known_names()),
        )
    return found


def known_names() -> list[str]:
    from pessoa.ksql.functions.aggregates import aggregate_functions
    from pessoa.ksql.functions.table_functions import table_functions

    return sorted([*scalar_functions(), *aggregate_functions(), *table_functions()])


def resolve(function: Function, arguments: Sequence[Argument], at: Position = NOWHERE) -> Resolved:
    """Return the variant that takes these arguments with the fewest casts."""
    best: tuple[Match, Variant] | None = None
    for variant in function.variants:
        match = variant.signature.match(arguments)
        if match is not None and (best is None or match.cost < best[0].cost):
            best = match, variant
    if best is None:
        raise refusal(function.name, [str(variant.signature) for variant in function.variants], arguments, at)
    match, variant = best
    result = match.result if variant.returns is None else variant.returns(match.parameters)
    return Resolved(variant, match.parameters, result)


def refusal(name: str, signatures: Sequence[str], arguments: Sequence[Argument], at: Position) -> SemanticFailure:
    """Return the error for arguments that no variant takes."""
    given = ", ".join(str(one) if isinstance(one, SqlType) else "LAMBDA" for one in arguments)
    lines = "\n".join(f"{name}{signature}" for signature in signatures)
    return SemanticFailure(
        f"Function '{name}' does not accept parameters ({given}).",
        at,
        length=len(name),
        hint=f"Valid alternatives are:\n{lines}",
    )

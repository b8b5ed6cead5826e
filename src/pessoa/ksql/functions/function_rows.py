"""The classes of which a row of the function table consists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pessoa.ksql.functions.signatures import Signature, parse_signature
from pessoa.ksql.types.sql_types import SqlType


class EvaluationContext(Protocol):
    """The clock and the random numbers that an evaluation uses."""

    @property
    def now_ms(self) -> int: ...

    def octets(self, count: int) -> bytes:
        """Return `count` random bytes."""


# Takes and returns values; their types are those of the signature.
Compute: TypeAlias = Callable[..., object]
Returns: TypeAlias = Callable[[tuple[SqlType, ...]], SqlType]


@dataclass(frozen=True)
class Variant:
    signature: Signature
    # Takes the arguments; with `takes_context`, the EvaluationContext before them; with `typed`, their types before
    # those.
    compute: Compute
    # False: a null among the arguments gives null, and the function is not called.
    sees_null: bool = False
    takes_context: bool = False
    typed: bool = False
    # The result's type, where the signature cannot express it: decimals.
    returns: Returns | None = None
    # The expression of Spark SQL that means the same, with {0}, {1} … for the arguments; "" if there is none.
    spark: str = ""


@dataclass(frozen=True)
class Function:
    name: str
    category: str
    doc: str
    # `call = result`, both in SQL; tests evaluate them.
    examples: tuple[str, ...]
    variants: tuple[Variant, ...]


def variant(
    signature: str,
    compute: Compute,
    *,
    sees_null: bool = False,
    takes_context: bool = False,
    typed: bool = False,
    returns: Returns | None = None,
) -> Variant:
    return Variant(parse_signature(signature), compute, sees_null, takes_context, typed, returns)


def function(name: str, category: str, doc: str, examples: list[str], *variants: Variant) -> Function:
    return Function(name, category, doc, tuple(examples), variants)

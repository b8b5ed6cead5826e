"""Signatures as text: `(ARRAY<T>, T...) ARRAY<T>`.

- A single capital letter is a type variable: any type, the same wherever it stands.
- DECIMAL is a decimal of any precision; what a function makes of one, `returns` of its variant says.
- `T...` repeats as often as there are arguments, also never.
- UNIT is DAYS, HOURS …; `(T) => U` is a lambda.

Matching a call binds the variables and says how many arguments must be cast; the variant with the fewest casts wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pessoa.ksql.types.implicit_casts import can_cast_implicitly, common_type
from pessoa.ksql.types.sql_types import (
    INTERVAL_UNIT,
    NULL_TYPE,
    PRIMITIVES,
    Array,
    Decimal,
    Lambda,
    Map,
    SqlType,
    Struct,
    is_number,
)

_WORD = re.compile(r"\s*(=>|\.\.\.|[A-Za-z_0-9]+|[(),<>])")


@dataclass(frozen=True)
class Variable(SqlType):
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class AnyDecimal(SqlType):
    def __str__(self) -> str:
        return "DECIMAL"


# A lambda whose body has still to be typed: given the types of its parameters, returns the type of the body.
LambdaArgument: TypeAlias = Callable[[tuple[SqlType, ...]], SqlType]
Argument: TypeAlias = "SqlType | LambdaArgument"


@dataclass(frozen=True)
class Match:
    # What each argument has to be, after variables are bound.
    parameters: tuple[SqlType, ...]
    result: SqlType
    cost: int


@dataclass(frozen=True)
class Signature:
    parameters: tuple[SqlType, ...]
    variadic: bool
    result: SqlType

    def __str__(self) -> str:
        shown = [str(kind) for kind in self.parameters]
        if self.variadic:
            shown[-1] += "..."
        return f"({', '.join(shown)}) {self.result}"

    def match(self, arguments: Sequence[Argument]) -> Match | None:
        """Return the match of a call with these arguments, with its cost; None if they do not fit."""
        fixed = len(self.parameters) - (1 if self.variadic else 0)
        if len(arguments) < fixed or (len(arguments) > fixed and not self.variadic):
            return None
        wanted = [*self.parameters[:fixed], *[self.parameters[-1]] * (len(arguments) - fixed)] if arguments else []
        bound: dict[str, SqlType] = {}
        for parameter, argument in zip(wanted, arguments, strict=True):
            if isinstance(argument, SqlType) and not _bind(parameter, argument, bound):
                return None
        for parameter, argument in zip(wanted, arguments, strict=True):
            if not isinstance(argument, SqlType) and not _bind_lambda(parameter, argument, bound):
                return None
        filled = tuple(
            _substitute(parameter, bound, argument if isinstance(argument, SqlType) else NULL_TYPE)
            for parameter, argument in zip(wanted, arguments, strict=True)
        )
        pairs = [(kind, own) for kind, own in zip(filled, arguments, strict=True) if isinstance(own, SqlType)]
        if not all(can_cast_implicitly(own, kind) for kind, own in pairs):
            return None
        # A bare NULL fits everything and counts as little.
        cost = sum(0 if own in (kind, NULL_TYPE) else _distance(own, kind) for kind, own in pairs)
        return Match(filled, _substitute(self.result, bound, NULL_TYPE), cost + (1 if self.variadic else 0))


_WIDTHS = {"INTEGER": 0, "BIGINT": 1, "DOUBLE": 3}


def _distance(source: SqlType, target: SqlType) -> int:
    """Return the cost of a cast: INTEGER is nearer to BIGINT than to DOUBLE."""
    if not (is_number(source) and is_number(target)):
        return 10
    widths = [2 if isinstance(kind, Decimal) else _WIDTHS[str(kind)] for kind in (source, target)]
    return 10 * max(1, widths[1] - widths[0])


def _bind(parameter: SqlType, argument: SqlType, bound: dict[str, SqlType]) -> bool:
    if isinstance(parameter, Lambda) or argument == INTERVAL_UNIT or parameter == INTERVAL_UNIT:
        return parameter == argument
    match parameter, argument:
        case Variable(name), _:
            known = bound.get(name)
            found = argument if known is None else common_type(known, argument)
            if found is None:
                return False
            bound[name] = found
            return True
        case _, _ if argument == NULL_TYPE:
            return True
        case AnyDecimal(), _:
            return isinstance(argument, Decimal)
        case Array(inner), Array(element):
            return _bind(inner, element, bound)
        case Map(key, value), Map(own_key, own_value):
            return _bind(key, own_key, bound) and _bind(value, own_value, bound)
        case Array() | Map(), _:
            return False
    return True


def _bind_lambda(parameter: SqlType, argument: LambdaArgument, bound: dict[str, SqlType]) -> bool:
    if not isinstance(parameter, Lambda):
        return False
    own = argument(tuple(_substitute(kind, bound, NULL_TYPE) for kind in parameter.arguments))
    return _bind(parameter.result, own, bound) and can_cast_implicitly(own, _substitute(parameter.result, bound, own))


def _substitute(kind: SqlType, bound: dict[str, SqlType], argument: SqlType) -> SqlType:
    match kind:
        case Variable(name):
            return bound.get(name, NULL_TYPE)
        case AnyDecimal():
            return argument
        case Array(element):
            inner = argument.element if isinstance(argument, Array) else NULL_TYPE
            return Array(_substitute(element, bound, inner))
        case Map(key, value):
            return Map(_substitute(key, bound, NULL_TYPE), _substitute(value, bound, NULL_TYPE))
        case Struct(fields):
            return Struct(tuple((name, _substitute(one, bound, NULL_TYPE)) for name, one in fields))
        case Lambda(arguments, result):
            own = tuple(_substitute(one, bound, NULL_TYPE) for one in arguments)
            return Lambda(own, _substitute(result, bound, NULL_TYPE))
    return kind


def parse_signature(text: str) -> Signature:
    """Return the signature that the text describes."""
    words = _WORD.findall(text)
    reader = _Reader(words)
    parameters, variadic = reader.parameters()
    result = reader.type()
    assert reader.done, f"{text}: {words}"
    return Signature(parameters, variadic, result)


class _Reader:
    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._index = 0

    @property
    def done(self) -> bool:
        return self._index == len(self._words)

    def _take(self, word: str) -> bool:
        if self.done or self._words[self._index] != word:
            return False
        self._index += 1
        return True

    def _expect(self, word: str) -> None:
        taken = self._take(word)
        assert taken, f"expected {word} at {self._words[self._index :]}"

    def parameters(self) -> tuple[tuple[SqlType, ...], bool]:
        self._expect("(")
        found: list[SqlType] = []
        variadic = False
        while not self._take(")"):
            found.append(self.type())
            variadic = self._take("...")
            self._take(",")
        return tuple(found), variadic

    def type(self) -> SqlType:
        if self._words[self._index] == "(":
            arguments, _ = self.parameters()
            self._expect("=>")
            return Lambda(arguments, self.type())
        word = self._words[self._index]
        self._index += 1
        if word in ("ARRAY", "MAP", "STRUCT"):
            return self._nested_type(word)
        if word in ("UNIT", str(INTERVAL_UNIT)):
            return INTERVAL_UNIT
        if word == "DECIMAL":
            return AnyDecimal()
        if len(word) == 1:
            return Variable(word)
        return PRIMITIVES[word]

    def _nested_type(self, word: str) -> SqlType:
        self._expect("<")
        if word == "STRUCT":
            fields: list[tuple[str, SqlType]] = []
            while not self._take(">"):
                name = self._words[self._index]
                self._index += 1
                fields.append((name, self.type()))
                self._take(",")
            return Struct(tuple(fields))
        first = self.type()
        if word == "ARRAY":
            self._expect(">")
            return Array(first)
        self._expect(",")
        second = self.type()
        self._expect(">")
        return Map(first, second)

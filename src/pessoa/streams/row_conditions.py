"""Conditions that the API makes of a user's functions: the branch that a row takes, and functions that only look at it.

They are pickled and called in Spark's workers, where Pessoa is installed. Each carries the module and name of the
user's function, so that a plan names that one, and its module goes along.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from pessoa.pipelines.plan import PlanRefused


class FirstMatch:
    """A condition that holds for rows that match the last of these conditions and none before it; without a last
    one, for rows that match none."""

    def __init__(self, before: Sequence[Callable[..., object]], last: Callable[..., object] | None) -> None:
        self._before = tuple(before)
        self._last = last
        _resemble(self, last or self._before[-1], "otherwise" if last is None else "")

    def __call__(self, value: object) -> bool:
        if any(condition(value) for condition in self._before):
            return False
        return self._last is None or bool(self._last(value))


class Observer:
    """A condition that calls a function with the value, or key and value, of each row, and holds for all rows or for
    none."""

    def __init__(self, function: Callable[..., object], *, keeps: bool) -> None:
        self._function = function
        self._keeps = keeps
        count = len(inspect.signature(function).parameters)
        if count not in (1, 2):
            raise PlanRefused(
                f"a function that looks at rows takes the value, or key and value, and not {count} things"
            )
        self._with_key = count == 2
        _resemble(self, function)

    def __call__(self, key: object, value: object) -> bool:
        if self._with_key:
            self._function(key, value)
        else:
            self._function(value)
        return self._keeps


def _resemble(made: object, function: Callable[..., object], prefix: str = "") -> None:
    name = getattr(function, "__qualname__", type(function).__name__)
    vars(made)["__module__"] = getattr(function, "__module__", "")
    vars(made)["__qualname__"] = f"{prefix} {name}".strip()


def conditions(given: Sequence[str | Callable[..., object]], *, rest: bool) -> list[str | Callable[..., object]]:
    """Return a condition for each branch, which holds for the rows for which the given one is the first that holds.
    `rest` adds a condition for the rows of no branch."""
    if not given:
        raise PlanRefused("a stream is split by one condition or more")
    if len({isinstance(each, str) for each in given}) > 1:
        raise PlanRefused("branches are all expressions or all functions: a row has to be asked for each in turn")
    found: list[str | Callable[..., object]] = []
    for position, each in enumerate([*given, None] if rest else given):
        before = given[:position]
        if isinstance(given[0], str):
            parts = [f"NOT coalesce({condition}, false)" for condition in before]
            found.append(" AND ".join([*parts, *([f"({each})"] if isinstance(each, str) else [])]))
        else:
            functions = [condition for condition in before if not isinstance(condition, str)]
            assert not isinstance(each, str)
            found.append(FirstMatch(functions, each) if functions or each is None else each)
    return found

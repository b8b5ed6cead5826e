"""A user's function as the plan names it: what it takes, what it returns, and in which style Spark is to call it.

All of this is read from its annotations:

    def dobro(venda: Venda) -> float                        called once a record
    def dobro(vendas: pandas.DataFrame) -> pandas.Series    called once a chunk, with its columns
    def dobro(vendas: pyarrow.Table) -> pyarrow.Array

A function without annotations, such as a lambda, is of the first kind, and `returns` says what it gives.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import cast

from pessoa.pipelines.columns import struct_of, type_of
from pessoa.pipelines.plan import Function, PlanRefused, Style

# Arrays for one column, tables for several, by where they are defined.
_VECTORS: dict[str, Style] = {"pandas": "pandas", "pyarrow": "arrow"}


class Functions:
    """The user's functions of an app, by the names that its plans use; the plan compiler looks them up here."""

    def __init__(self) -> None:
        self.by_name: dict[str, Callable[..., object]] = {}

    def __repr__(self) -> str:
        return f"<Functions {', '.join(self.by_name) or 'none'}>"

    def name(self, function: Callable[..., object]) -> str:
        """Return a unique name for this function."""
        base = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
        name, count = base, 1
        while self.by_name.setdefault(name, function) is not function:
            count += 1
            name = f"{base}#{count}"
        return name

    def plan(
        self, function: Callable[..., object], *, takes: type | None, returns: object, with_key: bool = False,
        many: bool = False,
    ) -> Function:  # fmt: skip
        """Register a user's function under a unique name, and return the `Function` that refers to it in a plan. If
        `returns` is None, its annotation has the type; with `many` it returns several values for a record."""
        hints = _hints(function)
        style = _style(function, hints)
        if returns is None:
            returns = _read_return_type(function, hints, style, many=many)
        kind = _spark_type(returns, many=many, pairs=many and with_key)
        name = self.name(function)
        taken_name = self.name(takes) if style == "row" and takes is not None else ""
        return Function(name, kind, style, with_key, taken_name)

    def plan_processor(self, processor: object, *, takes: type | None, returns: object) -> Function:
        """Return the plan's Function of a processor; each element that its `process` gives is a value."""
        method = getattr(processor, "process", None)
        if not callable(method):
            raise PlanRefused(
                f"process takes an object with a method process(context, key, value), which {processor!r} has not"
            )
        if returns is None:
            returns = _read_return_type(method, _hints(method), "row", many=True)
        name = self._name_object(processor)
        return Function(name, _spark_type(returns, many=False, pairs=False), takes=self.name(takes) if takes else "")

    def _name_object(self, thing: object) -> str:
        kind = type(thing)
        name, count = f"{kind.__module__}:{kind.__qualname__}", 1
        # What is called here is a method of it; the compiler of the plan knows.
        while self.by_name.setdefault(name, cast("Callable[..., object]", thing)) is not thing:
            count += 1
            name = f"{kind.__module__}:{kind.__qualname__}#{count}"
        return name


def _hints(function: Callable[..., object]) -> dict[str, object]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError) as wrong:
        raise PlanRefused(f"the annotations of {function!r} cannot be read: {wrong}") from None


def _style(function: Callable[..., object], hints: dict[str, object]) -> Style:
    for name in inspect.signature(function).parameters:
        module = getattr(hints.get(name), "__module__", "") or ""
        if (package := module.partition(".")[0]) in _VECTORS:
            return _VECTORS[package]
    return "row"


def _read_return_type(function: Callable[..., object], hints: dict[str, object], style: Style, *, many: bool) -> object:
    hint = hints.get("return")
    name = getattr(function, "__qualname__", repr(function))
    if hint is None or style != "row":
        raise PlanRefused(f"what does {name} return? Say it: returns=float, or a dataclass, or a type of Spark")
    if not many:
        return hint
    arguments = typing.get_args(hint)
    if not arguments:
        raise PlanRefused(f"{name} returns several values: say of which type, as in -> list[str]")
    return arguments[0]


def _spark_type(returns: object, *, many: bool, pairs: bool) -> str:
    if pairs and not isinstance(returns, str):
        arguments = typing.get_args(returns)
        if len(arguments) != 2:
            raise PlanRefused(f"keys and values are returned as pairs, tuple[K, V], and not as {returns}")
        kind = f"STRUCT<key: {type_of(arguments[0])}, value: {type_of(arguments[1])}>"
    elif isinstance(returns, str):
        # Columns, or a type.
        kind = struct_of(returns) if _looks_like_columns(returns) else returns
    elif isinstance(returns, dict):
        from pessoa.pipelines.columns import columns_of

        kind = struct_of(columns_of(returns))
    else:
        kind = type_of(returns)
    return f"ARRAY<{kind}>" if many else kind


def _looks_like_columns(text: str) -> bool:
    head = text.strip().partition("<")[0].partition("(")[0]
    return " " in head.strip()

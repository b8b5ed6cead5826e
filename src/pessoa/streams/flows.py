"""Streams and tables as a user chains them. Each call adds a node to the plan, nothing runs.

    Stream[K, V]    every row is a fact       Table[K, V]    a row replaces the one before it with its key
    Grouped[K, V]   a stream on its way to an aggregate, by key

Steps take Spark SQL expressions over the columns of key and value, or Python functions of the value. Expressions are
quicker, and keep a pipeline without state in real-time mode; functions can do everything else, and are checked by mypy.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, get_args, overload

from pessoa.pipelines.explain import explain
from pessoa.pipelines.plan import (
    Aggregate,
    Apply,
    Column,
    Distinct,
    Filter,
    FlatMap,
    ForeignKeyJoin,
    How,
    Join,
    Lookup,
    Node,
    PlanRefused,
    Process,
    Project,
    Rekey,
    Through,
    Timers,
    Union,
    Window,
    Within,
)
from pessoa.pipelines.row_process import RowProcessor
from pessoa.pipelines.shapes import KEY, VALUE, ColumnsUnknown, shape
from pessoa.streams.composed_steps import cogroup, join_on, suppressed
from pessoa.streams.row_conditions import Observer, conditions
from pessoa.streams.serdes import Row, Serde
from pessoa.streams.windows import DAY_MS, Duration, milliseconds

if TYPE_CHECKING:
    from pessoa.streams.app import App

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
# A function of whole chunks (pandas, Arrow), or one whose result `returns` declares: mypy cannot tell if it fits.
Unchecked: TypeAlias = Callable[[Any], Any]
_AS = re.compile(r"(?s)(.+)\s+AS\s+(`[^`]+`|\w+)\s*\Z", re.IGNORECASE)
_NAME = re.compile(r"(`[^`]+`|\w+)\Z")


def columns(expressions: Iterable[str], named: dict[str, str]) -> tuple[Column, ...]:
    """Return the columns of expressions such as "valor", "valor * 2 AS dobro" and dobro="valor * 2"."""
    found = []
    for expression in expressions:
        if match := _AS.match(expression.strip()):
            found.append(Column(match[2].strip("`"), match[1].strip()))
        elif _NAME.match(expression.strip()):
            found.append(Column(expression.strip().strip("`"), expression.strip()))
        else:
            raise PlanRefused(f"the expression {expression} needs a name: {expression} AS …")
    return (*found, *(Column(name, expression) for name, expression in named.items()))


class _Flow(Generic[K, V]):
    """The part that streams and tables share: a node of the plan, and the app that it belongs to."""

    def __init__(self, app: App, node: Node, value_type: type | None = None) -> None:
        self._app = app
        self.node = node
        # The dataclass that functions get the value as.
        self._type = value_type

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._app.id}:\n{explain(self.node)}>"

    def explain(self) -> str:
        return explain(self.node)

    def to(
        self,
        topic: str,
        *,
        key: Serde[object] | str | None = None,
        value: Serde[object] | str | None = None,
        windows: bool = True,
    ) -> None:
        """Write the rows to a topic. Keys keep their format where they can; values are JSON unless `value` is given.
        With `windows` the value of a windowed table has the columns window_start and window_end too."""
        self._app.add_sink(self.node, topic, key, value, windows=windows)

    def _apply(self, function: Callable[..., object], returns: object) -> tuple[Node, type | None]:
        made = self._app.functions.plan(function, takes=self._type, returns=returns)
        node = Apply(self.node, made, self._app.errors)
        return node, _as_type(returns if returns is not None else _return_hint(function))

    def _condition(self, condition: str | Callable[..., object]) -> Node:
        if isinstance(condition, str):
            return Filter(self.node, condition)
        made = self._app.functions.plan(condition, takes=self._type, returns="BOOLEAN")
        return Filter(self.node, made, self._app.errors)


class Stream(_Flow[K, V]):
    def filter(self, condition: str | Callable[[V], bool] | Unchecked) -> Stream[K, V]:
        """Return the rows for which the condition holds."""
        return Stream(self._app, self._condition(condition), self._type)

    def select(self, *expressions: str, **named: str) -> Stream[K, Row]:
        """Return rows whose value has these columns: select("produto", "valor * 2 AS dobro", triplo="valor * 3")."""
        return Stream(self._app, Project(self.node, columns(expressions, named)))

    def with_columns(self, **named: str) -> Stream[K, Row]:
        """Return the rows with these columns added to the value; a column of the same name is replaced."""
        return Stream(self._app, Project(self.node, columns((), named), keep=True))

    @overload
    def map_values(self, function: str, *, returns: None = None) -> Stream[K, Any]: ...
    @overload
    def map_values(self, function: Unchecked, *, returns: type[V2]) -> Stream[K, V2]: ...
    @overload
    def map_values(self, function: Unchecked, *, returns: str | dict[str, object]) -> Stream[K, Any]: ...
    @overload
    def map_values(self, function: Callable[[V], V2]) -> Stream[K, V2]: ...
    def map_values(self, function: str | Callable[..., object], *, returns: object = None) -> Stream[K, Any]:
        """Return rows with the function's result as value; an expression gives a single value, not an object."""
        if isinstance(function, str):
            return Stream(self._app, Project(self.node, (Column(VALUE, function),)))
        node, made = self._apply(function, returns)
        return Stream(self._app, node, made)

    @overload
    def flat_map_values(self, function: str, *, returns: None = None) -> Stream[K, Any]: ...
    @overload
    def flat_map_values(self, function: Unchecked, *, returns: type[V2]) -> Stream[K, V2]: ...
    @overload
    def flat_map_values(self, function: Callable[[V], Iterable[V2]]) -> Stream[K, V2]: ...
    def flat_map_values(self, function: str | Callable[..., object], *, returns: object = None) -> Stream[K, Any]:
        """Return a row for each value that the function gives, or for each element of the array that the expression
        gives."""
        if isinstance(function, str):
            return Stream(self._app, FlatMap(self.node, function))
        made = self._app.functions.plan(function, takes=self._type, returns=returns, many=True)
        element = returns if returns is not None else _element_hint(function)
        return Stream(self._app, FlatMap(self.node, made, errors=self._app.errors), _as_type(element))

    def flat_map(self, function: Callable[[K, V], Iterable[tuple[K2, V2]]]) -> Stream[K2, V2]:
        """Return a row for each pair of key and value that the function gives."""
        made = self._app.functions.plan(function, takes=self._type, returns=None, with_key=True, many=True)
        pair = getattr(_element_hint(function), "__args__", (None, None))
        return Stream(self._app, FlatMap(self.node, made, errors=self._app.errors), _as_type(pair[1]))

    @overload
    def select_key(self, key: str) -> Stream[Any, V]: ...
    @overload
    def select_key(self, key: Callable[[V], K2], *, returns: type[K2] | None = None) -> Stream[K2, V]: ...
    def select_key(self, key: str | Callable[..., object], *, returns: object = None) -> Stream[Any, V]:
        """Return the rows with a new key: an expression, or the function's result for the value. The value stays."""
        if isinstance(key, str):
            return Stream(self._app, Rekey(self.node, (Column(KEY, key),)), self._type)
        made = self._app.functions.plan(key, takes=self._type, returns=returns)
        return Stream(self._app, Rekey(self.node, (), made, self._app.errors), self._type)

    @overload
    def process(
        self, processor: RowProcessor, *, returns: type[V2], timers: Timers = "none", grace: Duration | None = None
    ) -> Stream[K, V2]: ...
    @overload
    def process(
        self,
        processor: RowProcessor,
        *,
        returns: str | dict[str, object] | None = None,
        timers: Timers = "none",
        grace: Duration | None = None,
    ) -> Stream[K, Any]: ...
    def process(
        self,
        processor: RowProcessor,
        *,
        returns: object = None,
        timers: Timers = "none",
        grace: Duration | None = None,
    ) -> Stream[K, Any]:
        """Return the values that `processor.process(context, key, value)` gives, called with the rows of a key in
        the order of their times. `context.state` is kept for the key. With `timers`, of the clock ("processing") or
        of the stream's time ("event"), `context.set_timer(…)` has `processor.timer(context, key, time)` called.
        `grace` is how late a row may be with "event" timers; a day by default."""
        if timers not in get_args(Timers):
            raise PlanRefused(f"timers are {', '.join(get_args(Timers))}, not {timers!r}")
        made = self._app.functions.plan_processor(processor, takes=self._type, returns=returns)
        wait = DAY_MS if grace is None else milliseconds(grace)
        node = Process(self.node, made, timers, wait if timers == "event" else 0, errors=self._app.errors)
        hint = returns if returns is not None else _element_hint(processor.process)
        return Stream(self._app, node, _as_type(hint))

    def distinct(self, *names: str, within: Duration | None = None) -> Stream[K, V]:
        """Return the first of the rows that are equal in these columns (all, if none are named). Without `within`,
        rows are remembered for ever."""
        made = Distinct(self.node, names, 0 if within is None else milliseconds(within))
        return Stream(self._app, made, self._type)

    def group_by_key(self) -> Grouped[K, V]:
        return Grouped(self._app, self.node)

    def group_by(self, *expressions: str, **named: str) -> Grouped[Any, V]:
        """Return the rows grouped by columns, which become the key: group_by("cidade"),
        group_by(mes="month(rowtime)")."""
        return Grouped(self._app, Rekey(self.node, columns(expressions, named)))

    def union(self, *others: Stream[K, V]) -> Stream[K, V]:
        """Return the rows of this stream and the others; all have the same columns."""
        return Stream(self._app, Union((self.node, *(other.node for other in others))), self._type)

    def through(self, topic: str, *, partitions: int = -1) -> Stream[K, V]:
        """Write the rows to a topic and return the stream of that topic, read by another query. Its keys and values
        are JSON, with the row's time as __rowtime. The topic is created if it is missing."""
        if not topic:
            raise PlanRefused("through which topic? repartition() takes one of ours")
        return Stream(self._app, Through(self.node, topic, _partitions(partitions)), self._type)

    def repartition(self, partitions: int = -1) -> Stream[K, V]:
        """Write the rows to a topic that is named after the pipeline, …-repartition, and return its stream as
        `through` does: another query reads it, from as many partitions as are given."""
        return Stream(self._app, Through(self.node, "", _partitions(partitions)), self._type)

    def merge(self, *others: Stream[K, V]) -> Stream[K, V]:
        """Return the union; this is Kafka Streams' name for it."""
        return self.union(*others)

    def branch(self, *given: str | Callable[[V], bool] | Unchecked) -> list[Stream[K, V]]:
        """Return a stream for each condition, of the rows for which it is the first that holds; other rows are
        dropped."""
        return [self.filter(each) for each in conditions(given, rest=False)]

    def split(self, *, rest: str = "", **given: str | Callable[[V], bool] | Unchecked) -> dict[str, Stream[K, V]]:
        """Return the streams of `branch` by name: split(caras="valor > 10", medias="valor > 5", rest="baratas");
        `rest` names the stream of the rows for which no condition holds."""
        if rest in given:
            raise PlanRefused(f"two branches are called {rest}")
        names = [*given, *([rest] if rest else [])]
        found = conditions(list(given.values()), rest=bool(rest))
        return {name: self.filter(each) for name, each in zip(names, found, strict=True)}

    def peek(self, look: Callable[[V], object] | Callable[[K, V], object]) -> Stream[K, V]:
        """Call a function with each value, or key and value, and return the same rows. After a crash it may be
        called again for some of them; with exactly-once too, since its effects are not undone."""
        return self._call_for_each_row(look, keeps=True)

    def foreach(self, do: Callable[[V], object] | Callable[[K, V], object], *, name: str = "") -> None:
        """Call a function with each value, or key and value, and end the pipeline; nothing is written."""
        self._app.add_effect(self._call_for_each_row(do, keeps=False).node, name or getattr(do, "__name__", "foreach"))

    def _call_for_each_row(self, look: Callable[..., object], *, keeps: bool) -> Stream[K, V]:
        observer = Observer(look, keeps=keeps)
        made = self._app.functions.plan(observer, takes=self._type, returns="BOOLEAN", with_key=True)
        return Stream(self._app, Filter(self.node, made, self._app.errors, passes_deleted=keeps), self._type)

    def join(
        self,
        other: Stream[K, V2] | Table[Any, V2],
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        grace: Duration | None = None,
        on: str = "",
        lookup: Lookup | None = None,
        prefix: str = "",
        how: How = "inner",
    ) -> Stream[K, Row]:
        """Return joined rows: each row of this stream with the rows of the other side that have its key. With a
        stream, `within` is how far apart in time they may be, (before, after) if that differs; with a table, the
        other row is the table's at that time. `on` is an expression for the table's key, where the stream has
        another. `lookup` decides which row of a table is joined: that of the stream's time ("by-time"), or the
        present one ("latest"), which runs in real time and is the default for global tables. `prefix` goes before
        the other side's columns."""
        seen = lookup or ("latest" if isinstance(other, Table) and other.is_global else "by-time")
        if on:
            if within is not None:
                raise PlanRefused("on=… is for a table, and within=… for a stream")
            return Stream(self._app, join_on(self.node, other.node, on, how, prefix, seen))
        node = Join(self.node, other.node, how, _parse_within(within, grace, how), right_prefix=prefix, lookup=seen)
        return Stream(self._app, node)

    def left_join(
        self,
        other: Stream[K, V2] | Table[Any, V2],
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        grace: Duration | None = None,
        on: str = "",
        lookup: Lookup | None = None,
        prefix: str = "",
    ) -> Stream[K, Row]:
        """Return rows as `join` does, and with nulls the rows of this side that have no match."""
        return self.join(other, within=within, grace=grace, on=on, lookup=lookup, prefix=prefix, how="left")

    def outer_join(
        self,
        other: Stream[K, V2],
        *,
        within: Duration | tuple[Duration, Duration],
        grace: Duration | None = None,
        prefix: str = "",
    ) -> Stream[K, Row]:
        return self.join(other, within=within, grace=grace, prefix=prefix, how="outer")


class Table(_Flow[K, V]):
    # Streams look up what is there, and not what was there at their time.
    is_global = False

    def filter(self, condition: str | Callable[[V], bool] | Unchecked) -> Table[K, V]:
        """Return the table of the rows that pass; a row that no longer passes is deleted."""
        return Table(self._app, self._condition(condition), self._type)

    def select(self, *expressions: str, **named: str) -> Table[K, Row]:
        return Table(self._app, Project(self.node, columns(expressions, named)))

    def with_columns(self, **named: str) -> Table[K, Row]:
        return Table(self._app, Project(self.node, columns((), named), keep=True))

    @overload
    def map_values(self, function: str, *, returns: None = None) -> Table[K, Any]: ...
    @overload
    def map_values(self, function: Unchecked, *, returns: type[V2]) -> Table[K, V2]: ...
    @overload
    def map_values(self, function: Callable[[V], V2]) -> Table[K, V2]: ...
    def map_values(self, function: str | Callable[..., object], *, returns: object = None) -> Table[K, Any]:
        if isinstance(function, str):
            return Table(self._app, Project(self.node, (Column(VALUE, function),)))
        node, made = self._apply(function, returns)
        return Table(self._app, node, made)

    def join(
        self, other: Table[Any, V2], *, foreign_key: str = "", prefix: str = "", how: How = "inner"
    ) -> Table[K, Row]:
        """Return the table of the keys that both tables have; `how` "left" and "outer" also keep keys that one of
        them has. `foreign_key` is an expression over this table's columns for the other's key: then many rows of
        this table are joined with one of the other."""
        if foreign_key:
            node: Node = ForeignKeyJoin(self.node, other.node, foreign_key, how, prefix)
            with contextlib.suppress(ColumnsUnknown):
                shape(node)
            return Table(self._app, node)
        return Table(self._app, Join(self.node, other.node, how, right_prefix=prefix))

    def left_join(self, other: Table[Any, V2], *, foreign_key: str = "", prefix: str = "") -> Table[K, Row]:
        return self.join(other, foreign_key=foreign_key, prefix=prefix, how="left")

    def outer_join(self, other: Table[K, V2], *, prefix: str = "") -> Table[K, Row]:
        return self.join(other, prefix=prefix, how="outer")

    def stored(self, name: str) -> Table[K, V]:
        """Keep the table under a name, in the compacted topic <app>-<name>-changelog; app.store(name) reads its
        rows."""
        self._app.add_store(self.node, name)
        return self

    def suppress(self) -> Table[K, V]:
        """Return the windowed aggregate with one final result for each window, emitted when the window closes; the
        window's grace delays it too."""
        return Table(self._app, suppressed(self.node), self._type)

    def to_stream(self) -> Stream[K, V]:
        """Return the table's changes as a stream."""
        keys = tuple(Column(name, f"`{name}`") for name in shape(self.node).keys)
        return Stream(self._app, Rekey(self.node, keys), self._type)


class Grouped(Generic[K, V]):
    def __init__(self, app: App, node: Node, window: Window | None = None) -> None:
        self._app = app
        self._node = node
        self._window = window

    def __repr__(self) -> str:
        return f"<Grouped of {self._app.id}, {self._window or 'no windows'}>"

    def window(self, window: Window) -> Grouped[K, V]:
        """Return the groups divided into time windows: tumbling(…), hopping(…), session(…)."""
        return Grouped(self._app, self._node, window)

    def cogroup(self, name: str, **others: Grouped[K, Any]) -> Grouped[K, Row]:
        """Return this group and others with the same key, to be aggregated together. Each side's value is one
        column, named by its argument: vendas.cogroup("v", d=devolucoes).aggregate(total="sum(v.valor) -
        sum(d.valor)")."""
        if self._window is not None or any(other._window is not None for other in others.values()):
            raise PlanRefused("windows come after cogroup: a.cogroup(…).window(…)")
        sides = {name: self._node, **{each: other._node for each, other in others.items()}}
        return Grouped(self._app, cogroup(sides))

    def aggregate(self, *expressions: str, **named: str) -> Table[K, Row]:
        """Return the table of SQL aggregates, by name: aggregate(total="sum(valor)", maior="max(valor)")."""
        made = columns(expressions, named)
        if self._window is not None and self._window.kind == "sliding":
            return Table(self._app, self._slide(made, self._window))
        return Table(self._app, Aggregate(self._node, made, self._window))

    def _slide(self, made: tuple[Column, ...], window: Window) -> Node:
        from pessoa.streams.sliding_aggregate import SlidingAggregate

        aggregate = SlidingAggregate(made, window.size_ms, window.grace_ms)
        function = self._app.functions.plan_processor(aggregate, takes=None, returns=aggregate.returns)
        rows = Project(Filter(self._node, "NOT rowdeleted"), tuple(aggregate.arguments))
        return Process(rows, function, window=window, errors=self._app.errors)

    def count(self, name: str = "count") -> Table[K, Row]:
        return self.aggregate(**{name: "count(*)"})

    def sum(self, expression: str, name: str = "sum") -> Table[K, Row]:
        return self.aggregate(**{name: f"sum({expression})"})

    def min(self, expression: str, name: str = "min") -> Table[K, Row]:
        return self.aggregate(**{name: f"min({expression})"})

    def max(self, expression: str, name: str = "max") -> Table[K, Row]:
        return self.aggregate(**{name: f"max({expression})"})

    def average(self, expression: str, name: str = "average") -> Table[K, Row]:
        return self.aggregate(**{name: f"avg({expression})"})

    def latest(self, expression: str, name: str = "latest") -> Table[K, Row]:
        """Return the table with the expression's value in the row with the latest time."""
        return self.aggregate(**{name: f"max_by({expression}, rowtime)"})


def _parse_within(
    within: Duration | tuple[Duration, Duration] | None, grace: Duration | None, how: How
) -> Within | None:
    if within is None:
        return None
    before, after = within if isinstance(within, tuple) else (within, within)
    if grace is None and how != "inner":
        kind = {"left": "a left", "outer": "an outer"}[how]
        raise PlanRefused(f"{kind} join of streams needs a grace: how long to wait before a row is alone")
    return Within(milliseconds(before), milliseconds(after), DAY_MS if grace is None else milliseconds(grace))


def _partitions(count: int) -> int:
    if count != -1 and count < 1:
        raise PlanRefused(f"a topic has one partition or more, not {count}")
    return count


def _return_hint(function: Callable[..., object]) -> object:
    import typing

    return typing.get_type_hints(function).get("return") if hasattr(function, "__annotations__") else None


def _element_hint(function: Callable[..., object]) -> object:
    import typing

    arguments = typing.get_args(_return_hint(function))
    return arguments[0] if arguments else None


def _as_type(hint: object) -> type | None:
    import dataclasses

    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None

"""Which columns flow out of a node, and whether they are a stream or a table. Also the first place that refuses a plan.

`shape(node)` walks the plan from its sources up and raises PlanRefused where names do not fit: a join whose sides have
a column in common, a union of different columns, a windowed aggregate of a table. Types are Spark's business.

Pure.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from pessoa.pipelines.columns import array_element, read_columns, struct_fields
from pessoa.pipelines.plan import (
    NOTHING,
    PRIMITIVES,
    STRUCTURED,
    Aggregate,
    Apply,
    Distinct,
    Filter,
    FlatMap,
    ForeignKeyJoin,
    Format,
    Function,
    Join,
    Node,
    PlanRefused,
    Process,
    Project,
    PythonSink,
    PythonSource,
    Rekey,
    Sink,
    Source,
    Through,
    Union,
    Window,
)

KEY = "key"
VALUE = "value"
ROWTIME = "rowtime"
ROWDELETED = "rowdeleted"
ORIGIN = ("rowtopic", "rowpartition", "rowoffset", "rowheaders")
WINDOW_COLUMNS = ("window_start", "window_end")
RESERVED = (ROWTIME, ROWDELETED, *ORIGIN)


class ColumnsUnknown(PlanRefused):
    """The columns are not known yet: a schema must be looked up, or learnt."""


class Shape(msgspec.Struct, frozen=True):
    keys: tuple[str, ...]
    values: tuple[str, ...]
    is_table: bool = False
    # Rows of a windowed table have WINDOW_COLUMNS among their keys.
    window: Window | None = None
    # Whether ORIGIN can still be asked for.
    has_origin: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys + self.values

    def __str__(self) -> str:
        kind = "table" if self.is_table else "stream"
        return f"{kind} ({', '.join(self.keys) or 'no key'}) → ({', '.join(self.values)})"


def format_columns(format_: Format, plain_name: str) -> tuple[str, ...]:
    """Return the names of the columns that a format decodes to."""
    if format_.kind == NOTHING:
        return ()
    if format_.kind in PRIMITIVES:
        return (read_columns(format_.columns)[0].name if format_.columns else plain_name,)
    if format_.kind not in STRUCTURED:
        known = ", ".join((*STRUCTURED, *PRIMITIVES, NOTHING))
        raise PlanRefused(f"there is no format {format_.kind!r}: there are {known}")
    if not format_.columns:
        raise ColumnsUnknown(f"the format {format_.kind} needs a schema here")
    return tuple(column.name for column in read_columns(format_.columns))


def returned_columns(returns: str, plain_name: str = VALUE) -> tuple[str, ...]:
    fields = struct_fields(returns)
    return (plain_name,) if fields is None else tuple(column.name for column in read_columns(fields))


def shape(node: Node) -> Shape:
    match node:
        case Source():
            return _source(node)
        case Project():
            return _project(node)
        case Apply():
            below = shape(node.input)
            return _value_of(below, returned_columns(node.function.returns), "a function's result")
        case Filter():
            return shape(node.input)
        case FlatMap():
            return _flat_map(node)
        case Rekey():
            return _rekey(node)
        case Aggregate():
            return _aggregate(node)
        case Process():
            return _process(node)
        case ForeignKeyJoin():
            return _foreign_key_join(node)
        case Through():
            return msgspec.structs.replace(shape(node.input), has_origin=False)
        case Distinct():
            return _distinct(node)
        case Join():
            return _join(node)
        case Union():
            return _union(node)
        case Sink() | PythonSink():
            return shape(node.input)
        case PythonSource():
            return Shape((KEY,), (VALUE,))
        case _:
            assert_never(node)


def _source(node: Source) -> Shape:
    try:
        keys, values = format_columns(node.key, KEY), format_columns(node.value, VALUE)
    except PlanRefused as wrong:
        raise type(wrong)(f"the source {node.topic}: {wrong}") from None
    if node.is_table and not keys:
        raise PlanRefused(f"the table {node.topic} needs a key: give its format")
    if node.errors.then == "dead-letter" and not node.errors.topic:
        raise PlanRefused(f"the source {node.topic} sends bad records to a dead-letter topic, and none is named")
    return _check(Shape(keys, values, node.is_table, node.window), f"the source {node.topic}")


def _project(node: Project) -> Shape:
    below = shape(node.input)
    names = tuple(column.name for column in node.columns)
    if node.keep:
        names = tuple(name for name in below.values if name not in names) + names
    return _value_of(below, names, "a projection")


def _flat_map(node: FlatMap) -> Shape:
    below = shape(node.input)
    if below.is_table:
        raise PlanRefused("a table has one row for a key, so its rows cannot become several: make it a stream first")
    if isinstance(node.each, Function):
        element = array_element(node.each.returns) or node.each.returns
        if node.each.with_key:
            pair = {column.name: column.type for column in read_columns(struct_fields(element) or "")}
            if tuple(pair) != (KEY, VALUE):
                raise PlanRefused("a function that gives keys and values returns them as pairs")
            values = returned_columns(pair[VALUE], node.name)
            return _check(Shape((KEY,), values, has_origin=below.has_origin), "a flat map")
        return _value_of(below, returned_columns(element, node.name), "a flat map")
    if node.columns:
        return _value_of(below, tuple(column.name for column in read_columns(node.columns)), "a flat map")
    return _value_of(below, (node.name,), "a flat map")


def _rekey(node: Rekey) -> Shape:
    below = shape(node.input)
    keys = (KEY,) if node.function is not None else tuple(column.name for column in node.columns)
    if not keys:
        raise PlanRefused("a new key has at least one column")
    # A row has a name once: a value's column that becomes the key under its own name leaves the value.
    values = tuple(name for name in below.values if name not in keys)
    window = below.window if set(WINDOW_COLUMNS) <= set(keys) else None
    return _check(Shape(keys, values, window=window, has_origin=below.has_origin), "a new key")


def _process(node: Process) -> Shape:
    below = shape(node.input)
    if below.is_table:
        raise PlanRefused("process takes a stream: make the table one with to_stream()")
    if not below.keys:
        raise PlanRefused("process keeps state for a key: select one first, or give the format of the key")
    values = returned_columns(node.function.returns)
    keys = below.keys
    if node.window is not None:
        keys += WINDOW_COLUMNS
        values = tuple(name for name in values if name not in WINDOW_COLUMNS)
    is_table = node.gives_table or node.window is not None
    made = Shape(keys, values, is_table=is_table, window=node.window, has_origin=False)
    return _check(made, "what process gives")


def _aggregate(node: Aggregate) -> Shape:
    below = shape(node.input)
    if below.is_table:
        raise PlanRefused("a table is aggregated by a new key: group it by columns first")
    if not below.keys:
        raise PlanRefused("an aggregate needs a key: group by columns, or give the format of the key")
    names = tuple(column.name for column in node.columns)
    keys = tuple(name for name in below.keys if name not in WINDOW_COLUMNS or node.window is None)
    if node.window is not None:
        keys += WINDOW_COLUMNS
        if node.window.size_ms <= 0:
            raise PlanRefused("a window has a size greater than nothing")
        if node.window.kind == "hopping" and not 0 < node.window.advance_ms <= node.window.size_ms:
            raise PlanRefused("a hopping window advances by more than nothing and by its size at most")
    return _check(Shape(keys, names, is_table=True, window=node.window, has_origin=False), "an aggregate")


def _distinct(node: Distinct) -> Shape:
    below = shape(node.input)
    if below.is_table:
        raise PlanRefused("a table has one row for a key, so no row of it comes twice: make it a stream first")
    if node.within_ms < 0:
        raise PlanRefused("rows are told apart within a time greater than nothing, or for ever")
    for name in node.columns:
        if name not in below.columns:
            raise PlanRefused(f"there is no column {name} to tell rows apart by; there are {', '.join(below.columns)}")
    return below


def _foreign_key_join(node: ForeignKeyJoin) -> Shape:
    left, right = shape(node.left), shape(node.right)
    if not left.is_table or not right.is_table:
        raise PlanRefused("a foreign key joins two tables; a stream looks up a table with join(table, on=…)")
    if node.how == "outer":
        raise PlanRefused("a join by a foreign key is inner or left: rows of the right table alone have no key")
    for side, found in (("left", left.keys), ("right", right.keys)):
        if len(found) != 1:
            columns = ", ".join(found)
            raise PlanRefused(
                f"a join by a foreign key needs one key column on each side, and the {side} one has ({columns})"
            )
    rights = tuple(node.right_prefix + name for name in right.values)
    if both := [name for name in rights if name in left.columns]:
        raise PlanRefused(f'both sides of the join have the column {both[0]}: give one a prefix, as in prefix="other_"')
    return _check(Shape(left.keys, left.values + rights, is_table=True, has_origin=False), "a join")


def _join(node: Join) -> Shape:
    left, right = shape(node.left), shape(node.right)
    if len(left.keys) != len(right.keys) or not left.keys:
        raise PlanRefused(
            f"a join needs keys that match: one side has ({', '.join(left.keys)}), the other ({', '.join(right.keys)})"
        )
    if left.is_table and not right.is_table:
        raise PlanRefused("a table cannot be joined with a stream: join the stream with the table")
    if not left.is_table and not right.is_table and node.within is None:
        raise PlanRefused('two streams are joined within a time: say how near, as in within="5 minutes"')
    if right.is_table and node.within is not None:
        raise PlanRefused("within is for two streams: a table has one row for a key at any time")
    if right.is_table and not left.is_table and node.how == "outer":
        raise PlanRefused("a stream joins a table inner or left: rows of the table alone are no events")
    lefts = tuple(node.left_prefix + name for name in left.values)
    rights = tuple(node.right_prefix + name for name in right.values)
    if both := [name for name in lefts if name in rights or name in left.keys]:
        raise PlanRefused(f'both sides of the join have the column {both[0]}: give one a prefix, as in prefix="other_"')
    if both := [name for name in rights if name in left.keys]:
        raise PlanRefused(
            f"the right side of the join has a column called like the key, {both[0]}: give it a prefix, as in"
            ' prefix="other_"'
        )
    return _check(
        Shape(left.keys, lefts + rights, is_table=left.is_table, window=left.window, has_origin=False), "a join"
    )


def _union(node: Union) -> Shape:
    if len(node.inputs) < 2:
        raise PlanRefused("a union has two inputs or more")
    first, *others = [shape(each) for each in node.inputs]
    for other in others:
        if set(other.keys) != set(first.keys) or set(other.values) != set(first.values):
            raise PlanRefused(f"a union needs the same columns on all sides: {first} and {other}")
        if other.is_table or first.is_table:
            raise PlanRefused("a union is of streams: two tables may have a row each for the same key")
    return msgspec.structs.replace(first, has_origin=first.has_origin and all(other.has_origin for other in others))


def _value_of(below: Shape, names: tuple[str, ...], what: str) -> Shape:
    return _check(msgspec.structs.replace(below, values=names), what)


def _check(made: Shape, what: str) -> Shape:
    seen: set[str] = set()
    for name in made.columns:
        if name.lower() in seen:
            raise PlanRefused(f"{what} has two columns called {name}")
        if name.lower() in RESERVED:
            raise PlanRefused(f"{what} has a column called {name}, which is a name that every row has already")
        seen.add(name.lower())
    return made

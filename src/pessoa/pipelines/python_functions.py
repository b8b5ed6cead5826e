"""A user's Python function as a Spark function, in three styles, with its failures caught.

Spark hands columns to Python workers as Arrow arrays. In every style the function that Spark sees takes one struct
array (the value's columns, after the key's where the function wants them) and gives a struct array of two fields:

    result    what the function returned, in its declared type
    error     the exception as text; then result is null

so that one record that breaks the function is a bad record like any other, and not the end of the query. A function of
whole chunks that fails is called again row by row, to find the rows that it fails for.

A function is not called for a record without a value, nor for one that is already bad: both come in as null.

Functions are pickled. One that lives in the user's own module goes by value, since Spark's workers do not have that
module; what is installed (in site-packages, or Python's own) goes by name.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import sysconfig
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pessoa.pipelines.plan import Function, PlanRefused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

# Functions, and classes, by the name that a plan has for them.
NamedFunctions: TypeAlias = Mapping[str, Callable[..., object]]

RESULT = "result"
ERROR = "error"


def find_function(name: str, functions: NamedFunctions) -> Callable[..., object]:
    """Return the function (or class) of that name: one of `functions`, or imported as `module:name`."""
    if name in functions:
        return functions[name]
    module, colon, path = name.partition(":")
    if not colon:
        raise PlanRefused(f"the function {name} did not come with the plan, and is no module:function to import")
    try:
        holder: object = importlib.import_module(module)
        *parents, last = path.split(".")
        for part in parents:
            holder = getattr(holder, part)
        found: Callable[..., object] = getattr(holder, last)
    except (ImportError, AttributeError) as wrong:
        raise PlanRefused(f"the function {name} cannot be imported: {wrong}") from None
    return found


def ship(function: Callable[..., object] | None) -> None:
    """Have a function's module pickled by value if Spark's workers cannot be expected to have it."""
    from pyspark import cloudpickle

    module = sys.modules.get(getattr(function, "__module__", ""))
    path = getattr(module, "__file__", None)
    if module is None or path is None or module.__name__.partition(".")[0] == "pessoa":
        return
    if "site-packages" not in path and not path.startswith(sysconfig.get_path("stdlib")):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def arrow_function(called: Callable[[pa.Array], pa.Array], returns: str) -> Callable[..., Column]:
    """Return a Spark function of one column that calls `called` with an Arrow array."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def function(rows):  # type: ignore[no-untyped-def]
        return called(rows)

    # Spark reads from the annotations what kind of function this is; text would mean nothing to it.
    function.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    made = arrow_udf(function, returns)  # type: ignore[call-overload]
    # Otherwise Spark may call it twice for a row: below a filter that asks for its error, and again for its result.
    once: Callable[..., Column] = made.asNondeterministic()
    return once


def arrow_type(spark: SparkSession, type_: str) -> pa.DataType:
    """Return Arrow's type for a Spark type. The session `spark` parses the type, since pyspark's own parser uses
    whichever session it finds."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(spark.createDataFrame([], f"parsed {type_}").schema["parsed"].dataType)


class Wrapped:
    """The callable that Spark calls with an Arrow array: structs of the key's (if wanted) and the value's columns."""

    def __init__(
        self, function: Callable[..., object], spec: Function, result: pa.DataType, keys: list[str], is_plain: bool,
        takes: Callable[..., object] | None,
    ) -> None:  # fmt: skip
        self._function = function
        self._spec = spec
        self._result = result
        self._keys = keys
        self._is_plain = is_plain
        self._takes = takes

    def __call__(self, rows: pa.Array) -> pa.Array:
        import pyarrow as pa

        results, errors = self._whole(rows) if self._spec.style != "row" else self._rows(rows)
        return pa.StructArray.from_arrays([results, errors], names=[RESULT, ERROR])

    def _rows(self, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
        import pyarrow as pa

        results: list[object] = []
        errors: list[str | None] = []
        for row in rows.to_pylist():
            result, error = None, None
            if row is not None:
                try:
                    result = fit_to_arrow(self._function(*self._arguments(row)), self._result)
                except Exception as failure:  # noqa: BLE001  what a user's function raises is unknown
                    error = describe_failure(failure)
            results.append(result)
            errors.append(error)
        try:
            made = pa.array(results, self._result)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            made = self._without_misfits(results, errors)
        return made, pa.array(errors, pa.string())

    def _without_misfits(self, results: list[object], errors: list[str | None]) -> pa.Array:
        """Return the results, each that is not of the declared type replaced by an error of its record alone."""
        import pyarrow as pa

        for position, result in enumerate(results):
            try:
                pa.scalar(result, self._result)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
                results[position], errors[position] = None, describe_failure(failure)
        return pa.array(results, self._result)

    def _arguments(self, row: dict[str, object]) -> tuple[object, ...]:
        key: list[object] = []
        if self._spec.with_key:
            parts = [row.pop(name) for name in self._keys]
            key = [parts[0] if len(parts) == 1 else tuple(parts)]
        if self._is_plain:
            return (*key, *row.values())
        value = row if self._takes is None else build(self._takes, row)
        return (*key, value)

    def _whole(self, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
        import pyarrow as pa
        import pyarrow.compute as pc

        there = rows.is_valid()
        try:
            made = self._chunk(rows.filter(there))
        except Exception:  # noqa: BLE001  as above; the rows are tried one by one
            return self._one_by_one(rows)
        # Results go back to where their rows stood.
        positions = pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)
        return made.take(positions), pa.nulls(len(rows), pa.string())

    def _one_by_one(self, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
        import pyarrow as pa

        results, errors = [], []
        for position in range(len(rows)):
            row = rows.slice(position, 1)
            result, error = pa.nulls(1, self._result), None
            if row.null_count == 0:
                try:
                    result = self._chunk(row)
                except Exception as failure:  # noqa: BLE001
                    error = describe_failure(failure)
            results.append(result)
            errors.append(error)
        return pa.concat_arrays(results) if results else pa.nulls(0, self._result), pa.array(errors, pa.string())

    def _chunk(self, rows: pa.Array) -> pa.Array:
        import pyarrow as pa

        table = pa.table(dict(zip([field.name for field in rows.type], rows.flatten(), strict=True)))
        count = table.num_rows
        arguments: list[object] = []
        if self._spec.with_key:
            key_table = table.select(self._keys)
            table = table.drop_columns(self._keys)
            arguments.append(self._column_or_table(key_table, is_plain=len(self._keys) == 1))
        arguments.append(self._column_or_table(table, is_plain=self._is_plain))
        made = self._as_array(self._function(*arguments))
        if len(made) != count:
            raise ValueError(f"{len(made)} results for {count} rows")
        return made

    def _column_or_table(self, table: pa.Table, *, is_plain: bool) -> object:
        if self._spec.style == "arrow":
            return table.column(0).combine_chunks() if is_plain else table
        return table.column(0).to_pandas() if is_plain else table.to_pandas()

    def _as_array(self, made: Any) -> pa.Array:
        import pyarrow as pa

        if not isinstance(made, pa.Array | pa.ChunkedArray | pa.Table):
            import pandas as pd

            made = (
                pa.Table.from_pandas(made, preserve_index=False)
                if isinstance(made, pd.DataFrame)
                else pa.Array.from_pandas(made)
            )
        if isinstance(made, pa.Table):
            made = pa.StructArray.from_arrays(
                [made.column(field.name).combine_chunks().cast(field.type) for field in self._result],
                fields=list(self._result),
            )
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        return made.cast(self._result)


def describe_failure(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__


def fit_to_arrow(value: Any, kind: pa.DataType) -> object:
    """Return the value as Arrow converts it to this type: structs as dicts, arrays as lists, maps as pairs."""
    import pyarrow.types as kinds

    if value is None:
        return None
    if kinds.is_struct(kind):
        return {
            field.name: fit_to_arrow(each, field.type) for field, each in zip(kind, _parts(value, kind), strict=True)
        }
    if kinds.is_list(kind):
        return [fit_to_arrow(each, kind.value_type) for each in value]
    if kinds.is_map(kind):
        return [
            (fit_to_arrow(name, kind.key_type), fit_to_arrow(each, kind.item_type))
            for name, each in dict(value).items()
        ]
    return value


def _parts(value: Any, kind: pa.StructType) -> list[object]:
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in kind]
    if isinstance(value, Mapping):
        if extra := value.keys() - {field.name for field in kind}:
            raise ValueError(f"the field {min(map(str, extra))} was not declared")
        return [value.get(field.name) for field in kind]
    return list(value)


def build(kind: Callable[..., object], row: Mapping[str, object]) -> object:
    """Return a dataclass with the values of a row, nested dataclasses too."""
    hints = _hints(kind)
    return kind(**{name: _build_member(hints.get(name), value) for name, value in row.items()})


_known_hints: dict[Callable[..., object], dict[str, object]] = {}


def _hints(kind: Callable[..., object]) -> dict[str, object]:
    if kind not in _known_hints:
        _known_hints[kind] = typing.get_type_hints(kind)
    return _known_hints[kind]


def _build_member(hint: object, value: Any) -> object:
    if value is None:
        return None
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value)
    arguments = typing.get_args(hint)
    if isinstance(value, list) and arguments:
        # Arrow gives a map as a list of pairs.
        if typing.get_origin(hint) is dict:
            return {key: _build_member(arguments[1], each) for key, each in value}
        return [_build_member(arguments[0], each) for each in value]
    for each in arguments:
        if isinstance(each, type) and dataclasses.is_dataclass(each):
            return build(each, value)
    return value

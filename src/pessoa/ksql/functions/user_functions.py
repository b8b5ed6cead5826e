"""Functions of users, in Python: a decorator has the name and the signature, in SQL types.

    from pessoa.ksql.functions.user_functions import udaf, udf, udtf

    @udf("TAX", "(DOUBLE, DOUBLE) DOUBLE", doc="The price with tax.")
    def tax(price, rate):
        return price * (1 + rate)

    @udtf("WORDS", "(STRING) STRING")
    def words(text):
        return text.split()

    @udaf("LONGEST", "(STRING) STRING")
    class Longest:
        def initial(self): return ""
        def add(self, state, text): return max(state, text, key=len)
        def merge(self, one, other): return max(one, other, key=len)
        def result(self, state): return state

A function is not asked about nulls unless it says `sees_null=True`: a null among its arguments gives null. A state is
made of lists, tuples, dicts, texts and numbers. With `undo` (the opposite of `add`) an aggregate works on tables too.
An exception of a function makes its column null, and stands in the processing log.

They are Python: who may put a file into `ksql.extension.dir` runs code as the server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Protocol, TypeVar

from pessoa.ksql.functions.aggregate_states import Aggregate
from pessoa.ksql.functions.aggregates import AggregateFunction, AggregateVariant, aggregate_functions
from pessoa.ksql.functions.function_rows import Compute, Function, variant
from pessoa.ksql.functions.function_table import scalar_functions
from pessoa.ksql.functions.signatures import parse_signature
from pessoa.ksql.functions.table_functions import table_functions
from pessoa.ksql.types.sql_types import EvaluationFailure, Value

F = TypeVar("F", bound=Callable[..., object])
C = TypeVar("C", bound="type[UserAggregate]")
USER = "USER"
# The names of modules that files of users become; no other process can import them.
MODULE_PREFIX = "pessoa_user_functions_"


def user_modules() -> list[ModuleType]:
    """Return the modules that were loaded from users' files."""
    return [module for name, module in list(sys.modules.items()) if name.startswith(MODULE_PREFIX)]


class UserAggregate(Protocol):
    def initial(self) -> object: ...

    def add(self, state: object, *values: Value) -> object: ...

    def merge(self, one: object, other: object) -> object: ...

    def result(self, state: object) -> Value: ...


def udf(name: str, signature: str, *, doc: str = "", sees_null: bool = False) -> Callable[[F], F]:
    """Add a scalar function; several signatures of one name are its variants."""

    def add(function: F) -> F:
        _add_function(scalar_functions(), name, signature, doc or _doc(function), _guard(function), sees_null)
        return function

    return add


def udtf(name: str, signature: str, *, doc: str = "", sees_null: bool = False) -> Callable[[F], F]:
    """Add a table function: it returns the values of the new rows. The signature's result is the type of one."""

    def add(function: F) -> F:
        guarded = _guard(function)

        def rows(*values: object) -> list[Value]:
            found = guarded(*values)
            if found is not None and not isinstance(found, Iterable):
                raise EvaluationFailure(f"{name} must return rows, not {found!r}")
            return list(found or ())

        _add_function(table_functions(), name, signature, doc or _doc(function), rows, sees_null)
        return function

    return add


def udaf(name: str, signature: str, *, doc: str = "") -> Callable[[C], C]:
    """Add an aggregate: a class with initial, add, merge, result, and perhaps undo."""

    def add(made: C) -> C:
        own = made()
        undo = getattr(own, "undo", None)
        aggregate = Aggregate(
            own.initial,
            lambda state, values: state if all(one is None for one in values) else own.add(state, *values),
            own.merge,
            own.result,
            None if undo is None else lambda state, values: undo(state, *values),
        )
        parsed = parse_signature(signature)
        one = AggregateVariant(parsed, len(parsed.parameters), lambda _types, _literals: aggregate)
        known = aggregate_functions()
        upper = name.upper()
        present = known.get(upper)
        variants = (*(present.variants if present is not None and present.doc.startswith(USER) else ()), one)
        known[upper] = AggregateFunction(upper, f"{USER}: {doc or _doc(made)}".rstrip(": "), (), variants)
        return made

    return add


def _add_function(
    known: dict[str, Function], name: str, signature: str, doc: str, compute: Compute, sees_null: bool
) -> None:
    upper = name.upper()
    present = known.get(upper)
    if present is not None and present.category not in (USER, "TABLE"):
        raise ValueError(f"{upper} is a function of ksql; choose another name")
    others = present.variants if present is not None and present.category == USER else ()
    known[upper] = Function(upper, USER, doc, (), (*others, variant(signature, compute, sees_null=sees_null)))


def _guard(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function with its exceptions turned into EvaluationFailure, which the processing log shows."""

    def guarded(*values: object) -> object:
        try:
            return function(*values)
        except EvaluationFailure:
            raise
        except Exception as failure:
            raise EvaluationFailure(f"{getattr(function, '__name__', 'function')}: {failure}") from failure

    return guarded


def _doc(thing: object) -> str:
    return (getattr(thing, "__doc__", None) or "").strip().split("\n")[0]

"""Arrays and maps, and the functions that take a lambda. Null is a value like others in sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pessoa.ksql.functions.function_rows import Function, function, variant
from pessoa.ksql.types.sql_types import Array, EvaluationFailure, SqlType, Value
from pessoa.ksql.types.value_text import text_of

_ARRAY, _MAP, _LAMBDA = "ARRAY", "MAP", "LAMBDA"


def identity(value: Value) -> object:
    """Return a hashable form of a value, by which values are compared: lists and maps cannot be hashed."""
    if isinstance(value, list):
        return (list, *map(identity, value))
    if isinstance(value, dict):
        return (dict, *((key, identity(one)) for key, one in value.items()))
    return value


def unique(values: Iterable[Value]) -> list[Value]:
    """Return the values once each, in the order of their first appearance."""
    seen: dict[object, Value] = {}
    for value in values:
        seen.setdefault(identity(value), value)
    return list(seen.values())


def _concat(first: list[Value] | None, second: list[Value] | None) -> list[Value] | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second


def _except(first: list[Value], second: list[Value]) -> list[Value]:
    others = set(map(identity, second))
    return [value for value in unique(first) if identity(value) not in others]


def _intersect(first: list[Value], second: list[Value]) -> list[Value]:
    others = set(map(identity, second))
    return [value for value in unique(first) if identity(value) in others]


def _sort(values: list[Value], direction: str = "ASC") -> list[Value]:
    word = direction.upper()
    if word not in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
        raise EvaluationFailure(f"ARRAY_SORT: unknown direction {direction}")
    there = [value for value in values if value is not None]
    ordered = sorted(there, reverse=word.startswith("DESC"))  # type: ignore[type-var]
    return [*ordered, *[None] * (len(values) - len(there))]


def _largest(values: list[Value]) -> Value:
    return max((value for value in values if value is not None), default=None)  # type: ignore[type-var]


def _smallest(values: list[Value]) -> Value:
    return min((value for value in values if value is not None), default=None)  # type: ignore[type-var]


def _join(types: tuple[SqlType, ...], values: list[Value] | None, delimiter: str | None = ",") -> str | None:
    if values is None:
        return None
    kind = types[0]
    printed = text_of(kind.element if isinstance(kind, Array) else kind)
    return ("" if delimiter is None else delimiter).join("null" if one is None else printed(one) for one in values)


def _slice(values: list[Value] | None, start: int | None, end: int | None) -> list[Value] | None:
    if values is None:
        return None
    first, last = 1 if start is None else start, len(values) if end is None else end
    if first < 1 or last > len(values) or first > last:
        return None
    return values[first - 1 : last]


def _as_map(keys: list[Value], values: list[Value]) -> dict[Value, Value]:
    return {key: values[index] if index < len(values) else None for index, key in enumerate(keys)}


def _map_union(first: dict[Value, Value] | None, second: dict[Value, Value] | None) -> dict[Value, Value] | None:
    if first is None or second is None:
        return first if second is None else second
    return {**first, **second}


def _entries(values: dict[Value, Value], ordered: bool) -> list[Value]:
    keys = sorted(values) if ordered else list(values)  # type: ignore[type-var]
    return [{"K": key, "V": values[key]} for key in keys]


def _transform_map(
    values: dict[Value, Value], keys: Callable[[Value, Value], Value], items: Callable[[Value, Value], Value]
) -> dict[Value, Value]:
    found: dict[Value, Value] = {}
    for key, value in values.items():
        new = keys(key, value)
        if new in found:
            raise EvaluationFailure(f"TRANSFORM gives the key {new!r} twice")
        found[new] = items(key, value)
    return found


def _reduce(values: list[Value] | None, state: Value, step: Callable[[Value, Value], Value]) -> Value:
    if state is None or values is None:
        return state
    for value in values:
        state = step(state, value)
    return state


def _reduce_map(values: dict[Value, Value] | None, state: Value, step: Callable[[Value, Value, Value], Value]) -> Value:
    if state is None or values is None:
        return state
    for key, value in values.items():
        state = step(state, key, value)
    return state


def _contains(values: list[Value] | None, wanted: Value) -> bool:
    return values is not None and identity(wanted) in set(map(identity, values))


ROWS: list[Function] = [
    function(
        "ARRAY_CONCAT",
        _ARRAY,
        "One array behind the other.",
        ["ARRAY_CONCAT(ARRAY[1, 2], ARRAY[2]) = ARRAY[1, 2, 2]", "ARRAY_CONCAT(ARRAY[1], NULL) = ARRAY[1]"],
        variant("(ARRAY<T>, ARRAY<T>) ARRAY<T>", _concat, sees_null=True),
    ),
    function(
        "ARRAY_CONTAINS",
        _ARRAY,
        "Whether an array has the value; a null array has nothing.",
        ["ARRAY_CONTAINS(ARRAY[1, 2], 2)", "NOT ARRAY_CONTAINS(ARRAY['a'], 'b')"],
        variant("(ARRAY<T>, T) BOOLEAN", _contains, sees_null=True),
    ),
    function(
        "ARRAY_DISTINCT",
        _ARRAY,
        "Every value once, in the order of first appearance.",
        ["ARRAY_DISTINCT(ARRAY[1, 2, 1, NULL, NULL]) = ARRAY[1, 2, NULL]"],
        variant("(ARRAY<T>) ARRAY<T>", unique),
    ),
    function(
        "ARRAY_EXCEPT",
        _ARRAY,
        "The distinct values of the first array that the second has not.",
        ["ARRAY_EXCEPT(ARRAY[1, 2, 3, 1], ARRAY[2]) = ARRAY[1, 3]"],
        variant("(ARRAY<T>, ARRAY<T>) ARRAY<T>", _except),
    ),
    function(
        "ARRAY_INTERSECT",
        _ARRAY,
        "The distinct values that both arrays have.",
        ["ARRAY_INTERSECT(ARRAY[1, 2, 3, 1], ARRAY[3, 1]) = ARRAY[1, 3]"],
        variant("(ARRAY<T>, ARRAY<T>) ARRAY<T>", _intersect),
    ),
    function(
        "ARRAY_UNION",
        _ARRAY,
        "The distinct values of both arrays.",
        ["ARRAY_UNION(ARRAY[1, 2], ARRAY[3, 1]) = ARRAY[1, 2, 3]"],
        variant("(ARRAY<T>, ARRAY<T>) ARRAY<T>", lambda first, second: unique([*first, *second])),
    ),
    function(
        "ARRAY_JOIN",
        _ARRAY,
        "The elements as one text, with a delimiter (a comma) between them.",
        ["ARRAY_JOIN(ARRAY[1, NULL, 2]) = '1,null,2'", "ARRAY_JOIN(ARRAY['a', 'b'], '-') = 'a-b'"],
        variant("(ARRAY<T>) STRING", _join, typed=True, sees_null=True),
        variant("(ARRAY<T>, STRING) STRING", _join, typed=True, sees_null=True),
    ),
    function(
        "ARRAY_LENGTH",
        _ARRAY,
        "The number of elements.",
        ["ARRAY_LENGTH(ARRAY[1, NULL]) = 2"],
        variant("(ARRAY<T>) INTEGER", len),
    ),
    function(
        "ARRAY_MAX",
        _ARRAY,
        "The largest element that is not null.",
        ["ARRAY_MAX(ARRAY[1, NULL, 3]) = 3"],
        variant("(ARRAY<T>) T", _largest),
    ),
    function(
        "ARRAY_MIN",
        _ARRAY,
        "The smallest element that is not null.",
        ["ARRAY_MIN(ARRAY['b', NULL, 'a']) = 'a'"],
        variant("(ARRAY<T>) T", _smallest),
    ),
    function(
        "ARRAY_REMOVE",
        _ARRAY,
        "Without the elements that equal a value.",
        ["ARRAY_REMOVE(ARRAY[1, 2, 1], 1) = ARRAY[2]"],
        variant(
            "(ARRAY<T>, T) ARRAY<T>",
            lambda values, gone: None if values is None else [one for one in values if identity(one) != identity(gone)],
            sees_null=True,
        ),
    ),
    function(
        "ARRAY_SORT",
        _ARRAY,
        "In order, 'ASC' or 'DESC'; nulls last in both.",
        [
            "ARRAY_SORT(ARRAY[2, NULL, 1]) = ARRAY[1, 2, NULL]",
            "ARRAY_SORT(ARRAY[2, NULL, 3], 'DESC') = ARRAY[3, 2, NULL]",
        ],
        variant("(ARRAY<T>) ARRAY<T>", _sort),
        variant("(ARRAY<T>, STRING) ARRAY<T>", _sort),
    ),
    function(
        "SLICE",
        _ARRAY,
        "The elements from one index to another, 1-based, both inclusive; null beyond the array.",
        ["SLICE(ARRAY[1, 2, 3], 2, 3) = ARRAY[2, 3]", "SLICE(ARRAY[1, 2], 2, 5) IS NULL"],
        variant("(ARRAY<T>, INTEGER, INTEGER) ARRAY<T>", _slice, sees_null=True),
    ),
    function(
        "AS_MAP",
        _MAP,
        "A map of an array of keys and one of values.",
        ["AS_MAP(ARRAY['a', 'b'], ARRAY[1, 2]) = MAP('a' := 1, 'b' := 2)"],
        variant("(ARRAY<STRING>, ARRAY<T>) MAP<STRING, T>", _as_map),
    ),
    function(
        "MAP_KEYS",
        _MAP,
        "The keys of a map.",
        ["MAP_KEYS(MAP('a' := 1)) = ARRAY['a']"],
        variant("(MAP<K, V>) ARRAY<K>", list),
    ),
    function(
        "MAP_VALUES",
        _MAP,
        "The values of a map.",
        ["MAP_VALUES(MAP('a' := 1)) = ARRAY[1]"],
        variant("(MAP<K, V>) ARRAY<V>", lambda values: list(values.values())),
    ),
    function(
        "MAP_UNION",
        _MAP,
        "The entries of both maps; the second wins.",
        ["MAP_UNION(MAP('a' := 1, 'b' := 1), MAP('b' := 2)) = MAP('a' := 1, 'b' := 2)"],
        variant("(MAP<K, V>, MAP<K, V>) MAP<K, V>", _map_union, sees_null=True),
    ),
    function(
        "ENTRIES",
        _MAP,
        "The entries of a map as structs of K and V, optionally in the order of the keys.",
        ["ENTRIES(MAP('b' := 1, 'a' := 2), TRUE) = ARRAY[STRUCT(k := 'a', v := 2), STRUCT(k := 'b', v := 1)]"],
        variant("(MAP<STRING, V>, BOOLEAN) ARRAY<STRUCT<K STRING, V V>>", _entries),
    ),
    function(
        "FILTER",
        _LAMBDA,
        "The elements or entries for which a lambda is true.",
        [
            "FILTER(ARRAY[1, 2, 3], x => x > 1) = ARRAY[2, 3]",
            "FILTER(MAP('a' := 1, 'b' := 2), (k, v) => v = 2) = MAP('b' := 2)",
        ],
        variant("(ARRAY<T>, (T) => BOOLEAN) ARRAY<T>", lambda values, keep: [one for one in values if keep(one)]),
        variant(
            "(MAP<K, V>, (K, V) => BOOLEAN) MAP<K, V>",
            lambda values, keep: {key: one for key, one in values.items() if keep(key, one)},
        ),
    ),
    function(
        "TRANSFORM",
        _LAMBDA,
        "What a lambda makes of every element; of maps, lambdas for keys and for values.",
        [
            "TRANSFORM(ARRAY[1, 2], x => x * 2) = ARRAY[2, 4]",
            "TRANSFORM(MAP('a' := 1), (k, v) => UCASE(k), (k, v) => v + 1) = MAP('A' := 2)",
        ],
        variant("(ARRAY<T>, (T) => U) ARRAY<U>", lambda values, change: [change(one) for one in values]),
        variant("(MAP<K, V>, (K, V) => A, (K, V) => B) MAP<A, B>", _transform_map),
    ),
    function(
        "REDUCE",
        _LAMBDA,
        "One value of all elements: the lambda gets the state so far and an element.",
        [
            "REDUCE(ARRAY[1, 2, 3], 10, (s, x) => s + x) = 16",
            "REDUCE(CAST(NULL AS ARRAY<INT>), 5, (s, x) => s + x) = 5",
            "REDUCE(MAP('a' := 1, 'b' := 2), 0, (s, k, v) => s + v) = 3",
        ],
        variant("(ARRAY<T>, S, (S, T) => S) S", _reduce, sees_null=True),
        variant("(MAP<K, V>, S, (S, K, V) => S) S", _reduce_map, sees_null=True),
    ),
]

"""Aggregates: how the rows of a group change their state, and the result of a state.

    initial() → state; add and undo(state, values) → state; merge(state, state) → state; result(state) → value

`add`, `undo` and `merge` may change the state that they get, and return it; a state is made of lists, tuples, dicts and
numbers, so it can be stored. `undo` takes back what `add` of the same values gave, for tables whose rows change; an
aggregate without it cannot be used on a table. `merge` joins the states of two sessions, the earlier one first.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from pessoa.ksql.functions.collection_functions import identity
from pessoa.ksql.types.sql_types import Value
from pessoa.ksql.types.value_order import is_less

Values: TypeAlias = tuple[Value, ...]
# Sum and count.
Average: TypeAlias = tuple[Value, int]
# A value and how often it came.
Seen: TypeAlias = tuple[Value, int]


class AggregationFailure(Exception):
    """An aggregate cannot continue, such as a SUM that overflows its DECIMAL: the query fails."""


@dataclass(frozen=True)
class Aggregate:
    initial: Callable[[], object]
    # Each aggregate has a type of state of its own, and gets only its own.
    add: Callable[..., object]
    merge: Callable[..., object]
    result: Callable[..., Value]
    undo: Callable[..., object] | None = None


def counting(everything: bool) -> Aggregate:
    """COUNT: of rows, or of values that are not null."""

    def add(state: int, values: Values) -> int:
        return state + 1 if everything or values[0] is not None else state

    def undo(state: int, values: Values) -> int:
        return state - 1 if everything or values[0] is not None else state

    return Aggregate(lambda: 0, add, lambda a, b: a + b, lambda state: state, undo)


def summing(zero: Value, plus: Callable[[Value, Value], Value], minus: Callable[[Value, Value], Value]) -> Aggregate:
    """SUM, with the arithmetic of a type."""

    def add(state: Value, values: Values) -> Value:
        return state if values[0] is None else plus(state, values[0])

    def undo(state: Value, values: Values) -> Value:
        return state if values[0] is None else minus(state, values[0])

    return Aggregate(lambda: zero, add, plus, lambda state: state, undo)


def averaging(zero: Value, plus: Callable[[Value, Value], Value], minus: Callable[[Value, Value], Value]) -> Aggregate:
    """AVG: the sum is kept in the type of the input."""

    def add(state: Average, values: Values) -> Average:
        return state if values[0] is None else (plus(state[0], values[0]), state[1] + 1)

    def undo(state: Average, values: Values) -> Average:
        return state if values[0] is None else (minus(state[0], values[0]), state[1] - 1)

    def merge(first: Average, second: Average) -> Average:
        return plus(first[0], second[0]), first[1] + second[1]

    def result(state: Average) -> Value:
        total, count = state
        assert isinstance(total, (int, float, decimal.Decimal))
        return float(total) / count if count else 0.0

    return Aggregate(lambda: (zero, 0), add, merge, result, undo)


def extreme(better: Callable[[Value, Value], bool]) -> Aggregate:
    """MIN and MAX: the best value so far."""

    def pick(first: Value, second: Value) -> Value:
        if first is None or second is None:
            return second if first is None else first
        return second if better(second, first) else first

    return Aggregate(lambda: None, lambda state, values: pick(state, values[0]), pick, lambda state: state)


def listing(limit: int | None) -> Aggregate:
    """COLLECT_LIST: nulls too; `undo` removes the last equal element."""

    def add(state: list[Value], values: Values) -> list[Value]:
        if limit is None or len(state) < limit:
            state.append(values[0])
        return state

    def undo(state: list[Value], values: Values) -> list[Value]:
        wanted = identity(values[0])
        for index in range(len(state) - 1, -1, -1):
            if identity(state[index]) == wanted:
                del state[index]
                break
        return state

    return Aggregate(list, add, lambda a, b: [*a, *b][:limit], list, undo)


def distinct_listing(limit: int | None) -> Aggregate:
    """COLLECT_SET: every value once, null too, in the order of first arrival."""

    def add(state: list[Value], values: Values) -> list[Value]:
        wanted = identity(values[0])
        if (limit is None or len(state) < limit) and all(identity(one) != wanted for one in state):
            state.append(values[0])
        return state

    def merge(first: list[Value], second: list[Value]) -> list[Value]:
        for value in second:
            add(first, (value,))
        return first

    return Aggregate(list, add, merge, list)


def top(count: int, distinct: bool, width: int) -> Aggregate:
    """TOPK: rows of values in descending order of the first; an equal newcomer goes behind. Width 1: bare values."""

    def add(state: list[Values], values: Values) -> list[Values]:
        value = values[0]
        if value is None or (distinct and any(value == row[0] for row in state)):
            return state
        position = len(state)
        while position > 0 and is_less(state[position - 1][0], value):
            position -= 1
        state.insert(position, values)
        del state[count:]
        return state

    def merge(first: list[Values], second: list[Values]) -> list[Values]:
        for row in second:
            add(first, row)
        return first

    def result(state: list[Values]) -> Value:
        if width == 1:
            return [row[0] for row in state]
        names = ["sort_col", *(f"col{index}" for index in range(width - 1))]
        return [dict(zip(names, row, strict=True)) for row in state]

    return Aggregate(list, add, merge, result)


def by_offset(latest: bool, count: int | None, ignore_nulls: bool) -> Aggregate:
    """LATEST_BY_OFFSET and EARLIEST_BY_OFFSET: values in the order of processing; the state is a list of them."""
    most = 1 if count is None else count

    def add(state: list[Value], values: Values) -> list[Value]:
        if values[0] is None and ignore_nulls:
            return state
        if latest:
            state.append(values[0])
            del state[: max(0, len(state) - most)]
        elif len(state) < most:
            state.append(values[0])
        return state

    def merge(first: list[Value], second: list[Value]) -> list[Value]:
        for value in second:
            add(first, (value,))
        return first

    def result(state: list[Value]) -> Value:
        return list(state) if count is not None else state[0] if state else None

    return Aggregate(list, add, merge, result)


def histogram(most_keys: int) -> Aggregate:
    """HISTOGRAM: how often each text came; new keys beyond the limit are ignored."""

    def change(state: dict[Value, int], key: Value, by: int) -> dict[Value, int]:
        now = state.get(key, 0) + by
        if now <= 0:
            state.pop(key, None)
        elif key in state or len(state) < most_keys:
            state[key] = now
        return state

    def merge(first: dict[Value, int], second: dict[Value, int]) -> dict[Value, int]:
        for key, count in second.items():
            change(first, key, count)
        return first

    def shown(values: Values) -> Value:
        return "null" if values[0] is None else values[0]

    return Aggregate(
        dict,
        lambda state, values: change(state, shown(values), 1),
        merge,
        dict,
        lambda state, values: change(state, shown(values), -1),
    )


_REGISTERS_BITS = 14


def approximately_distinct() -> Aggregate:
    """COUNT_DISTINCT: HyperLogLog with 2^14 registers, about 1 % off; the state has the registers that are not 0."""
    size = 1 << _REGISTERS_BITS

    def add(state: dict[int, int], values: Values) -> dict[int, int]:
        if values[0] is None:
            return state
        hashed = int.from_bytes(blake2b(repr(identity(values[0])).encode(), digest_size=8).digest(), "big")
        register, rest = hashed >> (64 - _REGISTERS_BITS), hashed & ((1 << (64 - _REGISTERS_BITS)) - 1)
        rank = 64 - _REGISTERS_BITS - rest.bit_length() + 1
        if rank > state.get(register, 0):
            state[register] = rank
        return state

    def merge(first: dict[int, int], second: dict[int, int]) -> dict[int, int]:
        for register, rank in second.items():
            first[register] = max(rank, first.get(register, 0))
        return first

    def result(state: dict[int, int]) -> Value:
        zeros = size - len(state)
        total = zeros + sum(2.0**-rank for rank in state.values())
        estimate = 0.7213 / (1 + 1.079 / size) * size * size / total
        if estimate <= 2.5 * size and zeros:
            estimate = size * math.log(size / zeros)
        return round(estimate)

    return Aggregate(dict, add, merge, result)


def _number(value: Value) -> float:
    assert isinstance(value, (int, float, decimal.Decimal))
    return float(value)


def deviation(root: bool) -> Aggregate:
    """STDDEV_SAMP (which is the variance) and STDDEV_SAMPLE: state [count, mean, sum of squares], as Welford has it."""

    def add(state: list[float], values: Values) -> list[float]:
        if values[0] is None:
            return state
        value = _number(values[0])
        count, mean, squares = state
        step = value - mean
        mean += step / (count + 1)
        return [count + 1, mean, squares + step * (value - mean)]

    def undo(state: list[float], values: Values) -> list[float]:
        if values[0] is None or state[0] <= 1:
            return state if values[0] is None else [0, 0.0, 0.0]
        value = _number(values[0])
        count, mean, squares = state
        before = mean - (value - mean) / (count - 1)
        return [count - 1, before, squares - (value - mean) * (value - before)]

    def merge(first: list[float], second: list[float]) -> list[float]:
        count = first[0] + second[0]
        if not count:
            return first
        step = second[1] - first[1]
        mean = first[1] + step * second[0] / count
        return [count, mean, first[2] + second[2] + step * step * first[0] * second[0] / count]

    def result(state: list[float]) -> float:
        variance = state[2] / (state[0] - 1) if state[0] > 1 else 0.0
        return math.sqrt(max(0.0, variance)) if root else variance

    return Aggregate(lambda: [0, 0.0, 0.0], add, merge, result, undo)


def correlation() -> Aggregate:
    """CORRELATION: state [n, Σx, Σy, Σx², Σy², Σxy]; a pair with a null is ignored."""

    def change(state: list[float], values: Values, sign: int) -> list[float]:
        if values[0] is None or values[1] is None:
            return state
        x, y = _number(values[0]), _number(values[1])
        return [one + sign * by for one, by in zip(state, (1, x, y, x * x, y * y, x * y), strict=True)]

    def result(state: list[float]) -> float:
        n, x, y, xx, yy, xy = state
        below = math.sqrt(max(0.0, n * xx - x * x)) * math.sqrt(max(0.0, n * yy - y * y))
        return (n * xy - x * y) / below if below else math.nan

    return Aggregate(
        lambda: [0.0] * 6,
        lambda state, values: change(state, values, 1),
        lambda a, b: [one + other for one, other in zip(a, b, strict=True)],
        result,
        lambda state, values: change(state, values, -1),
    )


def single_value() -> Aggregate:
    """ATTR: the value that all rows have; state [(value, count), …]."""

    def change(state: list[Seen], value: Value, by: int) -> list[Seen]:
        for index, (own, count) in enumerate(state):
            if identity(own) == identity(value):
                state[index : index + 1] = [(own, count + by)] if count + by > 0 else []
                return state
        if by > 0:
            state.append((value, by))
        return state

    def merge(first: list[Seen], second: list[Seen]) -> list[Seen]:
        for value, count in second:
            change(first, value, count)
        return first

    def result(state: list[Seen]) -> Value:
        return state[0][0] if len(state) == 1 else None

    return Aggregate(
        list,
        lambda state, values: change(state, values[0], 1),
        merge,
        result,
        lambda state, values: change(state, values[0], -1),
    )

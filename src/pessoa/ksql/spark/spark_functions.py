"""The functions of ksql that Spark has with the same meaning, by name and the types of their arguments.

A row gives the text for the value, and for when the call fails where it can. Whether they mean the same is tested:
`tests/ksql/test_on_spark_expressions.py` compares each of them with ksql/functions on rows made for the purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pessoa.ksql.types.sql_types import BIGINT, DOUBLE, INTEGER, STRING, SqlType

Text = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class SparkFunction:
    value: Text
    fails: Text | None = None


def _template(text: str) -> SparkFunction:
    return SparkFunction(lambda values: text.format(*values))


def _coalesce(values: Sequence[str]) -> str:
    return f"coalesce({', '.join(values)})"


def _concat(values: Sequence[str]) -> str:
    return "concat(" + ", ".join(f"coalesce({value}, '')" for value in values) + ")"


# Java's String.trim takes away everything up to the blank.
_BLANKS = "'" + "".join(f"\\u{code:04X}" for code in range(33)) + "'"
# Of SUBSTRING: 0 is the beginning too, and a negative position counts from the end, but not beyond the beginning.
_BEGINNING = "CASE WHEN {1} > 0 THEN {1} WHEN {1} = 0 THEN 1 WHEN {1} < 0 THEN greatest(1, length({0}) + {1} + 1) END"
_ANY: dict[str, SparkFunction] = {
    "AS_VALUE": _template("{0}"),
    "COALESCE": SparkFunction(_coalesce),
    "IFNULL": SparkFunction(_coalesce),
}
_TYPED: dict[tuple[str, SqlType], SparkFunction] = {
    ("ABS", INTEGER): _template("abs({0})"),
    ("ABS", BIGINT): _template("abs({0})"),
    ("ABS", DOUBLE): _template("abs({0})"),
    ("UCASE", STRING): _template("upper({0})"),
    ("LCASE", STRING): _template("lower({0})"),
    ("CONCAT", STRING): SparkFunction(_concat),
    ("CONCAT_WS", STRING): SparkFunction(lambda values: f"concat_ws({', '.join(values)})"),
    ("LEN", STRING): _template("length({0})"),
    ("NULLIF", INTEGER): _template("nullif({0}, {1})"),
    ("NULLIF", BIGINT): _template("nullif({0}, {1})"),
    ("NULLIF", STRING): _template("nullif({0}, {1})"),
    ("TRIM", STRING): _template(f"trim(BOTH {_BLANKS} FROM {{0}})"),
}
_MIXED: dict[tuple[str, tuple[SqlType, ...]], SparkFunction] = {
    ("SUBSTRING", (STRING, INTEGER)): _template(f"substring({{0}}, {_BEGINNING})"),
    ("SUBSTRING", (STRING, INTEGER, INTEGER)): _template(
        f"IF({{2}} IS NULL, NULL, substring({{0}}, {_BEGINNING}, greatest(0, {{2}})))"
    ),
}


def spark_function(name: str, parameters: Sequence[SqlType]) -> SparkFunction | None:
    if name in _ANY:
        return _ANY[name]
    if (name, tuple(parameters)) in _MIXED:
        return _MIXED[name, tuple(parameters)]
    if not parameters or any(kind != parameters[0] for kind in parameters):
        return None
    return _TYPED.get((name, parameters[0]))

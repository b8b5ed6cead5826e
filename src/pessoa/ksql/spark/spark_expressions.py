"""Typed expressions as Spark SQL text with ksql's meaning, or NotNative.

Spark runs with `spark.sql.ansi.enabled=false`: whole numbers wrap and bad casts give null, as Java does it. Times are
the numbers that ksql/evaluate has. What Spark lacks is the difference between a null and a failure:
`COALESCE(a + b, 0)` is null in ksql if a is, since arithmetic with a null fails the whole item. So an expression
becomes two texts:

    value    what it gives, anything if it fails
    fails    whether it fails; empty if it cannot

AND, OR and CASE fail only with what they evaluate. A call, field or subscript that fails as an argument of a call or a
CAST is null for that one alone. Comparisons are never null.

What is not in here is refused, not guessed: decimals, arrays, maps, structs, and every function whose Spark counterpart
was not compared with ours (`tests/ksql/test_on_spark_expressions.py` runs both on the same rows).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from pessoa.ksql.analysis.typed_expressions import Typed
from pessoa.ksql.functions.function_table import Resolved
from pessoa.ksql.syntax import expression_nodes as nodes
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NULL_TYPE,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    Value,
)
from pessoa.pipelines.formats import sql_text

# How Spark holds a value of a type.
SPARK_TYPES: Mapping[SqlType, str] = {
    BOOLEAN: "BOOLEAN",
    INTEGER: "INT",
    BIGINT: "BIGINT",
    DOUBLE: "DOUBLE",
    STRING: "STRING",
    DATE: "INT",
    TIME: "INT",
    TIMESTAMP: "BIGINT",
}
# The settings of the session that the texts are made for.
SESSION_SETTINGS = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}
_WHOLE = (INTEGER, BIGINT)
_LAZY_ARGUMENTS = (nodes.Call, nodes.Dereference, nodes.Subscript)


class NotNative(Exception):
    """A part of the plan does not have the same meaning in Spark as in ksql; the message is a part of a sentence behind
    `because`.

    It is not an error: the ordered operator can run every plan.
    """


class Sql(NamedTuple):
    value: str
    fails: str = ""

    @property
    def or_null(self) -> str:
        """The SQL of a selected column: null if the expression fails."""
        return f"IF({self.fails}, NULL, {self.value})" if self.fails else self.value

    @property
    def is_true(self) -> str:
        """The SQL of a condition: null and a failure are false."""
        decided = f"coalesce({self.value}, false)"
        return f"IF({self.fails}, false, {decided})" if self.fails else decided


def spark_type(kind: SqlType) -> str:
    found = SPARK_TYPES.get(kind)
    if found is None:
        raise NotNative(f"{kind} is read and computed by ksql's own operators")
    return found


def translate(typed: Typed, columns: Mapping[str, str]) -> Sql:
    """Return the expression as SQL over rows whose columns have these names in Spark. Raises NotNative."""
    return _Translation(columns).of(typed)


def _or(*fails: str) -> str:
    return " OR ".join(f"({one})" for one in fails if one)


def _and_fails(condition: str, fails: str) -> str:
    return f"({condition}) AND ({fails})" if fails else ""


class _Translation:
    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns

    def of(self, typed: Typed) -> Sql:
        match typed.node:
            case nodes.Literal() | nodes.TypedLiteral():
                return Sql(literal_sql(typed.value, typed.type))
            case nodes.Column():
                spark_type(typed.type)
                if typed.column not in self._columns:
                    raise NotNative(f"{typed.column} is known to ksql's own operators only")
                return Sql(self._columns[typed.column])
            case nodes.Arithmetic(operator):
                return self._arithmetic(operator, typed)
            case nodes.Negate():
                spark_type(typed.type)
                operand = self.of(typed.children[0])
                return Sql(f"(-{operand.value})", _or(operand.fails, f"{operand.value} IS NULL"))
            case nodes.Cast():
                return self._cast(typed)
            case nodes.Call():
                return self._call(typed)
            case nodes.Case():
                return self._case(typed)
            case nodes.Comparison(operator):
                return self._comparison(operator, typed.children[0], typed.children[1])
            case nodes.Logical(operator):
                return self._logical(operator == "OR", typed)
            case nodes.Not():
                operand = self.of(typed.children[0])
                return Sql(f"(NOT {operand.value})", _or(operand.fails, f"{operand.value} IS NULL"))
            case nodes.IsNull(_, negated):
                operand = self.of(typed.children[0])
                return Sql(f"({operand.value} IS {'NOT ' if negated else ''}NULL)", operand.fails)
            case nodes.Between(_, _, _, negated):
                return self._between(typed, negated)
            case nodes.InList(_, _, negated):
                return self._in_list(typed, negated)
            case nodes.Like(_, _, escape, negated):
                return self._like(typed, escape, negated)
        raise NotNative(f"{type(typed.node).__name__} is computed by ksql's own operators")

    def _arithmetic(self, operator: str, typed: Typed) -> Sql:
        left, right = (self.of(child) for child in typed.children)
        fails = _or(left.fails, right.fails)
        if typed.type == STRING:
            nothing = "''" if operator == "||" else "'null'"
            return Sql(f"concat(coalesce({left.value}, {nothing}), coalesce({right.value}, {nothing}))", fails)
        if typed.type not in (*_WHOLE, DOUBLE):
            raise NotNative(f"{typed.type} arithmetic is exact in ksql and not in Spark")
        kind = spark_type(typed.type)
        a, b = (f"CAST({one.value} AS {kind})" for one in (left, right))
        missing = _or(fails, f"{left.value} IS NULL", f"{right.value} IS NULL")
        if operator in "+-*":
            return Sql(f"({a} {operator} {b})", missing)
        if typed.type == DOUBLE:
            return Sql(_double_division(a, b) if operator == "/" else _double_remainder(a, b), missing)
        computed = f"CAST({a} div {b} AS {kind})" if operator == "/" else f"({a} % {b})"
        return Sql(computed, _or(missing, f"{b} = 0"))

    def _translate_leniently(self, typed: Typed) -> Sql:
        found = self.of(typed)
        return Sql(found.or_null) if isinstance(typed.node, _LAZY_ARGUMENTS) else found

    def _cast(self, typed: Typed) -> Sql:
        operand = self._translate_leniently(typed.children[0])
        source, target = typed.children[0].type, typed.type
        kind = spark_type(target)
        if source in (target, NULL_TYPE):
            return Sql(f"CAST({operand.value} AS {kind})", operand.fails)
        spark_type(source)
        if source == STRING:
            return _from_text(operand, target)
        if target == STRING and source in (*_WHOLE, BOOLEAN):
            return Sql(f"CAST({operand.value} AS STRING)", operand.fails)
        if source in (*_WHOLE, DOUBLE) and target in (*_WHOLE, DOUBLE):
            return Sql(f"CAST({operand.value} AS {kind})", operand.fails)
        raise NotNative(f"CAST({source} AS {target}) is ksql's own")

    def _call(self, typed: Typed) -> Sql:
        from pessoa.ksql.spark.spark_functions import spark_function

        assert isinstance(typed.node, nodes.Call)
        if not isinstance(typed.call, Resolved):
            raise NotNative(f"{typed.node.name} is an aggregate inside of an expression")
        function = spark_function(typed.node.name, typed.call.parameters)
        if function is None:
            raise NotNative(f"the function {typed.node.name} is not known to mean the same in Spark")
        spark_type(typed.type)
        arguments = [self._translate_leniently(child) for child in typed.children]
        values = [argument.value for argument in arguments]
        fails = _or(*(argument.fails for argument in arguments))
        if function.fails:
            fails = _or(fails, function.fails(values))
        return Sql(function.value(values), fails)

    def _case(self, typed: Typed) -> Sql:
        parts = [self.of(child) for child in typed.children]
        kind = spark_type(typed.type)
        branches, otherwise = list(zip(parts[:-1:2], parts[1:-1:2], strict=True)), parts[-1]
        words = " ".join(
            f"WHEN coalesce({condition.value}, false) THEN CAST({result.value} AS {kind})"
            for condition, result in branches
        )
        fails = otherwise.fails
        for condition, result in reversed(branches):
            met = f"coalesce({condition.value}, false)"
            fails = _or(condition.fails, _and_fails(met, result.fails), _and_fails(f"NOT {met}", fails))
        return Sql(f"CASE {words} ELSE CAST({otherwise.value} AS {kind}) END", fails)

    def _comparison(self, operator: str, left: Typed, right: Typed) -> Sql:
        _refuse_pair(left.type, right.type)
        a, b = self.of(left), self.of(right)
        fails = _or(a.fails, b.fails)
        if operator.startswith("IS "):
            same = f"({a.value} <=> {b.value})"
            return Sql(same if "NOT" in operator else f"(NOT {same})", fails)
        compared = f"{a.value} {operator} {b.value}"
        if DOUBLE in (left.type, right.type) and operator not in ("=", "<>"):
            # For Spark NaN is the greatest of numbers; it is beside all of them.
            compared = f"({compared} AND NOT isnan({a.value}) AND NOT isnan({b.value}))"
        return Sql(f"coalesce({compared}, false)", fails)

    def _logical(self, disjunction: bool, typed: Typed) -> Sql:
        parts = [self.of(child) for child in typed.children]
        word = " OR " if disjunction else " AND "
        value = "(" + word.join(f"coalesce({part.value}, false)" for part in parts) + ")"
        fails = ""
        for part in reversed(parts):
            goes_on = f"NOT coalesce({part.value}, false)" if disjunction else f"coalesce({part.value}, false)"
            null = "" if part.value.startswith("coalesce(") else f"{part.value} IS NULL"
            fails = _or(part.fails, null, _and_fails(goes_on, fails))
        return Sql(value, fails)

    def _between(self, typed: Typed, negated: bool) -> Sql:
        # The operand stands there twice: each time cast to what it is compared with.
        lower, low, upper, high = typed.children
        above, below = self._comparison(">=", lower, low), self._comparison("<=", upper, high)
        value = f"({above.value} AND {below.value})"
        fails = _or(above.fails, _and_fails(above.value, below.fails))
        return Sql(f"(NOT {value})" if negated else value, fails)

    def _in_list(self, typed: Typed, negated: bool) -> Sql:
        operand, *items = typed.children
        for item in items:
            _refuse_pair(operand.type, item.type)
        translated = [self.of(item) for item in items]
        if any(item.fails for item in translated):
            raise NotNative("an item of IN can fail")
        value = self.of(operand)
        found = f"coalesce({value.value} IN ({', '.join(item.value for item in translated)}), false)"
        return Sql(f"(NOT {found})" if negated else found, value.fails)

    def _like(self, typed: Typed, escape: str | None, negated: bool) -> Sql:
        operand, pattern = typed.children
        if not pattern.is_literal or not isinstance(pattern.value, str):
            raise NotNative("the pattern of LIKE is no literal")
        text = pattern.value
        sign = escape or next(one for one in "\\!#~^§¶" if one not in text)
        if escape is not None and not _has_valid_escapes(text, escape):
            raise NotNative("Spark escapes only % and _ and the escape itself in LIKE")
        value = self.of(operand)
        found = f"({value.value} LIKE {sql_text(text)} ESCAPE {sql_text(sign)})"
        return Sql(f"(NOT {found})" if negated else found, _or(value.fails, f"{value.value} IS NULL"))


def _has_valid_escapes(text: str, escape: str) -> bool:
    characters = iter(text)
    return all(next(characters, "") in ("%", "_", escape) for one in characters if one == escape)


def _refuse_pair(left: SqlType, right: SqlType) -> None:
    """Raise NotNative for types that Spark compares with a loss: a BIGINT as a DOUBLE is another number."""
    spark_type(left) if left != NULL_TYPE else None
    spark_type(right) if right != NULL_TYPE else None
    if left == right or {left, right} in ({INTEGER, BIGINT}, {INTEGER, DOUBLE}) or NULL_TYPE in (left, right):
        return
    raise NotNative(f"{left} is compared with {right}")


def literal_sql(value: Value, kind: SqlType) -> str:
    """Return a literal as SQL; text is quoted, and a double is exact."""
    if value is None:
        return "NULL" if kind == NULL_TYPE else f"CAST(NULL AS {spark_type(kind)})"
    match value:
        case bool():
            return "true" if value else "false"
        case int() if kind in SPARK_TYPES and kind != DOUBLE:
            return f"CAST({value} AS {spark_type(kind)})"
        case str():
            return sql_text(value)
        case float():
            text = "NaN" if math.isnan(value) else repr(value).replace("inf", "Infinity")
            return f"CAST('{text}' AS DOUBLE)"
    raise NotNative(f"a literal of {kind} is ksql's own")


def _double_division(a: str, b: str) -> str:
    # Spark gives null for a division by zero.
    is_minus = f"(({a} < 0) <> (CAST({b} AS STRING) = '-0.0'))"
    infinity = f"IF({is_minus}, CAST('-Infinity' AS DOUBLE), CAST('Infinity' AS DOUBLE))"
    by_zero = f"IF({a} = 0 OR isnan({a}), CAST('NaN' AS DOUBLE), {infinity})"
    return f"IF({b} = 0, {by_zero}, {a} / {b})"


def _double_remainder(a: str, b: str) -> str:
    return f"IF({b} = 0, CAST('NaN' AS DOUBLE), {a} % {b})"


DIGITS = r"(?U)^\s*([+-]?[0-9]{1,20})\s*$"
REAL = r"(?U)^\s*([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[dDfF]?\s*$"
_LONGEST_NUMBER = 1_000


def _from_text(operand: Sql, target: SqlType) -> Sql:
    text = operand.value
    if target in _WHOLE:
        number = f"CAST(regexp_extract({text}, {sql_text(DIGITS)}, 1) AS {spark_type(target)})"
    elif target == DOUBLE:
        number = f"CAST(regexp_extract({text}, {sql_text(REAL)}, 1) AS DOUBLE)"
        number = f"IF(length({text}) > {_LONGEST_NUMBER}, NULL, {number})"
    elif target == BOOLEAN:
        word = f"lower(regexp_replace({text}, '(?U)^\\\\s+|\\\\s+$', ''))"
        return Sql(f"({word} <> '' AND (startswith('true', {word}) OR startswith('yes', {word})))", operand.fails)
    else:
        raise NotNative(f"CAST(STRING AS {target}) is ksql's own")
    return Sql(number, _or(operand.fails, f"{text} IS NOT NULL AND {number} IS NULL"))

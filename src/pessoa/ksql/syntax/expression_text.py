"""Expressions to SQL, with as few brackets as the powers of `expression_parser.py` allow."""

from __future__ import annotations

import decimal
import re

from pessoa.ksql.syntax.expression_nodes import (
    Arithmetic,
    ArrayConstructor,
    AtTimeZone,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Dereference,
    Expression,
    InList,
    IntervalUnit,
    IsNull,
    LambdaFunction,
    Like,
    Literal,
    Logical,
    MapConstructor,
    Negate,
    Not,
    StructConstructor,
    Subscript,
    TypedLiteral,
)
from pessoa.ksql.syntax.expression_parser import (
    AND,
    CONCAT,
    NOT,
    OR,
    POSTFIX,
    PREDICATE,
    PRODUCT,
    SIGN,
    SUM,
    ZONE,
)
from pessoa.ksql.syntax.sql_tokens import KEYWORDS
from pessoa.ksql.types.sql_types import quoted

_ARITHMETIC = {"||": CONCAT, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}
_PLAIN_NAME = re.compile(r"[A-Z_][A-Z0-9_@]*")
_ATOM = POSTFIX + 1
# Words that mean something only where no name can stand, so as names they need no quotes.
_HARMLESS = frozenset("ID KEY TYPE SIZE TOPIC SCHEMA SUBJECT TIMEOUT SAMPLE SOURCE SYSTEM REPLACE PERIOD ZONE".split())


def name_text(name: str) -> str:
    """Return the name, in back-quotes if it would be parsed as something else without them."""
    return name if _PLAIN_NAME.fullmatch(name) and name not in KEYWORDS - _HARMLESS else quoted(name)


def string_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def expression_text(node: Expression) -> str:
    return bound_text(node, OR)


def _power(node: Expression) -> int:
    match node:
        case Logical(operator):
            return OR if operator == "OR" else AND
        case Not():
            return NOT
        case Comparison() | IsNull() | Between() | InList() | Like():
            return PREDICATE
        case Arithmetic(operator):
            return _ARITHMETIC[operator]
        case Negate():
            return SIGN
        case Literal(value) if literal_text(value).startswith("-"):
            return SIGN
        case AtTimeZone():
            return ZONE
        case Dereference() | Subscript():
            return POSTFIX
    return _ATOM


def bound_text(node: Expression, power: int) -> str:
    """Return the node's text, in brackets if its binding power is less than `power`."""
    text = _text_without_brackets(node)
    return text if _power(node) >= power else f"({text})"


def _text_without_brackets(node: Expression) -> str:
    match node:
        case Literal(value):
            return literal_text(value)
        case TypedLiteral(kind, text):
            return f"{kind} {string_text(text)}"
        case Column(name, source):
            return name_text(name) if source is None else f"{name_text(source)}.{name_text(name)}"
        case IntervalUnit(unit):
            return unit
        case Dereference(base, field):
            return f"{bound_text(base, POSTFIX)}->{name_text(field)}"
        case Subscript(base, index):
            return f"{bound_text(base, POSTFIX)}[{bound_text(index, CONCAT)}]"
        case Negate(operand):
            inner = bound_text(operand, SIGN)
            # Two signs would begin a comment, and a sign before a number becomes part of it.
            return f"-({inner})" if inner.startswith("-") or isinstance(operand, Literal) else f"-{inner}"
        case AtTimeZone(operand, zone):
            return f"{bound_text(operand, ZONE)} AT TIME ZONE {string_text(zone)}"
        case Arithmetic(operator, left, right):
            power = _ARITHMETIC[operator]
            return f"{bound_text(left, power)} {operator} {bound_text(right, power + 1)}"
        case Logical(operator, operands):
            power = _power(node) + 1
            return f" {operator} ".join(bound_text(operand, power) for operand in operands)
        case Not(operand):
            return f"NOT {bound_text(operand, NOT)}"
    return _predicate(node)


def _predicate(node: Expression) -> str:
    match node:
        case Comparison(operator, left, right):
            return f"{bound_text(left, CONCAT)} {operator} {bound_text(right, CONCAT)}"
        case IsNull(operand, negated):
            return f"{bound_text(operand, CONCAT)} IS {'NOT ' if negated else ''}NULL"
        case Between(operand, low, high, negated):
            verb = "NOT BETWEEN" if negated else "BETWEEN"
            return f"{bound_text(operand, CONCAT)} {verb} {bound_text(low, CONCAT)} AND {bound_text(high, CONCAT)}"
        case InList(operand, items, negated):
            return f"{bound_text(operand, CONCAT)} {'NOT IN' if negated else 'IN'} ({_list(items)})"
        case Like(operand, pattern, escape, negated):
            end = "" if escape is None else f" ESCAPE {string_text(escape)}"
            verb = "NOT LIKE" if negated else "LIKE"
            return f"{bound_text(operand, CONCAT)} {verb} {bound_text(pattern, CONCAT)}{end}"
    return _construct(node)


def _construct(node: Expression) -> str:
    match node:
        case Case(operand, whens, otherwise):
            parts = ["CASE"] if operand is None else ["CASE", expression_text(operand)]
            parts += [f"WHEN {expression_text(when.condition)} THEN {expression_text(when.result)}" for when in whens]
            parts += [] if otherwise is None else ["ELSE " + expression_text(otherwise)]
            return " ".join([*parts, "END"])
        case Cast(operand, kind):
            return f"CAST({expression_text(operand)} AS {kind})"
        case ArrayConstructor(items):
            return f"ARRAY[{_list(items)}]"
        case MapConstructor(entries):
            pairs = (f"{expression_text(key)} := {expression_text(value)}" for key, value in entries)
            return f"MAP({', '.join(pairs)})"
        case StructConstructor(fields):
            pairs = (f"{name_text(name)} := {expression_text(value)}" for name, value in fields)
            return f"STRUCT({', '.join(pairs)})"
        case LambdaFunction((parameter,), body):
            return f"{name_text(parameter)} => {expression_text(body)}"
        case LambdaFunction(parameters, body):
            return f"({', '.join(map(name_text, parameters))}) => {expression_text(body)}"
        case Call(name, arguments, star):
            shown = name if _PLAIN_NAME.fullmatch(name) else quoted(name)
            return f"{shown}({'*' if star else _list(arguments)})"
    raise AssertionError(f"no text for {type(node).__name__}")


def _list(items: tuple[Expression, ...]) -> str:
    return ", ".join(map(expression_text, items))


def literal_text(value: bool | float | decimal.Decimal | str | None) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return string_text(value)
        case int():
            return str(value)
        case decimal.Decimal():
            text = format(value, "f")
            return text if "." in text else text + "."
    text = repr(value).upper()
    return text if "E" in text else text + "E0"

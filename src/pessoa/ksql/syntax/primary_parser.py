"""The operands of expressions: literals, columns, calls, constructors, CASE, CAST and what is in brackets."""

from __future__ import annotations

import decimal

from pessoa.ksql.ksql_errors import Position
from pessoa.ksql.syntax.expression_nodes import (
    ArrayConstructor,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    IntervalUnit,
    LambdaFunction,
    Literal,
    MapConstructor,
    StructConstructor,
    TypedLiteral,
    When,
)
from pessoa.ksql.syntax.sql_tokens import UNIT_WORDS, TokenKind
from pessoa.ksql.syntax.token_cursor import TokenCursor
from pessoa.ksql.syntax.type_parser import parse_type
from pessoa.ksql.types import sql_types
from pessoa.ksql.types.sql_types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL_TYPE, STRING

# Only these take a unit of time as their first argument; elsewhere DAY is a column.
UNIT_FUNCTIONS = frozenset("DATEADD DATESUB TIMEADD TIMESUB TIMESTAMPADD TIMESTAMPSUB".split())
_TYPED = {"DATE": sql_types.DATE, "TIME": sql_types.TIME, "TIMESTAMP": sql_types.TIMESTAMP}
# 5.x wrote these as calls; they are columns.
_WINDOW_CALLS = ("WINDOWSTART", "WINDOWEND")
# More digits than any column holds; Python's conversion of long texts takes quadratic time.
_MOST_DIGITS = 400


def parse_primary(cursor: TokenCursor) -> Expression:
    token = cursor.token
    match token.kind:
        case TokenKind.STRING:
            cursor.next()
            return Literal(token.value, STRING, at=token.at)
        case TokenKind.INTEGER | TokenKind.DECIMAL | TokenKind.FLOAT:
            return parse_number(cursor)
        case TokenKind.SYMBOL if token.value == "(":
            cursor.next()
            found = _parse_any(cursor)
            cursor.expect_symbol(")")
            return found
        case TokenKind.NAME:
            word = _parse_word(cursor)
            return word if word is not None else _parse_named(cursor)
        case TokenKind.QUOTED_NAME:
            return _parse_named(cursor)
    raise cursor.unexpected("an expression")


def _parse_any(cursor: TokenCursor) -> Expression:
    # The two halves of the expression parser need each other.
    from pessoa.ksql.syntax.expression_parser import OR, parse_binding

    return parse_binding(cursor, OR)


def parse_list(cursor: TokenCursor) -> tuple[Expression, ...]:
    """Return one expression or more, separated by commas."""
    return cursor.list_of(_parse_any)


def parse_number(cursor: TokenCursor) -> Literal:
    token = cursor.next()
    if len(token.value) > _MOST_DIGITS:
        raise cursor.error("this number has too many digits", token)
    if token.kind is TokenKind.FLOAT:
        double = float(token.value)
        if double in (float("inf"), float("-inf")):
            raise cursor.error("this number is too large for a DOUBLE", token)
        return Literal(double, DOUBLE, at=token.at)
    if token.kind is TokenKind.DECIMAL:
        value = decimal.Decimal(token.value)
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        return Literal(value, sql_types.Decimal(max(len(digits), scale, 1), scale), at=token.at)
    whole = int(token.value)
    if whole >= 2**63:
        raise cursor.error("this number is too large for a BIGINT", token, "Write it with a point, as a DECIMAL.")
    return Literal(whole, INTEGER if whole < 2**31 else BIGINT, at=token.at)


def negated(value: bool | float | decimal.Decimal | str | None) -> float | decimal.Decimal:
    """Return the number with the other sign. A decimal's digits are copied: arithmetic would round to 28 of them."""
    assert isinstance(value, (int, float, decimal.Decimal))
    return value.copy_negate() if isinstance(value, decimal.Decimal) else -value


def _parse_word(cursor: TokenCursor) -> Expression | None:
    """Return the expression that begins with a keyword; None if the word is a name."""
    token, following = cursor.token, cursor.ahead()
    match token.value:
        case "NULL":
            cursor.next()
            return Literal(None, NULL_TYPE, at=token.at)
        case "TRUE" | "FALSE":
            cursor.next()
            return Literal(token.value == "TRUE", BOOLEAN, at=token.at)
        case "CASE":
            return _parse_case(cursor)
        case "CAST":
            return _parse_cast(cursor)
        case "ARRAY" if following.value == "[":
            return _parse_array(cursor)
        case "MAP" if following.value == "(":
            return _parse_map(cursor)
        case "STRUCT" if following.value == "(":
            return _parse_struct(cursor)
        case "DATE" | "TIME" | "TIMESTAMP" if following.kind is TokenKind.STRING:
            cursor.next()
            return TypedLiteral(_TYPED[token.value], cursor.next().value, at=token.at)
        case "SELECT":
            hint = "Create a stream or table of it first: CREATE STREAM … AS SELECT …;"
            raise cursor.error("a query inside a query is not possible", hint=hint)
    return None


def _parse_named(cursor: TokenCursor) -> Expression:
    token = cursor.token
    name = cursor.expect_name("the name of a column or function")
    if cursor.at_symbol("("):
        return _parse_call(cursor, name.upper(), token.at)
    if cursor.at_symbol(".") and cursor.ahead().value != "*":
        cursor.next()
        return Column(cursor.expect_name("the name of a column"), name, at=token.at)
    return Column(name, at=token.at)


def _parse_call(cursor: TokenCursor, name: str, at: Position) -> Expression:
    cursor.expect_symbol("(")
    if cursor.at_symbol("*") and cursor.ahead().value == ")":
        cursor.next()
        cursor.next()
        return Call(name, (), star=True, at=at)
    arguments: list[Expression] = []
    if name in UNIT_FUNCTIONS and cursor.token.kind is TokenKind.NAME and cursor.token.value in UNIT_WORDS:
        token = cursor.next()
        arguments.append(IntervalUnit(UNIT_WORDS[token.value], at=token.at))
        if not cursor.at_symbol(")"):
            cursor.expect_symbol(",")
    if cursor.at_word("DISTINCT"):
        raise cursor.error(f"{name}(DISTINCT …) is not possible", hint="Write COUNT_DISTINCT(…), or COLLECT_SET(…).")
    while not cursor.at_symbol(")"):
        arguments.append(_parse_argument(cursor))
        if not cursor.take_symbol(","):
            break
    cursor.expect_symbol(")")
    if name in _WINDOW_CALLS and not arguments:
        cursor.warnings.append(f"{name}() is the old spelling of the column {name}.")
        return Column(name, at=at)
    return Call(name, tuple(arguments), at=at)


def _parse_argument(cursor: TokenCursor) -> Expression:
    token = cursor.token
    parameters = _parse_parameters(cursor)
    if parameters is None:
        return _parse_any(cursor)
    return LambdaFunction(parameters, _parse_any(cursor), at=token.at)


def _parse_parameters(cursor: TokenCursor) -> tuple[str, ...] | None:
    """Return the names before `=>`, and consume it; None, and consume nothing, if this is no lambda."""
    if cursor.ahead().value == "=>" and cursor.at_name():
        name = cursor.next().value
        cursor.next()
        return (name,)
    if not cursor.at_symbol("("):
        return None
    names, count = [], 1
    while cursor.ahead(count).kind in (TokenKind.NAME, TokenKind.QUOTED_NAME):
        names.append(cursor.ahead(count).value)
        count += 2
        if cursor.ahead(count - 1).value != ",":
            break
    if not names or cursor.ahead(count - 1).value != ")" or cursor.ahead(count).value != "=>":
        return None
    for _ in range(count + 1):
        cursor.next()
    return tuple(names)


def _parse_case(cursor: TokenCursor) -> Case:
    token = cursor.expect_word("CASE")
    operand = None if cursor.at_word("WHEN") else _parse_any(cursor)
    whens: list[When] = []
    while cursor.at_word("WHEN"):
        at = cursor.next().at
        condition = _parse_any(cursor)
        cursor.expect_word("THEN")
        whens.append(When(condition, _parse_any(cursor), at=at))
    if not whens:
        raise cursor.unexpected("WHEN")
    otherwise = _parse_any(cursor) if cursor.take_word("ELSE") else None
    if not cursor.take_word("END"):
        raise cursor.unexpected("WHEN, ELSE or END", ["WHEN", "ELSE", "END"])
    return Case(operand, tuple(whens), otherwise, at=token.at)


def _parse_cast(cursor: TokenCursor) -> Cast:
    token = cursor.expect_word("CAST")
    cursor.expect_symbol("(")
    operand = _parse_any(cursor)
    cursor.expect_word("AS")
    kind = parse_type(cursor)
    cursor.expect_symbol(")")
    return Cast(operand, kind, at=token.at)


def _parse_array(cursor: TokenCursor) -> ArrayConstructor:
    token = cursor.expect_word("ARRAY")
    cursor.expect_symbol("[")
    items = () if cursor.at_symbol("]") else parse_list(cursor)
    cursor.expect_symbol("]")
    return ArrayConstructor(items, at=token.at)


def _parse_map(cursor: TokenCursor) -> MapConstructor:
    token = cursor.expect_word("MAP")
    cursor.expect_symbol("(")
    entries: list[tuple[Expression, Expression]] = []
    while not cursor.at_symbol(")"):
        key = _parse_any(cursor)
        cursor.expect_symbol(":=")
        entries.append((key, _parse_any(cursor)))
        if not cursor.take_symbol(","):
            break
    cursor.expect_symbol(")")
    return MapConstructor(tuple(entries), at=token.at)


def _parse_struct(cursor: TokenCursor) -> StructConstructor:
    token = cursor.expect_word("STRUCT")
    cursor.expect_symbol("(")
    fields: list[tuple[str, Expression]] = []
    while not cursor.at_symbol(")"):
        name = cursor.expect_name("the name of a field")
        cursor.expect_symbol(":=")
        fields.append((name, _parse_any(cursor)))
        if not cursor.take_symbol(","):
            break
    cursor.expect_symbol(")")
    return StructConstructor(tuple(fields), at=token.at)

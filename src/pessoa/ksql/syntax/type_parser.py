"""Types as text: INT, DECIMAL(4, 2), ARRAY<STRUCT<f STRING>>, MAP<STRING, BIGINT>, and names of custom types."""

from __future__ import annotations

from pessoa.ksql.syntax.sql_tokens import TokenKind
from pessoa.ksql.syntax.token_cursor import TokenCursor
from pessoa.ksql.types.sql_types import PRIMITIVES, Array, CustomType, Decimal, Map, SqlType, Struct


def parse_type(cursor: TokenCursor) -> SqlType:
    cursor.deeper()
    found = _array_suffixes(cursor, _parse_plain(cursor))
    cursor.shallower()
    return found


def _parse_plain(cursor: TokenCursor) -> SqlType:
    quoted = cursor.token.kind is TokenKind.QUOTED_NAME
    name = cursor.expect_name("a type")
    if quoted:
        return CustomType(name)
    match name:
        case "ARRAY":
            cursor.expect_symbol("<")
            element = parse_type(cursor)
            cursor.expect_symbol(">")
            return Array(element)
        case "MAP":
            cursor.expect_symbol("<")
            key = parse_type(cursor)
            cursor.expect_symbol(",")
            value = parse_type(cursor)
            cursor.expect_symbol(">")
            return Map(key, value)
        case "STRUCT":
            return _parse_struct(cursor)
        case "DECIMAL":
            return _parse_decimal(cursor)
        case _ if name in PRIMITIVES:
            if cursor.take_symbol("("):
                # VARCHAR(255): the length is read, and means nothing.
                cursor.expect_integer("a length")
                cursor.expect_symbol(")")
            return PRIMITIVES[name]
    return CustomType(name)


def _array_suffixes(cursor: TokenCursor, element: SqlType) -> SqlType:
    """Return the type for `INT ARRAY`, the older spelling of ARRAY<INT>."""
    while cursor.take_word("ARRAY"):
        cursor.deeper()
        element = Array(element)
    return element


def _parse_decimal(cursor: TokenCursor) -> Decimal:
    token = cursor.token
    cursor.expect_symbol("(")
    precision = cursor.expect_integer("the precision")
    scale = cursor.expect_integer("the scale") if cursor.take_symbol(",") else 0
    cursor.expect_symbol(")")
    if precision < 1:
        raise cursor.error(f"DECIMAL precision must be >= 1: DECIMAL({precision},{scale})", token)
    if scale > precision:
        raise cursor.error(f"DECIMAL precision must be >= scale: DECIMAL({precision},{scale})", token)
    return Decimal(precision, scale)


def _parse_struct(cursor: TokenCursor) -> Struct:
    # `STRUCT<>` has no fields, and its two signs are one token.
    if cursor.take_symbol("<>"):
        return Struct(())
    cursor.expect_symbol("<")
    fields: dict[str, SqlType] = {}
    while True:
        token = cursor.token
        name = cursor.expect_name("the name of a field")
        if name in fields:
            raise cursor.error(f"Duplicate field found in STRUCT: {name}", token)
        fields[name] = parse_type(cursor)
        if not cursor.take_symbol(","):
            break
    cursor.expect_symbol(">")
    return Struct(tuple(fields.items()))

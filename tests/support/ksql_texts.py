"""Parsers for texts that consist of one ksql expression or one ksql type."""

from __future__ import annotations

from pessoa.ksql.syntax.expression_nodes import Expression
from pessoa.ksql.syntax.expression_parser import parse_expression
from pessoa.ksql.syntax.lexer import Lexer
from pessoa.ksql.syntax.sql_tokens import TokenKind
from pessoa.ksql.syntax.token_cursor import TokenCursor
from pessoa.ksql.syntax.type_parser import parse_type
from pessoa.ksql.types.sql_types import SqlType


def parse_expression_text(text: str) -> Expression:
    """Return the expression that is the whole text."""
    cursor = TokenCursor(Lexer(text).tokens(), text)
    found = parse_expression(cursor)
    _expect_end(cursor)
    return found


def parse_type_text(text: str) -> SqlType:
    """Parse a text that consists of one ksql type, and return the type."""
    cursor = TokenCursor(Lexer(text).tokens(), text)
    found = parse_type(cursor)
    _expect_end(cursor)
    return found


def _expect_end(cursor: TokenCursor) -> None:
    if cursor.token.kind is not TokenKind.END:
        raise cursor.unexpected("the end of the text")

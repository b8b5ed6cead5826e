"""Text to statements.

    parse_statements("CREATE STREAM s (id INT KEY) WITH (kafka_topic='s', value_format='JSON'); SHOW STREAMS;")

The first word says which function of STATEMENTS reads on. Statements of one text are read one after the other, because
DEFINE changes what `${…}` means in those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pessoa.ksql.ksql_errors import SyntaxFailure
from pessoa.ksql.syntax import assert_parser, command_parser, definition_parser
from pessoa.ksql.syntax.lexer import Lexer
from pessoa.ksql.syntax.query_parser import parse_query
from pessoa.ksql.syntax.sql_tokens import TokenKind
from pessoa.ksql.syntax.statement_nodes import (
    DefineVariable,
    Explain,
    QueryStatement,
    Statement,
    UndefineVariable,
)
from pessoa.ksql.syntax.token_cursor import TokenCursor

# Of one statement; a schema of a thousand columns fits.
MOST_STATEMENT_CHARACTERS = 100_000


@dataclass(frozen=True)
class ParsedStatement:
    statement: Statement
    # As written, with its semicolon.
    text: str
    # What works and should be written otherwise.
    warnings: tuple[str, ...] = ()
    # The whole text, in which positions count.
    source_text: str = ""


def parse_statements(text: str, variables: Mapping[str, str] | None = None) -> list[ParsedStatement]:
    """Return the statements of a text. Raises SyntaxFailure."""
    known = {name.upper(): value for name, value in (variables or {}).items()}
    ends = Lexer(text).statement_ends()
    found: list[ParsedStatement] = []
    start = 0
    for end in [*ends, len(text)]:
        if end - start > MOST_STATEMENT_CHARACTERS:
            raise SyntaxFailure(
                f"the statement has {end - start} characters, and {MOST_STATEMENT_CHARACTERS} are the most",
                Lexer(text).position(start),
                text=text,
            )
        cursor = TokenCursor(Lexer(text, known, start, end).tokens(), text)
        if cursor.token.kind is not TokenKind.END:
            first = cursor.token
            statement = _parse_whole(cursor)
            found.append(ParsedStatement(statement, text[first.start : end], tuple(cursor.warnings), text))
            _update_variables(statement, known)
        start = end
    return found


def parse_statement(text: str, variables: Mapping[str, str] | None = None) -> ParsedStatement:
    """Return the one statement of a text. Raises SyntaxFailure, also if there are none or several."""
    found = parse_statements(text, variables)
    if len(found) != 1:
        raise SyntaxFailure(f"expected exactly one statement, but found {len(found)}")
    return found[0]


def _update_variables(statement: Statement, variables: dict[str, str]) -> None:
    if isinstance(statement, DefineVariable):
        variables[statement.name.upper()] = statement.value
    elif isinstance(statement, UndefineVariable):
        variables.pop(statement.name.upper(), None)


def _parse_whole(cursor: TokenCursor) -> Statement:
    statement = parse_one(cursor)
    if not cursor.at_symbol(";"):
        error = cursor.unexpected("';'")
        error.hint = error.hint or "A statement ends with ;."
        raise error
    cursor.next()
    return statement


def parse_one(cursor: TokenCursor) -> Statement:
    """Return the statement that begins here; its semicolon is not consumed."""
    token = cursor.token
    read = STATEMENTS.get(token.value) if token.kind is TokenKind.NAME else None
    if read is None:
        raise cursor.unexpected("a statement", STATEMENTS)
    return read(cursor)


def _parse_query_statement(cursor: TokenCursor) -> Statement:
    at = cursor.at
    return QueryStatement(parse_query(cursor), at=at)


def _parse_explain(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("EXPLAIN").at
    if cursor.token.kind is TokenKind.NAME and cursor.token.value in STATEMENTS and cursor.ahead().value != ";":
        if cursor.at_word("EXPLAIN"):
            raise cursor.error("EXPLAIN cannot be explained")
        return Explain(parse_one(cursor), at=at)
    return Explain(command_parser.parse_query_id(cursor), at=at)


STATEMENTS: dict[str, Callable[[TokenCursor], Statement]] = {
    "CREATE": definition_parser.parse_create,
    "INSERT": definition_parser.parse_insert,
    "ALTER": definition_parser.parse_alter,
    "DROP": definition_parser.parse_drop,
    "SELECT": _parse_query_statement,
    "SHOW": command_parser.parse_show,
    "LIST": command_parser.parse_show,
    "DESCRIBE": command_parser.parse_describe,
    "EXPLAIN": _parse_explain,
    "PRINT": command_parser.parse_print,
    "TERMINATE": command_parser.parse_control,
    "PAUSE": command_parser.parse_control,
    "RESUME": command_parser.parse_control,
    "SET": command_parser.parse_set,
    "UNSET": command_parser.parse_unset,
    "DEFINE": command_parser.parse_define,
    "UNDEFINE": command_parser.parse_undefine,
    "RUN": command_parser.parse_run_script,
    "ASSERT": assert_parser.parse_assert,
}

"""CREATE, INSERT, ALTER and DROP."""

from __future__ import annotations

from pessoa.ksql.ksql_errors import Position
from pessoa.ksql.syntax import primary_parser
from pessoa.ksql.syntax.expression_nodes import Expression, Literal
from pessoa.ksql.syntax.expression_parser import parse_expression
from pessoa.ksql.syntax.query_parser import parse_query
from pessoa.ksql.syntax.sql_tokens import TokenKind
from pessoa.ksql.syntax.statement_nodes import (
    AlterSource,
    AlterSystem,
    ColumnDefinition,
    ColumnRole,
    ConnectorKind,
    CreateAsSelect,
    CreateConnector,
    CreateSource,
    CreateType,
    DropConnector,
    DropSource,
    DropType,
    InsertSelect,
    InsertValues,
    Property,
    SourceKind,
    Statement,
)
from pessoa.ksql.syntax.token_cursor import TokenCursor
from pessoa.ksql.syntax.type_parser import parse_type
from pessoa.ksql.types.sql_types import BOOLEAN, NULL_TYPE, STRING

_KINDS = ("STREAM", "TABLE")


def parse_create(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("CREATE").at
    or_replace = cursor.take_word("OR", "REPLACE")
    if not or_replace and cursor.take_word("TYPE"):
        return _parse_type(cursor, at)
    for kind in ConnectorKind:
        if not or_replace and cursor.take_word(kind.value, "CONNECTOR"):
            if_not_exists = cursor.take_word("IF", "NOT", "EXISTS")
            name = parse_connector_name(cursor)
            return CreateConnector(kind, name, parse_properties(cursor), if_not_exists, at=at)
    is_source = cursor.take_word("SOURCE")
    kind_word = cursor.token.value
    if cursor.token.kind is not TokenKind.NAME or kind_word not in _KINDS:
        raise cursor.unexpected(
            "STREAM, TABLE, TYPE or SOURCE|SINK CONNECTOR", [*_KINDS, "TYPE", "SOURCE", "SINK", "OR"]
        )
    cursor.next()
    return _parse_source(cursor, SourceKind(kind_word), or_replace, is_source, at)


def _parse_type(cursor: TokenCursor, at: Position) -> CreateType:
    if_not_exists = cursor.take_word("IF", "NOT", "EXISTS")
    name = cursor.expect_name("the name of the type")
    cursor.expect_word("AS")
    return CreateType(name, parse_type(cursor), if_not_exists, at=at)


def _parse_source(cursor: TokenCursor, kind: SourceKind, or_replace: bool, is_source: bool, at: Position) -> Statement:
    if_not_exists = cursor.take_word("IF", "NOT", "EXISTS")
    name = cursor.expect_name(f"the name of the {kind.value.lower()}")
    has_columns = cursor.at_symbol("(")
    columns = parse_columns(cursor) if has_columns else ()
    properties = parse_properties(cursor) if cursor.at_word("WITH") else ()
    if not has_columns and not is_source and cursor.take_word("AS"):
        return CreateAsSelect(kind, name, parse_query(cursor), properties, or_replace, if_not_exists, at=at)
    if cursor.at_word("AS"):
        raise cursor.error(
            "AS SELECT takes its columns from the query", hint="Leave the list of columns and SOURCE away."
        )
    return CreateSource(kind, name, columns, properties, or_replace, if_not_exists, is_source, at=at)


def parse_columns(cursor: TokenCursor) -> tuple[ColumnDefinition, ...]:
    return cursor.list_in_brackets(_parse_column)


def _parse_column(cursor: TokenCursor) -> ColumnDefinition:
    token = cursor.token
    name = cursor.expect_name("the name of a column")
    kind = parse_type(cursor)
    role, header = ColumnRole.VALUE, None
    if cursor.take_word("PRIMARY"):
        cursor.expect_word("KEY")
        role = ColumnRole.PRIMARY_KEY
    elif cursor.take_word("KEY"):
        role = ColumnRole.KEY
    elif cursor.take_word("HEADERS"):
        role = ColumnRole.HEADERS
    elif cursor.take_word("HEADER"):
        cursor.expect_symbol("(")
        role, header = ColumnRole.HEADER, cursor.expect_string("the key of the header as a string")
        cursor.expect_symbol(")")
    elif not cursor.at_symbol(",", ")"):
        words = ["KEY", "PRIMARY", "HEADERS", "HEADER"]
        raise cursor.unexpected("',' or ')', or KEY, PRIMARY KEY, HEADERS, HEADER('…')", words)
    return ColumnDefinition(name, kind, role, header, at=token.at)


def parse_properties(cursor: TokenCursor) -> tuple[Property, ...]:
    """Return the properties of WITH (name = literal, …)."""
    cursor.expect_word("WITH")
    cursor.expect_symbol("(")
    found: dict[str, Property] = {}
    while True:
        token = cursor.token
        if token.kind is TokenKind.STRING:
            name = cursor.next().value
        else:
            name = cursor.expect_name("the name of a property").upper()
        cursor.expect_symbol("=")
        if name in found:
            raise cursor.error(f"the property {name} is given twice", token)
        found[name] = Property(name, _parse_value(cursor), at=token.at)
        if not cursor.take_symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(found.values())


def _parse_value(cursor: TokenCursor) -> Literal:
    token = cursor.token
    minus = cursor.take_symbol("-")
    if cursor.token.kind in (TokenKind.INTEGER, TokenKind.DECIMAL, TokenKind.FLOAT):
        number = primary_parser.parse_number(cursor)
        return Literal(primary_parser.negated(number.value), number.type, at=token.at) if minus else number
    if not minus and cursor.token.kind is TokenKind.STRING:
        return Literal(cursor.next().value, STRING, at=token.at)
    for word in ("TRUE", "FALSE"):
        if not minus and cursor.take_word(word):
            return Literal(word == "TRUE", BOOLEAN, at=token.at)
    if not minus and cursor.take_word("NULL"):
        return Literal(None, NULL_TYPE, at=token.at)
    error = cursor.unexpected("a literal")
    if cursor.token.kind is TokenKind.NAME:
        error.hint = f"Put the value into quotes: '{cursor.token.text}'."
    raise error


def parse_insert(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("INSERT").at
    cursor.expect_word("INTO")
    target = cursor.expect_name("the name of a stream or table")
    if cursor.at_word("WITH"):
        return InsertSelect(target, properties=parse_properties(cursor), query=parse_query(cursor), at=at)
    if cursor.at_word("SELECT"):
        return InsertSelect(target, parse_query(cursor), at=at)
    columns = parse_names(cursor) if cursor.at_symbol("(") else ()
    if not cursor.at_word("VALUES"):
        raise cursor.unexpected("SELECT or VALUES", ["SELECT", "VALUES"])
    cursor.next()
    values = parse_row(cursor)
    if cursor.at_symbol(","):
        raise cursor.error("one INSERT has one row", hint="Write a statement for each row.")
    return InsertValues(target, columns, values, at=at)


def parse_names(cursor: TokenCursor) -> tuple[str, ...]:
    """Return the names of columns in brackets."""
    return cursor.list_in_brackets(lambda cursor: cursor.expect_name("the name of a column"))


def parse_row(cursor: TokenCursor) -> tuple[Expression, ...]:
    """Return expressions in brackets."""
    return cursor.list_in_brackets(parse_expression)


def parse_alter(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("ALTER").at
    if cursor.take_word("SYSTEM"):
        name = cursor.expect_string("the name of a property as a string")
        cursor.expect_symbol("=")
        return AlterSystem(name, cursor.expect_string("the value as a string"), at=at)
    kind = _parse_kind(cursor, ["SYSTEM"])
    name = cursor.expect_name(f"the name of the {kind.value.lower()}")
    columns: list[ColumnDefinition] = []
    while True:
        cursor.expect_word("ADD")
        cursor.take_word("COLUMN")
        token = cursor.token
        column = cursor.expect_name("the name of a column")
        columns.append(ColumnDefinition(column, parse_type(cursor), at=token.at))
        if not cursor.take_symbol(","):
            break
    return AlterSource(kind, name, tuple(columns), at=at)


def _parse_kind(cursor: TokenCursor, others: list[str]) -> SourceKind:
    for kind in SourceKind:
        if cursor.take_word(kind.value):
            return kind
    raise cursor.unexpected(", ".join(["STREAM", *others]) + " or TABLE", [*_KINDS, *others])


def parse_drop(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("DROP").at
    if cursor.take_word("TYPE"):
        if_exists = cursor.take_word("IF", "EXISTS")
        return DropType(cursor.expect_name("the name of the type"), if_exists, at=at)
    if cursor.take_word("CONNECTOR"):
        if_exists = cursor.take_word("IF", "EXISTS")
        return DropConnector(parse_connector_name(cursor), if_exists, at=at)
    kind = _parse_kind(cursor, ["TYPE", "CONNECTOR"])
    if_exists = cursor.take_word("IF", "EXISTS")
    name = cursor.expect_name(f"the name of the {kind.value.lower()}")
    return DropSource(kind, name, if_exists, cursor.take_word("DELETE", "TOPIC"), at=at)


def parse_connector_name(cursor: TokenCursor) -> str:
    """Return the connector's name, which may be a quoted string: such names contain dashes."""
    if cursor.token.kind is TokenKind.STRING:
        return cursor.next().value
    return cursor.expect_name("the name of the connector")

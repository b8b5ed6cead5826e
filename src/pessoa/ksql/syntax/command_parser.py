"""Statements that show or steer: SHOW, DESCRIBE, PRINT, TERMINATE, SET, DEFINE, RUN SCRIPT."""

from __future__ import annotations

from pessoa.ksql.syntax.definition_parser import parse_connector_name
from pessoa.ksql.syntax.sql_tokens import TokenKind
from pessoa.ksql.syntax.statement_nodes import (
    ConnectorKind,
    ControlQuery,
    DefineVariable,
    DescribeAll,
    DescribeConnector,
    DescribeFunction,
    DescribeSource,
    PrintTopic,
    QueryAction,
    RunScript,
    SetProperty,
    Show,
    ShowConnectors,
    Shown,
    SourceKind,
    Statement,
    UndefineVariable,
    UnsetProperty,
)
from pessoa.ksql.syntax.token_cursor import TokenCursor

_EXTENDABLE = (Shown.TOPICS, Shown.STREAMS, Shown.TABLES, Shown.QUERIES)


def parse_show(cursor: TokenCursor) -> Statement:
    at = cursor.next().at
    for kind in (None, *ConnectorKind):
        if cursor.take_word("CONNECTORS") if kind is None else cursor.take_word(kind.value, "CONNECTORS"):
            return ShowConnectors(kind, at=at)
    everything = cursor.take_word("ALL")
    for what in [Shown.TOPICS] if everything else Shown:
        if cursor.take_word(*what.value.split()):
            extended = what in _EXTENDABLE and cursor.take_word("EXTENDED")
            return Show(what, extended, everything, at=at)
    words = [what.value for what in Shown]
    raise cursor.unexpected("one of " + ", ".join([*words, "CONNECTORS"]), [*words, "CONNECTORS"])


def parse_describe(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("DESCRIBE").at
    if cursor.take_word("FUNCTION"):
        return DescribeFunction(cursor.expect_name("the name of a function").upper(), at=at)
    if cursor.take_word("CONNECTOR"):
        return DescribeConnector(parse_connector_name(cursor), at=at)
    for kind in SourceKind:
        if cursor.take_word(kind.value + "S"):
            return DescribeAll(kind, cursor.take_word("EXTENDED"), at=at)
    if cursor.at_word("EXTENDED") and cursor.ahead().kind in (TokenKind.NAME, TokenKind.QUOTED_NAME):
        cursor.next()
        name = cursor.expect_name("the name of a stream or table")
        cursor.warnings.append(f"DESCRIBE EXTENDED {name} is the spelling of 5.x; write DESCRIBE {name} EXTENDED.")
        return DescribeSource(name, extended=True, at=at)
    name = cursor.expect_name("the name of a stream or table")
    return DescribeSource(name, cursor.take_word("EXTENDED"), at=at)


def parse_print(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("PRINT").at
    topic = cursor.next().value if cursor.token.kind is TokenKind.STRING else _topic_name(cursor)
    beginning = cursor.take_word("FROM", "BEGINNING")
    interval = limit = None
    if cursor.take_word("INTERVAL") or cursor.take_word("SAMPLE"):
        interval = cursor.expect_integer("a number")
    if cursor.take_word("LIMIT"):
        limit = cursor.expect_integer("a number of records")
    return PrintTopic(topic, beginning, interval, limit, at=at)


def _topic_name(cursor: TokenCursor) -> str:
    """Return a topic's name as it was written: topic names are case-sensitive, also where they are not quoted."""
    token = cursor.token
    name = cursor.expect_name("the name of a topic")
    return token.text if token.kind is TokenKind.NAME and "${" not in token.text else name


def parse_query_id(cursor: TokenCursor) -> str:
    """Return a query's id as it was written: ids of transient queries contain lower-case letters."""
    return _topic_name(cursor)


def parse_control(cursor: TokenCursor) -> Statement:
    token = cursor.next()
    action = QueryAction(token.value)
    if action is QueryAction.TERMINATE and cursor.at_word("QUERY") and cursor.ahead().value != ";":
        cursor.next()
        cursor.warnings.append("TERMINATE QUERY is the spelling of 5.x; write TERMINATE and the id.")
    if cursor.take_word("ALL"):
        return ControlQuery(action, None, at=token.at)
    return ControlQuery(action, parse_query_id(cursor), at=token.at)


def parse_set(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("SET").at
    name = cursor.expect_string("the name of a property as a string")
    cursor.expect_symbol("=")
    return SetProperty(name, cursor.expect_string("the value as a string"), at=at)


def parse_unset(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("UNSET").at
    return UnsetProperty(cursor.expect_string("the name of a property as a string"), at=at)


def parse_define(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("DEFINE").at
    name = cursor.expect_name("the name of a variable")
    cursor.expect_symbol("=")
    return DefineVariable(name, cursor.expect_string("the value as a string"), at=at)


def parse_undefine(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("UNDEFINE").at
    return UndefineVariable(cursor.expect_name("the name of a variable"), at=at)


def parse_run_script(cursor: TokenCursor) -> Statement:
    at = cursor.expect_word("RUN").at
    cursor.expect_word("SCRIPT")
    return RunScript(cursor.expect_string("the name of a file as a string"), at=at)

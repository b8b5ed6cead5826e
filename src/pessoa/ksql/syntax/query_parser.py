"""Queries. The order of clauses is fixed; a clause in the wrong place gets an error that says where it belongs."""

from __future__ import annotations

from pessoa.ksql.suggestions import closest
from pessoa.ksql.syntax.expression_nodes import Expression
from pessoa.ksql.syntax.expression_parser import parse_expression
from pessoa.ksql.syntax.query_nodes import (
    Duration,
    Emit,
    Join,
    JoinKind,
    Query,
    SelectAll,
    SelectExpression,
    SelectItem,
    SelectStruct,
    SourceName,
    Window,
    WindowKind,
    Within,
)
from pessoa.ksql.syntax.sql_tokens import UNIT_WORDS, TokenKind
from pessoa.ksql.syntax.token_cursor import TokenCursor

CLAUSES = "FROM WINDOW WHERE GROUP PARTITION HAVING EMIT LIMIT".split()
# Words that begin what follows a source, so they are no alias of it unless quoted.
_NO_ALIAS = frozenset([*CLAUSES, *"JOIN INNER LEFT RIGHT FULL ON WITHIN GRACE AS".split()])
_JOIN_WORDS = "JOIN INNER LEFT RIGHT FULL".split()
_FOREIGN = {
    "ORDER": ("ORDER BY is not possible: a stream has no end to sort at", "TOPK(…) keeps the largest values."),
    "UNION": ("UNION is not possible", "Write into one stream from both with INSERT INTO … SELECT …;"),
    "OFFSET": ("OFFSET is not possible", ""),
}


def parse_query(cursor: TokenCursor) -> Query:
    token = cursor.expect_word("SELECT")
    if cursor.at_word("DISTINCT"):
        raise cursor.error("SELECT DISTINCT is not possible", hint="GROUP BY the columns into a table.")
    items = cursor.list_of(_parse_item)
    if not cursor.at_word("FROM"):
        raise cursor.unexpected("',' or FROM", ["FROM"])
    cursor.next()
    if cursor.at_symbol("("):
        raise cursor.error("a query inside a query is not possible", hint="Create a stream or table of it first.")
    source = _parse_source(cursor)
    joins: list[Join] = []
    while cursor.token.kind is TokenKind.NAME and cursor.token.value in _JOIN_WORDS:
        joins.append(_parse_join(cursor))
    window = _parse_window(cursor) if cursor.take_word("WINDOW") else None
    where = parse_expression(cursor) if cursor.take_word("WHERE") else None
    group_by = _parse_grouping(cursor) if cursor.take_word("GROUP", "BY") else ()
    partition_by = _parse_grouping(cursor) if cursor.take_word("PARTITION", "BY") else ()
    having = parse_expression(cursor) if cursor.take_word("HAVING") else None
    late_partition = _parse_late_partition(cursor, partition_by)
    emit = _parse_emit(cursor)
    limit = cursor.expect_integer("a number of rows") if cursor.take_word("LIMIT") else None
    partition_by = late_partition or _parse_late_partition(cursor, partition_by)
    _refuse_what_follows(cursor)
    return Query(
        items, source, tuple(joins), window, where, group_by, partition_by, having, emit, limit, at=token.at
    )  # fmt: skip


def _parse_late_partition(cursor: TokenCursor, found: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return the expressions of a PARTITION BY behind the query, where version 5.x had it."""
    if found or not cursor.take_word("PARTITION", "BY"):
        return found
    cursor.warnings.append("PARTITION BY belongs before HAVING, EMIT and LIMIT; behind the query is its place of 5.x.")
    return _parse_grouping(cursor)


def _refuse_what_follows(cursor: TokenCursor) -> None:
    token = cursor.token
    if token.kind is not TokenKind.NAME:
        return
    if token.value in CLAUSES:
        order = " → ".join(["SELECT", *CLAUSES])
        raise cursor.error(f"{token.value} stands in the wrong place", hint=f"The order of a query is {order}.")
    if token.value in _FOREIGN:
        message, hint = _FOREIGN[token.value]
        raise cursor.error(message, hint=hint)
    raise cursor.unexpected("the end of the query", [*CLAUSES, *_JOIN_WORDS])


def _parse_item(cursor: TokenCursor) -> SelectItem:
    token = cursor.token
    if cursor.take_symbol("*"):
        return SelectAll(at=token.at)
    if cursor.at_name() and cursor.ahead().value == "." and cursor.ahead(2).value == "*":
        source = cursor.next().value
        cursor.next()
        cursor.next()
        return SelectAll(source, at=token.at)
    expression = parse_expression(cursor)
    if cursor.at_symbol("->"):
        cursor.next()
        cursor.expect_symbol("*")
        return SelectStruct(expression, at=token.at)
    if cursor.take_word("AS"):
        return SelectExpression(expression, cursor.expect_name("an alias"), at=token.at)
    if cursor.at_name() and (cursor.token.kind is TokenKind.QUOTED_NAME or cursor.token.value not in _NO_ALIAS):
        # `SELECT a b FROM`; in `SELECT a FORM s` the word is nearly FROM, and no comma or FROM is behind it.
        if cursor.ahead().value not in (",", "FROM"):
            raise cursor.unexpected("',' or FROM", ["FROM"])
        return SelectExpression(expression, cursor.next().value, at=token.at)
    return SelectExpression(expression, at=token.at)


def _parse_source(cursor: TokenCursor) -> SourceName:
    token = cursor.token
    name = cursor.expect_name("the name of a stream or table")
    if cursor.take_word("AS"):
        return SourceName(name, cursor.expect_name("an alias"), at=token.at)
    alias = cursor.at_name() and (cursor.token.kind is TokenKind.QUOTED_NAME or cursor.token.value not in _NO_ALIAS)
    following = cursor.ahead()
    clause_follows = following.kind in (TokenKind.SYMBOL, TokenKind.END) or following.value in _NO_ALIAS
    words = [*CLAUSES, *_JOIN_WORDS]
    if alias and not clause_follows and closest(cursor.token.value, words):
        # `FROM s WHER a = 1`: no alias of s.
        raise cursor.unexpected("the end of the query", words)
    if alias and cursor.token.value not in _FOREIGN:
        return SourceName(name, cursor.next().value, at=token.at)
    return SourceName(name, at=token.at)


def _parse_join(cursor: TokenCursor) -> Join:
    token = cursor.token
    kind = JoinKind.INNER
    if cursor.token.value in ("LEFT", "RIGHT", "FULL"):
        kind = JoinKind[cursor.next().value]
        cursor.take_word("OUTER")
    else:
        cursor.take_word("INNER")
    cursor.expect_word("JOIN")
    source = _parse_source(cursor)
    within = _parse_within(cursor)
    if not cursor.at_word("ON"):
        raise cursor.unexpected("ON" if within is not None else "WITHIN or ON", ["WITHIN", "ON"])
    cursor.next()
    return Join(kind, source, within, parse_expression(cursor), at=token.at)


def _parse_within(cursor: TokenCursor) -> Within | None:
    token = cursor.token
    if not cursor.take_word("WITHIN"):
        return None
    if cursor.take_symbol("("):
        before = parse_duration(cursor)
        cursor.expect_symbol(",")
        after = parse_duration(cursor)
        cursor.expect_symbol(")")
    else:
        before = after = parse_duration(cursor)
    grace = parse_duration(cursor) if cursor.take_word("GRACE", "PERIOD") else None
    return Within(before, after, grace, at=token.at)


def parse_duration(cursor: TokenCursor) -> Duration:
    token = cursor.token
    count = cursor.expect_integer("a number")
    if cursor.token.kind is not TokenKind.NAME or cursor.token.value not in UNIT_WORDS:
        raise cursor.unexpected("a unit of time (DAYS, HOURS, MINUTES, SECONDS or MILLISECONDS)", UNIT_WORDS)
    return Duration(count, UNIT_WORDS[cursor.next().value], at=token.at)


def _parse_window(cursor: TokenCursor) -> Window:
    token = cursor.token
    kinds = [kind.value for kind in WindowKind]
    name = None
    if cursor.at_name() and cursor.ahead().kind is TokenKind.NAME and cursor.ahead().value in kinds:
        name = cursor.next().value
    if cursor.token.kind is not TokenKind.NAME or cursor.token.value not in kinds:
        raise cursor.unexpected("TUMBLING, HOPPING or SESSION", kinds)
    kind = WindowKind(cursor.next().value)
    cursor.expect_symbol("(")
    if kind is not WindowKind.SESSION:
        cursor.expect_word("SIZE")
    size = parse_duration(cursor)
    options: dict[str, Duration] = {}
    while cursor.take_symbol(","):
        option = cursor.token
        word = _window_option(cursor, kind)
        if word in options:
            raise cursor.error(f"{word} is given twice", option)
        options[word] = parse_duration(cursor)
    cursor.expect_symbol(")")
    if kind is WindowKind.HOPPING and "ADVANCE BY" not in options:
        raise cursor.error(
            "a HOPPING window needs ADVANCE BY", token, "HOPPING (SIZE 30 SECONDS, ADVANCE BY 10 SECONDS)"
        )
    advance, retention = options.get("ADVANCE BY"), options.get("RETENTION")
    return Window(kind, size, advance, retention, options.get("GRACE PERIOD"), name, at=token.at)


def _window_option(cursor: TokenCursor, kind: WindowKind) -> str:
    words = ["RETENTION", "GRACE PERIOD"]
    if kind is WindowKind.HOPPING:
        words.insert(0, "ADVANCE BY")
    for word in words:
        if cursor.take_word(*word.split()):
            return word
    raise cursor.unexpected(" or ".join(words), words)


def _parse_grouping(cursor: TokenCursor) -> tuple[Expression, ...]:
    """Return the expressions of GROUP BY or PARTITION BY, which may stand in brackets together."""
    if _is_bracketed_list(cursor):
        cursor.next()
        found = cursor.list_of(parse_expression)
        cursor.expect_symbol(")")
        return found
    return cursor.list_of(parse_expression)


def _is_bracketed_list(cursor: TokenCursor) -> bool:
    """Return whether `(a, b)` begins here, and not `(a + b) * c`: there is a comma on the first level, and no
    operator follows."""
    if not cursor.at_symbol("("):
        return False
    depth, count, commas = 0, 0, False
    while (token := cursor.ahead(count)).kind is not TokenKind.END:
        if token.kind is TokenKind.SYMBOL:
            depth += (token.value in "([") - (token.value in ")]")
            commas = commas or (depth == 1 and token.value == ",")
            if depth == 0:
                return commas
        count += 1
    return False


def _parse_emit(cursor: TokenCursor) -> Emit | None:
    if not cursor.take_word("EMIT"):
        return None
    for emit in Emit:
        if cursor.take_word(emit.value):
            return emit
    raise cursor.unexpected("CHANGES or FINAL", ["CHANGES", "FINAL"])

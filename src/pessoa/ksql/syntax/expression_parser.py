"""Expressions, by the power with which operators bind (Pratt's way): one loop instead of a function per level.

    OR < AND < NOT < comparisons < || < + - < * / % < sign < AT TIME ZONE < x[i], s->f

A comparison does not chain: `a = b = c` is an error. What stands in brackets or is called is in `primary_parser.py`.
"""

from __future__ import annotations

from pessoa.ksql.syntax import primary_parser
from pessoa.ksql.syntax.expression_nodes import (
    Arithmetic,
    AtTimeZone,
    Between,
    Comparison,
    Dereference,
    Expression,
    InList,
    IsNull,
    Like,
    Literal,
    Logical,
    Negate,
    Not,
    Subscript,
    depth,
)
from pessoa.ksql.syntax.sql_tokens import Token, TokenKind
from pessoa.ksql.syntax.token_cursor import TokenCursor

OR, AND, NOT, PREDICATE, CONCAT, SUM, PRODUCT, SIGN, ZONE, POSTFIX = range(1, 11)

# Later passes recurse: they take two or three calls of Python per level. Brackets are counted by the cursor; this also
# bounds `a + a + a …`, which is deep without any.
DEEPEST_TREE = 120

_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_ARITHMETIC = {"||": CONCAT, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}


def parse_expression(cursor: TokenCursor) -> Expression:
    """Return the expression that begins here. Its depth is checked, so that passes over it may recurse."""
    token = cursor.token
    found = parse_binding(cursor, OR)
    if depth(found) > DEEPEST_TREE:
        message = f"this expression is more than {DEEPEST_TREE} operations deep"
        raise cursor.error(message, token, "Compute parts of it in a stream before.")
    return found


def parse_binding(cursor: TokenCursor, power: int) -> Expression:
    """Return the expression that begins here and contains only operators of at least this binding power."""
    cursor.deeper()
    # What may still follow: after a comparison or a NOT only AND and OR.
    ceiling = NOT if cursor.at_word("NOT") else POSTFIX
    left = _parse_prefix(cursor, power)
    while True:
        token = cursor.token
        binding = _binding(cursor)
        if binding < power or binding > ceiling:
            break
        left = _parse_infix(cursor, left, token, binding)
        if binding <= PREDICATE:
            ceiling = binding if binding < PREDICATE else NOT
    cursor.shallower()
    return left


def _parse_prefix(cursor: TokenCursor, power: int) -> Expression:
    token = cursor.token
    if power <= NOT and cursor.take_word("NOT"):
        return Not(parse_binding(cursor, NOT), at=token.at)
    if power <= SIGN and cursor.at_symbol("-", "+"):
        cursor.next()
        if token.value == "+":
            return parse_binding(cursor, SIGN)
        number = cursor.token.kind in (TokenKind.INTEGER, TokenKind.DECIMAL, TokenKind.FLOAT)
        # The sign belongs to the number, unless an index or a zone binds the number first.
        if number and not _is_postfix(cursor.ahead()):
            found = primary_parser.parse_number(cursor)
            return Literal(primary_parser.negated(found.value), found.type, at=token.at)
        return Negate(parse_binding(cursor, SIGN), at=token.at)
    return primary_parser.parse_primary(cursor)


def _is_postfix(token: Token) -> bool:
    return token.value in ("[", "->") if token.kind is TokenKind.SYMBOL else token.value == "AT"


def _binding(cursor: TokenCursor) -> int:
    """Return the binding power of the next token as an operator; 0 if it is none."""
    token = cursor.token
    if token.kind is TokenKind.SYMBOL:
        if token.value == "->" and cursor.ahead().value == "*":
            return 0  # struct->*, which the list of selected items reads
        if token.value in ("[", "->"):
            return POSTFIX
        return PREDICATE if token.value in _COMPARISONS else _ARITHMETIC.get(token.value, 0)
    if token.kind is not TokenKind.NAME:
        return 0
    match token.value:
        case "OR":
            return OR
        case "AND":
            return AND
        case "IS" | "IN" | "LIKE" | "BETWEEN":
            return PREDICATE
        case "NOT" if cursor.ahead().value in ("IN", "LIKE", "BETWEEN"):
            return PREDICATE
        case "AT" if cursor.at_word("AT", "TIME", "ZONE"):
            return ZONE
    return 0


def _parse_infix(cursor: TokenCursor, left: Expression, token: Token, binding: int) -> Expression:
    if binding in (OR, AND):
        return _parse_chain(cursor, left, token, binding)
    if binding == PREDICATE:
        return _parse_predicate(cursor, left)
    cursor.next()
    if token.value in _ARITHMETIC and token.kind is TokenKind.SYMBOL:
        return Arithmetic(token.value, left, parse_binding(cursor, binding + 1), at=token.at)
    match token.value:
        case "[":
            index = parse_binding(cursor, CONCAT)
            cursor.expect_symbol("]")
            return Subscript(left, index, at=token.at)
        case "->":
            return Dereference(left, cursor.expect_name("the name of a field"), at=token.at)
    cursor.expect_word("TIME", "ZONE")
    return AtTimeZone(left, cursor.expect_string("a time zone as a string"), at=token.at)


def _parse_chain(cursor: TokenCursor, left: Expression, token: Token, binding: int) -> Expression:
    """Return `left AND … AND …` as one node."""
    operands = [left]
    while cursor.take_word(token.value):
        operands.append(parse_binding(cursor, binding + 1))
    flat = [
        inner
        for one in operands
        for inner in (one.operands if isinstance(one, Logical) and one.operator == token.value else (one,))
    ]
    return Logical(token.value, tuple(flat), at=token.at)


def _parse_predicate(cursor: TokenCursor, left: Expression) -> Expression:
    token = cursor.next()
    if token.kind is TokenKind.SYMBOL:
        operator = "<>" if token.value == "!=" else token.value
        return Comparison(operator, left, parse_binding(cursor, CONCAT), at=token.at)
    if token.value == "IS":
        negated = cursor.take_word("NOT")
        if cursor.take_word("NULL"):
            return IsNull(left, negated, at=token.at)
        if not cursor.take_word("DISTINCT"):
            raise cursor.unexpected("NULL or DISTINCT FROM", ["NULL", "DISTINCT"])
        cursor.expect_word("FROM")
        operator = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
        return Comparison(operator, left, parse_binding(cursor, CONCAT), at=token.at)
    negated = token.value == "NOT"
    match cursor.next().value if negated else token.value:
        case "BETWEEN":
            low = parse_binding(cursor, CONCAT)
            cursor.expect_word("AND")
            return Between(left, low, parse_binding(cursor, CONCAT), negated, at=token.at)
        case "IN":
            cursor.expect_symbol("(")
            items = primary_parser.parse_list(cursor)
            cursor.expect_symbol(")")
            return InList(left, items, negated, at=token.at)
    pattern = parse_binding(cursor, CONCAT)
    escape = None
    if cursor.take_word("ESCAPE"):
        sign = cursor.token
        escape = cursor.expect_string("a string of one character")
        if len(escape) != 1:
            raise cursor.error("the escape character of LIKE must be one character", sign)
    return Like(left, pattern, escape, negated, at=token.at)

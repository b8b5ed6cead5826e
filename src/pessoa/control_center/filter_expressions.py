"""Filters for messages: a small language of comparisons, compiled to a function of a message.

    value.amount > 100 and key startswith "order-"
    headers.trace exists or not (partition in [0, 2])
    value.items[0].name matches "^(tea|coffee)$"

    expression = or ; or = and {"or" and} ; and = not {"and" not} ; not = ["not"] test
    test       = "(" expression ")" | operand [operator operand | "exists"]
    operand    = path | text | number | true | false | null | "[" operand {"," operand} "]"
    path       = (key | value | headers | partition | offset | timestamp | topic | size) {"." name | "[" number "]"}
    operator   = == != < <= > >= contains startswith endswith matches in

The text comes from a browser, so nothing of it is ever evaluated as Python: it is parsed into closures that read the
message and compare, expressions are bounded in length and depth, and regular expressions are RE2's (linear time). What
is missing compares as null; values of different types are unequal, and neither is less. Numbers in texts count as
texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pessoa.base.json_value import JsonValue
from pessoa.base.linear_regex import InvalidRegex, linear_regex

MAX_CHARACTERS = 2000
MAX_DEPTH = 40
_REGEX_BYTES = 1 << 20

ROOTS = ("key", "value", "headers", "partition", "offset", "timestamp", "topic", "size")
OPERATORS = ("==", "!=", "<=", ">=", "<", ">", "contains", "startswith", "endswith", "matches", "in")

Fields = Mapping[str, JsonValue]
Filter = Callable[[Fields], bool]
_Operand = Callable[[Fields], JsonValue]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z_][A-Za-z0-9_\-$]*)"
    r"|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<sign>==|!=|<=|>=|[<>()\[\].,]))"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class BadFilter(ValueError):
    """The expression cannot be read; the sentence says where and what to write instead."""


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def compile_filter(text: str) -> Filter:
    """Return a function that returns whether a message passes. Raises `BadFilter`."""
    if len(text) > MAX_CHARACTERS:
        raise BadFilter(f"The filter has {len(text)} characters; at most {MAX_CHARACTERS} are taken.")
    return _Parser(text, _tokens(text)).whole()


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            start = len(text) - len(text[position:].lstrip())
            raise BadFilter(f"Column {start + 1}: {text[start : start + 10]!r} is nothing that a filter knows.")
        assert match.lastgroup is not None
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        position = match.end()
    return found


class _Parser:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._end = _Token("end", "the end", len(text))

    def whole(self) -> Filter:
        if not self._tokens:
            raise BadFilter('The filter is empty. Write for example: value.amount > 100 and key contains "a"')
        found = self._parse_or()
        if self._peek().kind != "end":
            raise self._expectation_error("`and`, `or` or the end")
        return found

    def _go_deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadFilter(f"The filter is nested more than {MAX_DEPTH} deep.")

    def _parse_or(self) -> Filter:
        self._go_deeper()
        parts = [self._parse_and()]
        while self._accept("or"):
            parts.append(self._parse_and())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else lambda fields: any(part(fields) for part in parts)

    def _parse_and(self) -> Filter:
        parts = [self._parse_not()]
        while self._accept("and"):
            parts.append(self._parse_not())
        return parts[0] if len(parts) == 1 else lambda fields: all(part(fields) for part in parts)

    def _parse_not(self) -> Filter:
        is_negated = False
        while self._accept("not"):
            is_negated = not is_negated
        test = self._parse_test()
        return (lambda fields: not test(fields)) if is_negated else test

    def _parse_test(self) -> Filter:
        if self._accept("("):
            inner = self._parse_or()
            if not self._accept(")"):
                raise self._expectation_error("`)`")
            return inner
        left = self._operand()
        if self._accept("exists"):
            return lambda fields: left(fields) is not None
        operator = next((each for each in OPERATORS if self._peek().text == each), None)
        if operator is None:
            if self._peek().kind == "end" or self._peek().text in ("and", "or", ")"):
                return lambda fields: bool(left(fields))
            raise self._expectation_error(f"one of {' '.join(OPERATORS)} exists")
        self._at += 1
        if operator == "matches":
            return self._parse_matches(left)
        right = self._operand()
        compare = _COMPARE[operator]
        return lambda fields: compare(left(fields), right(fields))

    def _parse_matches(self, left: _Operand) -> Filter:
        token = self._peek()
        if token.kind != "text":
            raise self._expectation_error('a regular expression in quotes, as in: value matches "a.*b"')
        self._at += 1
        try:
            expression = linear_regex(_unquote(token.text), _REGEX_BYTES)
        except (InvalidRegex, UnicodeEncodeError) as wrong:
            raise BadFilter(f"Column {token.position + 1}: {wrong}") from None
        return lambda fields: expression.search(_as_text(left(fields))) is not None

    def _operand(self) -> _Operand:
        token = self._peek()
        self._at += 1
        match token.kind:
            case "number":
                number: JsonValue = float(token.text) if set(token.text) & set(".eE") else int(token.text)
                return lambda _: number
            case "text":
                text = _unquote(token.text)
                return lambda _: text
            case "sign" if token.text == "[":
                return self._list()
            case "word" if token.text in _WORDS:
                constant = _WORDS[token.text]
                return lambda _: constant
            case "word" if token.text in ROOTS:
                return self._path(token.text)
        self._at -= 1
        if token.kind == "word":
            raise BadFilter(
                f"Column {token.position + 1}: there is no field {token.text}. A path begins with one of"
                f" {', '.join(ROOTS)}, as in value.{token.text}; texts stand in quotes."
            )
        raise self._expectation_error("a path like value.amount, a text in quotes or a number")

    def _list(self) -> _Operand:
        self._go_deeper()
        parts = [self._operand()]
        while self._accept(","):
            parts.append(self._operand())
        self._depth -= 1
        if not self._accept("]"):
            raise self._expectation_error("`,` or `]`")
        return lambda fields: [part(fields) for part in parts]

    def _path(self, root: str) -> _Operand:
        steps: list[str | int] = []
        while True:
            if self._accept("."):
                token = self._peek()
                if token.kind not in ("word", "text"):
                    raise self._expectation_error("a name behind the point")
                steps.append(_unquote(token.text) if token.kind == "text" else token.text)
            elif self._accept("["):
                token = self._peek()
                if not re.fullmatch(r"-?\d+", token.text):
                    raise self._expectation_error("a whole number between the brackets")
                steps.append(int(token.text))
                self._at += 1
                if not self._accept("]"):
                    raise self._expectation_error("`]`")
                continue
            else:
                break
            self._at += 1
        return lambda fields: _descend(fields.get(root), steps)

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else self._end

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token.kind in ("text", "end") or token.text != text:
            return False
        self._at += 1
        return True

    def _expectation_error(self, what: str) -> BadFilter:
        token = self._peek()
        return BadFilter(f"Column {token.position + 1}: expected {what}, found {token.text}.")


_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])


def _descend(value: JsonValue, steps: list[str | int]) -> JsonValue:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def _as_text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    import msgspec

    return "" if value is None else msgspec.json.encode(value).decode()


def _is_less(left: JsonValue, right: JsonValue) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left < right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left < right
    return False


def _contains(left: JsonValue, right: JsonValue) -> bool:
    if isinstance(left, list):
        return right in left
    if isinstance(left, dict) and isinstance(right, str) and right in left:
        return True
    return _as_text(right) in _as_text(left)


_COMPARE: dict[str, Callable[[JsonValue, JsonValue], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": _is_less,
    ">": lambda left, right: _is_less(right, left),
    "<=": lambda left, right: left is not None and (left == right or _is_less(left, right)),
    ">=": lambda left, right: left is not None and (left == right or _is_less(right, left)),
    "contains": _contains,
    "startswith": lambda left, right: _as_text(left).startswith(_as_text(right)),
    "endswith": lambda left, right: _as_text(left).endswith(_as_text(right)),
    "in": lambda left, right: _contains(right, left),
}

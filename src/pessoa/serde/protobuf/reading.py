"""A cursor over tokens, with the checks that every rule of the grammar needs."""

from __future__ import annotations

from typing import NoReturn

from pessoa.serde.protobuf.proto_tokens import IDENTIFIER, INTEGER, STRING, SYMBOL, Token
from pessoa.serde.schema_problems import SchemaProblem


class Cursor:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def peek(self) -> Token:
        """Return the token after the next."""
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self._tokens[self._next]
        if self._next < len(self._tokens) - 1:
            self._next += 1
        return token

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        raise SchemaProblem(f"expected {expected} but found {token.shown()}", token.line, token.column)

    def at(self, *words: str) -> bool:
        """Whether the next token is one of these symbols or keywords."""
        return self.token.kind in (SYMBOL, IDENTIFIER) and self.token.text in words

    def maybe(self, word: str) -> bool:
        if self.at(word):
            self.take()
            return True
        return False

    def expect(self, word: str) -> Token:
        if not self.at(word):
            self.fail(f"'{word}'")
        return self.take()

    def identifier(self, what: str = "a name") -> str:
        if self.token.kind != IDENTIFIER:
            self.fail(what)
        return self.take().text

    def full_identifier(self, what: str = "a name") -> str:
        parts = [self.identifier(what)]
        while self.maybe("."):
            parts.append(self.identifier(what))
        return ".".join(parts)

    def type_name(self) -> str:
        lead = "." if self.maybe(".") else ""
        return lead + self.full_identifier("a type")

    def string(self) -> str:
        if self.token.kind != STRING:
            self.fail("a string")
        text = self.take().text
        while self.token.kind == STRING:
            text += self.take().text
        return text

    def integer(self, what: str = "a number") -> int:
        sign = -1 if self.maybe("-") else 1
        if self.token.kind != INTEGER:
            self.fail(what)
        return sign * integer_of(self.take())


def integer_of(token: Token) -> int:
    text = token.text
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if len(text) > 1 and text[0] == "0":
        try:
            return int(text, 8)
        except ValueError:
            raise SchemaProblem(f"{text} is no octal number", token.line, token.column) from None
    if len(text) > 20:
        raise SchemaProblem(f"the number {text[:20]}… is too large", token.line, token.column)
    return int(text)

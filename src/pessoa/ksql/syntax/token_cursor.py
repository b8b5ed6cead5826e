"""A position in a list of tokens, with the tests that a parser needs. All errors of the parser are made here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pessoa.ksql.ksql_errors import Position, SyntaxFailure
from pessoa.ksql.suggestions import closest
from pessoa.ksql.syntax.sql_tokens import RESERVED, Token, TokenKind

# A parser that descends takes some five calls of Python per level.
DEEPEST_NESTING = 60
T = TypeVar("T")


class TokenCursor:
    """A position in `tokens`, of which the last is END."""

    def __init__(self, tokens: list[Token], text: str) -> None:
        self._tokens = tokens
        self._index = 0
        self._nesting = 0
        self.text = text
        # What works and should be written otherwise.
        self.warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<TokenCursor {self._index}/{len(self._tokens)} at {self.token.text!r}>"

    @property
    def token(self) -> Token:
        return self._tokens[self._index]

    @property
    def at(self) -> Position:
        return self.token.at

    def ahead(self, count: int = 1) -> Token:
        return self._tokens[min(self._index + count, len(self._tokens) - 1)]

    def next(self) -> Token:
        token = self.token
        if token.kind is not TokenKind.END:
            self._index += 1
        return token

    # Questions.

    def at_word(self, *words: str) -> bool:
        """Return whether the next tokens are these words."""
        for count, word in enumerate(words):
            token = self.ahead(count)
            if token.kind is not TokenKind.NAME or token.value != word:
                return False
        return True

    def at_symbol(self, *symbols: str) -> bool:
        return self.token.kind is TokenKind.SYMBOL and self.token.value in symbols

    def take_word(self, *words: str) -> bool:
        """Return whether the next tokens are these words; they are consumed if so."""
        if not self.at_word(*words):
            return False
        self._index += len(words)
        return True

    def take_symbol(self, symbol: str) -> bool:
        if not self.at_symbol(symbol):
            return False
        self._index += 1
        return True

    def at_name(self) -> bool:
        token = self.token
        return token.kind is TokenKind.QUOTED_NAME or (token.kind is TokenKind.NAME and token.value not in RESERVED)

    # Demands.

    def expect_word(self, *words: str) -> Token:
        token = self.token
        for word in words:
            if not self.take_word(word):
                raise self.unexpected(word)
        return token

    def expect_symbol(self, symbol: str) -> Token:
        if not self.at_symbol(symbol):
            raise self.unexpected(f"'{symbol}'")
        return self.next()

    def expect_name(self, what: str) -> str:
        if self.at_name():
            return self.next().value
        token = self.token
        if token.kind is TokenKind.NAME:
            raise self.error(
                f"{token.text} is a reserved word and cannot be {what}",
                hint=f"Put it into back-quotes: `{token.text}`.",
            )
        raise self.unexpected(what)

    def expect_string(self, what: str) -> str:
        if self.token.kind is not TokenKind.STRING:
            raise self.unexpected(what)
        return self.next().value

    def expect_integer(self, what: str) -> int:
        if self.token.kind is not TokenKind.INTEGER:
            raise self.unexpected(what)
        token = self.next()
        # Python refuses to read very long numbers at once.
        if len(token.value) > 19:
            raise self.error("this number is too large", token)
        return int(token.value)

    # Nesting.

    def list_of(self, parse: Callable[[TokenCursor], T]) -> tuple[T, ...]:
        """Return the results of calling `parse` once or more, separated by commas."""
        found = [parse(self)]
        while self.take_symbol(","):
            found.append(parse(self))
        return tuple(found)

    def list_in_brackets(self, parse: Callable[[TokenCursor], T]) -> tuple[T, ...]:
        self.expect_symbol("(")
        found = self.list_of(parse)
        self.expect_symbol(")")
        return found

    def deeper(self) -> None:
        self._nesting += 1
        if self._nesting > DEEPEST_NESTING:
            raise self.error(f"this is nested more than {DEEPEST_NESTING} levels deep")

    def shallower(self) -> None:
        self._nesting -= 1

    # Errors.

    def error(self, message: str, token: Token | None = None, hint: str = "") -> SyntaxFailure:
        token = token if token is not None else self.token
        return SyntaxFailure(message, token.at, length=max(1, token.end - token.start), hint=hint, text=self.text)

    def unexpected(self, expected: str, candidates: Iterable[str] = ()) -> SyntaxFailure:
        """Return the error for a token that the grammar does not allow here; `candidates` are the words that would
        fit."""
        token = self.token
        found = "the end of the statement" if token.kind is TokenKind.END else _token_text(token)
        words = list(candidates) or [expected]
        meant = closest(token.value, words) if token.kind is TokenKind.NAME else None
        return self.error(f"expected {expected}, but found {found}", hint=f"Did you mean {meant}?" if meant else "")


def _token_text(token: Token) -> str:
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return text if text.startswith(("'", '"', "`")) else f"'{text}'"

"""What is wrong with a statement, for the person who wrote it.

    line 1:10: expected FROM, but found 'FORM'
      SELECT * FORM pageviews;
               ^^^^
    Did you mean FROM?

A pass that has no text at hand raises with a position alone; the caller that has the text adds it with `with_text`.
"""

from __future__ import annotations

from typing import NamedTuple

# A caret line is for people: of a line of 100,000 characters they see the neighbourhood of the error.
_WIDEST_LINE = 120
_BEFORE_CARET = 60


class Position(NamedTuple):
    """The line and the column where a token begins; both count from 1, as editors do."""

    line: int
    column: int


NOWHERE = Position(0, 0)


class KsqlError(Exception):
    """A statement that cannot be accepted. `length` is how many characters the caret underlines."""

    def __init__(
        self, message: str, at: Position = NOWHERE, *, length: int = 1, hint: str = "", text: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.length = length
        self.hint = hint
        self.text = text

    def with_text(self, text: str) -> KsqlError:
        """Return this error with the statement's text, which the caret needs."""
        self.text = self.text or text
        return self

    def __str__(self) -> str:
        if self.at == NOWHERE:
            lines = [self.message]
        else:
            lines = [f"line {self.at.line}:{self.at.column}: {self.message}", *self._caret()]
        if self.hint:
            lines.append(self.hint)
        return "\n".join(lines)

    def _caret(self) -> list[str]:
        lines = self.text.split("\n")
        if not self.text or self.at.line > len(lines):
            return []
        line, column = lines[self.at.line - 1].rstrip("\r"), self.at.column - 1
        if len(line) > _WIDEST_LINE:
            start = max(0, column - _BEFORE_CARET)
            line, column = line[start : start + _WIDEST_LINE], column - start
        # A tab stays a tab below it, so that the caret stands where the text does.
        indent = "".join("\t" if character == "\t" else " " for character in line[:column])
        width = max(1, min(self.length, len(line) - column))
        return [f"  {line}", f"  {indent}{'^' * width}"]


class SyntaxFailure(KsqlError):
    """The text is not a statement."""


class SemanticFailure(KsqlError):
    """The statement is well-formed, but cannot be executed."""

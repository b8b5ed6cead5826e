"""What can be wrong with a schema, and with data that should follow one."""

from __future__ import annotations


class SchemaProblem(ValueError):
    """A schema that does not parse, or has a reference that does not exist. The message has line and column if
    known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


class DataProblem(ValueError):
    """Bytes that do not follow their format, or a value that does not fit its schema."""

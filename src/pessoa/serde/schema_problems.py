"""What can be wrong with a schema, and with data that should follow one."""

from __future__ import annotations


class SchemaProblem(ValueError):
    """A schema that does not parse, or that refers to what is not there. Says where, if that is known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


class DataProblem(ValueError):
    """Bytes that are not what they should be, or a value that does not fit its schema."""

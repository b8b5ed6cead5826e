"""Which names an expression may use: the columns of its sources, and the parameters of the lambdas around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax.expression_nodes import Column
from pessoa.ksql.types.sql_types import SqlType


class Found(NamedTuple):
    """A column that a name stands for: the name under which a row has it, and its type."""

    column: str
    type: SqlType


class Scope(Protocol):
    def find(self, column: Column) -> Found:
        """Return the column. Raises SemanticFailure if there is none, or more than one."""


@dataclass(frozen=True)
class ColumnScope:
    """Plain columns by name, as of a table of values or an aggregation's input."""

    columns: Mapping[str, SqlType]
    # The word that an error begins with: SELECT, WHERE …
    clause: str = "SELECT"

    def find(self, column: Column) -> Found:
        kind = self.columns.get(column.name) if column.source is None else None
        if kind is None:
            raise unresolved(column, self.clause, self.columns)
        return Found(column.name, kind)


@dataclass(frozen=True)
class LambdaScope:
    """The scope of a lambda's body: its parameters, then the columns of the scope around it."""

    outer: Scope
    parameters: Mapping[str, SqlType]

    def find(self, column: Column) -> Found:
        kind = self.parameters.get(column.name) if column.source is None else None
        return self.outer.find(column) if kind is None else Found(parameter_column(column.name), kind)


class NoColumns:
    """The scope of INSERT VALUES: literals and functions only."""

    def find(self, column: Column) -> Found:
        raise SemanticFailure(
            f"{shown(column)} is a column, and there is no row to take it from",
            column.at,
            length=len(column.name),
            hint=f"Put text into quotes: '{column.name}'.",
        )


def parameter_column(name: str) -> str:
    """Return the name under which a row has the parameter of a lambda: no column can have it."""
    return f"{name}=>"


def shown(column: Column) -> str:
    return column.name if column.source is None else f"{column.source}.{column.name}"


def unresolved(column: Column, clause: str, names: Iterable[str]) -> SemanticFailure:
    hint = did_you_mean(column.name, names)
    return SemanticFailure(
        f"{clause} column '{shown(column)}' cannot be resolved.", column.at, length=len(shown(column)), hint=hint
    )

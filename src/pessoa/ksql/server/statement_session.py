"""What holds for the statements of one request: properties of SET and `streamsProperties`, and variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pessoa.ksql.server.ksql_problems import BAD_REQUEST, BAD_STATEMENT, KsqlProblem
from pessoa.ksql.server.server_config import check_query_property, query_property_name


@dataclass
class Session:
    properties: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    # The header with which the caller came in.
    authorization: str | None = field(default=None, repr=False)

    def set(self, name: str, value: str, statement: str | None = None) -> None:
        """Set a property. Raises KsqlProblem if the property does not exist, or cannot have this value."""
        if wrong := check_query_property(name, value):
            raise KsqlProblem(BAD_REQUEST if statement is None else BAD_STATEMENT, wrong, statement)
        self.properties[query_property_name(name) or name] = value

    def unset(self, name: str) -> None:
        self.properties.pop(query_property_name(name) or name, None)


def make_session(properties: Mapping[str, object] | None, variables: Mapping[str, object] | None) -> Session:
    session = Session(variables={str(name).upper(): _text(value) for name, value in (variables or {}).items()})
    for name, value in (properties or {}).items():
        session.set(name, _text(value))
    return session


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

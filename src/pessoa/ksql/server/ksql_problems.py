"""Errors of the REST interface: `{"@type":"generic_error"|"statement_error","error_code":40001,"message":…}`.

The HTTP status is the code without its last two digits.
"""

from __future__ import annotations

import msgspec

from pessoa.ksql.server.entities import Entity, Json
from pessoa.web.problems import HttpProblem

BAD_REQUEST = 40000
BAD_STATEMENT = 40001
QUERY_ENDPOINT = 40002
TOO_MANY_PUSH_QUERIES = 40003
UNAUTHORIZED = 40100
FORBIDDEN = 40300
FORBIDDEN_KAFKA = 40301
NOT_FOUND = 40400
ASSERTION_FAILED = 41700
NO_REGISTRY = 42801
SERVER_ERROR = 50000
COMMAND_TIMEOUT = 50301
NOT_READY = 50302
SHUTTING_DOWN = 50303
JSON_TYPE = "application/json"


class KsqlProblem(HttpProblem):
    """An error response of the REST API: with a statement it is a statement_error, without one a generic_error."""

    def __init__(
        self, code: int, message: str, statement: str | None = None, entities: tuple[Entity, ...] = ()
    ) -> None:
        super().__init__(code // 100, message, code)
        self.statement = statement
        self.entities = entities

    def body(self) -> dict[str, Json]:
        if self.statement is None:
            return {"@type": "generic_error", "error_code": self.code, "message": self.message}
        return {
            "@type": "statement_error", "error_code": self.code, "message": self.message,
            "statementText": self.statement, "entities": list(self.entities),
        }  # fmt: skip


def error_body(problem: HttpProblem, media_type: str) -> tuple[bytes, str]:
    if isinstance(problem, KsqlProblem):
        return msgspec.json.encode(problem.body()), _json(media_type)
    code = problem.code if problem.code > 9999 else problem.code * 100
    body = {"@type": "generic_error", "error_code": code, "message": problem.message}
    return msgspec.json.encode(body), _json(media_type)


def _json(media_type: str) -> str:
    """Return the media type of an error: JSON, even where rows would have been delimited by lines."""
    return media_type if media_type.endswith("json") else JSON_TYPE

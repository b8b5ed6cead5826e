"""The one exception that becomes an error body.

Kafka's HTTP services answer a failure with a status and `{"error_code": …, "message": …}`, where the code is the status
or the status with two more digits (40401). Handlers raise `HttpProblem`; `asgi_app.py` turns it into bytes. Any other
exception is a mistake of ours: it is logged with its traceback and answered with 500 and no details.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple


class HttpProblem(Exception):
    """An error response to the caller. Without a code of its own, the status is the code."""

    def __init__(
        self, status: int, message: str, code: int | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code
        self.message = message
        self.headers = dict(headers or {})

    def __repr__(self) -> str:
        return f"<HttpProblem {self.status}/{self.code} {self.message!r}>"


class Problem(NamedTuple):
    """A row of a service's table of problems. Calling it with the facts of a case returns the exception to raise."""

    status: int
    code: int
    # A pair of braces for each fact.
    sentence: str

    def __call__(self, *facts: object) -> HttpProblem:
        assert len(facts) == self.sentence.count("{}"), f"{self.sentence}: {facts}"
        return HttpProblem(self.status, self.sentence.format(*facts), self.code)


def plain_problem(status: int, headers: Mapping[str, str] | None = None) -> HttpProblem:
    """Return the error that the JVM services send if their framework itself refuses a request."""
    return HttpProblem(status, f"HTTP {status} {HTTPStatus(status).phrase}", headers=headers)

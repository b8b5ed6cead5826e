"""What every request meets: bodies, answers, and the way to the worker that runs the connectors.

Requests that only ask are answered by every worker, from the topics. Those that change something are passed on to the
one that leads, unless it is this one. What blocks (topics, groups) happens in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.connect.herder import Herder
from pessoa.connect.store import StoreFailed
from pessoa.web.bodies import read_body
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Handler

T = TypeVar("T")

JSON = "application/json"
FORWARDED = "x-pessoa-forwarded"
FORWARD_TIMEOUT_S = 90.0


class Desk:
    def __init__(self, herder: Herder) -> None:
        self.herder = herder
        self.url = ""

    def changing(self, handle: Callable[[Request], Awaitable[Response]]) -> Handler:
        """A handler that only the leader may run."""

        async def passed_on(request: Request) -> Response:
            if self.herder.leads:
                return await handle(request)
            return await self._forward(request)

        return passed_on

    async def _forward(self, request: Request) -> Response:
        leader = self.herder.store.state.leader
        if leader is None or leader == self.url or FORWARDED in request.headers:
            raise HttpProblem(
                409, "Cannot complete request because of a conflicting operation (e.g. worker rebalance in progress)"
            )
        import httpx

        query = f"?{request.url.query}" if request.url.query else ""
        raw = request.scope.get("raw_path") or request.url.path.encode()
        body = await read_body(request)
        try:
            async with httpx.AsyncClient(timeout=FORWARD_TIMEOUT_S, trust_env=False) as client:
                answer = await client.request(
                    request.method,
                    f"{leader}{raw.decode()}{query}",
                    content=body,
                    headers={"Content-Type": JSON, FORWARDED: "1"},
                )
        except httpx.HTTPError as failure:
            raise HttpProblem(500, f"IO Error trying to forward REST request: {failure}") from None
        headers = {"Location": answer.headers["location"]} if "location" in answer.headers else None
        return Response(
            answer.content, answer.status_code, headers=headers, media_type=JSON if answer.content else None
        )


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    try:
        return await asyncio.to_thread(work, *arguments)
    except StoreFailed as failure:
        raise HttpProblem(500, str(failure)) from None


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers=dict(headers or {}), media_type=JSON)


def nothing(status: int) -> Response:
    return Response(status_code=status)


async def json_body(request: Request, kind: type[T]) -> T:
    """The body as a value of this type; 400 with what is wrong, where Kafka's parser answers 500."""
    body = await read_body(request)
    if not body.strip():
        raise HttpProblem(400, "The request has no body")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise HttpProblem(400, f"The request's body cannot be understood: {wrong}") from None


async def settings_body(request: Request) -> dict[str, str | None]:
    return as_texts(await json_body(request, dict[str, Any]))


def as_texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    """Configurations are flat text; whoever writes numbers and booleans means their text."""
    found: dict[str, str | None] = {}
    for name, value in values.items():
        if value is None or isinstance(value, str):
            found[name] = value
        elif isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, int | float):
            found[name] = str(value)
        else:
            raise HttpProblem(400, f"The value of {name} is no text")
    return found


def flag(request: Request, name: str, default: bool = False) -> bool:
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"

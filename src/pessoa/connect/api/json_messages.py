"""Bodies of requests and answers in JSON, and work in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.web.bodies import read_body
from pessoa.web.json_charset import as_utf8
from pessoa.web.problems import HttpProblem

P = ParamSpec("P")
T = TypeVar("T")

JSON = "application/json"


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call (topics, groups) in a thread; 500 if the internal topics are not available."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except TopicUnavailable as failure:
        raise HttpProblem(500, str(failure)) from None


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers=dict(headers or {}), media_type=JSON)


def nothing(status: int) -> Response:
    return Response(status_code=status)


async def json_body(request: Request, kind: type[T]) -> T:
    """Return the body as a value of this type; 400 with what is wrong, where Kafka's parser answers 500."""
    body = await read_body(request)
    if not body.strip():
        raise HttpProblem(400, "The request has no body")
    try:
        return msgspec.json.decode(as_utf8(body), type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise HttpProblem(400, f"The request's body cannot be understood: {wrong}") from None


async def settings_body(request: Request) -> dict[str, str | None]:
    return as_texts(await json_body(request, dict[str, object]))


def as_texts(values: Mapping[str, object]) -> dict[str, str | None]:
    """Return the configuration with every value as text: numbers and booleans become their text, other values are a
    400."""
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

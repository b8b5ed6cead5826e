"""Request bodies: read within a limit, decoded, validated.

A body that is too large is refused as soon as that is known: by its Content-Length before anything is read, or at the
chunk that goes past the limit. Nothing is kept of it. One that comes too slowly is refused as well: it has the limit's
`timeout_s`, and a second more for each `BYTES_PER_S` that have come, so that a long body over a slow line gets through
and a drip does not hold what it takes to hold it.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from pessoa.web.answers import EXCHANGE_KEY
from pessoa.web.json_charset import as_utf8
from pessoa.web.problems import HttpProblem

T = TypeVar("T")

# Where `make_app` puts the limit of the service.
LIMIT_KEY = "pessoa.body_limit"
BYTES_PER_S = 4096

EMPTY_BODY = "HTTP 400 Bad Request: the request has no body"


class BodyLimit(NamedTuple):
    size: int
    timeout_s: float


_WITHOUT_END = BodyLimit(1 << 62, float("inf"))


async def read_body(request: Request, limit: BodyLimit | None = None) -> bytes:
    """Return the whole body; 413 if it is too large, 408 if it is too slow. The default limit is the service's."""
    limit = limit or request.scope.get(LIMIT_KEY, _WITHOUT_END)
    exchange = request.scope.get(EXCHANGE_KEY)
    if exchange is not None and exchange.is_complete:
        # The body has arrived already, as most have.
        body: bytes = exchange.take_body()
        if len(body) > limit.size:
            raise too_large(limit.size)
        return body
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit.size:
        raise too_large(limit.size)
    return await _read_slowly(request, limit)


async def _read_slowly(request: Request, limit: BodyLimit) -> bytes:
    started_s = asyncio.get_running_loop().time()
    body = bytearray()
    is_whole = False
    while not is_whole:
        try:
            async with asyncio.timeout_at(started_s + limit.timeout_s + len(body) / BYTES_PER_S):
                message = await request.receive()
        except TimeoutError:
            raise HttpProblem(408, f"The request's body did not come in time; {len(body)} bytes are here.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limit.size:
            raise too_large(limit.size)
        is_whole = not message.get("more_body", False)
    return bytes(body)


async def read_json(request: Request, kind: type[T]) -> T:
    """Return the body as a value of this type: 400 for a body that is not JSON, 422 for JSON of another shape."""
    return decode_json(await read_body(request), kind)


def decode_json(body: bytes, kind: type[T]) -> T:
    if not body.strip():
        raise HttpProblem(400, EMPTY_BODY)
    try:
        return msgspec.json.decode(as_utf8(body), type=kind)
    except msgspec.ValidationError as wrong:
        raise HttpProblem(422, f"Unprocessable body: {wrong}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise HttpProblem(400, f"Malformed JSON: {wrong}") from None


def too_large(limit: int) -> HttpProblem:
    return HttpProblem(413, f"The request body is larger than {limit} bytes.")

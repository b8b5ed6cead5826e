"""Request bodies: read within a limit, decoded, validated.

A body that is too large is refused as soon as that is known: by its Content-Length before anything is read, or at the
chunk that goes past the limit. Nothing is kept of it.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import Request

from pessoa.web.problems import HttpProblem

T = TypeVar("T")

# Where `make_app` puts the limit of the service.
LIMIT_KEY = "pessoa.body_limit"

EMPTY_BODY = "HTTP 400 Bad Request: the request has no body"


async def read_body(request: Request) -> bytes:
    """The whole body, or 413."""
    limit: int = request.scope.get(LIMIT_KEY, 1 << 62)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_json(request: Request, kind: type[T]) -> T:
    """The body as a value of this type: 400 for what is not JSON, 422 for JSON of another shape."""
    return decode_json(await read_body(request), kind)


def decode_json(body: bytes, kind: type[T]) -> T:
    if not body.strip():
        raise HttpProblem(400, EMPTY_BODY)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as wrong:
        raise HttpProblem(422, f"Unprocessable body: {wrong}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise HttpProblem(400, f"Malformed JSON: {wrong}") from None


def too_large(limit: int) -> HttpProblem:
    return HttpProblem(413, f"The request body is larger than {limit} bytes.")

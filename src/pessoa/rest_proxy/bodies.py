"""Request bodies, and how a wrong one is answered.

Three kinds of wrong are told apart, as callers know them: what is not JSON or has a value of another type is 400; a
field that nobody knows, or a required one that is missing, is 422.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from pessoa.rest_proxy.problems import unprocessable
from pessoa.web.bodies import read_body
from pessoa.web.problems import HttpProblem

T = TypeVar("T")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`")
_MISSING_FIELD = re.compile(r"Object missing required field `(.*?)`")


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def decoded(body: bytes, using: msgspec.json.Decoder[T]) -> T:
    try:
        # What stays raw is not looked at by the decoder.
        if not body.isascii():
            body.decode()
        return using.decode(body)
    except msgspec.ValidationError as wrong:
        raise _mapping_problem(str(wrong)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise HttpProblem(400, f"Malformed JSON: {wrong}") from None
    except RecursionError:
        raise HttpProblem(400, "Malformed JSON: nested too deeply") from None


async def body_of(request: Request, using: msgspec.json.Decoder[T]) -> T:
    """The body, which must be there."""
    body = await read_body(request)
    if not body.strip():
        raise unprocessable("Request body must not be empty")
    return decoded(body, using)


async def optional_body_of(request: Request, using: msgspec.json.Decoder[T]) -> T | None:
    body = await read_body(request)
    text = body.strip()
    return decoded(body, using) if text and text != b"null" else None


def _mapping_problem(text: str) -> HttpProblem:
    if match := _UNKNOWN_FIELD.search(text):
        return unprocessable(f"Unrecognized field: {match[1]}")
    if match := _MISSING_FIELD.search(text):
        return unprocessable(f"{match[1]} must not be null")
    return HttpProblem(400, f"Bad Request: {text}")


def whole_number(value: Any, name: str) -> int | None:
    """A number that may have come as text."""
    if value is None or isinstance(value, int):
        return value
    try:
        return int(value)
    except ValueError:
        raise HttpProblem(400, f"Bad Request: {name} is {value!r}; it must be a whole number") from None

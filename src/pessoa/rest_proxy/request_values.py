"""Request bodies and the numbers in paths, and how wrong ones are answered.

Three kinds of wrong are told apart, as callers know them: what is not JSON or has a value of another type is 400; a
field that is not known, or a required one that is missing, is 422. A scalar that stands for another is none of them
(`coercion.py`), and a body may be in any encoding of Unicode (`web/json_charset.py`).
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

from pessoa.rest_proxy.coercion import coerced
from pessoa.rest_proxy.proxy_problems import unprocessable
from pessoa.web.bodies import read_body
from pessoa.web.json_charset import as_utf8
from pessoa.web.problems import HttpProblem

T = TypeVar("T")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`")
_INT32 = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*?)`")


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def decoded(body: bytes, using: msgspec.json.Decoder[T]) -> T:
    """Return the value of a JSON body in UTF-8. Raises the HttpProblem for a malformed one."""
    try:
        # What stays raw is not looked at by the decoder.
        if not body.isascii():
            body.decode()
        try:
            return using.decode(body)
        except msgspec.ValidationError:
            return using.decode(coerced(body, using.type))
    except msgspec.ValidationError as wrong:
        raise _mapping_problem(str(wrong)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise HttpProblem(400, f"Malformed JSON: {wrong}") from None
    except RecursionError:
        raise HttpProblem(400, "Malformed JSON: nested too deeply") from None


async def body_of(request: Request, using: msgspec.json.Decoder[T]) -> T:
    """Return the value of the body. Raises the problem 422 for an empty one."""
    body = await text_of(request)
    if not body.strip():
        raise unprocessable("Request body must not be empty")
    return decoded(body, using)


async def optional_body_of(request: Request, using: msgspec.json.Decoder[T]) -> T | None:
    body = await text_of(request)
    text = body.strip()
    return decoded(body, using) if text and text != b"null" else None


async def text_of(request: Request) -> bytes:
    """Return the body in UTF-8."""
    try:
        return as_utf8(await read_body(request))
    except UnicodeDecodeError as wrong:
        raise HttpProblem(400, f"Malformed JSON: {wrong}") from None


def _mapping_problem(text: str) -> HttpProblem:
    if match := _UNKNOWN_FIELD.search(text):
        return unprocessable(f"Unrecognized field: {match[1]}")
    if match := _MISSING_FIELD.search(text):
        return unprocessable(f"{match[1]} must not be null")
    return HttpProblem(400, f"Bad Request: {text}")


def whole_number(value: str | int | None, name: str) -> int | None:
    """Return a number that may be written as text. Raises the problem 400 if it is not a whole number."""
    if value is None or isinstance(value, int):
        return value
    try:
        return int(value)
    except ValueError:
        raise HttpProblem(400, f"Bad Request: {name} is {value!r}; it must be a whole number") from None


def path_number(request: Request, name: str) -> int:
    """Return a path parameter that is a number of 32 bits. Raises the problem 404 for any other text, as JAX-RS
    does."""
    text = request.path_params[name]
    if not _INT32.fullmatch(text) or not -(1 << 31) <= int(text) < 1 << 31:
        raise HttpProblem(404, "HTTP 404 Not Found")
    return int(text)

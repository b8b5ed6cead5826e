"""The headers that precede messages on the wire: the request header and the response header.

    request   v1   api key, api version, correlation id, client id
              v2   the same and tagged fields; the client id keeps its classic form so that any broker can read it
    response  v0   correlation id
              v1   the same and tagged fields

A request in a flexible version has header v2, its response header v1. One exception: the response to ApiVersions
always has header v0, because its reader does not know yet whether the broker is old (KIP-511).
"""

from __future__ import annotations

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.primitives import Data
from pessoa.wire.schema import ALL, Message, int16, int32, string

_API_VERSIONS_KEY = 18


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable=ALL, flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: int = int32()


def request_header_version(request: type[Message], version: int) -> int:
    return 2 if version in request.flexible else 1


def response_header_version(request: type[Message], version: int) -> int:
    if request.api_key == _API_VERSIONS_KEY:
        return 0
    return 1 if version in request.flexible else 0


def peek_api(data: Data, pos: int, end: int) -> tuple[int, int, int]:
    """Return API key, API version and correlation id: the eight bytes that every request starts with, in every
    version. They suffice to answer a request of an unsupported version, whose header cannot be decoded."""
    if end - pos < 8:
        raise ProtocolViolation(f"a request of {end - pos} bytes has no header")
    number = int.from_bytes
    return (
        number(data[pos : pos + 2], "big", signed=True),
        number(data[pos + 2 : pos + 4], "big", signed=True),
        number(data[pos + 4 : pos + 8], "big", signed=True),
    )

"""The table of what this broker serves: API, versions, handler. ApiVersions is answered from it.

A frame comes in, the buffers of the answer go out. What cannot be answered at all (an API or a version that is not in
the table, a body that does not decode) is a `ProtocolViolation`, as in Kafka, which closes such a connection too:
without a known version there is no telling what form an answer would have. ApiVersions alone is answered in any
version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pessoa.broker.handlers import api_versions
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer, response_frame
from pessoa.wire.headers import RequestHeader, peek_api, request_header_version
from pessoa.wire.schema import Message
from pessoa.wire.versions import Versions


class Row(NamedTuple):
    key: ApiKey
    versions: Versions
    handle: Callable[[Any], Message]


TABLE: tuple[Row, ...] = (
    Row(ApiKey.API_VERSIONS, api_versions.SERVED_VERSIONS, lambda _: api_versions.respond(advertised())),
)
_by_key = {int(row.key): row for row in TABLE}


def advertised() -> Iterator[tuple[ApiKey, Versions]]:
    return ((row.key, row.versions) for row in TABLE)


def serve(frame: memoryview) -> list[Buffer] | None:
    data = bytes(frame)
    number, version, correlation_id = peek_api(data, 0, len(data))
    row = _by_key.get(number)
    if row is None:
        raise ProtocolViolation(f"API {number} is not served here")
    if version not in row.versions:
        if row.key is ApiKey.API_VERSIONS:
            return response_frame(api_versions.respond_unsupported(), 0, correlation_id)
        raise ProtocolViolation(f"{row.key.title} is served in versions {row.versions}, not {version}")
    kind = row.key.request
    _, pos = RequestHeader.decoder(request_header_version(kind, version))(data, 0, len(data))
    request = kind.decode(data[pos:], version)
    return response_frame(row.handle(request), version, correlation_id)

"""The table of what this broker serves: API and versions. ApiVersions is answered from it.

The handler of an API is the function `handle` in the module of its name in `pessoa.broker.handlers`, imported at the
first request for it. For every (API, version) that is used, `Route` keeps at hand all that a request needs: decoders,
handler, encoder.

A frame comes in, the buffers of the answer go out, or an awaitable of them. What cannot be answered at all (an API or
version that is not in the table, a body that does not decode) is a `ProtocolViolation`, as in Kafka, which closes
such a connection too: without a known version there is no telling what form an answer would have. ApiVersions alone
is answered in any version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pessoa.broker.context import RequestContext
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer, response_frame
from pessoa.wire.headers import RequestHeader, peek_api, request_header_version
from pessoa.wire.schema import Message
from pessoa.wire.versions import Versions

if TYPE_CHECKING:
    from pessoa.net.listener import Connection

Reply = Message | Awaitable[Message | None] | None


class Row(NamedTuple):
    key: ApiKey
    versions: Versions
    # Produce advertises 0 to 2 without serving them: librdkafka takes a broker that lacks them for too old.
    advertised: Versions


def _row(key: ApiKey, versions: str, advertised: str | None = None) -> Row:
    return Row(key, Versions.parse(versions), Versions.parse(advertised or versions))


TABLE: tuple[Row, ...] = (_row(ApiKey.API_VERSIONS, "0-4"),)

_read_prefix = Struct(">hhi").unpack_from


def advertised(table: tuple[Row, ...] = TABLE) -> Iterator[tuple[ApiKey, Versions]]:
    return ((row.key, row.advertised) for row in table)


class Route:
    """Everything that serving one API in one version takes."""

    __slots__ = ("decode_header", "decode_request", "handle", "title")

    def __init__(self, key: ApiKey, version: int) -> None:
        kind = key.request
        self.decode_header = RequestHeader.decoder(request_header_version(kind, version))
        self.decode_request = kind.decoder(version)
        self.handle = import_module(f"pessoa.broker.handlers.{key.name.lower()}").handle
        self.title = f"{key.title} version {version}"


class Dispatcher:
    """Serves the frames of all connections with the handlers of the table. `services` is what handlers work with."""

    def __init__(self, services: Any, table: tuple[Row, ...] = TABLE, listener: str = "PLAINTEXT") -> None:
        self._services = services
        self._rows = {int(row.key): row for row in table}
        self._listener = listener
        # (API key << 16 | version) → route
        self._routes: dict[int, Route] = {}

    def serve(
        self, connection: Connection, data: bytearray, start: int, end: int
    ) -> list[Buffer] | Awaitable[list[Buffer] | None] | None:
        if end - start < _PREFIX_BYTES:
            peek_api(data, start, end)  # raises
        key, version, correlation_id = _read_prefix(data, start)
        route = self._routes.get(key << 16 | version)
        if route is None:
            route = self._find(key, version)
            if route is None:
                return _unsupported_api_versions(correlation_id)
        header, pos = route.decode_header(data, start, end)
        request, pos = route.decode_request(data, pos, end)
        if pos != end:
            raise ProtocolViolation(f"{end - pos} bytes are left over behind {route.title}")
        context = RequestContext(
            key, version, correlation_id, header.client_id, connection.host, connection.id, self._listener
        )
        reply: Reply = route.handle(self._services, context, request)
        if reply is None:
            return None
        if isinstance(reply, Message):
            return response_frame(reply, version, correlation_id)
        return _framed_later(reply, version, correlation_id)

    def _find(self, key: int, version: int) -> Route | None:
        """The route, made at its first use. None for ApiVersions in a version that we do not speak."""
        row = self._rows.get(key)
        if row is None:
            raise ProtocolViolation(f"API {key} is not served here")
        if version not in row.versions:
            if row.key is ApiKey.API_VERSIONS:
                return None
            raise ProtocolViolation(f"{row.key.title} is served in versions {row.versions}, not {version}")
        route = self._routes[key << 16 | version] = Route(row.key, version)
        return route


_PREFIX_BYTES = 8


async def _framed_later(reply: Awaitable[Message | None], version: int, correlation_id: int) -> list[Buffer] | None:
    message = await reply
    return None if message is None else response_frame(message, version, correlation_id)


def _unsupported_api_versions(correlation_id: int) -> list[Buffer]:
    from pessoa.broker.handlers.api_versions import respond_unsupported

    return response_frame(respond_unsupported(), 0, correlation_id)

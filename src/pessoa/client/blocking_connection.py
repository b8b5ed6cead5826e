"""One blocking connection to one broker: a request is sent and its response received before the next request.

Blocking on purpose. A tool asks a handful of questions, one after the other, and must be done in a fraction of a
second; an event loop would take longer to import than the whole conversation.

The first request on a connection is ApiVersions. Afterwards each request is sent in the highest version that both
sides speak. A connection that failed is closed and stays so; its caller asks the cluster for another.
"""

from __future__ import annotations

import socket
import time
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from pessoa.client.client_errors import RequestFailed, Unsupported
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.errors import ErrorCode, ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES, request_frame
from pessoa.wire.message_headers import response_header_version
from pessoa.wire.primitives import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.wire.schema import Message

R = TypeVar("R", bound="Message")

_size = Struct(">i")
# The name and the number that a broker shows in its metrics for our connections (KIP-511).
SOFTWARE_NAME = "pessoa"


class ConnectionFailed(Exception):
    """The connection was refused, reset or timed out; another connection or broker may work."""


class Connection:
    def __init__(self, host: str, port: int, client_id: str, settings: Mapping[str, str], deadline: float) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            # As bytes the name is taken as it is; as text the codec for international names would be imported for it.
            name = host.encode() if host.isascii() else host
            self._socket = socket.create_connection((name, port), timeout=_remaining_s(deadline))  # type: ignore[arg-type]
        except OSError as error:
            raise ConnectionFailed(f"{host}:{port}: {error.strerror or error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
                from pessoa.client.security import secure

                self._socket = secure(self, self._socket, settings, deadline)
            self.api_versions = self._ask_for_versions(deadline)
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"{host}:{port}: {error}") from error
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Connection to {self.host}:{self.port}, {self._correlation_id} requests sent>"

    def close(self) -> None:
        self._socket.close()

    def use(self, secured: socket.socket) -> None:
        """Send and receive over this TLS socket from now on."""
        self._socket = secured

    def version_for(self, kind: type[Message]) -> int:
        """Return the highest version of the API that both sides support."""
        found = self._versions.get(kind.api_key)
        if found is None:
            raise Unsupported(f"The node does not support {_api_name(kind)}")
        oldest, newest = max(found[0], kind.versions.first), min(found[1], kind.versions.last)
        if oldest > newest:
            raise Unsupported(
                f"The node does not support {_api_name(kind)} with version in range "
                f"[{kind.versions.first},{kind.versions.last}]. The supported range is [{found[0]},{found[1]}]."
            )
        return newest

    def send(self, request: Message, answer: type[R], deadline: float, version: int | None = None) -> R:
        """Send a request and wait for its answer."""
        if version is None:
            version = self.version_for(type(request))
        self._correlation_id += 1
        frame = b"".join(request_frame(request, version, self._correlation_id, self._client_id))
        try:
            self._socket.settimeout(_remaining_s(deadline))
            self._socket.sendall(frame)
            data = self._receive(deadline)
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"{self.host}:{self.port}: {error}") from error
        try:
            return self._decode(data, type(request), answer, version)
        except ProtocolViolation as error:
            self.close()
            raise ConnectionFailed(f"{self.host}:{self.port}: {error}") from error

    def _receive(self, deadline: float) -> bytes:
        size = _size.unpack(self._read(_size.size, deadline))[0]
        if not 0 <= size <= DEFAULT_MAX_FRAME_BYTES:
            raise OSError(f"a frame of {size} bytes was announced, which is not Kafka's protocol")
        return bytes(self._read(size, deadline))

    def _read(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            self._socket.settimeout(_remaining_s(deadline))
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise OSError("the broker closed the connection")
            filled += count
        return data

    def _decode(self, data: bytes, request: type[Message], answer: type[R], version: int) -> R:
        correlation_id = _size.unpack_from(data)[0]
        if correlation_id != self._correlation_id:
            raise ProtocolViolation(f"the answer is to request {correlation_id}, not to {self._correlation_id}")
        position = _size.size
        if response_header_version(request, version):
            count, position = read_uvarint(data, position)
            for _ in range(count):
                _, position = read_uvarint(data, position)
                size, position = read_uvarint(data, position)
                position += size
        message, _ = answer.decoder(version)(data, position, len(data))
        assert isinstance(message, answer)
        return message

    def _ask_for_versions(self, deadline: float) -> ApiVersionsResponse:
        from pessoa import __version__

        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        found = self._try_versions(request, deadline)
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in found.api_keys}
        return found

    def _try_versions(self, request: ApiVersionsRequest, deadline: float) -> ApiVersionsResponse:
        # A broker that does not know our version answers in version 0, with the error and its own range (KIP-511).
        newest = ApiVersionsRequest.versions.last
        frame = b"".join(request_frame(request, newest, self._correlation_id, self._client_id))
        self._socket.settimeout(_remaining_s(deadline))
        self._socket.sendall(frame)
        data = self._receive(deadline)
        if int.from_bytes(data[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            return self.send(request, ApiVersionsResponse, deadline, version=0)
        found, _ = ApiVersionsResponse.decoder(newest)(data, _size.size, len(data))
        assert isinstance(found, ApiVersionsResponse)
        if found.error_code:
            raise RequestFailed(found.error_code)
        return found


def _remaining_s(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is up")
    return left


def _api_name(kind: type[Message]) -> str:
    from pessoa.wire.catalogue import ApiKey

    return ApiKey(kind.api_key).name

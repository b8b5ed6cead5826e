"""Frames: a four-byte size, then that many bytes. The unit in which requests and responses cross a connection.

`net/receive_buffer.py` reads them. The two functions here make them. Record data passes through untouched (see
`pessoa.wire.encoding`).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packer

from pessoa.wire.message_headers import RequestHeader, request_header_version, response_header_version
from pessoa.wire.schema import Encoder, Message

SIZE_BYTES = 4
_size = Packer(">i")
_header = Packer(">ii")
# No tagged field is one byte of zero.
_header_with_tags = Packer(">iix")

Buffer = bytes | bytearray | memoryview

# socket.request.max.bytes
DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024


def request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """The buffers of a whole request, to be sent in order."""
    kind = type(message)
    header = RequestHeader(
        request_api_key=kind.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = bytearray(SIZE_BYTES)
    RequestHeader.encoder(request_header_version(kind, version))(header, out)
    return _write_size(kind.encoder(version)(message, out))


def response_frame(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    """The buffers of a whole response, to be sent in order."""
    key = (type(message), version)
    known = _responses.get(key)
    if known is None:
        known = _responses[key] = _response_codec(*key)
    pack_header, encode = known
    buffers = encode(message, bytearray(pack_header(0, correlation_id)))
    if len(buffers) > 1:
        return _write_size(buffers)
    # As `_write_size` does it: most responses are one buffer.
    _size.pack_into(buffers[0], 0, len(buffers[0]) - SIZE_BYTES)
    return buffers


def _response_codec(kind: type[Message], version: int) -> tuple[Callable[[int, int], bytes], Encoder]:
    """Return the function that packs the size, still unknown, and the header, and the encoder of the message."""
    header = _header_with_tags if response_header_version(kind, version) else _header
    return header.pack, kind.encoder(version)


# Found once for every kind and version of a response, since this is on the path of each request.
_responses: dict[tuple[type[Message], int], tuple[Callable[[int, int], bytes], Encoder]] = {}


def _write_size(buffers: list[Buffer]) -> list[Buffer]:
    """Write the size of all buffers into the four bytes that the first one has left for it, and return the buffers."""
    first = buffers[0]
    assert isinstance(first, bytearray)
    size = len(first) if len(buffers) == 1 else sum(map(len, buffers))
    _size.pack_into(first, 0, size - SIZE_BYTES)
    return buffers

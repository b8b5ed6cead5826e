"""Frames: a four-byte size, then that many bytes. The unit in which requests and responses cross a connection.

`FrameReader` turns bytes as they arrive into frames, without waiting and without a socket. What it promises:

- a size that is negative or above the limit is a `ProtocolViolation` as soon as its four bytes are there: nothing is
  allocated on the word of a peer, memory grows only with the bytes that really came;
- a frame that arrived whole in one piece is a view of that piece, not a copy; one that arrived in many is copied once.
  Small pieces that come behind others are gathered first, so that a peer who sends single bytes costs bytes and not
  objects.

After a violation the reader says so on every later call and keeps nothing more: a stream that lost its framing cannot
be found again.

The two functions below it make frames. Record data passes through them untouched (see `pessoa.wire.encoding`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct as Packer

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.headers import RequestHeader, request_header_version, response_header_version
from pessoa.wire.schema import Encoder, Message

SIZE_BYTES = 4
_size = Packer(">i")
_header = Packer(">ii")
# No tagged field is one byte of zero.
_header_with_tags = Packer(">iix")

Buffer = bytes | bytearray | memoryview

# socket.request.max.bytes
DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024

# A piece that is kept as it came costs some 300 bytes of objects beside its own. Below this size copying is cheaper.
_SMALL_PIECE_BYTES = 1024


class FrameReader:
    """Bytes in, frames out. `max_frame_bytes` may be changed between frames: it is lower before authentication."""

    __slots__ = ("_broken", "_chunks", "_frame_size", "_gathered", "_received", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._chunks: deque[memoryview] = deque()
        self._gathered = bytearray()  # small pieces, behind all of _chunks
        self._received = 0  # bytes in _chunks and _gathered
        self._frame_size = -1  # of the frame at hand, -1 before its size is known
        self._broken: str | None = None

    def __repr__(self) -> str:
        expected = "a size" if self._frame_size < 0 else f"{self._frame_size} bytes"
        return f"<FrameReader waiting for {expected}, has {self._received}{', broken' if self._broken else ''}>"

    @property
    def buffered_bytes(self) -> int:
        return self._received

    def feed(self, data: bytes) -> None:
        """Take what arrived. The bytes are kept, not copied: they must not change afterwards."""
        if not data or self._broken is not None:
            return
        if self._received and len(data) < _SMALL_PIECE_BYTES:
            self._gathered += data
        else:
            self._settle()
            self._chunks.append(memoryview(data))
        self._received += len(data)

    def _settle(self) -> None:
        """Make a chunk of what was gathered."""
        if self._gathered:
            self._chunks.append(memoryview(self._gathered))
            self._gathered = bytearray()

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None if more bytes are needed."""
        if self._broken is not None:
            raise ProtocolViolation(self._broken)
        if self._frame_size < 0:
            if self._received < SIZE_BYTES:
                return None
            self._frame_size = self._checked(_size.unpack(self._take(SIZE_BYTES))[0])
        if self._received < self._frame_size:
            return None
        frame = self._take(self._frame_size)
        self._frame_size = -1
        return frame

    def _checked(self, size: int) -> int:
        if 0 <= size <= self.max_frame_bytes:
            return size
        self._broken = f"a frame of {size} bytes was announced; the limit is {self.max_frame_bytes}"
        self._chunks.clear()
        self._gathered = bytearray()
        self._received = 0
        raise ProtocolViolation(self._broken)

    def _take(self, size: int) -> memoryview:
        """The next `size` bytes, which have arrived: a view of one chunk, or a copy out of several."""
        assert size <= self._received
        self._received -= size
        self._settle()
        chunks = self._chunks
        if size == 0:
            return memoryview(b"")
        first = chunks[0]
        if size < len(first):
            chunks[0] = first[size:]
            return first[:size]
        if size == len(first):
            return chunks.popleft()
        whole, filled = bytearray(size), 0
        while filled < size:
            chunk = chunks[0]
            part = chunk[: size - filled]
            whole[filled : filled + len(part)] = part
            filled += len(part)
            if len(part) == len(chunk):
                chunks.popleft()
            else:
                chunks[0] = chunk[len(part) :]
        return memoryview(whole)


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
    return _sized(kind.encoder(version)(message, out))


def response_frame(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    """The buffers of a whole response, to be sent in order."""
    key = (type(message), version)
    known = _responses.get(key)
    if known is None:
        known = _responses[key] = _response_codec(*key)
    pack_header, encode = known
    return _sized(encode(message, bytearray(pack_header(0, correlation_id))))


def _response_codec(kind: type[Message], version: int) -> tuple[Callable[[int, int], bytes], Encoder]:
    """What writes the size, still unknown, with the header behind it; and what writes the message."""
    header = _header_with_tags if response_header_version(kind, version) else _header
    return header.pack, kind.encoder(version)


# Found once for every kind and version of a response, since this is on the path of each request.
_responses: dict[tuple[type[Message], int], tuple[Callable[[int, int], bytes], Encoder]] = {}


def _sized(buffers: list[Buffer]) -> list[Buffer]:
    """Write the size of them all into the four bytes that were left for it."""
    first = buffers[0]
    assert isinstance(first, bytearray)
    size = len(first) if len(buffers) == 1 else sum(map(len, buffers))
    _size.pack_into(first, 0, size - SIZE_BYTES)
    return buffers

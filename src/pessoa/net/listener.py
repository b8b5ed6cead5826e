"""A listening socket, and the connections that it accepts.

A connection turns what arrives into frames and hands each to `serve`, which answers with the buffers to send back, or
with None where nothing is to be sent. Requests of one connection are answered in their order. A peer that breaks the
protocol, or that `serve` refuses with `ProtocolViolation`, gets one log line and a closed connection; nobody else
notices.

A peer that does not read its answers is not read from either: above the transport's high-water mark reading stops until
the buffer has drained, so a slow reader costs a bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self, cast

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES, Buffer, FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("pessoa.net")


class Connection(asyncio.Protocol):
    """One accepted connection. It lives in its listener's `connections` from first to last byte."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._frames = FrameReader(listener.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._can_write = True
        self.peer = "?"

    def __repr__(self) -> str:
        return (
            f"<Connection {self.peer}: {self._frames!r}, {'writable' if self._can_write else 'waits for its reader'}>"
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = f"{host}:{port}"
        self._listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.connections.discard(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        self._serve_frames()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._can_write = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._can_write = True
        self._serve_frames()
        if self._transport is not None and self._can_write and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _serve_frames(self) -> None:
        try:
            while self._can_write and self._transport is not None:
                frame = self._frames.next_frame()
                if frame is None:
                    return
                answer = self._listener.serve(frame)
                if answer is not None:
                    self._transport.writelines(answer)
        except ProtocolViolation as violation:
            log.warning("%s on %s: %s; the connection is closed", self.peer, self._listener.address, violation)
            self.close()


class Listener:
    """`async with Listener(...)`: listens inside, has closed every connection outside."""

    def __init__(
        self,
        host: str,
        port: int,
        serve: Callable[[memoryview], list[Buffer] | None],
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self.host = host
        self.port = port
        self.serve = serve
        self.max_frame_bytes = max_frame_bytes
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<Listener {self.address}: {len(self.connections)} connections>"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), self.host, self.port)
        # Port 0 asks for any free one.
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        await self._server.wait_closed()

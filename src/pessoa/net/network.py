"""The door for the network: brokers and channels connect and listen through a `Network`.

The real one is the event loop's. A simulation gives each node another, whose wires can be slow, cut, or cut in one
direction only. Both speak in asyncio's terms: a protocol is called by a transport, and so the same connections run on
either.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)

# The system chooses the size.
SYSTEM_DECIDES = -1
BACKLOG = 512


class SocketSettings(NamedTuple):
    """Settings of the sockets of a listener. Names are Kafka's."""

    socket_send_buffer_bytes: int = SYSTEM_DECIDES
    socket_receive_buffer_bytes: int = SYSTEM_DECIDES
    socket_listen_backlog_size: int = BACKLOG


_SYSTEM_SETTINGS = SocketSettings()


class ListeningSocket(Protocol):
    @property
    def port(self) -> int:
        """The port that the socket listens on; configured port 0 is any free one."""

    def close(self) -> None:
        """Accept no more connections."""

    async def wait_closed(self) -> None: ...


class Network(Protocol):
    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connect, and return the protocol, whose `connection_made` has been called. Raises OSError if nothing listens
        there."""

    async def listen(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        settings: SocketSettings = _SYSTEM_SETTINGS,
    ) -> ListeningSocket: ...


class SystemNetwork:
    """The sockets of the running event loop."""

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        _, protocol = await asyncio.get_running_loop().create_connection(make_protocol, host, port)
        return protocol

    async def listen(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        settings: SocketSettings = _SYSTEM_SETTINGS,
    ) -> ListeningSocket:
        loop = asyncio.get_running_loop()
        # No host is every address of the machine. A connection has the buffers of the socket that it came in at, and
        # how far a peer may send ahead is agreed upon when it connects: so they are set before any peer can.
        server = await loop.create_server(
            make_protocol, host or None, port, backlog=settings.socket_listen_backlog_size, start_serving=False
        )
        for one in server.sockets:
            for option, size in (
                (socket.SO_SNDBUF, settings.socket_send_buffer_bytes),
                (socket.SO_RCVBUF, settings.socket_receive_buffer_bytes),
            ):
                if size != SYSTEM_DECIDES:
                    one.setsockopt(socket.SOL_SOCKET, option, size)
        await server.start_serving()
        return _SystemSocket(server)


class _SystemSocket:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()

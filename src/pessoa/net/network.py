"""The door for the network: whoever connects or listens does it through a `Network`.

The real one is the event loop's. A simulation gives each node another, whose wires can be slow, cut, or cut in one
direction only. Both speak in asyncio's terms: a protocol is called by a transport, and so the same connections run on
either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)

_BACKLOG = 512


class ListeningSocket(Protocol):
    @property
    def port(self) -> int:
        """The port that it listens on; who asked for port 0 got any free one."""

    def close(self) -> None:
        """Accept nobody more."""

    async def wait_closed(self) -> None: ...


class Network(Protocol):
    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        """A protocol whose `connection_made` has been called. OSError if there is nobody."""

    async def listen(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> ListeningSocket: ...


class SystemNetwork:
    """The sockets of the running event loop."""

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        _, protocol = await asyncio.get_running_loop().create_connection(make_protocol, host, port)
        return protocol

    async def listen(self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> ListeningSocket:
        loop = asyncio.get_running_loop()
        # No host is every address of the machine.
        server = await loop.create_server(make_protocol, host or None, port, backlog=_BACKLOG)
        return _SystemSocket(server)


class _SystemSocket:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()

"""A network whose connections are made over TLS: what channels get in place of the plain one.

The context is asked for with every connection, so that certificates can change while a node runs. A peer whose
certificate is not trusted, has expired or is for another host is an OSError, as is one that cannot be reached. Nodes
try again and again; the reason is logged when it is another than before.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar, cast

from pessoa.net.network import SocketSettings
from pessoa.net.tls import TlsConnection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from pessoa.net.network import ListeningSocket, Network

log = logging.getLogger("pessoa.net")

P = TypeVar("P", bound=asyncio.BaseProtocol)

_SYSTEM_SETTINGS = SocketSettings()


class TlsNetwork:
    def __init__(self, network: Network, context: Callable[[], ssl.SSLContext]) -> None:
        self._network = network
        self._context = context
        # Why each peer could not be spoken to at the last attempt.
        self._failures: dict[tuple[str, int], str] = {}

    def __repr__(self) -> str:
        return f"<TlsNetwork over {self._network!r}>"

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        secured: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(why: str) -> None:
            if not secured.done():
                secured.set_exception(ConnectionError(f"TLS: {why}"))

        inner, context = make_protocol(), self._context()
        connection = TlsConnection(
            cast("asyncio.BufferedProtocol", inner),
            lambda incoming, outgoing: context.wrap_bio(incoming, outgoing, server_hostname=host),
            None,
            lambda _: None if secured.done() else secured.set_result(None),
            fail,
        )
        await self._network.connect(lambda: connection, host, port)
        try:
            await secured
        except BaseException as error:
            connection.abort()
            if isinstance(error, ConnectionError):
                self._remember((host, port), str(error))
            raise
        self._failures.pop((host, port), None)
        return inner

    async def listen(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        settings: SocketSettings = _SYSTEM_SETTINGS,
    ) -> ListeningSocket:
        return await self._network.listen(make_protocol, host, port, settings)

    def _remember(self, peer: tuple[str, int], why: str) -> None:
        if self._failures.get(peer) != why:
            self._failures[peer] = why
            log.warning("%s:%s: %s", *peer, why)

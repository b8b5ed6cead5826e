"""A listener that is there before its broker can serve.

A broker must know its ports before it registers, and it registers before it serves. So the sockets are opened first, as
in Kafka, and what comes in waits until `release`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.net.listener import Later, Listener, ListenerLimits
from pessoa.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.net.listener import Connection, Serve
    from pessoa.net.network import Network
    from pessoa.wire.frames import Buffer


class HeldListener:
    def __init__(self, endpoint: ListenerEndpoint, limits: ListenerLimits, network: Network) -> None:
        self.endpoint = endpoint
        self.listener = Listener(endpoint.host, endpoint.port, self._hold, limits, network=network)
        self._serve: asyncio.Future[Serve] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<{'serving' if self._serve.done() else 'held'} {self.listener!r}>"

    async def open(self) -> None:
        await self.listener.__aenter__()

    def release(self, serve: Serve) -> None:
        """Serve what waits, and whatever comes."""
        self.listener.serve = serve
        self._serve.set_result(serve)

    async def close(self) -> None:
        if not self._serve.done():
            self._serve.set_exception(ProtocolViolation("this node stops before it has served anybody"))
            # If nobody waits, nobody needs to hear of it.
            self._serve.exception()
        await self.listener.__aexit__()

    def _hold(self, connection: Connection, data: bytearray, start: int, end: int) -> Awaitable[list[Buffer] | None]:
        return self._when_released(connection, data, start, end)

    async def _when_released(
        self, connection: Connection, data: bytearray, start: int, end: int
    ) -> list[Buffer] | None:
        serve = await asyncio.shield(self._serve)
        answer = serve(connection, data, start, end)
        if isinstance(answer, Later):
            return await _answer_of(answer)
        return answer if answer is None or isinstance(answer, list) else await answer


async def _answer_of(later: Later) -> list[Buffer] | None:
    ready = asyncio.Event()
    later.when_ready(ready.set)
    try:
        await ready.wait()
    except asyncio.CancelledError:
        later.cancel()
        raise
    return later.answer()

"""A listener that is there before its broker can serve.

A broker must know its ports before it registers, and it registers before it serves. So the sockets are opened first, as
in Kafka, and what comes in waits until `release`.

How many connections it takes stands in the configuration. Where brokers and controllers have listeners of their own,
those are not counted: whoever fills up the others keeps no broker away (KIP-402).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from pessoa.net.listener import Later, Listener, ListenerLimits
from pessoa.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.net.listener import Connection, Serve
    from pessoa.net.network import Network
    from pessoa.net.receive_room import ReceiveRoom
    from pessoa.wire.frames import Buffer


def listener_limits(config: BrokerConfig, endpoint: ListenerEndpoint) -> ListenerLimits:
    clients = [one.name for one in config.listeners if one.name not in config.controller_listener_names]
    is_for_clients = endpoint.name in clients
    is_for_brokers = endpoint.name == config.inter_broker_listener_name and len(clients) > 1
    is_counted = is_for_clients and not is_for_brokers
    return ListenerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_connections=cast("int", config.value("max.connections")) if is_counted else 0,
        max_connections_per_ip=cast("int", config.value("max.connections.per.ip")) if is_counted else 0,
    )


class HeldListener:
    def __init__(self, endpoint: ListenerEndpoint, limits: ListenerLimits, network: Network, room: ReceiveRoom) -> None:
        self.endpoint = endpoint
        self.listener = Listener(endpoint.host, endpoint.port, self._hold, limits, network=network, room=room)
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

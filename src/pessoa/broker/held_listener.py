"""A listener that is there before its broker can serve.

A broker must know its ports before it registers, and it registers before it serves. So the sockets are opened first, as
in Kafka, and what comes in waits until `release`.

How many connections it takes stands in the configuration. Where brokers and controllers have listeners of their own,
those have only the limits that bear their names: whoever fills up the others keeps no broker away (KIP-402).
"""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast

from pessoa.net.connection_quota import UNLIMITED, ConnectionLimits, ConnectionQuota
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

log = logging.getLogger("pessoa.broker")


def listener_limits(config: BrokerConfig) -> ListenerLimits:
    return ListenerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
    )


def is_counted(config: BrokerConfig, endpoint: ListenerEndpoint) -> bool:
    """Whether clients come to this listener."""
    of_controllers = {name.upper() for name in config.controller_listener_names}
    clients = [one.name for one in config.listeners if one.name not in of_controllers]
    is_for_brokers = endpoint.name == config.inter_broker_listener_name and len(clients) > 1
    return endpoint.name in clients and not is_for_brokers


def limits_of_clients(config: BrokerConfig) -> ConnectionLimits:
    """For all listeners of clients together."""
    return ConnectionLimits(
        max_connections=_number(config, "max.connections"),
        max_connections_per_ip=_number(config, "max.connections.per.ip"),
        overrides=_overrides(config),
        max_creation_rate=_number(config, "max.connection.creation.rate"),
        window_s=_window_s(config),
    )


def limits_of_listener(config: BrokerConfig, endpoint: ListenerEndpoint) -> ConnectionLimits:
    """What is set for this one by its name."""
    return ConnectionLimits(
        max_connections=_number_of_listener(config, endpoint, "max.connections"),
        max_creation_rate=_number_of_listener(config, endpoint, "max.connection.creation.rate"),
        window_s=_window_s(config),
    )


def _number(config: BrokerConfig, key: str) -> int:
    return cast("int", config.value(key))


def _number_of_listener(config: BrokerConfig, endpoint: ListenerEndpoint, key: str) -> int:
    name = f"listener.name.{endpoint.name.lower()}.{key}"
    for settings in (config.broker_overrides, config.cluster_defaults, config.static):
        if name in settings:
            return int(settings[name])
    return UNLIMITED


def _window_s(config: BrokerConfig) -> float:
    # The window that is being filled does not count, unless there is no other.
    return max(1, _number(config, "quota.window.num") - 1) * _number(config, "quota.window.size.seconds")


def _overrides(config: BrokerConfig) -> dict[str, int]:
    """Address → how many."""
    found: dict[str, int] = {}
    for entry in cast("str", config.value("max.connections.per.ip.overrides")).split(","):
        host, _, count = entry.strip().rpartition(":")
        if not host:
            continue
        try:
            found[str(ip_address(host.strip("[]")))] = int(count)
        except ValueError:
            # A name server that is slow would stop the broker whenever a setting changes.
            log.warning("max.connections.per.ip.overrides: %s is no address and has no effect", host)
    return found


class HeldListener:
    def __init__(
        self,
        endpoint: ListenerEndpoint,
        config: BrokerConfig,
        network: Network,
        room: ReceiveRoom,
        of_clients: ConnectionQuota,
    ) -> None:
        self.endpoint = endpoint
        self._quota = ConnectionQuota(limits_of_listener(config, endpoint))
        quotas = [of_clients, self._quota] if is_counted(config, endpoint) else [self._quota]
        limits = listener_limits(config)
        self.listener = Listener(
            endpoint.host, endpoint.port, self._hold, limits, network=network, room=room, quotas=quotas
        )
        self._serve: asyncio.Future[Serve] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<{'serving' if self._serve.done() else 'held'} {self.listener!r}>"

    def configure(self, config: BrokerConfig) -> None:
        """Other settings; who is there stays."""
        self.listener.limits = listener_limits(config)
        self._quota.limits = limits_of_listener(config, self.endpoint)

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

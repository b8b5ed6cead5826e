"""A listener that is there before its broker can serve.

A broker must know its ports before it registers, and it registers before it serves. So the sockets are opened first, as
in Kafka, and what comes in waits until `release`.

Where a login is demanded, what comes in before `release` may be its first request alone: credentials are in the
metadata, which the broker may not have read.

How many connections it takes stands in the configuration. Where brokers and controllers have listeners of their own,
those have only the limits that bear their names: clients that fill up the others keep no broker away (KIP-402).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from pessoa.base.config_table import int_value
from pessoa.net.connection_quota import UNLIMITED, ConnectionLimits, ConnectionQuota
from pessoa.net.listener import Listener, ListenerLimits
from pessoa.net.network import SocketSettings
from pessoa.net.pending import Pending, ServedLater
from pessoa.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.broker.sasl_gate import SaslListener
    from pessoa.net.connection import Connection
    from pessoa.net.network import Network
    from pessoa.net.receive_buffer import Frame
    from pessoa.net.receive_room import ReceiveRoom
    from pessoa.net.server_protocol import Serve, ServerProtocol

log = logging.getLogger("pessoa.broker")


def listener_limits(config: BrokerConfig) -> ListenerLimits:
    return ListenerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
    )


def socket_settings(config: BrokerConfig) -> SocketSettings:
    return SocketSettings(
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
    )


def is_counted(config: BrokerConfig, endpoint: ListenerEndpoint) -> bool:
    """Return whether this is a client listener, whose connections count for the connection limits."""
    of_controllers = {name.upper() for name in config.controller_listener_names}
    clients = [one.name for one in config.listeners if one.name not in of_controllers]
    is_for_brokers = endpoint.name == config.inter_broker_listener_name and len(clients) > 1
    return endpoint.name in clients and not is_for_brokers


def limits_of_clients(config: BrokerConfig) -> ConnectionLimits:
    """Return the connection limits that hold for all client listeners together."""
    return ConnectionLimits(
        max_connections=int_value(config, "max.connections"),
        max_connections_per_ip=int_value(config, "max.connections.per.ip"),
        overrides=_overrides(config),
        max_creation_rate=int_value(config, "max.connection.creation.rate"),
        window_s=_window_s(config),
    )


def limits_of_listener(config: BrokerConfig, endpoint: ListenerEndpoint) -> ConnectionLimits:
    """Return the connection limits that are set for one listener (`listener.name.{name}.max.connections` and the
    like)."""
    return ConnectionLimits(
        max_connections=_number_of_listener(config, endpoint, "max.connections"),
        max_creation_rate=_number_of_listener(config, endpoint, "max.connection.creation.rate"),
        window_s=_window_s(config),
    )


def _number_of_listener(config: BrokerConfig, endpoint: ListenerEndpoint, key: str) -> int:
    name = f"listener.name.{endpoint.name.lower()}.{key}"
    for settings in (config.broker_overrides, config.cluster_defaults, config.static):
        if name in settings:
            return int(settings[name])
    return UNLIMITED


def _window_s(config: BrokerConfig) -> float:
    # The window that is being filled does not count, unless there is no other.
    return max(1, int_value(config, "quota.window.num") - 1) * int_value(config, "quota.window.size.seconds")


def _overrides(config: BrokerConfig) -> dict[str, int]:
    """Return the limits of `max.connections.per.ip.overrides`, by address."""
    found: dict[str, int] = {}
    for entry in cast("str", config.value("max.connections.per.ip.overrides")).split(","):
        host, _, count = entry.strip().rpartition(":")
        if not host:
            continue
        from ipaddress import ip_address

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
        clock: Clock,
        sasl: SaslListener | None = None,
    ) -> None:
        self.endpoint = endpoint
        # None: no login is demanded.
        self._sasl = sasl
        self._quota = ConnectionQuota(limits_of_listener(config, endpoint))
        quotas = [of_clients, self._quota] if is_counted(config, endpoint) else [self._quota]
        limits = listener_limits(config)
        self.listener = Listener(
            endpoint.host,
            endpoint.port,
            self._hold,
            limits,
            network=network,
            room=room,
            quotas=quotas,
            sockets=socket_settings(config),
            clock=clock,
        )
        self.listener.on_accepted = self._on_accepted
        self._is_released = False
        self._held_requests: list[_HeldRequest] = []

    def __repr__(self) -> str:
        return f"<{'serving' if self._is_released else 'held'} {self.listener!r}>"

    def configure(self, config: BrokerConfig) -> None:
        """Take over other settings; existing connections stay."""
        self.listener.limits = listener_limits(config)
        self._quota.limits = limits_of_listener(config, self.endpoint)

    async def open(self) -> None:
        await self.listener.__aenter__()

    def release(self, serve: Serve) -> None:
        """Serve the requests that were held, and all later ones."""
        self._is_released = True
        self.listener.serve = serve
        gates = self._guard_all()
        held, self._held_requests = self._held_requests, []
        for request in held:
            request.serve(serve if gates is None else gates.get(request.connection.id, _refuse))

    def _guard_all(self) -> dict[int, Serve] | None:
        """Let existing connections log in; return the function that serves each, by connection id. None if no login is
        required."""
        if self._sasl is None:
            return None
        return {one.connection.id: self._sasl.guard(one, self.listener) for one in self.listener.connections}

    def _on_accepted(self, protocol: ServerProtocol) -> None:
        if self._sasl is not None:
            self._sasl.restrict(protocol)
            if self._is_released:
                self._sasl.guard(protocol, self.listener)

    async def close(self) -> None:
        if not self._is_released:
            self.release(_refuse)
        await self.listener.__aexit__()

    def _hold(self, connection: Connection, data: bytearray, start: int, end: int) -> Pending:
        held = _HeldRequest(connection, data, start, end)
        self._held_requests.append(held)
        return held


def _refuse(*_: object) -> None:
    raise ProtocolViolation("this node stops before it serves requests")


class _HeldRequest(ServedLater):
    """A request that was received before the broker could serve it."""

    __slots__ = ("_frame", "connection")

    def __init__(self, connection: Connection, data: bytearray, start: int, end: int) -> None:
        super().__init__()
        self.connection = connection
        # None once nothing waits for the response: the frame may be large.
        self._frame: Frame | None = (data, start, end)

    def serve(self, serve: Serve) -> None:
        frame = self._frame
        if frame is not None:
            self.serve_with(lambda: serve(self.connection, *frame))

    def cancel(self) -> None:
        super().cancel()
        self._frame = None

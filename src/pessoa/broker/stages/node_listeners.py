"""The listeners of a node, of its controller or of its broker: opened, and holding what comes until it is served."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pessoa.broker.held_listener import HeldListener, is_counted, limits_of_clients
from pessoa.net.connection_quota import ConnectionQuota
from pessoa.net.receive_room import ReceiveRoom

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.broker.sasl_gate import SaslListener
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.net.connection import Connection
    from pessoa.net.server_protocol import Serve

log = logging.getLogger("pessoa.broker")


class ListenerShares:
    """What the listeners of a node share: connection limits and memory."""

    def __init__(self, config: BrokerConfig) -> None:
        self.client_quota = ConnectionQuota(limits_of_clients(config))
        # Two, so that no client keeps brokers and controllers from speaking to each other.
        self.client_room = ReceiveRoom(config.queued_max_request_bytes)
        self.inner_room = ReceiveRoom(config.queued_max_request_bytes)

    def __repr__(self) -> str:
        return f"<ListenerShares: {self.client_quota!r}, {self.client_room!r}, {self.inner_room!r}>"

    def configure(self, config: BrokerConfig) -> None:
        self.client_quota.limits = limits_of_clients(config)


async def open_listeners(node: NodeContext, shares: ListenerShares, *, of_controller: bool) -> NodeListeners:
    """Open the ports of the controller, or those of the broker."""
    config = node.config.current
    names = [name.upper() for name in config.controller_listener_names]
    opened = NodeListeners(node, shares, of_controller=of_controller)
    try:
        for endpoint in config.listeners:
            if (endpoint.name in names) is of_controller:
                await opened.open(endpoint)
    except BaseException:
        await opened.close()
        raise
    return opened


class NodeListeners:
    def __init__(self, node: NodeContext, shares: ListenerShares, *, of_controller: bool) -> None:
        self.shares = shares
        self.of_controller = of_controller
        self.all: list[HeldListener] = []
        self._node = node
        self._sasl: list[SaslListener] = []
        self._is_closed = False
        node.config.on_change.append(self._configure)

    def __repr__(self) -> str:
        return f"<NodeListeners: {', '.join(map(repr, self.all))}>"

    async def open(self, endpoint: ListenerEndpoint) -> None:
        config, shares = self._node.config.current, self.shares
        room = shares.client_room if is_counted(config, endpoint) else shares.inner_room
        node, sasl = self._node, self._sasl_of(endpoint)
        if sasl is not None:
            self._sasl.append(sasl)
            await sasl.start()
        held = HeldListener(endpoint, config, node.network, room, shares.client_quota, node.clock, sasl)
        held.listener.tls = node.tls.server(endpoint.name)
        held.listener.on_bug = self._node.on_bug
        await held.open()
        self.all.append(held)
        log.info("listening on %s://%s", endpoint.name, held.listener.address)

    def _sasl_of(self, endpoint: ListenerEndpoint) -> SaslListener | None:
        """Return the SASL settings of a listener; None if no login is required."""
        if not endpoint.security_protocol.has_sasl:
            return None
        from pessoa.broker.sasl_gate import SaslListener

        node = self._node
        listener = SaslListener(
            endpoint.name, lambda: node.config.current, lambda: node.publisher.image, node.clock, node.entropy
        )
        listener.on_log_in = partial(node.observers.note_log_in, endpoint.name)
        return listener

    @property
    def addresses(self) -> str:
        return ",".join(one.listener.address for one in self.all)

    @property
    def advertised(self) -> list[ListenerEndpoint]:
        """Return the endpoints for clients and other nodes, with the actual port where the configuration has port 0."""
        config = self._node.config.current
        ports = {one.endpoint.name: one.listener.port for one in self.all}
        advertised = {one.name: one for one in (*config.listeners, *config.advertised_listeners)}
        return [one._replace(port=one.port or ports[name]) for name, one in advertised.items() if name in ports]

    def unread_bytes(self) -> int:
        """The memory of responses that clients have not read."""
        return sum(held.listener.unread_bytes for held in self.all)

    def serve(self, serve_on: Callable[[str], Serve]) -> None:
        """Serve the held requests, and all later ones; `serve_on` returns the function that serves a listener, by its
        name."""
        for held in self.all:
            held.release(serve_on(held.endpoint.name))

    def watch_closed(self, on_closed: Callable[[Connection], None]) -> None:
        for held in self.all:
            held.listener.on_closed.append(on_closed)

    async def close(self) -> None:
        """Close the ports; responses in progress leave first. A second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            for sasl in self._sasl:
                sasl.close()
            for held in self.all:
                await held.close()

    def abandon(self) -> None:
        for sasl in self._sasl:
            sasl.close()
        for held in self.all:
            held.listener.abort()

    def _configure(self, config: BrokerConfig) -> None:
        self.shares.configure(config)
        for held in self.all:
            held.configure(config)
            held.listener.tls = self._node.tls.server(held.endpoint.name)

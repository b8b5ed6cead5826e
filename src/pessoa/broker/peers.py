"""The other brokers of the cluster: where they are, and channels to them.

Brokers reach each other through the listener that `inter.broker.listener.name` names. Where it is on another broker
stands in the metadata image, under that broker's registration. Where that listener demands a login, it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.node_login import NodeLogin
from pessoa.broker.sasl_settings import inter_broker_credentials
from pessoa.net.channel import Channel, Channels

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.net.network import Network


class Peers:
    """Channels by broker id. Each purpose has its own, so that a request that waits delays none of another purpose."""

    def __init__(self, broker: BrokerServices, network: Network) -> None:
        self._broker = broker
        self._network = network
        self._login = NodeLogin(lambda: inter_broker_credentials(broker.config), broker.entropy)
        self._purposes: dict[str, Channels] = {}

    def __repr__(self) -> str:
        return f"<Peers of broker {self._broker.node_id}: {', '.join(self._purposes)}>"

    def endpoint_of(self, broker_id: int) -> tuple[str, int] | None:
        known = self._broker.image.cluster.brokers.get(broker_id)
        endpoint = known.listeners.get(self._broker.config.inter_broker_listener_name) if known is not None else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    def channel_to(self, broker_id: int, purpose: str) -> Channel | None:
        """Return the channel for this purpose; None if the broker is not registered."""
        endpoint = self.endpoint_of(broker_id)
        if endpoint is None:
            return None
        channels = self._purposes.get(purpose)
        if channels is None:
            channels = self._purposes[purpose] = Channels(self._network, self._client_id(purpose), self._login)
        return channels.of(*endpoint)

    def new_channel_to(self, broker_id: int, purpose: str) -> Channel | None:
        """Return a channel for the caller alone, which the caller closes."""
        endpoint = self.endpoint_of(broker_id)
        if endpoint is None:
            return None
        return Channel(self._network, *endpoint, self._client_id(purpose), login=self._login)

    def close(self) -> None:
        for channels in self._purposes.values():
            channels.close()

    def _client_id(self, purpose: str) -> str:
        return f"broker-{self._broker.node_id}-{purpose}"

"""The configuration of a node as it is at this moment: its file, under what the metadata log says for all brokers and
for this node (KIP-226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.log.topic_config import log_config
from pessoa.metadata.image import ConfigResource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.broker.config import BrokerConfig
    from pessoa.log.log_config import LogConfig
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.quorum.publishing import ImagePublisher


class LiveConfig:
    """The configuration of a node. `current` is replaced whole; `on_change` is called with every new one, in the order
    of subscription."""

    def __init__(self, config: BrokerConfig, publisher: ImagePublisher) -> None:
        self.current = config
        self.on_change: list[Callable[[BrokerConfig], None]] = []
        self._publisher = publisher

    def __repr__(self) -> str:
        return f"<LiveConfig of node {self.current.node_id}, {len(self.on_change)} subscribers>"

    def of_topic(self, topic: str) -> LogConfig:
        """Return the configuration of a topic's logs."""
        return log_config(self._publisher.image.configs.of(ConfigResource.TOPIC, topic), self.current)

    def follow(self, delta: MetadataDelta) -> None:
        """Take over the dynamic broker configs of a metadata delta, if it has any."""
        if not changes_brokers(delta):
            return
        configs = delta.new.configs
        self.current = self.current.with_overrides(
            configs.of(ConfigResource.BROKER, ""), configs.of(ConfigResource.BROKER, str(self.current.node_id))
        )
        for tell in self.on_change:
            tell(self.current)


def changes_brokers(delta: MetadataDelta) -> bool:
    """Return whether a metadata delta changes broker configs."""
    return any(kind == ConfigResource.BROKER for kind, _ in delta.changed_configs)

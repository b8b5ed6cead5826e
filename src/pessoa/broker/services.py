"""What handlers work with: one object per broker, put together by `assembly`.

A request takes `image` once at its start and keeps it: the next request may see another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pessoa.broker.context import OwnRequest
from pessoa.broker.dispatch import TABLE
from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.broker.read_damage import ReadDamage
from pessoa.broker.topic_listing import CLUSTER_OPERATIONS, GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pessoa.base.clock import Clock
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Row
    from pessoa.broker.fetch_sessions import FetchSessions
    from pessoa.broker.listed_brokers import ListedBrokers
    from pessoa.metadata.image import MetadataImage
    from pessoa.replication.replicas import Replicas

# The controller decides, from its own configuration.
_DEFAULT = -1
_CREATE_TIMEOUT_MS = 30_000
# So long an answer waits until this broker hears of a topic that it had created; then the client has to ask again.
_NEWS_MS = 1_000
# Of DescribeCluster.
BROKERS = 1


class Node(NamedTuple):
    """A broker as clients of one listener see it."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(slots=True)
class BrokerServices:
    endpoint_type: ClassVar[int] = BROKERS
    table: ClassVar[tuple[Row, ...]] = TABLE

    node_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    image: MetadataImage
    replicas: Replicas
    fetch_sessions: FetchSessions
    # The entrance to the controller, wherever it is.
    controller: Any
    random_below: Callable[[int], int]
    listed_brokers: ListedBrokers
    progress: MetadataProgress = field(default_factory=MetadataProgress)
    damage: ReadDamage = field(default_factory=ReadDamage)
    groups: Any = None
    transactions: Any = None
    verifier: Any = None
    quorum: Any = None
    flusher: Any = None
    # Whether the controller has not been heard of for so long that others may lead what this broker leads.
    is_out_of_touch: Callable[[], bool] = lambda: False
    # How much memory answers take that clients have not read.
    unread_bytes: Callable[[], int] = lambda: 0
    cluster_operations: int = CLUSTER_OPERATIONS

    def nodes(self, listener: str) -> Iterator[Node]:
        """The registered brokers that have this listener."""
        for broker in self.image.cluster.brokers.values():
            endpoint = broker.listeners.get(listener)
            if endpoint is not None:
                yield Node(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)

    def live_nodes(self, listener: str) -> list[Node]:
        return [node for node in self.nodes(listener) if not node.is_fenced]

    def listed_nodes(self, listener: str) -> list[Node]:
        """Those that clients hear of: also who fell silent a moment ago."""
        now_ms = self.clock.monotonic_ms()
        return [
            node
            for node in self.nodes(listener)
            if self.listed_brokers.is_listed(node.id, is_fenced=node.is_fenced, now_ms=now_ms)
        ]

    @property
    def controller_id(self) -> int:
        """The broker that clients may send controller requests to. Every broker forwards them, so any that lives will
        do; -1 if none does."""
        live = [broker.id for broker in self.image.cluster.brokers.values() if not broker.fenced]
        if len(live) <= 1:
            return live[0] if live else -1
        return live[self.random_below(len(live))]

    async def create_missing_topics(self, names: list[str], context: RequestContext) -> None:
        """Create topics that a request needs; whoever loses a race finds them made."""
        from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest

        topics = []
        for name in names:
            partitions, replication = self._internal_shape(name)
            topics.append(
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication,
                    assignments=[],
                    configs=self._internal_configs(name),
                )
            )
        request = CreateTopicsRequest(topics=topics, timeout_ms=_CREATE_TIMEOUT_MS)
        caller = OwnRequest(request.versions.last, context.client_id, context.client_host, context.principal)
        response = await self.controller.submit(request, caller)
        created = [one.name for one in response.topics if not one.error_code]
        if created:
            await self.progress.wait_until(lambda: all(name in self.image.topics.by_name for name in created), _NEWS_MS)

    def _internal_shape(self, name: str) -> tuple[int, int]:
        config = self.config
        if name == GROUP_TOPIC:
            return config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        if name == TRANSACTION_TOPIC:
            return config.transaction_state_log_num_partitions, config.transaction_state_log_replication_factor
        if name == SHARE_TOPIC:
            return (
                config.share_coordinator_state_topic_num_partitions,
                config.share_coordinator_state_topic_replication_factor,
            )
        return _DEFAULT, _DEFAULT

    def _internal_configs(self, name: str) -> list[Any]:
        from pessoa.wire.api.create_topics import CreatableTopicConfig

        if name not in (GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC):
            return []
        config = self.config
        segment_bytes = {
            GROUP_TOPIC: config.offsets_topic_segment_bytes,
            TRANSACTION_TOPIC: config.transaction_state_log_segment_bytes,
            SHARE_TOPIC: config.share_coordinator_state_topic_segment_bytes,
        }[name]
        values = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(segment_bytes)}
        if name == TRANSACTION_TOPIC:
            values |= {
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
            }
        return [CreatableTopicConfig(name=key, value=value) for key, value in values.items()]

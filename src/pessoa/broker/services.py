"""What handlers work with: one object per broker, put together by `lifecycle`.

A request takes `image` once at its start and keeps it: the next request may see another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pessoa.base.entropy import SystemEntropy
from pessoa.broker.batch_opening import BatchOpener
from pessoa.broker.broker_coordinators import BrokerCoordinators
from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.broker.peers import Peers
from pessoa.broker.read_damage import ReadDamage
from pessoa.broker.topic_listing import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest, RequestContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pessoa.base.clock import Clock
    from pessoa.base.config_values import ConfigProblem
    from pessoa.base.entropy import Entropy
    from pessoa.base.ids import Uuid
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.controller_client import ControllerClient
    from pessoa.broker.fetch_sessions import FetchSessions
    from pessoa.broker.listed_brokers import ListedBrokers
    from pessoa.broker.metrics.client_telemetry import ClientTelemetry
    from pessoa.broker.throttling import Throttling
    from pessoa.coordinator.group_coordinator import GroupCoordinator
    from pessoa.coordinator.groups.streams.topology_configuration import InternalTopic
    from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from pessoa.coordinator.transactions.verification import Verifier
    from pessoa.log.flusher import Flusher
    from pessoa.metadata.image import MetadataImage
    from pessoa.net.network import Network
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.replication.local_replicas import LocalReplicas
    from pessoa.security.authorizer import Authorizer
    from pessoa.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsResponse
    from pessoa.wire.request_context import Caller

# The controller decides, from its own configuration.
_DEFAULT = -1
_CREATE_TIMEOUT_MS = 30_000
# How long a response waits until this broker's image has a topic that it had created; then the client has to retry.
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

    node_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    image: MetadataImage
    replicas: LocalReplicas
    fetch_sessions: FetchSessions
    # The active controller, here or on another node.
    controller: ControllerClient
    quorum: RaftQuorum
    flusher: Flusher
    network: Network
    new_uuid: Callable[[], Uuid]
    random_below: Callable[[int], int]
    listed_brokers: ListedBrokers
    # That of this incarnation; -1 before it is registered.
    broker_epoch: Callable[[], int]
    progress: MetadataProgress = field(default_factory=MetadataProgress)
    damage: ReadDamage = field(default_factory=ReadDamage)
    opener: BatchOpener = field(default_factory=BatchOpener)
    # Whether the controller has not been heard of for so long that others may lead what this broker leads.
    is_out_of_touch: Callable[[], bool] = lambda: False
    # How much memory answers take that clients have not read.
    unread_bytes: Callable[[], int] = lambda: 0
    # What limits clients by their quotas; None while no limit is set.
    throttling: Throttling | None = None
    # What clients push of their metrics; None where this broker has no page to show it on.
    telemetry: ClientTelemetry | None = None
    # What is wrong with the TLS stores that a configuration names for the listeners of this broker.
    store_problem: Callable[[BrokerConfig], ConfigProblem | None] = lambda _: None
    # Whether this broker is about to close its ports, and its clients should go elsewhere.
    is_leaving: bool = False
    entropy: Entropy = field(default_factory=SystemEntropy)
    # None: everything is allowed.
    authorizer: Authorizer | None = None
    peers: Peers = field(init=False)
    coordinators: BrokerCoordinators = field(init=False)

    def __post_init__(self) -> None:
        self.peers = Peers(self, self.network)
        self.coordinators = BrokerCoordinators(self, self.peers, self.new_uuid)

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.coordinators.transactions

    @property
    def verifier(self) -> Verifier:
        return self.coordinators.verifier

    def nodes(self, listener: str) -> Iterator[Node]:
        """The registered brokers that have this listener."""
        for broker in self.image.cluster.brokers.values():
            endpoint = broker.listeners.get(listener)
            if endpoint is not None:
                yield Node(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)

    def live_nodes(self, listener: str) -> list[Node]:
        return [node for node in self.nodes(listener) if not node.is_fenced]

    def listed_nodes(self, listener: str) -> list[Node]:
        """Return the brokers that Metadata lists: also those that were fenced a moment ago (`listed_brokers`)."""
        now_ms = self.clock.monotonic_ms()
        return [
            node
            for node in self.nodes(listener)
            if self.listed_brokers.is_listed(node.id, is_fenced=node.is_fenced, now_ms=now_ms)
        ]

    @property
    def controller_id(self) -> int:
        """The broker that clients may send controller requests to. Every broker forwards them, so any unfenced one will
        do; -1 if there is none."""
        unfenced = [broker for broker in self.image.cluster.brokers.values() if not broker.fenced]
        # One that is about to stop is named only where there is no other.
        live = [one.id for one in unfenced if not one.in_controlled_shutdown] or [one.id for one in unfenced]
        if len(live) <= 1:
            return live[0] if live else -1
        return live[self.random_below(len(live))]

    async def create_missing_topics(self, names: list[str], client: RequestContext | None) -> None:
        """Create topics that a request needs: those that the client asked for in its own name, internal ones, for which
        the client is None, in that of this broker. One that another request has created meanwhile is no error."""
        from pessoa.wire.api.create_topics import CreatableTopic

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
        await self._create_topics(topics, client)

    async def create_streams_topics(self, topics: Sequence[InternalTopic], client: Caller) -> dict[str, str]:
        """Create internal topics of a streams application in its name; return the refusals by topic. One that another
        member has created meanwhile is no refusal."""
        from pessoa.wire.api.create_topics import CreatableTopic, CreatableTopicConfig

        assert isinstance(client, RequestContext), "heartbeats of streams groups come from clients"
        creatable = [
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs],
            )
            for topic in topics
        ]
        response = await self._create_topics(creatable, client)
        return {
            one.name: one.error_message or ErrorCode.of(one.error_code).text
            for one in response.topics
            if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }

    async def _create_topics(self, topics: list[CreatableTopic], client: RequestContext | None) -> CreateTopicsResponse:
        """Ask the controller, and wait until this broker has heard of what was created."""
        from pessoa.wire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse

        request = CreateTopicsRequest(topics=topics, timeout_ms=_CREATE_TIMEOUT_MS)
        caller = OwnRequest(request.versions.last)
        if client is not None:
            caller = OwnRequest(
                request.versions.last,
                client.client_id,
                client.client_host,
                client.principal,
                client.listener,
                client.api_key,
            )
        response = await self.controller.submit(request, caller)
        assert isinstance(response, CreateTopicsResponse)
        created = [one.name for one in response.topics if not one.error_code]
        if created:
            await self.progress.wait_until(lambda: all(name in self.image.topics.by_name for name in created), _NEWS_MS)
        return response

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

    def _internal_configs(self, name: str) -> list[CreatableTopicConfig]:
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
        if name == SHARE_TOPIC:
            # Not compacted: the share coordinator deletes what it does not need any more by itself.
            values |= {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            }
        if name == TRANSACTION_TOPIC:
            values |= {
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
            }
        return [CreatableTopicConfig(name=key, value=value) for key, value in values.items()]

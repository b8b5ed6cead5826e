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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from pessoa.coordinator.transactions.verification import Verifier
    from pessoa.log.flusher import Flusher
    from pessoa.metadata.image import MetadataImage
    from pessoa.net.network import Network
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.replication.local_replicas import LocalReplicas
    from pessoa.security.authorizer import Authorizer

# Of DescribeCluster.
BROKERS = 1


class Node(NamedTuple):
    """The id, address and rack of a broker on one listener."""

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
    progress: MetadataProgress
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
        """Yield the registered brokers that have this listener."""
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
        """The broker that Metadata names as the controller. Every broker forwards requests to the controller, so it is
        any unfenced one; -1 if there is none."""
        unfenced = [broker for broker in self.image.cluster.brokers.values() if not broker.fenced]
        # One that is about to stop is named only where there is no other.
        live = [one.id for one in unfenced if not one.in_controlled_shutdown] or [one.id for one in unfenced]
        if len(live) <= 1:
            return live[0] if live else -1
        return live[self.random_below(len(live))]

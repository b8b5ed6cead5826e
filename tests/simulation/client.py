"""What every simulated client does: find the brokers, know the leaders, send requests and find new leaders.

Clients are coroutines in processes of their own and speak the protocol through the broker's own channel, so their
requests cross the same simulated network as those of brokers. Nothing here retries by itself: each client decides what
it retries.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pessoa.net.channel import Channel, ChannelFailed
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.errors import ErrorCode
from tests.simulation.history import TopicPartition
from tests.simulation.network import HostNetwork

if TYPE_CHECKING:
    from random import Random

    from pessoa.net.network import Network
    from pessoa.wire.schema import Message
    from tests.simulation.history import History
    from tests.simulation.logins import Access
    from tests.simulation.loop import Process
    from tests.simulation.network import Fabric

M = TypeVar("M", bound="Message")

GROUP, TRANSACTION = 0, 1
REQUEST_TIMEOUT_MS = 1_500
_BACKOFF_S = 0.05

# Errors after which a client tries again, perhaps with another broker.
TRANSIENT = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
)


class Client:
    """A process that sends requests to the cluster. Subclasses define `run`."""

    def __init__(
        self, name: str, fabric: Fabric, process: Process, bootstrap: list[str], history: History, rng: Random
    ) -> None:
        self.name = name
        self.process = process
        self.history = history
        self.rng = rng
        self.is_stopping = False
        # How it logs in, and what is checked of that; None where listeners demand no login.
        self.access: Access | None = None
        self.loop = fabric.loop
        self.network: Network = HostNetwork(fabric, name, process)
        self._bootstrap = bootstrap
        self._channels: dict[tuple[str, int], Channel] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        # Leader and leader epoch of each partition.
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        # The newest leader epoch of which this client has read anything: the leader of an earlier epoch may lack these
        # records and answer OFFSET_OUT_OF_RANGE (KIP-320).
        self.read_epochs: dict[TopicPartition, int] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def run(self) -> None:
        raise NotImplementedError

    # Requests.

    async def ask(
        self,
        address: tuple[str, int],
        request: Message,
        kind: type[M],
        version: int,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> M:
        channel, access = self._channels.get(address), self.access
        if channel is None:
            login = None if access is None else access.login
            channel = self._channels[address] = Channel(self.network, *address, self.name, login=login)
        if access is None:
            response = await channel.send(request, version, timeout_ms)
        else:
            response = await access.send(channel, request, version, timeout_ms)
        assert isinstance(response, kind), f"{response!r} is no {kind.__name__}"
        return response

    async def ask_leader(self, partition: TopicPartition, request: Message, kind: type[M], version: int) -> M:
        """Send a request to the leader and return the response; raise ChannelFailed also if no leader is known."""
        leader = self._leaders.get(partition)
        address = self._brokers.get(leader[0]) if leader is not None else None
        if address is None:
            await self.refresh([partition.topic])
            raise ChannelFailed(f"{self.name} knew no leader of {partition}")
        return await self.ask(address, request, kind, version)

    async def ask_coordinator(
        self,
        coordinator: int,
        key: str,
        request: Message,
        kind: type[M],
        version: int,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> M:
        address = self._coordinators.get((coordinator, key))
        if address is None:
            address = self._coordinators[coordinator, key] = await self._find_coordinator(coordinator, key)
        return await self.ask(address, request, kind, version, timeout_ms)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the newest leader epoch of the partition that this client knows; -1 for none."""
        return self._leaders[partition][1] if partition in self._leaders else -1

    def forget_coordinator(self, coordinator: int, key: str) -> None:
        self._coordinators.pop((coordinator, key), None)

    async def _find_coordinator(self, coordinator: int, key: str) -> tuple[str, int]:
        response = await self.ask(
            self.some_broker(),
            FindCoordinatorRequest(key_type=coordinator, coordinator_keys=[key]),
            FindCoordinatorResponse,
            4,
        )
        found = response.coordinators[0]
        if found.error_code != ErrorCode.NONE:
            raise ChannelFailed(f"no coordinator of {key}: {ErrorCode.of(found.error_code).name}")
        return found.host, found.port

    def some_broker(self) -> tuple[str, int]:
        """Return any broker of the last metadata, or a bootstrap server."""
        known = [self._brokers[broker] for broker in sorted(self._brokers)]
        if not known or self.rng.random() < 0.3:
            host = self.rng.choice(self._bootstrap)
            return host, 9092
        return self.rng.choice(known)

    async def refresh(self, topics: list[str]) -> None:
        """Fetch metadata from a broker; without a response the known leaders stay."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
        )
        try:
            response = await self.ask(self.some_broker(), request, MetadataResponse, 12)
        except ChannelFailed:
            await self.back_off()
            return
        if response.brokers:
            self._brokers = {one.node_id: (one.host, one.port) for one in response.brokers}
        for topic in response.topics:
            for partition in topic.partitions:
                key = TopicPartition(cast("str", topic.name), partition.partition_index)
                # An older leader epoch from a broker that lags behind must not replace a newer one (KIP-320).
                if partition.leader_epoch >= self.leader_epoch(key):
                    self._leaders[key] = (partition.leader_id, partition.leader_epoch)

    async def back_off(self) -> None:
        await asyncio.sleep(_BACKOFF_S * (0.5 + self.rng.random()))

    async def rest(self, most_s: float) -> None:
        await asyncio.sleep(self.rng.random() * most_s)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def trace(self, message: str, *details: Any) -> None:
        if self.loop.trace is not None:
            self.loop.trace(f"{self.name}: {message % details}")

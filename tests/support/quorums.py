"""Several quorum nodes in one event loop, on simulated disks; every message between them is encoded and decoded.

    async with Quorums(3) as nodes:
        leader = await nodes.leader()
        await leader.append([...])

They are for `tests.support.virtual_time`, where waiting for Kafka's timeouts takes no real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from pessoa.base.entropy import SeededEntropy
from pessoa.base.ids import Uuid
from pessoa.broker.api_table import row_of
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.net.channel import ChannelFailed
from pessoa.quorum.batches import MetadataBatch
from pessoa.quorum.quorum_settings import LeaderAndEpoch, QuorumNode, QuorumSettings
from pessoa.quorum.raft_quorum import RaftQuorum
from pessoa.quorum.snapshot_file import SnapshotReader
from pessoa.raft.voters import Address, VoterSet
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.request_context import Answer
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_records import TopicRecord
from tests.support.virtual_time import VirtualClock

SETTINGS = QuorumSettings()
CLUSTER_ID = "a-cluster-of-quorums"
DEADLINE_S = 60.0
PORT_BASE = 9_000
LATENCY_S = 0.0005


def ask_quorum(quorum: RaftQuorum, request: Message, version: int) -> Answer[Message]:
    """Return the response of a quorum node to a request of another node."""
    serve = row_of(request.api_key).serve_in_quorum
    assert serve is not None
    return quorum.handle(serve, request, version)


class Node:
    """A quorum node, its disk (which survives a restart), and the notifications that its listener got."""

    def __init__(self, nodes: Quorums, node_id: int, directory_id: Uuid, voters: VoterSet) -> None:
        self.nodes = nodes
        self.id = node_id
        self.directory_id = directory_id
        self.voters = voters
        self.disk = SimulatedDisk(node_id)
        self.is_up = False
        # Whether the node updates its own entry among the voters.
        self.joins = False
        self.quorum: RaftQuorum
        self.seen: list[MetadataBatch] = []
        self.snapshots: list[SnapshotReader] = []
        self.leaders: list[LeaderAndEpoch] = []
        # Called before the quorum starts, for listeners that must get the first batch.
        self.before_start: Callable[[], None] = lambda: None

    async def start(self) -> RaftQuorum:
        nodes = self.nodes
        self.seen, self.snapshots, self.leaders = [], [], []
        self.quorum = RaftQuorum(
            self.disk,
            "/meta",
            QuorumNode(
                self.id,
                CLUSTER_ID,
                self.directory_id,
                listeners={"CONTROLLER": Address("localhost", PORT_BASE + self.id)} if self.joins else {},
                auto_join=self.joins,
            ),
            self.voters,
            VirtualClock(),
            SeededEntropy(self.id),
            send=self._send,
            settings=nodes.settings,
            bootstrap_servers=[("localhost", PORT_BASE + one) for one in nodes.by_id if one != self.id]
            if not len(self.voters) or self.id not in self.voters.by_id
            else (),
        )
        self.quorum.listeners.append(self.seen.append)
        self.quorum.on_snapshot.append(self.snapshots.append)
        self.quorum.on_leadership.append(self.leaders.append)
        self.before_start()
        await self.quorum.start()
        self.is_up = True
        return self.quorum

    async def stop(self) -> None:
        await self.quorum.close()
        self.is_up = False

    def kill(self) -> None:
        """End the node without a message or a write; bytes that were not synced may be lost."""
        self.is_up = False
        self.quorum.abandon()
        self.disk.lose_power()

    async def _send(self, host: str, port: int, request: Message, version: int, timeout_ms: int) -> Message:
        await asyncio.sleep(LATENCY_S)
        peer = self.nodes.by_id.get(port - PORT_BASE)
        if peer is None or not peer.is_up or (not self.is_up and self.id in self.nodes.started):
            raise ChannelFailed(f"{host}:{port} refuses")
        if frozenset((self.id, peer.id)) in self.nodes.cut:
            raise ChannelFailed("the network is cut")
        kind = ApiKey(request.api_key)
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(
                error_code=0,
                api_keys=[],
                throttle_time_ms=0,
                supported_features=[SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)],
            )
        received = kind.request.decode(request.encode(version), version)
        answer = ask_quorum(peer.quorum, received, version)
        if isinstance(answer, Awaitable):
            answer = await asyncio.wait_for(answer, timeout_ms / 1000)
        await asyncio.sleep(LATENCY_S)
        return kind.response.decode(bytes(answer.encode(version)), version)


class Quorums:
    def __init__(self, voters: int, observers: int = 0, settings: QuorumSettings = SETTINGS, **changes: int) -> None:
        self.settings = settings._replace(**changes)
        self.by_id: dict[int, Node] = {}
        self.started: set[int] = set()
        self.cut: set[frozenset[int]] = set()
        self.static = VoterSet.static(
            {one: ("localhost", PORT_BASE + one) for one in range(1, voters + 1)}, "CONTROLLER"
        )
        for node_id in range(1, voters + observers + 1):
            self.by_id[node_id] = Node(self, node_id, Uuid.of(500 + node_id), self.static)

    async def __aenter__(self) -> Self:
        for node in self.by_id.values():
            await node.start()
            self.started.add(node.id)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for node in self.by_id.values():
            if node.is_up:
                await node.stop()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            # Simulated time: small steps cost nothing.
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    @property
    def leading(self) -> Node | None:
        """Return the node that was notified of its leadership in the highest epoch."""
        leading = [
            one
            for one in self.by_id.values()
            if one.is_up and one.leaders and one.leaders[-1].leader_id == one.id and one.quorum.is_leader
        ]
        return max(leading, key=lambda one: one.quorum.epoch, default=None)

    async def leader(self) -> Node:
        await self.wait_until(lambda: self.leading is not None)
        assert self.leading is not None
        return self.leading

    async def wait_for_all(self, *names: str) -> None:
        await self.wait_until(lambda: all(topics(node) == list(names) for node in self.by_id.values() if node.is_up))


def topics(node: Node) -> list[str]:
    """Return the names of the topics in the snapshots and batches that the node was given."""
    batches = [batch for snapshot in node.snapshots[-1:] for batch in snapshot.batches()]
    first = node.snapshots[-1].snapshot.offset if node.snapshots else 0
    batches += [batch for batch in node.seen if batch.last_offset >= first]
    return [record.name for batch in batches for record in batch.records if isinstance(record, TopicRecord)]


def topic(name: str) -> tuple[Message, int]:
    return TopicRecord(name=name, topic_id=Uuid.of(1000 + len(name))), 0

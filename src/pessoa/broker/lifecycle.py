"""A node of a cluster from start to stop: a broker, a controller, or both (`process.roles`).

The start goes through the stages of `broker.stages`, and the stop through the same ones backwards:

    directories ──▶ controller's ports ──▶ quorum ──▶ controller ──▶ broker's ports ──▶ broker ──▶ registered, serving
                ──▶ maintenance of the logs
    ──▶ stop: others take over, clients follow them, the ports are closed, responses in progress leave, everything is
        synced, the directories say so

A start that fails, or that is cancelled, has gone through some of them; `stop` or `abandon` ends those.

A broker keeps no global state: any number of them live in one process and one loop. Disk, clock, chance and network
come from outside, and so can the whole of it run in a simulation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from pessoa.base.clock import SystemClock
from pessoa.base.entropy import SystemEntropy, new_uuid
from pessoa.broker.authorization import make_authorizer
from pessoa.broker.live_config import LiveConfig
from pessoa.broker.logs.node_logs import NodeLogs
from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.broker.node_tls import NodeTls
from pessoa.broker.observers import Observers
from pessoa.broker.stages.broker_role import BrokerRole
from pessoa.broker.stages.cluster_member import ClusterMember
from pessoa.broker.stages.controller_role import ControllerRole
from pessoa.broker.stages.log_directories import LogDirectories, claim_log_directories
from pessoa.broker.stages.log_maintenance import LogMaintenance
from pessoa.broker.stages.membership import Membership
from pessoa.broker.stages.node_context import NodeContext, Stage, cancel_tasks
from pessoa.broker.stages.node_listeners import ListenerShares, NodeListeners, open_listeners
from pessoa.log.flusher import Flusher
from pessoa.log.os_disk import OsDisk
from pessoa.net.network import SystemNetwork
from pessoa.quorum.publishing import ImagePublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.held_listener import HeldListener
    from pessoa.broker.metrics.node_metrics import NodeMetrics
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.stages.log_maintenance import StartCleaning
    from pessoa.controller.controller import Controller
    from pessoa.log.directory import LogDirectory
    from pessoa.log.files import Disk
    from pessoa.metadata.image import MetadataImage
    from pessoa.net.network import Network
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.schema import Message

S = TypeVar("S", bound=Stage)


class Broker:
    """A node: `await start()`, then it serves; `await stop()`. `failed` is done when it cannot go on."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        network: Network | None = None,
        cluster_id: str | None = None,
        first_records: Sequence[Message] = (),
    ) -> None:
        """`first_records` are added to the bootstrap records of a new cluster, if this node formats it."""
        self._disk: Disk = disk if disk is not None else OsDisk()
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._entropy: Entropy = entropy if entropy is not None else SystemEntropy()
        self._network: Network = network if network is not None else SystemNetwork()
        self._wanted_cluster_id = cluster_id
        self._first_records = first_records
        self._publisher = ImagePublisher()
        self._config = LiveConfig(config, self._publisher)
        # What looks at requests: logs and metrics.
        self.observers = Observers()
        self._tls = NodeTls(config)
        # Before the listeners hear of a change, and take what they need from it.
        self._config.on_change.append(self._tls.follow)
        # Those that the start has gone through, in their order.
        self._stages: list[Stage] = []
        # Called with exceptions that cost a request its response, and that are mistakes of ours.
        self.on_bug: Callable[[Exception], None] = lambda _: None
        # Compacts logs on a disk that no other process can reach; without it, those are not compacted.
        self.start_cleaning: StartCleaning | None = None
        self.failed: asyncio.Future[None]

    def __repr__(self) -> str:
        return f"<Broker {self.config.node_id}: {', '.join(map(repr, self._stages))}>"

    # Starting.

    async def start(self) -> None:
        """Return when the node serves. A failure of any part meanwhile is raised, so that the start does not wait for
        ever."""
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        starting = loop.create_task(self._start(self._new_context()))
        try:
            await asyncio.wait([starting, self.failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not starting.done():
                await cancel_tasks([starting])
        if self.failed.done():
            if not starting.cancelled():
                # It may have failed of the same, and that is raised below.
                starting.exception()
            self.failed.result()
        starting.result()

    async def wait_until_ready(self) -> None:
        """Return when this node follows the quorum. A broker does when `start` returns. A controller alone serves
        before, because an election needs it, and follows when it has read its own registration."""
        role = self.find(ControllerRole)
        if not self.config.is_broker and role is not None:
            await asyncio.wait([role.registered, self.failed], return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                self.failed.result()

    def _new_context(self) -> NodeContext:
        authorizer = make_authorizer(self.config)
        if authorizer is not None and self.config.is_broker:
            # Before all others: what they then do may ask it.
            self._publisher.subscribers.insert(0, lambda delta: authorizer.load(delta.new.acls.by_id))
        return NodeContext(
            config=self._config,
            disk=self._disk,
            clock=self._clock,
            entropy=self._entropy,
            network=self._network,
            tls=self._tls,
            publisher=self._publisher,
            progress=MetadataProgress(self._clock),
            flusher=Flusher(),
            incarnation_id=new_uuid(self._entropy),
            failed=self.failed,
            on_bug=self.on_bug,
            observers=self.observers,
            authorizer=authorizer,
        )

    async def _start(self, node: NodeContext) -> None:
        self._enter(NodeLogs(node))
        metrics: NodeMetrics | None = None
        if self.config.pessoa_metrics_port >= 0:
            from pessoa.broker.metrics.node_metrics import open_metrics

            metrics = self._enter(await open_metrics(node, self))
        directories = self._enter(await claim_log_directories(node, self._wanted_cluster_id, self._first_records))
        if self.config.is_broker:
            directories.open_logs(node)
        shares = ListenerShares(self.config)
        of_controller = self._enter(await open_listeners(node, shares, of_controller=True))
        member = self._enter(ClusterMember(node, directories, of_controller))
        if metrics is not None:
            metrics.watch_quorum(member.quorum)
        await member.start()
        if member.controller is not None:
            controller = self._enter(ControllerRole(node, member.controller, member, of_controller))
            if not self.config.is_broker:
                controller.follow_metadata_alone()
                return
        of_broker = self._enter(await open_listeners(node, shares, of_controller=False))
        role = self._enter(BrokerRole(node, directories, member, of_broker))
        if metrics is not None:
            metrics.accept_telemetry(role.services, of_broker)
        membership = self._enter(Membership(node, member.quorum, role, of_broker))
        await membership.join()
        self._enter(LogMaintenance(node, directories, role.upkeep, self.start_cleaning))

    def _enter(self, stage: S) -> S:
        self._stages.append(stage)
        return stage

    # Stopping.

    async def leave(self) -> None:
        """Let other brokers take over the leadership of this one's partitions. `stop` does it by itself."""
        membership = self.find(Membership)
        if membership is not None:
            await membership.leave()

    async def stop(self) -> None:
        """Shut down cleanly: nothing that was acknowledged is lost, and the next start is quick."""
        # A broker serves while it hands over, so its logs are still flushed and checkpointed by time.
        membership = self.find(Membership)
        if membership is not None:
            await membership.hand_over()
        for stage in reversed(self._stages):
            await stage.close()

    def abandon(self) -> None:
        """Close the sockets and release the directories, as the system does for a killed process. Nothing is sent or
        written."""
        for stage in reversed(self._stages):
            stage.abandon()

    # What there is.

    def find(self, kind: type[S]) -> S | None:
        """Return the newest started stage of this kind; None if there is none."""
        return next((stage for stage in reversed(self._stages) if isinstance(stage, kind)), None)

    def stage(self, kind: type[S]) -> S:
        """Return the newest started stage of this kind. Raises AttributeError if there is none."""
        found = self.find(kind)
        if found is None:
            raise AttributeError(f"the start of this node has not gone through {kind.__name__}")
        return found

    @property
    def config(self) -> BrokerConfig:
        return self._config.current

    @property
    def image(self) -> MetadataImage:
        return self._publisher.image

    @property
    def services(self) -> BrokerServices:
        return self.stage(BrokerRole).services

    @property
    def controller(self) -> Controller | None:
        """The controller; None before the start, and on a node without the role."""
        member = self.find(ClusterMember)
        return None if member is None else member.controller

    @property
    def quorum(self) -> RaftQuorum | None:
        """The member of the metadata quorum; None before the start."""
        member = self.find(ClusterMember)
        return None if member is None else member.quorum

    @property
    def directories(self) -> list[LogDirectory]:
        claimed = self.find(LogDirectories)
        return [] if claimed is None else claimed.all

    @property
    def cluster_id(self) -> str:
        claimed = self.find(LogDirectories)
        return "" if claimed is None else claimed.cluster_id

    @property
    def listeners(self) -> list[HeldListener]:
        """The listeners of the controller, then those of the broker."""
        return [one for stage in self._stages if isinstance(stage, NodeListeners) for one in stage.all]

    @property
    def bootstrap_servers(self) -> str:
        found = [one for one in self._stages if isinstance(one, NodeListeners) and not one.of_controller]
        return ",".join(one.addresses for one in found)

"""A node of a cluster from start to stop: a broker, a controller, or both (`process.roles`).

    claim the directories ──▶ format what is empty ──▶ open the partitions' logs ──▶ join the metadata quorum
    ──▶ controller: serve the quorum and the brokers; lead, if elected
    ──▶ broker: open the ports ──▶ register, and catch up with the metadata ──▶ follow it: lead and follow partitions
        ──▶ serve ──▶ ask to be unfenced
    ──▶ stop: others take over, answers in progress leave, everything is synced, the directories say so

A broker keeps no global state: any number of them live in one process and one loop. Disk, clock, chance and network
come from outside, and so can the whole of it run in a simulation.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from pessoa.base.clock import SystemClock
from pessoa.base.entropy import SystemEntropy, below, new_uuid, positive_int32
from pessoa.broker.config_rules import ConfigRules
from pessoa.broker.context import OwnRequest
from pessoa.broker.controller_node import ControllerNode, ControllerServices
from pessoa.broker.coordination import Coordination
from pessoa.broker.dispatch import CONTROLLER_TABLE, Dispatcher
from pessoa.broker.fetch_sessions import FetchSessions
from pessoa.broker.forwarding import ControllerEntrance
from pessoa.broker.held_listener import HeldListener, is_counted, limits_of_clients
from pessoa.broker.listed_brokers import ListedBrokers
from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.broker.peers import Peers
from pessoa.broker.quorum_member import QuorumTransport, make_quorum
from pessoa.broker.registration import Registration, register_controller
from pessoa.broker.services import BrokerServices
from pessoa.controller.controller import Controller
from pessoa.log.directory import DirectoryOffline, LogDirectory
from pessoa.log.flushing import Flusher
from pessoa.log.os_disk import OsDisk
from pessoa.log.topic_config import log_config
from pessoa.log.upkeep import Upkeep, UpkeepSettings
from pessoa.metadata.image import ConfigResource
from pessoa.net.connection_quota import ConnectionQuota
from pessoa.net.network import SystemNetwork
from pessoa.net.receive_room import ReceiveRoom
from pessoa.quorum.formatting import WrongDirectory, format_metadata, read_bootstrap
from pessoa.quorum.publishing import ImagePublisher
from pessoa.quorum.snapshotting import SnapshotTaker
from pessoa.replication.replicas import Replicas
from pessoa.replication.settings import ReplicationSettings
from pessoa.wire.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.base.ids import Uuid
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.broker.directory_assignments import DirectoryAssignments
    from pessoa.log.cleaning_plan import CleaningPlan
    from pessoa.log.cleaning_shell import RunningPass
    from pessoa.log.config import LogConfig
    from pessoa.log.files import Disk
    from pessoa.log.properties import MetaProperties
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.net.channel import Channel
    from pessoa.net.network import Network
    from pessoa.quorum.batches import CommittedBatch
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.quorum.snapshot_file import SnapshotReader
    from pessoa.wire.api.alter_partition import TopicData
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.broker")


class Broker:
    """`await start()`, then it serves; `await stop()`. `failed` is done when it cannot go on."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        network: Network | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.config = config
        self._disk: Disk = disk if disk is not None else OsDisk()
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._entropy: Entropy = entropy if entropy is not None else SystemEntropy()
        self._network: Network = network if network is not None else SystemNetwork()
        self._wanted_cluster_id = cluster_id
        self._new_uuid = partial(new_uuid, self._entropy)
        self._incarnation_id = self._new_uuid()
        self._flusher = Flusher()
        self._directories: list[LogDirectory] = []
        self._publisher = ImagePublisher()
        self._progress = MetadataProgress()
        self._client_listeners: list[HeldListener] = []
        self._controller_listeners: list[HeldListener] = []
        self._client_quota = ConnectionQuota(limits_of_clients(config))
        # Two, so that no client keeps brokers and controllers from speaking to each other.
        self._client_room = ReceiveRoom(config.queued_max_request_bytes)
        self._inner_room = ReceiveRoom(config.queued_max_request_bytes)
        self._tasks: list[asyncio.Task[None]] = []
        # Told about mistakes of ours that cost a request its answer.
        self.on_bug: Callable[[Exception], None] = lambda _: None
        # Compacts logs on a disk that no other process can reach; without it, those are left as they are.
        self.start_cleaning: Callable[[CleaningPlan], RunningPass] | None = None
        # What there is so far; a start that fails leaves some of it None.
        self._quorum: RaftQuorum | None = None
        self._snapshots: SnapshotTaker | None = None
        self._transport = QuorumTransport(self._network, config.node_id)
        self.controller: ControllerNode | None = None
        self._entrance: ControllerEntrance | None = None
        self._registration: Registration | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._assignments: DirectoryAssignments | None = None
        self._is_assembled = False
        self.cluster_id = ""
        self.services: BrokerServices
        self.failed: asyncio.Future[None]

    def __repr__(self) -> str:
        listeners = [*self._client_listeners, *self._controller_listeners]
        return f"<Broker {self.config.node_id}: {', '.join(map(repr, listeners))}>"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(one.listener.address for one in self._client_listeners)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(one.listener.address for one in self._controller_listeners)

    # Starting.

    async def start(self) -> None:
        """Serving when it returns. What makes it fail meanwhile is raised: nobody waits for what cannot come."""
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        starting = loop.create_task(self._start())
        try:
            await asyncio.wait([starting, self.failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not starting.done():
                await _cancel([starting])
        if self.failed.done():
            self.failed.result()
        starting.result()

    async def _start(self) -> None:
        owners = await self._claim()
        self.cluster_id = next(iter(owners.values())).cluster_id
        if self.config.is_broker:
            for directory in self._directories:
                directory.open(self._config_of, self._clock.now_ms())
        await self._join_quorum(owners)
        if self.config.is_broker:
            await self._start_broker()
        else:
            self._publisher.go_live()

    async def _claim(self) -> dict[str, MetaProperties]:
        """Make the directories this node's, and say whose each is."""
        self._directories = [LogDirectory(self._disk, path) for path in self.config.log_dirs]
        for directory in self._directories:
            directory.claim()
        cluster_id, voters = self._wanted_cluster_id, None
        if not self._is_formatted():
            from pessoa.broker.cluster_identity import first_cluster_id, first_voters

            voters = first_voters(self.config, self._new_uuid)
            if cluster_id is None:
                cluster_id = await first_cluster_id(self.config, self._network, self._clock)
        return format_metadata(
            self._disk,
            self.config.log_dirs,
            self.config.metadata_log_dir,
            self.config.node_id,
            self._new_uuid,
            self._clock.now_ms(),
            cluster_id,
            voters,
        )

    def _is_formatted(self) -> bool:
        from pessoa.log.properties import META_PROPERTIES_FILE

        paths = [*self.config.log_dirs, self.config.metadata_log_dir]
        return any(self._disk.exists(f"{path}/{META_PROPERTIES_FILE}") for path in paths)

    async def _join_quorum(self, owners: dict[str, MetaProperties]) -> None:
        config = self.config
        directory_id = owners[config.metadata_log_dir].directory_id
        assert directory_id is not None
        for endpoint in self._endpoints(of_controller=True):
            self._controller_listeners.append(await self._open(endpoint))
        quorum = self._quorum = make_quorum(
            config,
            self._disk,
            self.cluster_id,
            directory_id,
            self._clock,
            self._entropy,
            self._flusher,
            self._transport,
            self._advertised(self._controller_listeners),
        )
        quorum.on_failure = self._fail
        quorum.listeners.append(self._on_committed)
        quorum.on_snapshot.append(self._on_snapshot)
        self._snapshots = SnapshotTaker(quorum, self._publisher)
        quorum.listeners.append(self._snapshots.listen)
        if config.is_controller:
            self.controller = self._make_controller(quorum)
            quorum.on_leadership.append(self.controller.on_leadership)
        self._entrance = ControllerEntrance(
            config.node_id, self.controller, quorum, self._network, self._clock, config.request_timeout_ms
        )
        self._entrance.on_heartbeats_lost = self._hurry
        quorum.on_leadership.append(lambda _: self._hurry())
        await quorum.start()
        if self.controller is not None:
            self._serve_controllers(self.controller)

    def _make_controller(self, quorum: RaftQuorum) -> ControllerNode:
        controller = Controller(
            self.config.node_id,
            self.cluster_id,
            quorum,
            ConfigRules(self.config),
            self._clock,
            self._new_uuid,
            partial(below, self._entropy),
            self.config.broker_session_timeout_ms,
            self._incarnation_id,
        )
        return ControllerNode(controller, quorum, self._publisher, self._bootstrap(), self._clock)

    def _bootstrap(self) -> Callable[[], list[Message]]:
        """What a new cluster begins with. Damage is told of now; whether it matters is seen when this node leads."""
        read = partial(read_bootstrap, self._disk, self.config.metadata_log_dir)
        try:
            records = read()
        except WrongDirectory as problem:
            log.warning("%s. A cluster that has begun does not need it", problem)
            return read
        return lambda: records

    def _serve_controllers(self, controller: ControllerNode) -> None:
        services = ControllerServices(controller, self._quorum, self._publisher, self.config, self.cluster_id)
        for held in self._controller_listeners:
            held.listener.on_closed = controller.connection_closed
            held.release(Dispatcher(services, CONTROLLER_TABLE, held.endpoint.name).serve)
        assert self._entrance is not None
        self._run(
            register_controller(
                self._entrance, self.config, self._incarnation_id, self._advertised(self._controller_listeners)
            )
        )

    async def _start_broker(self) -> None:
        self._assemble()
        for endpoint in self._endpoints(of_controller=False):
            held = await self._open(endpoint)
            self._client_listeners.append(held)
            log.info("listening on %s://%s", endpoint.name, held.listener.address)
        registration = self._registration = self._make_registration()
        self._coordination.registration = registration
        self.services.is_out_of_touch = registration.is_out_of_touch
        await registration.register()
        self._publisher.go_live()
        self.services.replicas.remove_strays(self.services.image)
        for held in self._client_listeners:
            held.release(Dispatcher(self.services, listener=held.endpoint.name).serve)
        await registration.unfence()
        self._heartbeats = self._run(registration.keep_alive())
        self._run(self._upkeep.run())
        self._run(self._clean())

    def _assemble(self) -> None:
        config, clock = self.config, self._clock
        self._upkeep = Upkeep(self._disk, self._directories, clock, self._flusher, _upkeep_settings(config))
        replicas = Replicas(
            config.node_id,
            self._directories,
            self._upkeep,
            self._config_of,
            self._new_uuid,
            clock=clock,
            flusher=self._flusher,
            settings=ReplicationSettings.of(config),
            broker_epoch=self._broker_epoch,
            channel_to=self._fetcher_channel,
            alter_partition=self._alter_partition,
        )
        replicas.on_directory_offline.append(self._on_directory_offline)
        self.services = BrokerServices(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            config=config,
            clock=clock,
            image=self._publisher.image,
            replicas=replicas,
            fetch_sessions=FetchSessions(
                partial(positive_int32, self._entropy), config.max_incremental_fetch_session_cache_slots
            ),
            controller=self._entrance,
            random_below=partial(below, self._entropy),
            listed_brokers=ListedBrokers(config.node_id, config.broker_session_timeout_ms, clock.monotonic_ms()),
            progress=self._progress,
            quorum=self._quorum,
            flusher=self._flusher,
            unread_bytes=lambda: sum(held.listener.unread_bytes for held in self._client_listeners),
        )
        self._peers = Peers(self.services, self._network)
        self._coordination = Coordination(self.services, self._peers, self._new_uuid)
        if len(self._directories) > 1:
            from pessoa.broker.directory_assignments import DirectoryAssignments

            self._assignments = DirectoryAssignments(self.services, self._entrance, self._broker_epoch)
            assignments = self._assignments
            replicas.moves.on_moved.append(lambda partition: assignments.look_at([partition.topic_id]))
            replicas.on_arrived.append(lambda topic_id: assignments.look_at([topic_id]))
        self._publisher.subscribers.append(self._on_metadata)
        self._is_assembled = True

    def _make_registration(self) -> Registration:
        directories = self._directories
        previous = {one.previous_broker_epoch for one in directories}
        return Registration(
            self.config,
            self.cluster_id,
            self._entrance,
            self._progress,
            self._clock,
            self._incarnation_id,
            self._advertised(self._client_listeners),
            _ids(directories),
            lambda: _ids([one for one in directories if one.offline is not None]),
            # Directories that disagree were not all there when the broker stopped (KIP-966).
            previous.pop() if len(previous) == 1 else -1,
        )

    # Ports.

    def _endpoints(self, *, of_controller: bool) -> list[ListenerEndpoint]:
        names = [name.upper() for name in self.config.controller_listener_names]
        return [one for one in self.config.listeners if (one.name in names) is of_controller]

    async def _open(self, endpoint: ListenerEndpoint) -> HeldListener:
        room = self._client_room if is_counted(self.config, endpoint) else self._inner_room
        held = HeldListener(endpoint, self.config, self._network, room, self._client_quota)
        held.listener.on_bug = self.on_bug
        await held.open()
        return held

    def _advertised(self, listeners: list[HeldListener]) -> list[ListenerEndpoint]:
        """What others are told, with the ports that were chosen for those who left it open."""
        ports = {one.endpoint.name: one.listener.port for one in listeners}
        advertised = {one.name: one for one in (*self.config.listeners, *self.config.advertised_listeners)}
        return [one._replace(port=one.port or ports[name]) for name, one in advertised.items() if name in ports]

    # What replication needs of others.

    def _broker_epoch(self) -> int:
        return self._registration.broker_epoch if self._registration is not None else -1

    def _fetcher_channel(self, broker_id: int) -> Channel | None:
        return self._peers.new_channel_to(broker_id, "fetcher")

    async def _alter_partition(self, topics: list[TopicData]) -> AlterPartitionResponse:
        request = AlterPartitionRequest(broker_id=self.config.node_id, broker_epoch=self._broker_epoch(), topics=topics)
        assert self._entrance is not None
        caller = OwnRequest(request.versions.last)
        response = await self._entrance.ask(request, caller, self.config.request_timeout_ms)
        assert isinstance(response, AlterPartitionResponse)
        return response

    async def _clean(self) -> None:
        """Compact logs, in a process of its own; that needs files which another process can open."""
        if self.config.log_cleaner_enable and (self.start_cleaning is not None or isinstance(self._disk, OsDisk)):
            from pessoa.log.cleaner import CleanerSettings
            from pessoa.log.cleaning_process import CleaningProcess
            from pessoa.log.cleaning_shell import LogCleaner

            settings = CleanerSettings(
                dedupe_buffer_size=self.config.log_cleaner_dedupe_buffer_size,
                io_buffer_load_factor=self.config.log_cleaner_io_buffer_load_factor,
                io_max_bytes_per_second=self.config.log_cleaner_io_max_bytes_per_second,
                backoff_ms=self.config.log_cleaner_backoff_ms,
            )
            start = self.start_cleaning or CleaningProcess
            await LogCleaner(self._disk, self._directories, self._clock, settings, start).run()

    # Following the metadata.

    def _on_committed(self, batch: CommittedBatch) -> None:
        self._publisher.listen(batch)
        self._progress.advance(batch.last_offset)

    def _on_snapshot(self, snapshot: SnapshotReader) -> None:
        self._publisher.load_snapshot(snapshot)
        self._progress.advance(snapshot.snapshot.offset - 1)

    def _on_metadata(self, delta: MetadataDelta) -> None:
        image = delta.new
        self.services.image = image
        self.services.listed_brokers.follow(delta.cluster, self._clock.monotonic_ms())
        self.services.replicas.apply(image, delta.changed_topics, delta.deleted_topics)
        topics = [name for kind, name in delta.changed_configs if kind == ConfigResource.TOPIC]
        if any(kind == ConfigResource.BROKER for kind, _ in delta.changed_configs):
            self._reconfigure()
            topics = list(self.services.replicas.by_name)
        self.services.replicas.reconfigure(topics)
        self._coordination.publish(delta)
        if self._assignments is not None:
            self._assignments.look_at(delta.changed_topics)
        self._greet(delta)

    def _greet(self, delta: MetadataDelta) -> None:
        """A broker that stops waits until everybody has heard of it."""
        for broker in delta.cluster.changed_brokers.values():
            if broker is not None and broker.in_controlled_shutdown and broker.id != self.config.node_id:
                self._hurry()

    def _hurry(self) -> None:
        if self._registration is not None:
            self._registration.hurry()

    def _reconfigure(self) -> None:
        configs = self.services.image.configs
        self.config = self.services.config = self.config.with_overrides(
            configs.of(ConfigResource.BROKER, ""), configs.of(ConfigResource.BROKER, str(self.config.node_id))
        )
        self.services.replicas.configure(ReplicationSettings.of(self.config))
        self._client_quota.limits = limits_of_clients(self.config)
        for held in (*self._client_listeners, *self._controller_listeners):
            held.configure(self.config)
        self._coordination.reconfigure()

    def _config_of(self, topic: str) -> LogConfig:
        return log_config(self._publisher.image.configs.of(ConfigResource.TOPIC, topic), self.config)

    # Stopping.

    async def leave(self) -> None:
        """Let others take over what this broker leads. `stop` does it by itself."""
        if self._heartbeats is not None:
            await _cancel([self._heartbeats])
            self._heartbeats = None
        if self._registration is not None and not self.failed.done():
            await self._registration.leave()

    async def stop(self) -> None:
        """In order: nothing that was acknowledged is lost, and the next start is quick."""
        if self._has_company():
            await self.leave()
        await _cancel(self._tasks)
        if self._is_assembled:
            for partition in self.services.replicas.all():
                partition.wake_all()
        for held in self._client_listeners:
            await held.close()
        if self._is_assembled:
            self._coordination.close()
        await self.leave()
        if self._assignments is not None:
            await self._assignments.close()
        if self._is_assembled:
            await self.services.replicas.close()
            self._peers.close()
        if self.controller is not None:
            self.controller.close()
        if self._snapshots is not None:
            await self._snapshots.close()
        if self._quorum is not None:
            await self._quorum.close()
        self._transport.close()
        for held in self._controller_listeners:
            await held.close()
        if self._entrance is not None:
            self._entrance.close()
        self._close_directories()

    def abandon(self) -> None:
        """What the system does for a process that is killed: it closes the sockets and frees the directories. Nothing
        is said to anybody, and nothing is written."""
        for held in (*self._client_listeners, *self._controller_listeners):
            held.listener.abort()
        if self._is_assembled:
            self._peers.close()
        if self._entrance is not None:
            self._entrance.close()
        self._transport.close()
        if self._quorum is not None:
            self._quorum.abandon()
        for directory in self._directories:
            directory.release()

    def _has_company(self) -> bool:
        """Whether somebody could take over."""
        if not self._is_assembled:
            return False
        brokers = self.services.image.cluster.brokers.values()
        return any(not one.fenced for one in brokers if one.id != self.config.node_id)

    def _close_directories(self) -> None:
        for directory in self._directories:
            if directory.offline is None and directory.is_open:
                try:
                    directory.close(self._broker_epoch())
                except DirectoryOffline as problem:
                    log.error("%s could not be closed in order: %s", directory.path, problem.__cause__)  # noqa: TRY400
            directory.release()

    # Failing.

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())

    def _on_directory_offline(self, directory: LogDirectory) -> None:
        """The controller moves what was on it; without any directory there is nothing left to do."""
        self._hurry()
        if all(one.offline is not None for one in self._directories):
            self._fail(directory.offline)

    def _fail(self, error: BaseException | None) -> None:
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ids(directories: list[LogDirectory]) -> list[Uuid]:
    return [one.meta.directory_id for one in directories if one.meta is not None and one.meta.directory_id is not None]


def _upkeep_settings(config: BrokerConfig) -> UpkeepSettings:
    return UpkeepSettings(
        log_retention_check_interval_ms=config.log_retention_check_interval_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        log_flush_offset_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
    )

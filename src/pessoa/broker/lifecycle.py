"""A broker from start to stop.

    claim the directories ──▶ format what is empty ──▶ read the metadata log ──▶ open the partitions' logs
    ──▶ listen ──▶ register, and ask to be unfenced ──▶ serve
    ──▶ stop: no more requests, answers in progress leave, everything is synced, the directories say so

A broker keeps no global state: any number of them live in one process and one loop. Disk, clock, chance and
network come from outside, and so can the whole of it run in a simulation.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from pessoa.base.clock import SystemClock
from pessoa.base.entropy import SystemEntropy, below, new_uuid, positive_int32
from pessoa.broker.config_rules import ConfigRules
from pessoa.broker.coordination import Coordination
from pessoa.broker.dispatch import Dispatcher
from pessoa.broker.fetch_sessions import FetchSessions
from pessoa.broker.registration import Registration
from pessoa.broker.services import BrokerServices
from pessoa.controller.controller import Controller
from pessoa.log.directory import DirectoryOffline, LogDirectory
from pessoa.log.files import OsDisk
from pessoa.log.flushing import Flusher
from pessoa.log.topic_config import log_config
from pessoa.log.upkeep import Upkeep, UpkeepSettings
from pessoa.metadata.image import ConfigResource
from pessoa.net.listener import Listener, ListenerLimits
from pessoa.net.network import SystemNetwork
from pessoa.quorum.formatting import format_metadata, read_bootstrap
from pessoa.quorum.publishing import ImagePublisher
from pessoa.quorum.single_voter import SingleVoterQuorum
from pessoa.replication.replicas import Replicas

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.log.config import LogConfig
    from pessoa.log.files import Disk
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.net.network import Network

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
        self._flusher = Flusher()
        self._directories: list[LogDirectory] = []
        self._publisher = ImagePublisher()
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []
        # Told about mistakes of ours that cost a request its answer.
        self.on_bug: Callable[[Exception], None] = lambda _: None
        self._quorum: SingleVoterQuorum | None = None
        self._is_assembled = False
        self._registration: Registration | None = None
        self.services: BrokerServices
        self.failed: asyncio.Future[None]

    def __repr__(self) -> str:
        return f"<Broker {self.config.node_id}: {', '.join(map(repr, self._listeners))}>"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{one.host}:{one.port}" for one in self._listeners)

    # Starting.

    async def start(self) -> None:
        self.failed = asyncio.get_running_loop().create_future()
        now_ms = self._clock.now_ms()
        self._directories = [LogDirectory(self._disk, path) for path in self.config.log_dirs]
        for directory in self._directories:
            directory.claim()
        owners = format_metadata(
            self._disk,
            self.config.log_dirs,
            self.config.metadata_log_dir,
            self.config.node_id,
            self._new_uuid,
            now_ms,
            self._wanted_cluster_id,
        )
        cluster_id = next(iter(owners.values())).cluster_id
        quorum = SingleVoterQuorum(
            self._disk, self.config.metadata_log_dir, self.config.node_id, self._clock, self._flusher
        )
        quorum.on_failure = self._fail
        quorum.listeners.append(self._publisher.listen)
        quorum.start()
        self._quorum = quorum
        for directory in self._directories:
            directory.open(self._config_of, now_ms)
        self._assemble(cluster_id, quorum)
        await self._activate()
        await self._listen()
        await self._register()

    def _assemble(self, cluster_id: str, quorum: SingleVoterQuorum) -> None:
        config, clock = self.config, self._clock
        self._upkeep = Upkeep(self._disk, self._directories, clock, self._flusher, _upkeep_settings(config))
        replicas = Replicas(config.node_id, self._directories, self._upkeep, self._config_of, self._new_uuid)
        controller = Controller(
            config.node_id,
            cluster_id,
            quorum,
            ConfigRules(config),
            clock,
            self._new_uuid,
            partial(below, self._entropy),
            config.broker_session_timeout_ms,
        )
        self.services = BrokerServices(
            node_id=config.node_id,
            cluster_id=cluster_id,
            config=config,
            clock=clock,
            image=self._publisher.image,
            replicas=replicas,
            fetch_sessions=FetchSessions(
                partial(positive_int32, self._entropy), config.max_incremental_fetch_session_cache_slots
            ),
            controller=controller,
            quorum=quorum,
            flusher=self._flusher,
        )
        self._coordination = Coordination(self.services, self._new_uuid)
        self._publisher.subscribers.append(self._on_metadata)
        self._is_assembled = True

    async def _activate(self) -> None:
        """Take the lead of the metadata quorum, and tell everybody what the log has told us."""
        bootstrap = read_bootstrap(self._disk, self.config.metadata_log_dir)
        await self.services.controller.activate(self._publisher.loader, bootstrap)
        self._publisher.go_live()

    async def _listen(self) -> None:
        limits = ListenerLimits(
            socket_request_max_bytes=self.config.socket_request_max_bytes,
            connections_max_idle_ms=self.config.connections_max_idle_ms,
        )
        for endpoint in self._client_endpoints():
            dispatcher = Dispatcher(self.services, listener=endpoint.name)
            listener = Listener(endpoint.host, endpoint.port, dispatcher.serve, limits, network=self._network)
            listener.on_bug = self.on_bug
            await listener.__aenter__()
            self._listeners.append(listener)
            log.info("listening on %s://%s", endpoint.name, listener.address)

    def _client_endpoints(self) -> list[ListenerEndpoint]:
        names = self.config.controller_listener_names
        return [endpoint for endpoint in self.config.listeners if endpoint.name not in names]

    async def _register(self) -> None:
        ports = {
            endpoint.name: listener.port
            for endpoint, listener in zip(self._client_endpoints(), self._listeners, strict=True)
        }
        directory_ids = [one.meta.directory_id for one in self._directories if one.meta is not None]
        self._registration = Registration(
            self.services,
            self._new_uuid(),
            [
                endpoint._replace(port=endpoint.port or ports[endpoint.name])
                for endpoint in self.config.advertised_listeners
                if endpoint.name in ports
            ],
            [one for one in directory_ids if one is not None],
            min(one.previous_broker_epoch for one in self._directories),
        )
        await self._registration.register()
        self._coordination.registration = self._registration
        for work in (self._registration.keep_alive(), self._upkeep.run(), self._clean()):
            self._tasks.append(asyncio.get_running_loop().create_task(work))
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    async def _clean(self) -> None:
        """Compact logs, in a process of its own; that needs files which another process can open."""
        if self.config.log_cleaner_enable and isinstance(self._disk, OsDisk):
            from pessoa.log.cleaner import CleanerSettings
            from pessoa.log.cleaning_shell import LogCleaner

            settings = CleanerSettings(
                dedupe_buffer_size=self.config.log_cleaner_dedupe_buffer_size,
                io_buffer_load_factor=self.config.log_cleaner_io_buffer_load_factor,
                io_max_bytes_per_second=self.config.log_cleaner_io_max_bytes_per_second,
                backoff_ms=self.config.log_cleaner_backoff_ms,
            )
            await LogCleaner(self._disk, self._directories, self._clock, settings).run()

    # Following the metadata.

    def _on_metadata(self, delta: MetadataDelta) -> None:
        image = delta.new
        self.services.image = image
        self.services.replicas.apply(image, delta.changed_topics, delta.deleted_topics, self._clock.now_ms())
        topics = [name for kind, name in delta.changed_configs if kind == ConfigResource.TOPIC]
        if any(kind == ConfigResource.BROKER for kind, _ in delta.changed_configs):
            self._reconfigure()
            topics = list(self.services.replicas.by_name)
        self.services.replicas.reconfigure(topics)
        self._coordination.publish(delta)

    def _reconfigure(self) -> None:
        configs = self.services.image.configs
        self.config = self.services.config = self.config.with_overrides(
            configs.of(ConfigResource.BROKER, ""), configs.of(ConfigResource.BROKER, str(self.config.node_id))
        )

    def _config_of(self, topic: str) -> LogConfig:
        return log_config(self._publisher.image.configs.of(ConfigResource.TOPIC, topic), self.config)

    # Stopping.

    async def stop(self) -> None:
        """In order: nothing that was acknowledged is lost, and the next start is quick."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._is_assembled:
            for partition in self.services.replicas.all():
                partition.wake_all()
        for listener in self._listeners:
            await listener.__aexit__()
        if self._is_assembled:
            self._coordination.close()
        if self._registration is not None and not self.failed.done():
            await self._registration.leave()
        if self._quorum is not None:
            await self._quorum.close()
        for directory in self._directories:
            if directory.offline is None and directory.is_open:
                try:
                    directory.close(self._registration.broker_epoch if self._registration is not None else -1)
                except DirectoryOffline as problem:
                    log.error("%s could not be closed in order: %s", directory.path, problem.__cause__)  # noqa: TRY400
            directory.release()

    # Failing.

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())

    def _fail(self, error: BaseException | None) -> None:
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)


def _upkeep_settings(config: BrokerConfig) -> UpkeepSettings:
    return UpkeepSettings(
        log_retention_check_interval_ms=config.log_retention_check_interval_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        log_flush_offset_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
    )

"""The broker of a node: what its handlers work with, and how it follows the metadata.

It is complete before it is registered: it leads and follows nothing until `publisher.go_live`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pessoa.base.entropy import positive_int32
from pessoa.broker.fetch_sessions import FetchSessions
from pessoa.broker.listed_brokers import ListedBrokers
from pessoa.broker.live_config import changes_brokers
from pessoa.broker.quorum_reach import wait_until_majority_is_gone
from pessoa.broker.registration import Registration
from pessoa.broker.services import BrokerServices
from pessoa.log.upkeep import LONGEST_FLUSH_CHECK_MS, Upkeep, UpkeepSettings
from pessoa.metadata.image import ConfigResource
from pessoa.replication.local_replicas import LocalReplicas
from pessoa.replication.replication_settings import ReplicationSettings
from pessoa.wire.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pessoa.wire.request_context import OwnRequest

if TYPE_CHECKING:
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.directory_assignments import DirectoryAssignments
    from pessoa.broker.stages.cluster_member import ClusterMember
    from pessoa.broker.stages.log_directories import LogDirectories
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.broker.stages.node_listeners import NodeListeners
    from pessoa.broker.throttling import Throttling
    from pessoa.log.directory import LogDirectory
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.net.channel import Channel
    from pessoa.quota.precedence import Configured
    from pessoa.wire.api.alter_partition import TopicData


class BrokerRole:
    """The broker of a node. `listeners` are those of clients and of other brokers."""

    def __init__(
        self, node: NodeContext, directories: LogDirectories, member: ClusterMember, listeners: NodeListeners
    ) -> None:
        self._node = node
        self._directories = directories
        self._controller = member.controller_client
        self.registration = self._make_registration(member, listeners)
        self.upkeep = Upkeep(
            node.disk, directories.all, node.clock, node.flusher, _upkeep_settings(node.config.current)
        )
        self.services = self._make_services(member, listeners)
        self._throttling: Throttling | None = None
        self._client_connections = listeners.shares.client_quota
        # None on a broker with one directory: the controller assigns that one by itself.
        self._assignments = self._make_assignments() if len(directories.all) > 1 else None
        member.quorum.on_leadership.append(lambda _: self.registration.hurry())
        member.controller_client.on_heartbeats_lost = self.registration.hurry
        listeners.watch_closed(lambda connection: self.services.coordinators.note_connection_closed(connection.id))
        node.config.on_change.append(self._configure)
        node.publisher.subscribers.append(self._on_metadata)

    def __repr__(self) -> str:
        return f"<BrokerRole: {self.registration!r}, {self.services.image!r}>"

    async def close(self) -> None:
        self.services.coordinators.close()
        if not self._node.failed.done():
            await self.registration.leave()
        if self._assignments is not None:
            await self._assignments.close()
        await self.services.replicas.close()
        self.services.peers.close()
        self._directories.broker_epoch = self.registration.broker_epoch

    def abandon(self) -> None:
        self.services.peers.close()

    # Building.

    def _make_registration(self, member: ClusterMember, listeners: NodeListeners) -> Registration:
        node, directories, config = self._node, self._directories, self._node.config.current
        return Registration(
            config,
            directories.cluster_id,
            member.controller_client,
            node.progress,
            node.clock,
            node.incarnation_id,
            listeners.advertised,
            directories.ids,
            directories.offline_ids,
            directories.previous_broker_epoch,
            partial(wait_until_majority_is_gone, config.node_id, member.quorum, node.network, node.clock),
        )

    def _make_services(self, member: ClusterMember, listeners: NodeListeners) -> BrokerServices:
        node, config = self._node, self._node.config.current
        return BrokerServices(
            node_id=config.node_id,
            cluster_id=self._directories.cluster_id,
            config=config,
            clock=node.clock,
            image=node.publisher.image,
            replicas=self._make_replicas(),
            fetch_sessions=FetchSessions(
                partial(positive_int32, node.entropy), config.max_incremental_fetch_session_cache_slots
            ),
            controller=member.controller_client,
            quorum=member.quorum,
            flusher=node.flusher,
            network=node.broker_network,
            new_uuid=node.new_uuid,
            random_below=node.random_below,
            entropy=node.entropy,
            listed_brokers=ListedBrokers(config.node_id, config.broker_session_timeout_ms, node.clock.monotonic_ms()),
            broker_epoch=self._broker_epoch,
            progress=node.progress,
            is_out_of_touch=self.registration.is_out_of_touch,
            unread_bytes=listeners.unread_bytes,
            store_problem=node.tls.problem,
            authorizer=node.authorizer,
        )

    def _make_replicas(self) -> LocalReplicas:
        node, config = self._node, self._node.config.current
        replicas = LocalReplicas(
            config.node_id,
            self._directories.all,
            self.upkeep,
            node.config.of_topic,
            node.new_uuid,
            clock=node.clock,
            flusher=node.flusher,
            settings=ReplicationSettings.of(config),
            broker_epoch=self._broker_epoch,
            channel_to=self._fetcher_channel,
            alter_partition=self._alter_partition,
        )
        replicas.on_directory_offline.append(self._on_directory_offline)
        return replicas

    def _make_assignments(self) -> DirectoryAssignments:
        from pessoa.broker.directory_assignments import DirectoryAssignments

        assignments = DirectoryAssignments(self.services, self._controller, self._broker_epoch)
        replicas = self.services.replicas
        replicas.moves.on_moved.append(lambda partition: assignments.update([partition.topic_id]))
        replicas.on_created.append(lambda topic_id: assignments.update([topic_id]))
        return assignments

    # What replication needs of others.

    def _broker_epoch(self) -> int:
        return self.registration.broker_epoch

    def _fetcher_channel(self, broker_id: int) -> Channel | None:
        return self.services.peers.new_channel_to(broker_id, "fetcher")

    async def _alter_partition(self, topics: list[TopicData]) -> AlterPartitionResponse:
        config = self._node.config.current
        request = AlterPartitionRequest(broker_id=config.node_id, broker_epoch=self._broker_epoch(), topics=topics)
        caller = OwnRequest(request.versions.last)
        response = await self._controller.ask(request, caller, config.request_timeout_ms)
        assert isinstance(response, AlterPartitionResponse)
        return response

    def _on_directory_offline(self, directory: LogDirectory) -> None:
        """Report a failed directory, so that the controller elects other leaders for its replicas; the node fails with
        its last directory."""
        self.registration.hurry()
        if self._directories.are_all_offline:
            self._node.fail(directory.offline)

    # Following the metadata.

    def _on_metadata(self, delta: MetadataDelta) -> None:
        services = self.services
        services.image = delta.new
        services.listed_brokers.follow(delta.cluster, self._node.clock.monotonic_ms())
        services.replicas.apply(delta.new, delta.changed_topics, delta.deleted_topics)
        self._node.config.follow(delta)
        topics = [name for kind, name in delta.changed_configs if kind == ConfigResource.TOPIC]
        services.replicas.reconfigure(list(services.replicas.by_name) if changes_brokers(delta) else topics)
        services.coordinators.publish(delta)
        if delta.quotas.changed:
            self._follow_quotas(delta.new.quotas.by_entity)
        if self._assignments is not None:
            self._assignments.update(delta.changed_topics)
        self._hurry_for_stopping_brokers(delta)

    def _follow_quotas(self, configured: Configured) -> None:
        if self._throttling is None:
            # Most clusters have no quotas.
            from pessoa.broker.throttling import Throttling, quota_windows

            node, config = self._node, self._node.config.current
            self._throttling = Throttling(node.clock, quota_windows(config), config.inter_broker_listener_name)
        self.services.throttling = self._throttling.follow(configured)
        self._client_connections.hold_ms = self._throttling.follow_addresses(configured)

    def _hurry_for_stopping_brokers(self, delta: MetadataDelta) -> None:
        """Send a heartbeat at once if another broker begins a controlled shutdown: it waits until the heartbeats of all
        others show that they have read of it."""
        for broker in delta.cluster.changed_brokers.values():
            if broker is not None and broker.in_controlled_shutdown and broker.id != self.services.node_id:
                self.registration.hurry()

    def _configure(self, config: BrokerConfig) -> None:
        self.services.config = config
        self.services.replicas.configure(ReplicationSettings.of(config))
        self.services.coordinators.reconfigure()


def _upkeep_settings(config: BrokerConfig) -> UpkeepSettings:
    return UpkeepSettings(
        log_retention_check_interval_ms=config.log_retention_check_interval_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        log_flush_scheduler_interval_ms=min(max(1, config.log_flush_scheduler_interval_ms), LONGEST_FLUSH_CHECK_MS),
        # One file follows the other, so the shorter interval holds for both.
        log_flush_offset_checkpoint_interval_ms=max(
            1,
            min(config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms),
        ),
        log_initial_task_delay_ms=config.log_initial_task_delay_ms,
    )

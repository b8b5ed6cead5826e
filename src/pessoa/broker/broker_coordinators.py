"""The coordinators of a broker: created at their first use, called with changes of leadership and metadata, and closed.

A coordinator is where the leader of its partition is. So whenever this broker begins or ceases to lead a partition of
`__consumer_offsets`, `__transaction_state` or `__share_group_state`, the coordinator of that topic loads or drops the
shard.

Most of what a coordinator needs to know takes long to import, and a broker that has just started coordinates nothing.
So each is built at its first use: a request for it, or the first partition that this broker leads.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from pessoa.broker.authorization import may
from pessoa.broker.coordinator_topics import coordinator_topic
from pessoa.security.acl import DESCRIBE, TOPIC
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from pessoa.wire.request_context import OwnRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.ids import Uuid
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.internal_topic_log import InternalTopicLog
    from pessoa.broker.peers import Peers
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.share.share_partitions import SharePartitions
    from pessoa.broker.share.share_state_pruner import ShareStatePruner
    from pessoa.broker.share.state_persister import StatePersister
    from pessoa.coordinator.group_coordinator import GroupConfigs, GroupCoordinator
    from pessoa.coordinator.share.share_coordinator import ShareCoordinator
    from pessoa.coordinator.transactions.transaction_config import TransactionConfig
    from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from pessoa.coordinator.transactions.verification import Verifier
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
    from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsResponse

_VERIFICATION = "txn-verification"


class BrokerCoordinators:
    def __init__(self, broker: BrokerServices, peers: Peers, new_uuid: Callable[[], Uuid]) -> None:
        self._broker = broker
        self._peers = peers
        self._new_uuid = new_uuid
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._verifier: Verifier | None = None
        self._shares: ShareCoordinator | None = None
        self._pruner: ShareStatePruner | None = None
        self._persister: StatePersister | None = None
        self._share_partitions: SharePartitions | None = None
        broker.replicas.on_leadership.append(self._on_leadership)

    def __repr__(self) -> str:
        return f"<BrokerCoordinators: {self._groups!r}, {self._transactions!r}>"

    @property
    def groups(self) -> GroupCoordinator:
        if self._groups is None:
            self._groups = self._build_groups()
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinator:
        if self._transactions is None:
            self._transactions = self._build_transactions()
        return self._transactions

    @property
    def verifier(self) -> Verifier:
        if self._verifier is None:
            self._verifier = self._build_verifier()
        return self._verifier

    @property
    def shares(self) -> ShareCoordinator:
        if self._shares is None:
            self._shares = self._build_shares()
        return self._shares

    @property
    def persister(self) -> StatePersister:
        """The client of the share coordinators, which may be on other brokers."""
        if self._persister is None:
            from pessoa.broker.share.state_persister import StatePersister

            self._persister = StatePersister(self._broker, self._peers)
        return self._persister

    @property
    def share_partitions(self) -> SharePartitions:
        """The share partitions of the partitions that this broker leads."""
        if self._share_partitions is None:
            from pessoa.broker.share.share_partitions import SharePartitions

            self._share_partitions = SharePartitions(self._broker, self.persister)
        return self._share_partitions

    # As the properties above, for metrics, which must not create them: None before their first use.

    @property
    def existing_groups(self) -> GroupCoordinator | None:
        return self._groups

    @property
    def existing_transactions(self) -> TransactionCoordinator | None:
        return self._transactions

    @property
    def existing_shares(self) -> ShareCoordinator | None:
        return self._shares

    @property
    def existing_share_partitions(self) -> SharePartitions | None:
        return self._share_partitions

    # Building.

    def _build_groups(self) -> GroupCoordinator:
        from pessoa.broker.share.latest_offsets import latest_offsets
        from pessoa.broker.topic_requests import create_streams_topics
        from pessoa.coordinator.group_coordinator import FeatureLevels, GroupCoordinator
        from pessoa.metadata.supported_features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
        from pessoa.records.compression import Codec

        broker, config = self._broker, self._broker.config
        return GroupCoordinator(
            _group_configs(config),
            self._log_of(GROUP_TOPIC),
            broker.clock,
            broker.image,
            new_uuid=self._new_uuid,
            write_timeout_ms=config.offsets_commit_timeout_ms,
            codec=Codec(config.offsets_topic_compression_codec),
            levels=FeatureLevels(
                groups=lambda: broker.image.features.level(GROUP_VERSION),
                share=lambda: broker.image.features.level(SHARE_VERSION),
                streams=lambda: broker.image.features.level(STREAMS_VERSION),
            ),
            may_describe=lambda member, topic: may(broker, member, DESCRIBE, TOPIC, topic, quietly=True),
            persister=self.persister,
            latest_offsets=lambda partitions: latest_offsets(broker, self._peers, partitions),
            create_topics=lambda topics, member: create_streams_topics(broker, topics, member),
        )

    def _log_of(self, topic: str) -> InternalTopicLog:
        from pessoa.broker.internal_topic_log import InternalTopicLog

        row = coordinator_topic(topic, self._broker.config)
        assert row is not None
        return InternalTopicLog(self._broker, topic, row.partition_count, row.load_buffer_bytes)

    def _build_transactions(self) -> TransactionCoordinator:
        from pessoa.broker.transaction_markers import Markers
        from pessoa.coordinator.partitioning import partition_for
        from pessoa.coordinator.transactions.producer_id_pool import ProducerIdPool
        from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
        from pessoa.metadata.supported_features import TRANSACTION_VERSION

        broker = self._broker
        group_log = self._log_of(GROUP_TOPIC)
        return TransactionCoordinator(
            self._transaction_config(),
            self._log_of(TRANSACTION_TOPIC),
            broker.clock,
            broker.image,
            ProducerIdPool(self._allocate_producer_ids, broker.clock),
            Markers(broker, self._peers),
            lambda: broker.image.features.level(TRANSACTION_VERSION),
            lambda group: partition_for(group, group_log.partition_count()),
        )

    def _build_shares(self) -> ShareCoordinator:
        from pessoa.broker.share.share_state_pruner import ShareStatePruner
        from pessoa.coordinator.share.share_config import ShareCoordinatorConfig
        from pessoa.coordinator.share.share_coordinator import ShareCoordinator
        from pessoa.records.compression import Codec

        broker, config = self._broker, self._broker.config
        coordinator = ShareCoordinator(
            ShareCoordinatorConfig(
                share_coordinator_snapshot_update_records_per_snapshot=(
                    config.share_coordinator_snapshot_update_records_per_snapshot
                ),
                share_coordinator_cold_partition_snapshot_interval_ms=(
                    config.share_coordinator_cold_partition_snapshot_interval_ms
                ),
                share_coordinator_write_timeout_ms=config.share_coordinator_write_timeout_ms,
            ),
            self._log_of(SHARE_TOPIC),
            broker.clock,
            broker.image,
            Codec(config.share_coordinator_state_topic_compression_codec),
        )
        self._pruner = ShareStatePruner(broker, coordinator)
        return coordinator

    def _build_verifier(self) -> Verifier:
        from pessoa.coordinator.transactions.verification import Verifier

        return Verifier(self._add_partitions, self._broker.clock, self._transaction_config())

    def _transaction_config(self) -> TransactionConfig:
        from pessoa.coordinator.transactions.transaction_config import TransactionConfig

        config = self._broker.config
        return TransactionConfig(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            transaction_remove_expired_transaction_cleanup_interval_ms=(
                config.transaction_remove_expired_transaction_cleanup_interval_ms
            ),
            transaction_abort_timed_out_transaction_cleanup_interval_ms=(
                config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            ),
            add_partitions_to_txn_retry_backoff_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
            add_partitions_to_txn_retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
        )

    # Following.

    def publish(self, delta: MetadataDelta) -> None:
        for coordinator in (self._groups, self._transactions, self._shares):
            if coordinator is not None:
                coordinator.publish(delta.new, delta)
        if self._share_partitions is not None:
            self._share_partitions.publish(delta.new)

    def reconfigure(self) -> None:
        """Give the changed configuration of the broker to the coordinators."""
        if self._groups is not None:
            self._groups.configure(_group_configs(self._broker.config))

    def note_connection_closed(self, connection_id: int) -> None:
        if self._share_partitions is not None:
            self._share_partitions.disconnect(connection_id)

    def close(self) -> None:
        for one in (self._share_partitions, self._groups, self._transactions, self._pruner, self._shares):
            if one is not None:
                one.close()

    def _on_leadership(self, partition: Partition) -> None:
        if self._share_partitions is not None:
            self._share_partitions.on_leadership(partition)
        coordinator = self._coordinator_of(partition)
        if coordinator is None:
            return
        if partition.is_leader:
            coordinator.elect(partition.index, partition.leader_epoch)
        else:
            coordinator.resign(partition.index, partition.leader_epoch if partition.leader_id >= 0 else None)

    def _coordinator_of(
        self, partition: Partition
    ) -> GroupCoordinator | TransactionCoordinator | ShareCoordinator | None:
        """Return the coordinator whose state is in this partition; None if there is none, or it was not created so
        far."""
        is_leader = partition.is_leader
        if partition.topic == GROUP_TOPIC:
            return self.groups if is_leader else self._groups
        if partition.topic == TRANSACTION_TOPIC:
            return self.transactions if is_leader else self._transactions
        if partition.topic == SHARE_TOPIC:
            return self.shares if is_leader else self._shares
        return None

    # What the coordinators need of others.

    async def _allocate_producer_ids(self) -> AllocateProducerIdsResponse:
        from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch())
        response = await self._broker.controller.submit(request, OwnRequest(0))
        return cast("AllocateProducerIdsResponse", response)

    async def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Send the request to the coordinator of the transactional id: the leader of its partition of
        `__transaction_state`."""
        from pessoa.coordinator.partitioning import partition_for
        from pessoa.net.channel import ChannelFailed

        broker = self._broker
        (transaction,) = request.transactions
        topic = broker.image.topics.by_name.get(TRANSACTION_TOPIC)
        if topic is None:
            return _error_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[partition_for(transaction.transactional_id, len(topic.partitions))].leader
        newest = request.versions.last
        if leader == broker.node_id:
            answer = broker.transactions.add_partitions(request, OwnRequest(newest))
            response = await answer if isinstance(answer, Awaitable) else answer
            return cast("AddPartitionsToTxnResponse", response)
        channel = self._peers.channel_to(leader, _VERIFICATION)
        if channel is None:
            return _error_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            answer = await channel.send(request, newest, broker.config.request_timeout_ms)
        except ChannelFailed:
            return _error_response(ErrorCode.NETWORK_EXCEPTION)
        return cast("AddPartitionsToTxnResponse", answer)


def _group_configs(config: BrokerConfig) -> GroupConfigs:
    from pessoa.broker.group_settings import group_config, share_group_config, streams_group_config
    from pessoa.coordinator.group_coordinator import GroupConfigs

    return GroupConfigs(group_config(config), share_group_config(config), streams_group_config(config))


def _error_response(code: ErrorCode) -> AddPartitionsToTxnResponse:
    from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnResponse

    return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=code)

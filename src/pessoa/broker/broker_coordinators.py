"""The coordinators of a broker: made when they are needed, told of leadership and metadata, and closed.

A coordinator is where the leader of its partition is. So whenever this broker begins or ceases to lead a partition of
`__consumer_offsets` or `__transaction_state`, the coordinator of that topic loads or drops the shard.

Most of what a coordinator needs to know takes long to import, and a broker that has just started coordinates nothing.
So each is built at its first use: a request for it, or the first partition that this broker leads.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from pessoa.broker.authorization import may
from pessoa.broker.topic_listing import GROUP_TOPIC, TRANSACTION_TOPIC
from pessoa.security.acl import DESCRIBE, TOPIC
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.ids import Uuid
    from pessoa.broker.internal_topic_log import InternalTopicLog
    from pessoa.broker.peers import Peers
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.group_coordinator import GroupCoordinator
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

    # Building.

    def _build_groups(self) -> GroupCoordinator:
        from pessoa.broker.group_settings import group_config
        from pessoa.coordinator.group_coordinator import GroupCoordinator
        from pessoa.metadata.supported_features import GROUP_VERSION
        from pessoa.records.compression import Codec

        broker, config = self._broker, self._broker.config
        return GroupCoordinator(
            group_config(config),
            self._group_log(),
            broker.clock,
            broker.image,
            self._new_uuid,
            config.offsets_commit_timeout_ms,
            Codec(config.offsets_topic_compression_codec),
            lambda: broker.image.features.level(GROUP_VERSION),
            lambda member, topic: may(broker, member, DESCRIBE, TOPIC, topic, quietly=True),
        )

    def _group_log(self) -> InternalTopicLog:
        from pessoa.broker.internal_topic_log import InternalTopicLog

        config = self._broker.config
        return InternalTopicLog(
            self._broker, GROUP_TOPIC, config.offsets_topic_num_partitions, config.offsets_load_buffer_size
        )

    def _build_transactions(self) -> TransactionCoordinator:
        from pessoa.broker.internal_topic_log import InternalTopicLog
        from pessoa.broker.transaction_markers import Markers
        from pessoa.coordinator.partitioning import partition_for
        from pessoa.coordinator.transactions.producer_id_pool import ProducerIdPool
        from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
        from pessoa.metadata.supported_features import TRANSACTION_VERSION

        broker, config = self._broker, self._broker.config
        group_log = self._group_log()
        return TransactionCoordinator(
            self._transaction_config(),
            InternalTopicLog(
                broker,
                TRANSACTION_TOPIC,
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_load_buffer_size,
            ),
            broker.clock,
            broker.image,
            ProducerIdPool(self._allocate_producer_ids, broker.clock),
            Markers(broker, self._peers),
            lambda: broker.image.features.level(TRANSACTION_VERSION),
            lambda group: partition_for(group, group_log.partition_count()),
        )

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
        if self._groups is not None:
            self._groups.publish(delta.new, delta)
        if self._transactions is not None:
            self._transactions.publish(delta.new, delta)

    def reconfigure(self) -> None:
        """The broker's configuration has changed."""
        if self._groups is not None:
            from pessoa.broker.group_settings import group_config

            self._groups.configure(group_config(self._broker.config))

    def close(self) -> None:
        if self._groups is not None:
            self._groups.close()
        if self._transactions is not None:
            self._transactions.close()

    def _on_leadership(self, partition: Partition) -> None:
        if partition.topic not in (GROUP_TOPIC, TRANSACTION_TOPIC):
            return
        is_group = partition.topic == GROUP_TOPIC
        coordinator: GroupCoordinator | TransactionCoordinator | None
        if partition.is_leader:
            coordinator = self.groups if is_group else self.transactions
            coordinator.elect(partition.index, partition.leader_epoch)
        elif (coordinator := self._groups if is_group else self._transactions) is not None:
            coordinator.resign(partition.index, partition.leader_epoch if partition.leader_id >= 0 else None)

    # What the coordinators need of others.

    async def _allocate_producer_ids(self) -> AllocateProducerIdsResponse:
        from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch())
        response = await self._broker.controller.submit(request, OwnRequest(0))
        return cast("AllocateProducerIdsResponse", response)

    async def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Ask the coordinator of the transactional id, which is where its partition is led."""
        from pessoa.coordinator.partitioning import partition_for
        from pessoa.net.channel import ChannelFailed

        broker = self._broker
        (transaction,) = request.transactions
        topic = broker.image.topics.by_name.get(TRANSACTION_TOPIC)
        if topic is None:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[partition_for(transaction.transactional_id, len(topic.partitions))].leader
        newest = request.versions.last
        if leader == broker.node_id:
            answer = broker.transactions.add_partitions(request, OwnRequest(newest))
            response = await answer if isinstance(answer, Awaitable) else answer
            return cast("AddPartitionsToTxnResponse", response)
        channel = self._peers.channel_to(leader, _VERIFICATION)
        if channel is None:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            answer = await channel.send(request, newest, broker.config.request_timeout_ms)
        except ChannelFailed:
            return _refused(ErrorCode.NETWORK_EXCEPTION)
        return cast("AddPartitionsToTxnResponse", answer)


def _refused(code: ErrorCode) -> AddPartitionsToTxnResponse:
    from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnResponse

    return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=code)

"""The coordinators of a broker: made when they are needed, told of leadership and metadata, and closed.

A coordinator is where the leader of its partition is. So whenever this broker begins or ceases to lead a partition of
`__consumer_offsets` or `__transaction_state`, the coordinator of that topic loads or drops the shard.

Most of what a coordinator needs to know takes long to import, and a broker that has just started coordinates nothing.
So each is built at its first use: a request for it, or the first partition that this broker leads.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from pessoa.broker.context import OwnRequest
from pessoa.broker.topic_listing import GROUP_TOPIC, TRANSACTION_TOPIC
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.ids import Uuid
    from pessoa.broker.peers import Peers
    from pessoa.broker.registration import Registration
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.group_coordinator import GroupCoordinator
    from pessoa.coordinator.transactions.config import TransactionConfig
    from pessoa.coordinator.transactions.coordinator import TransactionCoordinator
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
    from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsResponse

_VERIFICATION = "txn-verification"


class _AtFirstUse:
    """Stands where a coordinator will stand; whoever reaches for it has it built."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def __getattr__(self, name: str) -> Any:
        return getattr(self._build(), name)


class Coordination:
    def __init__(self, broker: BrokerServices, peers: Peers, new_uuid: Callable[[], Uuid]) -> None:
        self.registration: Registration | None = None
        self._broker = broker
        self._peers = peers
        self._new_uuid = new_uuid
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        broker.groups = _AtFirstUse(self._build_groups)
        broker.transactions = _AtFirstUse(self._build_transactions)
        broker.verifier = _AtFirstUse(self._build_verifier)
        broker.replicas.on_leadership.append(self._on_leadership)

    def __repr__(self) -> str:
        return f"<Coordination: {self._groups!r}, {self._transactions!r}>"

    # Building.

    def _build_groups(self) -> GroupCoordinator:
        if self._groups is not None:
            return self._groups
        from pessoa.broker.coordinator_logs import InternalTopicLog
        from pessoa.broker.group_settings import group_config
        from pessoa.coordinator.group_coordinator import GroupCoordinator
        from pessoa.records.compression import Codec

        broker, config = self._broker, self._broker.config
        topic = InternalTopicLog(broker, GROUP_TOPIC, config.offsets_topic_num_partitions)
        built = GroupCoordinator(
            group_config(config),
            topic,
            broker.clock,
            broker.image,
            self._new_uuid,
            config.offsets_commit_timeout_ms,
            Codec(config.offsets_topic_compression_codec),
        )
        broker.groups = self._groups = built
        return built

    def _build_transactions(self) -> TransactionCoordinator:
        if self._transactions is not None:
            return self._transactions
        from pessoa.broker.coordinator_logs import InternalTopicLog
        from pessoa.broker.transaction_markers import Markers
        from pessoa.coordinator.partitioning import partition_for
        from pessoa.coordinator.transactions.coordinator import TransactionCoordinator
        from pessoa.coordinator.transactions.producer_ids import ProducerIds
        from pessoa.metadata.features import TRANSACTION_VERSION

        broker, config = self._broker, self._broker.config
        group_log = InternalTopicLog(broker, GROUP_TOPIC, config.offsets_topic_num_partitions)
        built = TransactionCoordinator(
            self._transaction_config(),
            InternalTopicLog(broker, TRANSACTION_TOPIC, config.transaction_state_log_num_partitions),
            broker.clock,
            broker.image,
            ProducerIds(self._allocate_producer_ids, broker.clock),
            Markers(broker, self._peers),
            lambda: broker.image.features.level(TRANSACTION_VERSION),
            lambda group: partition_for(group, group_log.partition_count()),
        )
        broker.transactions = self._transactions = built
        return built

    def _build_verifier(self) -> Any:
        from pessoa.coordinator.transactions.verification import Verifier

        built = self._broker.verifier = Verifier(self._add_partitions, self._broker.clock, self._transaction_config())
        return built

    def _transaction_config(self) -> TransactionConfig:
        from pessoa.coordinator.transactions.config import TransactionConfig

        config = self._broker.config
        return TransactionConfig(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
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
            coordinator = self._build_groups() if is_group else self._build_transactions()
            coordinator.elect(partition.index, partition.leader_epoch)
        elif (coordinator := self._groups if is_group else self._transactions) is not None:
            coordinator.resign(partition.index, partition.leader_epoch if partition.leader_id >= 0 else None)

    # What the coordinators need of others.

    async def _allocate_producer_ids(self) -> AllocateProducerIdsResponse:
        from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest

        epoch = self.registration.broker_epoch if self.registration is not None else -1
        request = AllocateProducerIdsRequest(broker_id=self._broker.node_id, broker_epoch=epoch)
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
            answer = broker.transactions.submit(request, OwnRequest(newest))
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

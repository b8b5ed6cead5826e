"""The coordinators of a broker: made, told of leadership and metadata, and closed.

A coordinator is where the leader of its partition is. So whenever this broker begins or ceases to lead a partition of
`__consumer_offsets` or `__transaction_state`, the coordinator of that topic loads or drops the shard.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple, cast

from pessoa.broker.coordinator_logs import InternalTopicLog
from pessoa.broker.group_settings import group_config
from pessoa.broker.topic_listing import GROUP_TOPIC, TRANSACTION_TOPIC
from pessoa.broker.transaction_markers import LocalMarkers
from pessoa.coordinator.group_coordinator import GroupCoordinator
from pessoa.coordinator.partitioning import partition_for
from pessoa.coordinator.transactions.config import TransactionConfig
from pessoa.coordinator.transactions.coordinator import TransactionCoordinator
from pessoa.coordinator.transactions.producer_ids import ProducerIds
from pessoa.coordinator.transactions.verification import Verifier
from pessoa.metadata.features import TRANSACTION_VERSION
from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.ids import Uuid
    from pessoa.broker.registration import Registration
    from pessoa.broker.services import BrokerServices
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.replication.partition import Partition


class _Ourselves(NamedTuple):
    """The context of what this broker asks for itself."""

    version: int
    client_id: str | None = None
    client_host: str = ""
    principal: str = "User:ANONYMOUS"


class Coordination:
    def __init__(self, broker: BrokerServices, new_uuid: Callable[[], Uuid]) -> None:
        config = broker.config
        self._broker = broker
        self.registration: Registration | None = None
        self._group_log = InternalTopicLog(broker, GROUP_TOPIC, config.offsets_topic_num_partitions)
        self.groups = GroupCoordinator(group_config(config), self._group_log, broker.clock, broker.image, new_uuid)
        self.groups.runtime.write_timeout_ms = config.offsets_commit_timeout_ms
        broker.groups = self.groups
        settings = TransactionConfig(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        )
        self.transactions = TransactionCoordinator(
            settings,
            InternalTopicLog(broker, TRANSACTION_TOPIC, config.transaction_state_log_num_partitions),
            broker.clock,
            broker.image,
            ProducerIds(self._allocate_producer_ids, broker.clock),
            LocalMarkers(broker),
            lambda: broker.image.features.level(TRANSACTION_VERSION),
            lambda group: partition_for(group, self._group_log.partition_count()),
        )
        broker.transactions = self.transactions
        broker.verifier = Verifier(self._add_partitions, broker.clock, settings)
        broker.replicas.on_leadership.append(self._on_leadership)

    def publish(self, delta: MetadataDelta) -> None:
        self.groups.publish(delta.new, delta)
        self.transactions.publish(delta.new, delta)

    def close(self) -> None:
        self.groups.close()
        self.transactions.close()

    def _on_leadership(self, partition: Partition) -> None:
        coordinator: GroupCoordinator | TransactionCoordinator
        if partition.topic == GROUP_TOPIC:
            coordinator = self.groups
        elif partition.topic == TRANSACTION_TOPIC:
            coordinator = self.transactions
        else:
            return
        if partition.is_leader:
            coordinator.elect(partition.index, partition.leader_epoch)
        else:
            coordinator.resign(partition.index, partition.leader_epoch if partition.leader_id >= 0 else None)

    async def _allocate_producer_ids(self) -> AllocateProducerIdsResponse:
        epoch = self.registration.broker_epoch if self.registration is not None else -1
        request = AllocateProducerIdsRequest(broker_id=self._broker.node_id, broker_epoch=epoch)
        response = await self._broker.controller.submit(request, _Ourselves(0))
        assert isinstance(response, AllocateProducerIdsResponse)
        return response

    async def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        answer = self.transactions.submit(request, _Ourselves(AddPartitionsToTxnRequest.versions.last))
        response = await answer if isinstance(answer, Awaitable) else answer
        return cast("AddPartitionsToTxnResponse", response)

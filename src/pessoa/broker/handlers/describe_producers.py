"""DescribeProducers: the producers that a partition's leader remembers, and their open transactions (KIP-664).

Who asks for a partition several times gets one answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices


def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = [
        TopicResponse(name=name, partitions=[_answer(broker, name, index) for index in indexes])
        for name, indexes in wanted.items()
    ]
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _answer(broker: BrokerServices, topic: str, index: int) -> PartitionResponse:
    partition = broker.replicas.get(topic, index)
    if partition is None:
        error = broker.replicas.why_missing(broker.image, topic, index)
        return PartitionResponse(partition_index=index, error_code=error, active_producers=[])
    if not partition.is_leader:
        return PartitionResponse(
            partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            )
            for entry in partition.log.producers.entries()
        ],
    )

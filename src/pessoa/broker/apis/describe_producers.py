"""DescribeProducers: the producers that a replica remembers, and their open transactions (KIP-664).

Followers answer as leaders do: an operator compares replicas, to find the one where a transaction hangs. A
partition that is named several times is answered once.

Authorised: READ on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, long_hash
from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names
from pessoa.security.acl import READ, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.broker.services import BrokerServices
    from pessoa.log.producer_entry import ProducerStateEntry
    from pessoa.log.producer_state import ProducerState as Producers
    from pessoa.wire.api.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        PartitionResponse,
    )
    from pessoa.wire.request_context import RequestContext


def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    from pessoa.wire.api.describe_producers import DescribeProducersResponse, TopicResponse

    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    denied = denied_names(broker, context, READ, TOPIC, wanted)
    topics = [
        TopicResponse(
            name=name,
            partitions=[
                _authorization_error(index) if name in denied else _answer(broker, name, index) for index in indexes
            ],
        )
        for name, indexes in wanted.items()
    ]
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _authorization_error(index: int) -> PartitionResponse:
    from pessoa.wire.api.describe_producers import PartitionResponse

    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return PartitionResponse(partition_index=index, error_code=error, active_producers=[])


def _answer(broker: BrokerServices, topic: str, index: int) -> PartitionResponse:
    from pessoa.wire.api.describe_producers import PartitionResponse, ProducerState

    partition = broker.replicas.ensure(topic, index)
    if partition is None:
        error = broker.replicas.why_missing(broker.image, topic, index)
        return PartitionResponse(partition_index=index, error_code=error, active_producers=[])
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
            for entry in _in_order(partition.log.producers)
        ],
    )


def _in_order(producers: Producers) -> Iterator[ProducerStateEntry]:
    """Yield the producers in the order in which Apache Kafka lists them."""
    by_id = {entry.producer_id: entry for entry in producers.entries()}
    return map(by_id.__getitem__, hash_order(by_id, long_hash))


ROW = ApiRow(
    ApiKey.DESCRIBE_PRODUCERS,
    "0",
    handle=handle,
)

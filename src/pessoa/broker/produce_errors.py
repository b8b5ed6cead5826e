"""What a Produce response says of batches that were refused, and of the leaders that take them (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.wire.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
)
from pessoa.wire.errors import ErrorCode, ProtocolViolation

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.records.invalid_batch import InvalidBatch
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.produce import TopicProduceResponse
    from pessoa.wire.request_context import RequestContext

# From this version on a broker that does not lead names the leader.
FIRST_VERSION_WITH_LEADERS = 10


def partition_error(index: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error, base_offset=-1, error_message=message)


def refused_records(index: int, refusal: InvalidBatch, log_start_offset: int) -> PartitionProduceResponse:
    """Return the error of a batch; if it names invalid records, also with the log start offset, as in Kafka."""
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.error,
        base_offset=-1,
        log_start_offset=log_start_offset if refusal.record_errors else -1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=one.batch_index, batch_index_error_message=one.message)
            for one in refusal.record_errors
        ],
        error_message=refusal.message,
    )


def missing_partition_error(
    broker: BrokerServices, name: str, index: int, unknown: ErrorCode | None, version: int, leaders: dict[int, None]
) -> PartitionProduceResponse:
    """Return the error for a partition that this broker has no replica of. Its leader, by the metadata, is added to
    `leaders`."""
    error = unknown or broker.replicas.why_missing(broker.image, name, index)
    if error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return partition_error(index, error)
    leader_id, leader_epoch = broker.replicas.leader_elsewhere(broker.image, name, index)
    leaders[leader_id] = None
    return _led_by(leader_id, leader_epoch, index, version)


def not_leader(partition: Partition, index: int, version: int) -> PartitionProduceResponse:
    return _led_by(partition.leader_id, partition.leader_epoch, index, version)


def _led_by(leader_id: int, leader_epoch: int, index: int, version: int) -> PartitionProduceResponse:
    response = partition_error(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if version >= FIRST_VERSION_WITH_LEADERS:
        response.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return response


def endpoints_of(broker: BrokerServices, context: RequestContext, leaders: dict[int, None]) -> list[NodeEndpoint]:
    """Return the addresses of the leaders that the response names, so that the client need not ask for metadata first
    (KIP-951)."""
    if context.version < FIRST_VERSION_WITH_LEADERS:
        return []
    return [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.nodes(context.listener)
        if node.id in leaders
    ]


def close_if_refused(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise ProtocolViolation(
                    f"a produce with acks=0 was refused for {topic.name}-{partition.index} "
                    f"({ErrorCode.of(partition.error_code).name}), and closing is the only way to say so"
                )

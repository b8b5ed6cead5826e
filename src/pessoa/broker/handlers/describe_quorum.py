"""DescribeQuorum: the state of the metadata quorum (KIP-836). v1: when replicas fetched last; v2: directories and
nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices

_METADATA_TOPIC = "__cluster_metadata"


def handle(broker: BrokerServices, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[_partition(broker, topic.topic_name, one.partition_index) for one in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=_nodes(broker),
    )


def _partition(broker: BrokerServices, topic: str, index: int) -> DescribeQuorumResponsePartitionData:
    quorum = broker.quorum
    if (topic, index) != (_METADATA_TOPIC, 0):
        return DescribeQuorumResponsePartitionData(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.text,
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
            current_voters=[],
            observers=[],
        )
    now_ms = broker.clock.now_ms()
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=voter,
                log_end_offset=quorum.log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            for voter in quorum.voters
        ],
        observers=[],
    )


def _nodes(broker: BrokerServices) -> list[Node]:
    names = broker.config.controller_listener_names
    listeners = [
        Listener(name=one.name, host=one.host, port=one.port)
        for one in broker.config.advertised_listeners
        if one.name in names
    ]
    return [Node(node_id=voter, listeners=listeners) for voter in broker.quorum.voters]

"""OffsetForLeaderEpoch: where does a leader epoch end in this leader's log? (KIP-101, KIP-320)

A follower or consumer that knows records of an epoch asks how far they are valid. v3 adds the replica id; v4 is
flexible.

Authorised: CLUSTER_ACTION for all topics, else DESCRIBE on each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, may_in_cluster
from pessoa.broker.slices import Sliced
from pessoa.security.acl import CLUSTER_ACTION, DESCRIBE, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.offset_for_leader_epoch import (
        EpochEndOffset,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderPartition,
    )
    from pessoa.wire.request_context import RequestContext


def handle(
    broker: BrokerServices, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    from pessoa.wire.api.offset_for_leader_epoch import OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult

    denied: frozenset[str] = frozenset()
    if not may_in_cluster(broker, context, CLUSTER_ACTION, quietly=True):
        denied = denied_names(broker, context, DESCRIBE, TOPIC, (topic.topic for topic in request.topics))
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                _authorization_error(wanted) if topic.topic in denied else _answer(broker, topic.topic, wanted)
                for wanted in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _authorization_error(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    from pessoa.wire.api.offset_for_leader_epoch import EpochEndOffset

    return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=wanted.partition)


def _answer(broker: BrokerServices, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    from pessoa.wire.api.offset_for_leader_epoch import EpochEndOffset

    partition = broker.replicas.ensure(topic, wanted.partition)
    if partition is None:
        error = broker.replicas.why_missing(broker.image, topic, wanted.partition)
    elif partition.is_offline:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    elif not partition.is_leader:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        error = partition.check_epoch(wanted.current_leader_epoch)
    if partition is None or error is not ErrorCode.NONE:
        return EpochEndOffset(error_code=error, partition=wanted.partition)
    found = partition.end_offset_for(wanted.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=found.epoch,
        end_offset=found.end_offset,
    )


ROW = ApiRow(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    "2-4",
    handle=handle,
    sliced=Sliced("topics", "topics", within=("partitions", "partitions")),
)

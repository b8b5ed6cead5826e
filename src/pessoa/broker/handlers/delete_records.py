"""DeleteRecords: move the log start offset of partitions up (KIP-107). -1 stands for the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.log.files import DiskError
from pessoa.log.partition_log import OffsetOutOfRange
from pessoa.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices

_HIGH_WATERMARK = -1
_NONE_LEFT = -1


def handle(broker: BrokerServices, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name, partitions=[_delete(broker, topic.name, wanted) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _delete(broker: BrokerServices, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    low_watermark, error = _NONE_LEFT, ErrorCode.NONE
    partition = broker.replicas.get(topic, wanted.partition_index)
    if partition is None:
        error = broker.replicas.why_missing(broker.image, topic, wanted.partition_index)
    elif not partition.is_leader:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif not partition.log.config.is_deleted:
        # A compacted topic keeps the last value of every key: somebody relies on that.
        error = ErrorCode.POLICY_VIOLATION
    else:
        log = partition.log
        try:
            low_watermark = log.delete_records_before(
                log.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
            )
        except OffsetOutOfRange:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        except DiskError as problem:
            partition.directory.fail(problem)
            error = ErrorCode.KAFKA_STORAGE_ERROR
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error
    )

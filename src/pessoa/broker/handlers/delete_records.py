"""DeleteRecords: move the log start offset of partitions up (KIP-107). -1 stands for the high watermark.

The answer leaves when every live replica has moved its log start, because until then somebody who becomes leader could
serve the records once more. It tells the low watermark, the least log start of all. Who is not done after `timeout_ms`
hears REQUEST_TIMED_OUT, and the records go all the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.files import DiskError
from pessoa.log.partition_log import OffsetOutOfRange
from pessoa.replication.partition import CommitWaiter
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
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.replication.partition import Partition

_HIGH_WATERMARK = -1
_NONE_LEFT = -1


class _Undone(NamedTuple):
    """A partition whose followers have to move their log start to `offset`."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult


def handle(broker: BrokerServices, context: RequestContext, request: DeleteRecordsRequest) -> Reply:
    undone: list[_Undone] = []
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name, partitions=[_delete(broker, topic.name, wanted, undone) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    response = DeleteRecordsResponse(throttle_time_ms=0, topics=topics)
    return _when_done(undone, response, request.timeout_ms) if undone else response


def _delete(
    broker: BrokerServices, topic: str, wanted: DeleteRecordsPartition, undone: list[_Undone]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=_NONE_LEFT, error_code=ErrorCode.NONE
    )
    partition = broker.replicas.get(topic, wanted.partition_index)
    if partition is None:
        result.error_code = broker.replicas.why_missing(broker.image, topic, wanted.partition_index)
    elif partition.is_offline:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    elif not partition.is_leader:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif not partition.log.config.is_deleted:
        # A compacted topic keeps the last value of every key: somebody relies on that.
        result.error_code = ErrorCode.POLICY_VIOLATION
    else:
        log = partition.log
        offset = log.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
        if offset < 0:
            result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return result
        try:
            log.delete_records_before(offset)
        except OffsetOutOfRange:
            result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        except DiskError as problem:
            partition.directory.fail(problem)
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            result.low_watermark = partition.low_watermark()
            if result.low_watermark < offset:
                undone.append(_Undone(partition, offset, result))
    return result


async def _when_done(undone: list[_Undone], response: DeleteRecordsResponse, timeout_ms: int) -> DeleteRecordsResponse:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(0, timeout_ms) / 1000
    left = [one for one in undone if not _is_settled(one)]
    while left and loop.time() < deadline:
        waiter = CommitWaiter(loop.create_future())
        for one in left:
            one.partition.wait_for_followers_start(waiter)
        timer = loop.call_at(deadline, waiter.wake)
        try:
            await waiter.future
        finally:
            timer.cancel()
        left = [one for one in left if not _is_settled(one)]
    for one in left:
        one.result.error_code = ErrorCode.REQUEST_TIMED_OUT
    return response


def _is_settled(undone: _Undone) -> bool:
    partition, offset, result = undone
    if not partition.is_leader:
        result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, _NONE_LEFT
        return True
    result.low_watermark = partition.low_watermark()
    return result.low_watermark >= offset

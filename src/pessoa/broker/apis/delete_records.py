"""DeleteRecords: move the log start offset of partitions up (KIP-107). -1 stands for the high watermark.
v2: flexible.

The answer leaves when every live replica has moved its log start: until then a replica that becomes leader could serve
the records once more. It tells the low watermark, the least log start of all. A request that is not done after
`timeout_ms` is answered with REQUEST_TIMED_OUT, and the records go all the same.

Authorised: DELETE on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.broker.api_row import ApiRow, Audited
from pessoa.broker.authorization import denied_names
from pessoa.log.files import DiskError
from pessoa.log.partition_log import OffsetOutOfRange
from pessoa.replication.purgatory import AwaitedWaiter
from pessoa.security.acl import DELETE, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsPartitionResult,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
    )
    from pessoa.wire.request_context import Answer, RequestContext

_HIGH_WATERMARK = -1
_NONE_LEFT = -1


class _Undone(NamedTuple):
    """A partition whose followers have not moved their log start offset to `offset`."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult


def handle(
    broker: BrokerServices, context: RequestContext, request: DeleteRecordsRequest
) -> Answer[DeleteRecordsResponse]:
    from pessoa.wire.api.delete_records import DeleteRecordsResponse, DeleteRecordsTopicResult

    undone: list[_Undone] = []
    denied = denied_names(broker, context, DELETE, TOPIC, (topic.name for topic in request.topics))
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _authorization_error(wanted) if topic.name in denied else _delete(broker, topic.name, wanted, undone)
                for wanted in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    response = DeleteRecordsResponse(throttle_time_ms=0, topics=topics)
    return _when_done(broker, undone, response, request.timeout_ms) if undone else response


def _authorization_error(wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    from pessoa.wire.api.delete_records import DeleteRecordsPartitionResult

    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index,
        low_watermark=_NONE_LEFT,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _delete(
    broker: BrokerServices, topic: str, wanted: DeleteRecordsPartition, undone: list[_Undone]
) -> DeleteRecordsPartitionResult:
    from pessoa.wire.api.delete_records import DeleteRecordsPartitionResult

    result = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=_NONE_LEFT, error_code=ErrorCode.NONE
    )
    partition = broker.replicas.ensure(topic, wanted.partition_index)
    if partition is None:
        result.error_code = broker.replicas.why_missing(broker.image, topic, wanted.partition_index)
    elif partition.is_offline:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    elif not partition.is_leader:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif not partition.log.config.is_deleted:
        # A compacted topic keeps the last value of every key: its consumers rely on that.
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


async def _when_done(
    broker: BrokerServices, undone: list[_Undone], response: DeleteRecordsResponse, timeout_ms: int
) -> DeleteRecordsResponse:
    clock = broker.clock
    deadline_ms = clock.monotonic_ms() + max(0, timeout_ms)
    left = [one for one in undone if not _is_done(one)]
    while left and (remaining_ms := deadline_ms - clock.monotonic_ms()) > 0:
        waiter = AwaitedWaiter()
        for one in left:
            one.partition.wait_for_followers_start(waiter)
        timer = clock.call_after_ms(remaining_ms, waiter.wake)
        try:
            await waiter.wait()
        finally:
            timer.cancel()
        left = [one for one in left if not _is_done(one)]
    for one in left:
        one.result.error_code = ErrorCode.REQUEST_TIMED_OUT
    return response


def _is_done(undone: _Undone) -> bool:
    partition, offset, result = undone
    if not partition.is_leader:
        result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, _NONE_LEFT
        return True
    result.low_watermark = partition.low_watermark()
    return result.low_watermark >= offset


ROW = ApiRow(
    ApiKey.DELETE_RECORDS,
    "0-2",
    handle=handle,
    audited=Audited.YES,
)

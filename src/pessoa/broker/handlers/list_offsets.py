"""ListOffsets: offsets by timestamp, and the special ones.

    -1  latest             the high watermark, or the last stable offset for read_committed (the log end for replicas)
    -2  earliest           the log start offset
    -3  max timestamp      the offset of the record with the largest timestamp (v7, KIP-734)
    -4  earliest local     v8: without tiered storage the same as the earliest
    -5  latest tiered      v9: without tiered storage none
    -6  earliest pending upload   v11: without tiered storage none

Any other timestamp asks for the first record at or after it. One that lies beyond what the reader may see is not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.files import DiskError
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices
    from pessoa.replication.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_READ_COMMITTED = 1
# The first version that may ask for each special timestamp.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Answer(NamedTuple):
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE


def handle(broker: BrokerServices, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    is_committed = request.isolation_level == _READ_COMMITTED
    topics = []
    for topic in request.topics:
        seen = [one.partition_index for one in topic.partitions]
        answers = []
        for wanted in topic.partitions:
            if seen.count(wanted.partition_index) > 1:
                answer = _Answer(error=ErrorCode.INVALID_REQUEST)
            else:
                answer = _answer(broker, topic.name, wanted, context.version, is_committed)
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=answer.error,
                    timestamp=answer.timestamp,
                    offset=answer.offset,
                    leader_epoch=answer.leader_epoch if context.version >= 4 else -1,
                )
            )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _answer(
    broker: BrokerServices, topic: str, wanted: ListOffsetsPartition, version: int, is_committed: bool
) -> _Answer:
    if version < _SINCE.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
        return _Answer(error=ErrorCode.UNSUPPORTED_VERSION)
    partition = broker.replicas.get(topic, wanted.partition_index)
    if partition is None:
        return _Answer(error=broker.replicas.why_missing(broker.image, topic, wanted.partition_index))
    if not partition.is_leader:
        return _Answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = partition.check_epoch(wanted.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _Answer(error=error)
    try:
        return _look_up(partition, wanted.timestamp, is_committed)
    except DiskError as problem:
        partition.directory.fail(problem)
        return _Answer(error=ErrorCode.KAFKA_STORAGE_ERROR)


def _look_up(partition: Partition, timestamp: int, is_committed: bool) -> _Answer:
    log = partition.log
    visible_end = log.last_stable_offset if is_committed else log.high_watermark
    if timestamp == LATEST:
        return _Answer(-1, visible_end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epochs.epoch_for_offset(log.log_start_offset)
        return _Answer(-1, log.log_start_offset, -1 if epoch is None else epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _Answer()
    found = log.find_max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_by_timestamp(timestamp)
    if found is None or found.offset >= visible_end:
        return _Answer()
    return _Answer(found.timestamp, found.offset, found.leader_epoch)

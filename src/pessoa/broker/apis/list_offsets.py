"""ListOffsets: offsets by timestamp, and the special ones.

    -1  latest             the high watermark, or the last stable offset for read_committed (the log end for replicas)
    -2  earliest           the log start offset
    -3  max timestamp      the offset of the record with the largest timestamp (v7, KIP-734)
    -4  earliest local     v8: without tiered storage the same as the earliest
    -5  latest tiered      v9: without tiered storage none
    -6  earliest pending upload   v11: without tiered storage none

Any other timestamp asks for the first record at or after it. One that lies beyond what the reader may see is not found.
To look for a time, batches are opened (`log.timestamp_search`): other requests are served between two such looks.

A leader that has just been elected may know less of what is committed than the last one did. Until its high watermark
has reached the start of its epoch, the latest offset could seem to go back, so it is not told (KIP-207):
OFFSET_NOT_AVAILABLE, and LEADER_NOT_AVAILABLE before version 5.

Authorised: DESCRIBE on each topic.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names
from pessoa.broker.slices import Sliced
from pessoa.log.files import DiskError
from pessoa.log.partition_log import ReadUpTo
from pessoa.security.acl import DESCRIBE, TOPIC
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.broker.services import BrokerServices
    from pessoa.log.partition_log import PartitionLog
    from pessoa.replication.partition import Partition
    from pessoa.wire.request_context import Answer, RequestContext
    from pessoa.wire.schema import Message

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_READ_COMMITTED = 1
_FIRST_VERSION_WITH_NOT_AVAILABLE = 5
# The first version that may ask for each special timestamp.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Answer(NamedTuple):
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE


def handle(broker: BrokerServices, context: RequestContext, request: ListOffsetsRequest) -> Answer[Message | None]:
    response = ListOffsetsResponse(throttle_time_ms=0, topics=[])
    lookups = _fill_in_offsets(broker, context, request, response)
    asked = sum(_is_by_time(one.timestamp) for topic in request.topics for one in topic.partitions)
    if asked > 1:
        return _in_turns(lookups, response)
    for _ in lookups:
        pass
    return response


def _is_by_time(timestamp: int) -> bool:
    """Return whether the look-up has to decompress batches, which takes time on the event loop."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


async def _in_turns(lookups: Iterator[None], response: ListOffsetsResponse) -> ListOffsetsResponse:
    for _ in lookups:
        await asyncio.sleep(0)
    return response


def _fill_in_offsets(
    broker: BrokerServices, context: RequestContext, request: ListOffsetsRequest, response: ListOffsetsResponse
) -> Iterator[None]:
    """Fill in the response; other requests may be served where this yields."""
    up_to = ReadUpTo.HIGH_WATERMARK
    if request.replica_id >= 0:
        up_to = ReadUpTo.LOG_END
    elif request.isolation_level == _READ_COMMITTED:
        up_to = ReadUpTo.LAST_STABLE_OFFSET
    denied = denied_names(broker, context, DESCRIBE, TOPIC, (topic.name for topic in request.topics))
    for topic in request.topics:
        seen = Counter(one.partition_index for one in topic.partitions)
        answers: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        # Of a partition that is asked for twice the answer speaks once.
        for wanted in {one.partition_index: one for one in topic.partitions}.values():
            if topic.name in denied:
                answer = _Answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif seen[wanted.partition_index] > 1:
                answer = _Answer(error=ErrorCode.INVALID_REQUEST)
            else:
                answer = _answer(broker, topic.name, wanted, context.version, up_to)
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=answer.error,
                    timestamp=answer.timestamp,
                    offset=answer.offset,
                    leader_epoch=answer.leader_epoch if context.version >= 4 else -1,
                )
            )
            if _is_by_time(wanted.timestamp):
                yield


def _answer(broker: BrokerServices, topic: str, wanted: ListOffsetsPartition, version: int, up_to: ReadUpTo) -> _Answer:
    if version < _SINCE.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
        return _Answer(error=ErrorCode.UNSUPPORTED_VERSION)
    partition = broker.replicas.ensure(topic, wanted.partition_index)
    if partition is None:
        return _Answer(error=broker.replicas.why_missing(broker.image, topic, wanted.partition_index))
    if partition.is_offline:
        return _Answer(error=ErrorCode.KAFKA_STORAGE_ERROR)
    if not partition.is_leader:
        return _Answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = partition.check_epoch(wanted.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _Answer(error=error)
    try:
        answer = _find_offset(partition, wanted.timestamp, up_to)
    except DiskError as problem:
        partition.directory.fail(problem)
        return _Answer(error=ErrorCode.KAFKA_STORAGE_ERROR)
    if answer.error is ErrorCode.OFFSET_NOT_AVAILABLE and version < _FIRST_VERSION_WITH_NOT_AVAILABLE:
        return _Answer(error=ErrorCode.LEADER_NOT_AVAILABLE)
    return answer


def _find_offset(partition: Partition, timestamp: int, up_to: ReadUpTo) -> _Answer:
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _Answer(-1, log.log_start_offset, partition.epoch_for_offset(log.log_start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _Answer()
    is_unsure = up_to is not ReadUpTo.LOG_END and partition.is_high_watermark_behind_epoch
    if timestamp == LATEST:
        if is_unsure:
            return _Answer(error=ErrorCode.OFFSET_NOT_AVAILABLE)
        return _Answer(-1, _visible_end(log, up_to), partition.leader_epoch)
    found = log.find_max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_by_timestamp(timestamp)
    if found is None or found.offset >= _visible_end(log, up_to):
        return _Answer(error=ErrorCode.OFFSET_NOT_AVAILABLE) if is_unsure else _Answer()
    return _Answer(found.timestamp, found.offset, found.leader_epoch)


def _visible_end(log: PartitionLog, up_to: ReadUpTo) -> int:
    if up_to is ReadUpTo.LOG_END:
        return log.log_end_offset
    return log.high_watermark if up_to is ReadUpTo.HIGH_WATERMARK else log.last_stable_offset


ROW = ApiRow(
    ApiKey.LIST_OFFSETS,
    "1-11",
    handle=handle,
    sliced=Sliced("topics", "topics", within=("partitions", "partitions")),
)

"""Fetch: read record batches from partitions.

    v4      isolation level, last stable offset, aborted transactions      v12  flexible; diverging epoch v5      log
    start offset                                               v13  topics by id v7      fetch sessions (KIP-227)
    v15  the replica's state moves into a tagged field v9      current leader epoch, for fencing (KIP-320)
    v16  the response names new leaders v11     rack, for reading from followers (KIP-392)                     v17,
    v18  for replicas: directory, high watermark

A fetch that finds fewer than `min_bytes` waits, at most `max_wait_ms`, and then looks once more. Sizes are found
without reading; bytes are read from the page cache when the answer is made. Every partition gets at most its own
limit and what is left of the request's, but the first that has records gives at least one batch, however large, so
that nobody gets stuck.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.files import DiskError
from pessoa.log.partition_log import Fetched, OffsetOutOfRange, ReadUpTo
from pessoa.records.batch import LENGTH_POSITION, LOG_OVERHEAD
from pessoa.replication.partition import FetchWaiter, Partition
from pessoa.wire.api.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.fetch_sessions import FetchPlan, Wanted
    from pessoa.broker.services import BrokerServices
    from pessoa.log.segment import FileSlice

_FIRST_VERSION_WITH_TOPIC_IDS = 13
# From this version on who does not lead says who does.
_FIRST_VERSION_WITH_LEADERS = 12
_READ_COMMITTED = 1
_EMPTY = memoryview(b"")


class Found(NamedTuple):
    """What there is for one partition: its part of the answer, and where its records are."""

    wanted: Wanted
    partition: Partition | None
    data: PartitionData
    fetched: Fetched | None

    @property
    def size(self) -> int:
        return len(self.fetched.data) if self.fetched is not None and self.fetched.data is not None else 0


def handle(broker: BrokerServices, context: RequestContext, request: FetchRequest) -> Reply:
    plan = broker.fetch_sessions.plan(request, context.version, broker.clock.monotonic_ms())
    if plan.error is not ErrorCode.NONE:
        return FetchResponse(throttle_time_ms=0, error_code=plan.error, session_id=0, responses=[])
    found = _look(broker, context, request, plan)
    if request.max_wait_ms <= 0 or not found or _is_enough(found, request.min_bytes):
        return _response(plan, found)
    return _wait(broker, context, request, plan, found)


async def _wait(
    broker: BrokerServices, context: RequestContext, request: FetchRequest, plan: FetchPlan, found: list[Found]
) -> FetchResponse:
    loop = asyncio.get_running_loop()
    needed = request.min_bytes - sum(one.size for one in found)
    waiter = FetchWaiter(loop.create_future(), needed, [one.partition for one in found if one.partition is not None])
    timer = loop.call_later(request.max_wait_ms / 1000, waiter.wake)
    try:
        await waiter.future
    finally:
        timer.cancel()
        waiter.leave()
    return _response(plan, _look(broker, context, request, plan))


def _is_enough(found: list[Found], min_bytes: int) -> bool:
    return sum(one.size for one in found) >= min_bytes or any(one.data.error_code for one in found)


# Looking.


def _look(broker: BrokerServices, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> list[Found]:
    left = min(request.max_bytes, broker.config.fetch_max_bytes)
    is_committed = request.isolation_level == _READ_COMMITTED
    up_to = ReadUpTo.LAST_STABLE_OFFSET if is_committed else ReadUpTo.HIGH_WATERMARK
    has_some = False
    found = []
    for wanted in plan.wanted:
        one = _look_at(broker, context.version, wanted, up_to, left, at_least_one_batch=not has_some)
        has_some = has_some or one.size > 0
        left = max(0, left - one.size)
        found.append(one)
    return found


def _look_at(
    broker: BrokerServices, version: int, wanted: Wanted, up_to: ReadUpTo, left: int, *, at_least_one_batch: bool
) -> Found:
    request = wanted.request
    partition, error = _find(broker, version, wanted)
    if partition is None:
        return Found(wanted, None, _refused(request.partition, error), None)
    if not partition.is_leader:
        return Found(wanted, partition, not_leader(partition, version), None)
    error = partition.check_epoch(request.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return Found(wanted, partition, _refused(request.partition, error), None)
    log = partition.log
    limit = min(request.partition_max_bytes, left)
    try:
        fetched = log.read(request.fetch_offset, limit, up_to, at_least_one_batch=at_least_one_batch)
        if not at_least_one_batch and fetched.data is not None and not _has_whole_batch(fetched.data):
            fetched = Fetched(None, ())
    except OffsetOutOfRange:
        refused = _refused(request.partition, ErrorCode.OFFSET_OUT_OF_RANGE, log.log_start_offset)
        return Found(wanted, partition, refused, None)
    except DiskError as problem:
        partition.directory.fail(problem)
        return Found(wanted, partition, _refused(request.partition, ErrorCode.KAFKA_STORAGE_ERROR), None)
    data = PartitionData(
        partition_index=request.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=_aborted(fetched) if up_to is ReadUpTo.LAST_STABLE_OFFSET else None,
        records=_EMPTY,
    )
    return Found(wanted, partition, data, fetched)


def _find(broker: BrokerServices, version: int, wanted: Wanted) -> tuple[Partition | None, ErrorCode]:
    index = wanted.request.partition
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        partition = broker.replicas.by_id.get(wanted.topic_id, {}).get(index)
        if partition is not None:
            return partition, ErrorCode.NONE
        topic = broker.image.topics.by_id.get(wanted.topic_id)
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        return None, broker.replicas.why_missing(broker.image, topic.name, index)
    partition = broker.replicas.get(wanted.topic, index)
    if partition is not None:
        return partition, ErrorCode.NONE
    return None, broker.replicas.why_missing(broker.image, wanted.topic, index)


def _has_whole_batch(data: FileSlice) -> bool:
    """Clients drop half a batch at the end, but one that is all they get they take for a batch larger than their
    limit: the Java consumer fails on it."""
    if data.size < LOG_OVERHEAD:
        return False
    head = data.file.read(data.position, LOG_OVERHEAD)
    return LOG_OVERHEAD + int.from_bytes(head[LENGTH_POSITION:], "big") <= data.size


def _aborted(fetched: Fetched) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in fetched.aborted]


def _refused(index: int, error: ErrorCode, log_start_offset: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
        records=_EMPTY,
    )


def not_leader(partition: Partition, version: int) -> PartitionData:
    data = _refused(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if version >= _FIRST_VERSION_WITH_LEADERS:
        data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
    return data


# Answering.


def _response(plan: FetchPlan, found: list[Found]) -> FetchResponse:
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for one in found:
        session = plan.session
        if session is not None:
            is_news = session.is_news(one.wanted, one.data, one.size)
            if plan.is_incremental and not is_news:
                continue
        if one.size:
            assert one.fetched is not None
            assert one.fetched.data is not None
            one.data.records = memoryview(one.fetched.data.read())
        key = (one.wanted.topic, one.wanted.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(
                topic=one.wanted.topic, topic_id=one.wanted.topic_id, partitions=[]
            )
        topic.partitions.append(one.data)
    return FetchResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, session_id=plan.session_id, responses=list(topics.values())
    )

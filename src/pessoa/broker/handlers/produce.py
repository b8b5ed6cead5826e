"""Produce: append record batches to partitions.

    v3-8    record errors and a message with the partition's error from v8
    v9      flexible
    v10     the response names the new leader where this broker is not it
    v12     a transactional batch adds its partition to the transaction by itself (KIP-890)
    v13     topics by id

acks 0 gets no answer at all: a producer that asked for none could not match it, and where a batch is refused the
connection is closed, which is the only way to tell. acks 1 is answered after the append, acks -1 when every in-sync
replica has it: nothing is appended while fewer are in sync than `min.insync.replicas` (NOT_ENOUGH_REPLICAS), and if
that comes about meanwhile the answer says so (NOT_ENOUGH_REPLICAS_AFTER_APPEND). Who is not done after `timeout_ms`
hears REQUEST_TIMED_OUT, though the batch may still be replicated. A broker that is cut off from the controller says
NOT_LEADER_OR_FOLLOWER instead, as it will when it hears of its successor: after a timeout librdkafka would come back
here again and again, and not ask who leads.

What an idempotent producer has sent behind a batch that was refused for a reason that passes is refused as well: see
`replication/refused_batches.py`.

The batch is checked and stamped where the socket put it and goes from there into the page cache: see
`PartitionLog.append_as_leader`.
"""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pessoa.broker.context import Replicating
from pessoa.log.directory import DirectoryOffline
from pessoa.log.files import DiskError
from pessoa.log.producer_state import ProducerRefused
from pessoa.records.batch import RecordBatch
from pessoa.records.errors import InvalidBatch
from pessoa.replication.partition import CommitWaiter
from pessoa.replication.refused_batches import RefusedBatches
from pessoa.wire.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pessoa.wire.errors import ErrorCode, ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.transactional_produce import Permit
    from pessoa.replication.partition import Partition

_FIRST_VERSION_WITH_TOPIC_IDS = 13
# From this version on who does not lead says who does.
_FIRST_VERSION_WITH_LEADERS = 10
_ALL = -1
_NO_PERMITS: Mapping[Partition, Permit] = MappingProxyType({})


def handle(broker: BrokerServices, context: RequestContext, request: ProduceRequest) -> Reply:
    if request.transactional_id is not None:
        from pessoa.broker.transactional_produce import produce_in_transaction

        return produce_in_transaction(broker, context, request)
    return respond(broker, context, request)


def respond(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    permits: Mapping[Partition, Permit] = _NO_PERMITS,
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    """Append everything that the request carries. `permits` is what verification has found out about partitions."""
    acks = request.acks
    is_known = acks in (-1, 0, 1)
    now_ms = broker.clock.now_ms()
    responses = []
    unflushed: list[Partition] = []
    unreplicated: list[_Unreplicated] = []
    leaders: dict[int, None] = {}
    for topic in request.topic_data:
        partitions, name, missing = find_topic(broker, context.version, topic)
        answers = []
        for data in topic.partition_data:
            partition = None if partitions is None else partitions.get(data.index)
            if not is_known:
                answers.append(_refused(data.index, ErrorCode.INVALID_REQUIRED_ACKS))
                continue
            if partition is None:
                answers.append(
                    _refused(data.index, missing or broker.replicas.why_missing(broker.image, name, data.index))
                )
                continue
            if not partition.is_leader:
                leaders[partition.leader_id] = None
            if partition.in_sync is None or acks != _ALL:
                answer = _append(partition, data, now_ms, context.version, permits.get(partition))
            else:
                answer, end = _append_for_all(partition, data, now_ms, context.version, permits.get(partition))
                if end > partition.log.high_watermark:
                    unreplicated.append(_Unreplicated(partition, end, answer))
            answers.append(answer)
            if partition.log.is_flush_due:
                unflushed.append(partition)
        responses.append(TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    if acks == 0:
        _close_if_refused(responses)
        return None
    response = ProduceResponse(responses=responses, throttle_time_ms=0)
    if leaders:
        response.node_endpoints = _endpoints(broker, context, leaders)
    if unflushed or unreplicated:
        return Replicating(_when_done(broker, unflushed, unreplicated, response, request.timeout_ms))
    return response


class _Unreplicated(NamedTuple):
    """What has to reach the in-sync replicas: everything below `end`."""

    partition: Partition
    end: int
    answer: PartitionProduceResponse


async def _when_done(
    broker: BrokerServices,
    unflushed: list[Partition],
    unreplicated: list[_Unreplicated],
    response: ProduceResponse,
    timeout_ms: int,
) -> ProduceResponse:
    if unflushed:
        await _wait_until_durable(broker, unflushed, response)
    if unreplicated:
        await _wait_until_replicated(broker, unreplicated, timeout_ms)
    return response


async def _wait_until_replicated(broker: BrokerServices, unreplicated: list[_Unreplicated], timeout_ms: int) -> None:
    loop = asyncio.get_running_loop()
    waiter = CommitWaiter(loop.create_future(), len(unreplicated))
    for one in unreplicated:
        one.partition.when_replicated(one.end, waiter)
    timer = loop.call_later(max(0, timeout_ms) / 1000, waiter.wake)
    try:
        await waiter.future
    finally:
        timer.cancel()
    for partition, end, answer in unreplicated:
        error = partition.commit_error(end)
        if error is None:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER if broker.is_out_of_touch() else ErrorCode.REQUEST_TIMED_OUT
        if error is not ErrorCode.NONE and not answer.error_code:
            answer.error_code, answer.base_offset = error, -1


async def _wait_until_durable(broker: BrokerServices, due: list[Partition], response: ProduceResponse) -> None:
    """Until what was appended is on the disk, as the topics' `flush.messages` asks for."""
    failed: set[tuple[str, int]] = set()
    for partition in due:
        directory = partition.directory
        try:
            await broker.flusher.wait_until_durable(partition.log, partition.log.log_end_offset)
            if partition.is_leader:
                partition.maybe_advance_high_watermark()
        except DiskError as error:
            directory.fail(error)
            failed.add((partition.topic, partition.index))
    for topic in response.responses:
        for one in topic.partition_responses:
            if (topic.name, one.index) in failed:
                one.error_code, one.base_offset = ErrorCode.KAFKA_STORAGE_ERROR, -1


def find_topic(
    broker: BrokerServices, version: int, topic: TopicProduceData
) -> tuple[dict[int, Partition] | None, str, ErrorCode | None]:
    """Our partitions of the topic, its name, and the error if the topic itself is unknown."""
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return broker.replicas.by_name.get(topic.name), topic.name, None
    known = broker.image.topics.by_id.get(topic.topic_id)
    if known is None:
        return None, "", ErrorCode.UNKNOWN_TOPIC_ID
    return broker.replicas.by_id.get(topic.topic_id), known.name, None


def _append_for_all(
    partition: Partition, data: PartitionProduceData, now_ms: int, version: int, permit: Permit | None
) -> tuple[PartitionProduceResponse, int]:
    """Append what all in-sync replicas must have; also the offset that they have to reach, -1 if it was refused."""
    if not partition.has_enough_replicas:
        _note_refused(partition, data, ErrorCode.NOT_ENOUGH_REPLICAS, now_ms)
        return _refused(data.index, ErrorCode.NOT_ENOUGH_REPLICAS), -1
    answer = _append(partition, data, now_ms, version, permit)
    if answer.error_code:
        return answer, -1
    # A repeated batch was appended earlier, and is not the last one in the log.
    assert data.records is not None
    return answer, answer.base_offset + RecordBatch(data.records).last_offset_delta + 1


def _append(
    partition: Partition, data: PartitionProduceData, now_ms: int, version: int, permit: Permit | None
) -> PartitionProduceResponse:
    if not partition.is_leader:
        if partition.is_offline:
            return _refused(data.index, ErrorCode.KAFKA_STORAGE_ERROR)
        _note_refused(partition, data, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
        return not_leader(partition, data.index, version)
    if partition.refused:
        error = partition.refused.error_behind(data.records, partition.log.producers, now_ms)
        if error is not None:
            return _refused(data.index, error)
    if data.records is None:
        return _refused(data.index, ErrorCode.INVALID_RECORD, "the request has no record batch for this partition")
    if isinstance(permit, ErrorCode):
        if permit is ErrorCode.NOT_ENOUGH_REPLICAS:
            _note_refused(partition, data, permit, now_ms)
        return _refused(data.index, permit)
    try:
        appended = partition.append(data.records, now_ms, version, permit)
    except InvalidBatch as refusal:
        return _refused_records(data.index, refusal, partition.log.log_start_offset)
    except ProducerRefused as refusal:
        answer = _refused(data.index, refusal.error, refusal.message)
        answer.log_start_offset = partition.log.log_start_offset
        return answer
    except DiskError as error:
        partition.directory.fail(error)
        return _refused(data.index, ErrorCode.KAFKA_STORAGE_ERROR)
    except DirectoryOffline:
        return _refused(data.index, ErrorCode.KAFKA_STORAGE_ERROR)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )


def _note_refused(partition: Partition, data: PartitionProduceData, error: ErrorCode, now_ms: int) -> None:
    """What the producer has sent behind this batch is to hear the same."""
    if partition.refused is None:
        partition.refused = RefusedBatches()
    partition.refused.note(data.records, error, partition.log.producers, now_ms)


def _refused(index: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error, base_offset=-1, error_message=message)


def _refused_records(index: int, refusal: InvalidBatch, log_start_offset: int) -> PartitionProduceResponse:
    """Where records are named as wrong the answer also says where the log starts, as Kafka's does."""
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


def not_leader(partition: Partition, index: int, version: int) -> PartitionProduceResponse:
    response = _refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if version >= _FIRST_VERSION_WITH_LEADERS:
        response.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
    return response


def _endpoints(broker: BrokerServices, context: RequestContext, leaders: dict[int, None]) -> list[NodeEndpoint]:
    """Where the leaders are that the answer names, so that the client need not ask for metadata first (KIP-951)."""
    if context.version < _FIRST_VERSION_WITH_LEADERS:
        return []
    return [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.nodes(context.listener)
        if node.id in leaders
    ]


def _close_if_refused(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise ProtocolViolation(
                    f"a produce with acks=0 was refused for {topic.name}-{partition.index} "
                    f"({ErrorCode.of(partition.error_code).name}), and closing is the only way to say so"
                )

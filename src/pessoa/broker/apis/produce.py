"""Produce: append record batches to partitions.

    v3-8    record errors and a message with the partition's error from v8
    v9      flexible
    v10     the response names the new leader where this broker is not it
    v12     a transactional batch adds its partition to the transaction by itself (KIP-890)
    v13     topics by id

acks 0 gets no answer at all: a producer that asked for none could not match it, and where a batch is refused the
connection is closed, which is the only way to tell. acks 1 is answered after the append, acks -1 when every in-sync
replica has it: nothing is appended while fewer are in sync than `min.insync.replicas` (NOT_ENOUGH_REPLICAS), and if
the ISR shrinks after the append the error is NOT_ENOUGH_REPLICAS_AFTER_APPEND. A batch that is not replicated within
`timeout_ms` gets REQUEST_TIMED_OUT, though it may still be replicated. A broker that cannot reach the controller says
NOT_LEADER_OR_FOLLOWER instead, as it will when it learns of the new leader: after a timeout librdkafka would send the
batch here again and again, and not ask for metadata.

What an idempotent producer has sent behind a batch that was refused for a reason that passes is refused as well: see
`replication/refused_batches.py`.

Authorised: WRITE on each topic, and on the transactional id as soon as any batch is transactional, whatever id the
request names; without an id such a batch is refused, also where there is no authorizer. All of it is checked before the
first batch is looked at further. Internal topics are written by their coordinators alone; Apache Kafka lets a client
write to them whose client id is `__admin_client`, which proves nothing.

The batch is checked and stamped where the socket put it and goes from there into the page cache: see
`PartitionLog.append_as_leader`.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pessoa.broker.api_row import ApiRow, Counted, Quota
from pessoa.broker.batch_opening import Unopened, append_opened
from pessoa.broker.produce_errors import (
    FIRST_VERSION_WITH_LEADERS,
    close_if_refused,
    endpoints_of,
    missing_partition_error,
    not_leader,
    partition_error,
    refused_records,
)
from pessoa.broker.produced_topics import NONE_DENIED, denied_topics, find_topic
from pessoa.broker.slices import Sliced
from pessoa.log.directory import DirectoryOffline
from pessoa.log.files import DiskError
from pessoa.log.producer_state import ProducerRefused
from pessoa.net.pending import Pending, PendingTask
from pessoa.records.batch import ATTRIBUTES_POSITION, MAGIC, MAGIC_POSITION, RecordBatch
from pessoa.records.batch_validation import CostlyBatch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.replication.purgatory import CommitWaiter
from pessoa.replication.refused_batches import RefusedBatches
from pessoa.security.acl import TRANSACTIONAL_ID, WRITE
from pessoa.wire.api.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.broker.services import BrokerServices
    from pessoa.broker.transactional_produce import Permit, Unverified
    from pessoa.replication.partition import Partition
    from pessoa.wire.request_context import Answer, RequestContext
    from pessoa.wire.schema import Message

_ALL = -1
_ACKS = (_ALL, 0, 1)
# In the second byte of a batch's attributes.
_TRANSACTIONAL = 0x10
_FLAGS_POSITION = ATTRIBUTES_POSITION + 1
_NO_PERMITS: Mapping[Partition, Permit] = MappingProxyType({})


def handle(broker: BrokerServices, context: RequestContext, request: ProduceRequest) -> Answer[Message | None]:
    if _is_transactional(request) and not _may_be_in_transaction(broker, context, request):
        return _refused_whole(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    denied = NONE_DENIED if broker.authorizer is None else denied_topics(broker, context, request)
    if request.transactional_id is not None:
        from pessoa.broker.transactional_produce import start_verification

        permits, unverified = start_verification(broker, context, request, denied)
        if unverified:
            return _verify_and_respond(broker, context, request, denied, permits, unverified)
        return respond(broker, context, request, denied, permits)
    return respond(broker, context, request, denied)


async def _verify_and_respond(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    denied: frozenset[str],
    permits: dict[Partition, Permit],
    unverified: Unverified,
) -> Message | None:
    from pessoa.broker.transactional_produce import verify

    await verify(broker, context, request, permits, unverified)
    denied = denied_topics(broker, context, request, denied)
    response = respond(broker, context, request, denied, permits)
    return await response if isinstance(response, Pending) else response


# What the client may do.


def _is_transactional(request: ProduceRequest) -> bool:
    """Return whether any batch is transactional: the transactional id of the request is only what the client claims."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) > _FLAGS_POSITION
                and records[_FLAGS_POSITION] & _TRANSACTIONAL
                and records[MAGIC_POSITION] == MAGIC
            ):
                return True
    return False


def _may_be_in_transaction(broker: BrokerServices, context: RequestContext, request: ProduceRequest) -> bool:
    """Return whether the request has a transactional id that its client may use; without an authorizer, any id."""
    authorizer, name = broker.authorizer, request.transactional_id
    return name is not None and (authorizer is None or authorizer.may(context, WRITE, TRANSACTIONAL_ID, name))


def _refused_whole(request: ProduceRequest, error: ErrorCode) -> ProduceResponse | None:
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[partition_error(data.index, error) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        close_if_refused(responses)
        return None
    return ProduceResponse(responses=responses, throttle_time_ms=0)


# Appending.


def respond(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    denied: frozenset[str] = NONE_DENIED,
    permits: Mapping[Partition, Permit] = _NO_PERMITS,
    *,
    is_opened: bool = False,
) -> ProduceResponse | Pending | None:
    """Append all batches of the request, but those of `denied` topics, and return the response, or a `Pending`.
    `permits` are the results of verification by partition; `is_opened`: the records of the batches were decompressed
    and are valid."""
    acks, version = request.acks, context.version
    now_ms = broker.clock.now_ms()
    responses = []
    unflushed: list[Partition] = []
    unreplicated: list[_Unreplicated] = []
    unopened: list[Unopened] = []
    leaders: dict[int, None] = {}
    for topic in request.topic_data:
        partitions, name, missing = find_topic(broker, version, topic)
        refused_as = _refusal_of_topic(broker, name, acks, denied)
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if refused_as is not None:
                answers.append(partition_error(data.index, refused_as))
                continue
            partition = None if partitions is None else partitions.get(data.index)
            if partition is None:
                partition = broker.replicas.create_pending(name, data.index)
                if partition is None:
                    answers.append(missing_partition_error(broker, name, data.index, missing, version, leaders))
                    continue
            if not partition.is_leader:
                leaders[partition.leader_id] = None
            permit = permits.get(partition) if permits else None
            try:
                if partition.in_sync is None or acks != _ALL:
                    answer = _append(partition, data, now_ms, version, permit, is_opened)
                else:
                    answer, end = _append_for_all(partition, data, now_ms, version, permit, is_opened)
                    if end > partition.log.high_watermark:
                        unreplicated.append(_Unreplicated(partition, end, answer))
            except CostlyBatch:
                unopened.append(Unopened(topic, data, partition, answers, len(answers)))
                answer = partition_error(data.index, ErrorCode.NONE)
            answers.append(answer)
            if partition.log.has_flush_messages and partition.log.is_flush_due:
                unflushed.append(partition)
        responses.append(TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    response = ProduceResponse(responses=responses, throttle_time_ms=0)
    if leaders:
        response.node_endpoints = endpoints_of(broker, context, leaders)
    if acks and not (unflushed or unreplicated or unopened):
        return response
    reply = _reply(broker, context, request, response, unflushed, unreplicated)
    if not unopened:
        return reply
    others = reply if isinstance(reply, Pending) else None
    append = partial(respond, broker, context, permits=permits, is_opened=True)
    return PendingTask(append_opened(broker, context, request, unopened, response, others, denied, append))


def _refusal_of_topic(broker: BrokerServices, name: str, acks: int, denied: frozenset[str]) -> ErrorCode | None:
    if name in denied:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if name in INTERNAL_TOPICS and name in broker.image.topics.by_name:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return None


def _reply(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    unflushed: list[Partition],
    unreplicated: list[_Unreplicated],
) -> ProduceResponse | Pending | None:
    """Return the response, or a `Pending` that waits for disks and replicas."""
    if request.acks == 0:
        close_if_refused(response.responses)
        return None
    waiting = WaitingProduce(broker, context, unreplicated, response, request.timeout_ms) if unreplicated else None
    if unflushed:
        return PendingTask(_when_durable(broker, unflushed, waiting, response), lets_next_in=True)
    return response if waiting is None else waiting


class _Unreplicated(NamedTuple):
    """A partition whose in-sync replicas must have everything below `end`."""

    partition: Partition
    end: int
    answer: PartitionProduceResponse


class WaitingProduce(Pending):
    """A produce in purgatory: its batches are appended, but not on all in-sync replicas. It is ready when they are, or
    this broker does not lead those partitions any more, or when its timeout is over."""

    __slots__ = ("_broker", "_context", "_response", "_timer", "_unreplicated", "_waiter")

    def __init__(
        self,
        broker: BrokerServices,
        context: RequestContext,
        unreplicated: list[_Unreplicated],
        response: ProduceResponse,
        timeout_ms: int,
    ) -> None:
        super().__init__(lets_next_in=True)
        self._broker, self._context = broker, context
        self._unreplicated, self._response = unreplicated, response
        self._timer = broker.clock.call_after_ms(max(0, timeout_ms), self.ready)
        self._waiter = CommitWaiter(self.ready, len(unreplicated), self._note_lost)
        for one in unreplicated:
            one.partition.when_replicated(one.end, self._waiter)

    def response(self) -> ProduceResponse:
        self._leave()
        has_failed = False
        for partition, end, answer in self._unreplicated:
            error = partition.commit_error(end)
            if error is None:
                is_cut_off = self._broker.is_out_of_touch()
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_cut_off else ErrorCode.REQUEST_TIMED_OUT
            _note_error(answer, error)
            has_failed = has_failed or bool(answer.error_code)
        if has_failed and self._context.version >= FIRST_VERSION_WITH_LEADERS:
            self._name_leaders()
        return self._response

    def _name_leaders(self) -> None:
        """Add the leaders of the partitions that this broker no longer leads to the response."""
        broker = self._broker
        leaders: dict[int, None] = {}
        for partition, _, answer in self._unreplicated:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not partition.is_leader:
                leader_id, epoch = broker.replicas.leader_elsewhere(broker.image, partition.topic, partition.index)
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
                leaders[leader_id] = None
        known = self._response.node_endpoints
        for one in known:
            leaders.pop(one.node_id, None)
        self._response.node_endpoints = [*known, *endpoints_of(broker, self._context, leaders)]

    def _note_lost(self) -> None:
        """Set the error of partitions that this broker no longer leads, now: if it leads one again later, the offset
        may belong to another batch."""
        for partition, end, answer in self._unreplicated:
            _note_error(answer, partition.commit_error(end) or ErrorCode.NONE)

    def cancel(self) -> None:
        super().cancel()
        self._leave()

    def _leave(self) -> None:
        self._timer.cancel()
        self._waiter.leave()


def _note_error(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    """Set the error of a partition, unless it has one."""
    if error is not ErrorCode.NONE and not answer.error_code:
        answer.error_code, answer.base_offset = error, -1


async def _when_durable(
    broker: BrokerServices, unflushed: list[Partition], waiting: WaitingProduce | None, response: ProduceResponse
) -> Message | None:
    """Return the response when the batches are on the disk. `waiting` is in purgatory since the append, so that it
    notes a partition whose leadership is lost during the sync, even if this broker leads it again afterwards."""
    try:
        await _wait_until_durable(broker, unflushed, response)
    except BaseException:
        if waiting is not None:
            waiting.cancel()
        raise
    return response if waiting is None else await waiting


async def _wait_until_durable(broker: BrokerServices, due: list[Partition], response: ProduceResponse) -> None:
    """Wait until what was appended is on the disk, as the topics' `flush.messages` asks; set the error of partitions
    whose disk fails."""
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


def _append_for_all(
    partition: Partition,
    data: PartitionProduceData,
    now_ms: int,
    version: int,
    permit: Permit | None,
    is_opened: bool = False,
) -> tuple[PartitionProduceResponse, int]:
    """Append a batch that all in-sync replicas must have; return the response, and the offset that they must reach, -1
    if the batch was refused."""
    if not partition.has_enough_replicas:
        _note_refused(partition, data, ErrorCode.NOT_ENOUGH_REPLICAS, now_ms)
        return partition_error(data.index, ErrorCode.NOT_ENOUGH_REPLICAS), -1
    answer = _append(partition, data, now_ms, version, permit, is_opened)
    if answer.error_code:
        return answer, -1
    # A repeated batch was appended earlier, and is not the last one in the log.
    assert data.records is not None
    return answer, answer.base_offset + RecordBatch(data.records).last_offset_delta + 1


def _append(
    partition: Partition,
    data: PartitionProduceData,
    now_ms: int,
    version: int,
    permit: Permit | None,
    is_opened: bool = False,
) -> PartitionProduceResponse:
    if not partition.is_leader:
        if partition.is_offline:
            return partition_error(data.index, ErrorCode.KAFKA_STORAGE_ERROR)
        _note_refused(partition, data, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
        return not_leader(partition, data.index, version)
    if partition.refused:
        error = partition.refused.error_after_refused_batch(data.records, partition.log.producers, now_ms)
        if error is not None:
            return partition_error(data.index, error)
    if data.records is None:
        return partition_error(
            data.index, ErrorCode.INVALID_RECORD, "the request has no record batch for this partition"
        )
    if isinstance(permit, ErrorCode):
        if permit is ErrorCode.NOT_ENOUGH_REPLICAS:
            _note_refused(partition, data, permit, now_ms)
        return partition_error(data.index, permit)
    try:
        appended = partition.append(data.records, now_ms, version, permit, is_opened)
    except InvalidBatch as refusal:
        return refused_records(data.index, refusal, partition.log.log_start_offset)
    except ProducerRefused as refusal:
        answer = partition_error(data.index, refusal.error, refusal.message)
        answer.log_start_offset = partition.log.log_start_offset
        return answer
    except DiskError as error:
        partition.directory.fail(error)
        return partition_error(data.index, ErrorCode.KAFKA_STORAGE_ERROR)
    except DirectoryOffline:
        return partition_error(data.index, ErrorCode.KAFKA_STORAGE_ERROR)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )


def _note_refused(partition: Partition, data: PartitionProduceData, error: ErrorCode, now_ms: int) -> None:
    """Note a refused batch, so that later batches of its producer are refused with the same error
    (`RefusedBatches`)."""
    if partition.refused is None:
        partition.refused = RefusedBatches()
    partition.refused.note(data.records, error, partition.log.producers, now_ms)


ROW = ApiRow(
    ApiKey.PRODUCE,
    "3-13",
    # librdkafka takes a broker that lacks versions 0 to 2 for too old: they are advertised, and not served.
    advertised="0-13",
    handle=handle,
    sliced=Sliced("topic_data", "responses", within=("partition_data", "partition_responses"), waits_together=True),
    quota=Quota.PRODUCE,
    counted=Counted.PRODUCED,
)

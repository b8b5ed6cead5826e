"""TxnOffsetCommit: commit offsets of a group as part of a transaction.

    v3   checks the group's generation and member (KIP-447)       v5   adds the group to the transaction by itself
    (KIP-890)

The offsets go into the group's partition of `__consumer_offsets` like any transactional batch, so that partition is
verified first, as in Produce (`broker.transactional_produce`).

Authorised: WRITE on the transactional id and READ on the group, then READ on each topic.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised, Counted
from pessoa.broker.authorization import denied_names
from pessoa.broker.slices import Sliced
from pessoa.log.producer_state import ProducerRefused
from pessoa.records.batch import NO_SEQUENCE
from pessoa.security.acl import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.internal_topics import GROUP_TOPIC
from pessoa.wire.schema import Message

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.log.producer_state import VerificationGuard
    from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
    from pessoa.wire.request_context import RequestContext


async def handle(broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest) -> Message:
    denied = denied_names(broker, context, READ, TOPIC, (topic.name for topic in request.topics))
    if not denied:
        return await _commit(broker, context, request)
    refused, allowed = copy(request), copy(request)
    refused.topics = [topic for topic in request.topics if topic.name in denied]
    allowed.topics = [topic for topic in request.topics if topic.name not in denied]
    answer = _error_response(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if allowed.topics:
        answer.topics += (await _commit(broker, context, allowed)).topics
    return answer


async def _commit(
    broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    try:
        guard = await _verify_transaction(broker, context, request)
    except Refusal as refusal:
        return _error_response(request, refusal.code)
    reply = broker.groups.offsets.commit_in_transaction(request, context, guard)
    return reply if isinstance(reply, Message) else await reply


def refuse(request: TxnOffsetCommitRequest, refusal: Refusal, version: int) -> Message:
    return _error_response(request, refusal.code)


async def _verify_transaction(
    broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> VerificationGuard | None:
    """Return the guard that admits a batch of this transaction to the group's partition of `__consumer_offsets`. Raises
    `Refusal`."""
    from pessoa.coordinator.transactions.verification import (
        FIRST_TXN_OFFSET_COMMIT_THAT_ADDS,
        FIRST_TXN_OFFSET_COMMIT_WITH_ABORTABLE,
    )

    index = broker.groups.partition_for(request.group_id)
    partition = broker.replicas.ensure(GROUP_TOPIC, index)
    if partition is None or not partition.is_leader:
        raise Refusal(ErrorCode.NOT_COORDINATOR)
    adds = context.version >= FIRST_TXN_OFFSET_COMMIT_THAT_ADDS
    try:
        guard = partition.log.producers.start_verification(
            request.producer_id,
            NO_SEQUENCE,
            request.producer_epoch,
            broker.clock.now_ms(),
            supports_epoch_bump=adds,
        )
    except ProducerRefused as refusal:
        raise Refusal(refusal.error, refusal.message) from refusal
    if guard is not None:
        key = (GROUP_TOPIC, index)
        errors = await broker.verifier.verify(
            request.transactional_id, request.producer_id, request.producer_epoch, [key], may_add=adds
        )
        error = errors.get(key, ErrorCode.NONE)
        if error is ErrorCode.TRANSACTION_ABORTABLE and context.version < FIRST_TXN_OFFSET_COMMIT_WITH_ABORTABLE:
            error = ErrorCode.INVALID_TXN_STATE
        if error is not ErrorCode.NONE:
            raise Refusal(error)
    return guard


def _error_response(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    from pessoa.wire.api.txn_offset_commit import (
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )

    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


ROW = ApiRow(
    ApiKey.TXN_OFFSET_COMMIT,
    "0-5",
    handle=handle,
    refuse=refuse,
    authorised=(
        Authorised(WRITE, TRANSACTIONAL_ID, lambda request: request.transactional_id),
        Authorised(READ, GROUP, lambda request: request.group_id),
    ),
    sliced=Sliced("topics", "topics", within=("partitions", "partitions")),
    counted=Counted.COMMITTED,
)

"""TxnOffsetCommit: commit offsets of a group as part of a transaction.

    v3   checks the group's generation and member (KIP-447)       v5   adds the group to the transaction by itself
    (KIP-890)

The offsets go into the group's partition of `__consumer_offsets` like any transactional batch, so that partition is
verified first, as in Produce (`broker.transactional_produce`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pessoa.broker.topic_listing import GROUP_TOPIC
from pessoa.coordinator.shard import Refusal
from pessoa.coordinator.transactions.verification import (
    FIRST_TXN_OFFSET_COMMIT_THAT_ADDS,
    FIRST_TXN_OFFSET_COMMIT_WITH_ABORTABLE,
)
from pessoa.log.producer_state import ProducerRefused
from pessoa.records.batch import NO_SEQUENCE
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices
    from pessoa.log.producer_state import VerificationGuard
    from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest


async def handle(broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest) -> Message:
    try:
        guard = await _verified(broker, context, request)
    except Refusal as refusal:
        return _refused(request, refusal.code)
    reply: Message | Awaitable[Message] = broker.groups.commit_in_transaction(request, context, guard)
    return reply if isinstance(reply, Message) else await reply


async def _verified(
    broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> VerificationGuard | None:
    """What lets a batch of this transaction into the group's partition; raises `Refusal`."""
    index = broker.groups.partition_for(request.group_id)
    partition = broker.replicas.get(GROUP_TOPIC, index)
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


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
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

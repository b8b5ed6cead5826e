"""TxnOffsetCommit: commit offsets of a group as part of a transaction.

    v3   checks the group's generation and member (KIP-447)       v5   adds the group to the transaction by itself
    (KIP-890)

The offsets go into the group's partition of `__consumer_offsets` like any transactional batch, so that partition is
verified first, as in Produce (`broker.transactional_produce`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.group_refusals import refused_response
from pessoa.broker.topic_listing import GROUP_TOPIC
from pessoa.coordinator.shard import Refusal
from pessoa.coordinator.transactions.verification import (
    FIRST_TXN_OFFSET_COMMIT_THAT_ADDS,
    FIRST_TXN_OFFSET_COMMIT_WITH_ABORTABLE,
)
from pessoa.log.producer_state import ProducerRefused
from pessoa.records.batch import NO_SEQUENCE
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices
    from pessoa.log.producer_state import VerificationGuard
    from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest


async def handle(broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest) -> Message:
    try:
        partition, guard = await _verified(broker, context, request)
        reply = broker.groups.runtime.submit(partition, request, context, guard)
        return reply if isinstance(reply, Message) else await reply
    except Refusal as refusal:
        return refused_response(request, refusal)


async def _verified(
    broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> tuple[int, VerificationGuard | None]:
    """The group's partition, and what lets a batch of this transaction in; raises `Refusal`."""
    index = broker.groups.runtime.partition_for(request.group_id)
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
    return index, guard

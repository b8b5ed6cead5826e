"""Produce within a transaction (KIP-890): before a batch opens a transaction in a partition, its coordinator is asked.

A batch that was delayed on the way could otherwise open a transaction that its coordinator ended long ago, and nothing
would end it again. So for every partition in which the producer has no transaction open:

    start verification (a guard) ──▶ ask the coordinator ──▶ append with the guard

Before version 12 the coordinator is only asked whether it knows of the partition; from version 12 on it adds it, and
the producer saves the request for that. A marker that is written between the question and the append takes the guard
away, and the batch is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.coordinator.transactions.verification import FIRST_PRODUCE_THAT_ADDS, produce_error
from pessoa.log.producer_state import ProducerRefused, VerificationGuard
from pessoa.net.pending import Pending
from pessoa.records.batch import RecordBatch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import is_internal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.broker.services import BrokerServices
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.produce import ProduceRequest
    from pessoa.wire.request_context import Answer, RequestContext
    from pessoa.wire.schema import Message

# What lets a batch in, or the error that keeps it out.
Permit = VerificationGuard | ErrorCode


def produce_in_transaction(
    broker: BrokerServices, context: RequestContext, request: ProduceRequest, denied: frozenset[str]
) -> Answer[Message | None]:
    """Verify the transaction of a produce request, then append it. `denied` are topics that the client may not write
    to: their partitions are not added to the transaction."""
    from pessoa.broker.apis.produce import respond

    permits, unverified = _begin(broker, context, request, denied)
    if not unverified:
        return respond(broker, context, request, denied, permits)
    return _verify_and_respond(broker, context, request, denied, permits, unverified)


class _VerificationRequest:
    """The partitions that one producer writes to."""

    __slots__ = ("partitions", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions: list[Partition] = []


def _begin(
    broker: BrokerServices, context: RequestContext, request: ProduceRequest, denied: frozenset[str]
) -> tuple[dict[Partition, Permit], dict[tuple[int, int], _VerificationRequest]]:
    """Return the permits that are known at once, and the requests to the transaction coordinator for the others."""
    from pessoa.broker.apis.produce import find_topic

    permits: dict[Partition, Permit] = {}
    questions: dict[tuple[int, int], _VerificationRequest] = {}
    now_ms = broker.clock.now_ms()
    for topic in request.topic_data:
        partitions, name, _ = find_topic(broker, context.version, topic)
        if name in denied or is_internal(name):
            continue
        for data in topic.partition_data:
            partition = (partitions or {}).get(data.index) or broker.replicas.create_pending(name, data.index)
            if partition is None or not partition.is_leader or data.records is None:
                continue
            try:
                batch = RecordBatch(data.records)
                if not batch.is_transactional:
                    continue
                guard = partition.log.producers.start_verification(
                    batch.producer_id,
                    batch.base_sequence,
                    batch.producer_epoch,
                    now_ms,
                    supports_epoch_bump=context.version >= FIRST_PRODUCE_THAT_ADDS,
                )
            except InvalidBatch:
                continue  # the append will say what is wrong with it
            except ProducerRefused as refusal:
                permits[partition] = refusal.error
                continue
            if guard is not None:
                permits[partition] = guard
                key = (batch.producer_id, batch.producer_epoch)
                questions.setdefault(key, _VerificationRequest(*key)).partitions.append(partition)
    return permits, questions


async def _verify_and_respond(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    denied: frozenset[str],
    permits: dict[Partition, Permit],
    questions: Mapping[tuple[int, int], _VerificationRequest],
) -> Message | None:
    from pessoa.broker.apis.produce import denied_topics, respond

    assert request.transactional_id is not None
    for question in questions.values():
        answers = await broker.verifier.verify(
            request.transactional_id,
            question.producer_id,
            question.producer_epoch,
            [(partition.topic, partition.index) for partition in question.partitions],
            may_add=context.version >= FIRST_PRODUCE_THAT_ADDS,
        )
        for partition in question.partitions:
            error = answers.get((partition.topic, partition.index), ErrorCode.NONE)
            if error is not ErrorCode.NONE:
                permits[partition] = produce_error(error, context.version)
    denied = denied_topics(broker, context, request, denied)
    response = respond(broker, context, request, denied, permits)
    return await response if isinstance(response, Pending) else response

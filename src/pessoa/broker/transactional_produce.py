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

from pessoa.broker.produced_topics import find_topic
from pessoa.coordinator.transactions.verification import FIRST_PRODUCE_THAT_ADDS, produce_error
from pessoa.log.producer_state import ProducerRefused, VerificationGuard
from pessoa.records.batch import RecordBatch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import is_internal

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.produce import ProduceRequest
    from pessoa.wire.request_context import RequestContext

# What lets a batch in, or the error that keeps it out.
Permit = VerificationGuard | ErrorCode


class VerificationRequest:
    """The partitions that one producer writes to."""

    __slots__ = ("partitions", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions: list[Partition] = []


# By producer id and epoch.
Unverified = dict[tuple[int, int], VerificationRequest]


def start_verification(
    broker: BrokerServices, context: RequestContext, request: ProduceRequest, denied: frozenset[str]
) -> tuple[dict[Partition, Permit], Unverified]:
    """Return the permits that are known at once, and the requests to the transaction coordinator for the others.
    `denied` are topics that the client may not write to: their partitions are not added to the transaction."""
    permits: dict[Partition, Permit] = {}
    questions: dict[tuple[int, int], VerificationRequest] = {}
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
                questions.setdefault(key, VerificationRequest(*key)).partitions.append(partition)
    return permits, questions


async def verify(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    permits: dict[Partition, Permit],
    unverified: Unverified,
) -> None:
    """Ask the transaction coordinator, and set the errors of refused partitions in `permits`."""
    assert request.transactional_id is not None
    for question in unverified.values():
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

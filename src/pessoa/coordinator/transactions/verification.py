"""May this producer append to these partitions? (KIP-890)

A transactional batch may come late: its transaction has ended, and no other has begun that would end it again. If a
leader took it, the partition would have an open transaction for ever. So before the first batch of a transaction in a
partition the leader asks the coordinator:

    Produce below 12   is the partition in the open transaction? (the client has added it)
    Produce 12 and up  add it (the client speaks transaction.version 2 and leaves that to the leader)

and TxnOffsetCommit, with 5 for 12, does the same for the partition of the group. The transaction before may still be
being completed. A client would only come back a little later, so the leader does that itself for a short while.

What the coordinator says is not always what the client can understand: `produce_error` translates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from pessoa.base.clock import Clock
from pessoa.coordinator.transactions.transaction import TopicPartition
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.errors import NO_COORDINATOR, ErrorCode

FIRST_PRODUCE_THAT_ADDS = 12
FIRST_TXN_OFFSET_COMMIT_THAT_ADDS = 5
# From the version before that on clients know TRANSACTION_ABORTABLE.
_FIRST_PRODUCE_WITH_ABORTABLE = 11
FIRST_TXN_OFFSET_COMMIT_WITH_ABORTABLE = 4

# The coordinator is not to be had: a producer knows a leader that has too few replicas, and tries again.
_UNREACHABLE = NO_COORDINATOR | {ErrorCode.NETWORK_EXCEPTION}

# Sends the request, in its newest version, to the coordinator of the transactional id, here or elsewhere.
AskCoordinator = Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]


class Verifier:
    def __init__(self, ask: AskCoordinator, clock: Clock, config: TransactionConfig) -> None:
        self._ask = ask
        self._clock = clock
        self._config = config

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        may_add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Return the coordinator's error for each partition: NONE, or why the batch must not be appended."""
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    verify_only=not may_add,
                    topics=_by_topic(partitions),
                )
            ]
        )
        give_up_ms = self._clock.monotonic_ms() + self._config.add_partitions_to_txn_retry_backoff_max_ms
        while True:
            errors = _errors(await self._ask(request), partitions)
            if ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values() or self._clock.monotonic_ms() >= give_up_ms:
                return errors
            await self._clock.wait_ms(self._config.add_partitions_to_txn_retry_backoff_ms)


def produce_error(code: ErrorCode, produce_version: int) -> ErrorCode:
    """Return the error of a Produce response for a code that `verify` gave."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and produce_version < _FIRST_PRODUCE_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code in _UNREACHABLE or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and produce_version < FIRST_PRODUCE_THAT_ADDS
    ):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


def _by_topic(partitions: Collection[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [AddPartitionsToTxnTopic(name=topic, partitions=ids) for topic, ids in by_topic.items()]


def _errors(
    response: AddPartitionsToTxnResponse, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    if response.error_code:
        # Brokers that may not speak to each other cannot tell a client more than that its state is unknown.
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            code = ErrorCode.INVALID_TXN_STATE
        return dict.fromkeys(partitions, code)
    (result,) = response.results_by_transaction
    return {
        (topic.name, partition.partition_index): _to_produce_error_code(ErrorCode.of(partition.partition_error_code))
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _to_produce_error_code(code: ErrorCode) -> ErrorCode:
    """Return the code that a Produce response has for it: INVALID_PRODUCER_EPOCH where the coordinator says
    PRODUCER_FENCED, as always in Kafka."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code

"""Verification by the leader before the first batch of a transaction, and the error for the producer."""

from __future__ import annotations

import asyncio

import pytest

from pessoa.base.clock import ManualClock
from pessoa.coordinator.transactions.transaction import TopicPartition
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.coordinator.transactions.verification import Verifier, produce_error
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.transactions.test_producer_ids import turn

P0, P1 = ("t", 0), ("t", 1)


class Coordinator:
    """A transaction coordinator that answers each verification with the next of `codes`; the last one repeats."""

    def __init__(self, *codes: ErrorCode, error: ErrorCode = ErrorCode.NONE) -> None:
        self.codes = list(codes)
        self.error = error
        self.asked: list[AddPartitionsToTxnRequest] = []

    async def ask(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        if self.error:
            return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=self.error)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        (transaction,) = request.transactions
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                                for index in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
            ],
        )


def verify(coordinator: Coordinator, *, may_add: bool = True) -> dict[TopicPartition, ErrorCode]:
    async def scenario() -> dict[TopicPartition, ErrorCode]:
        clock = ManualClock()
        verifier = Verifier(coordinator.ask, clock, TransactionConfig())
        running = asyncio.ensure_future(verifier.verify("orders", 7, 3, [P0, P1], may_add))
        await turn()
        while not running.done():
            clock.advance_ms(20)
            await turn()
        return running.result()

    return asyncio.run(scenario())


@pytest.mark.parametrize("may_add", [True, False])
def test_partitions_are_added_or_only_verified(may_add: bool) -> None:
    coordinator = Coordinator(ErrorCode.NONE)
    assert verify(coordinator, may_add=may_add) == {P0: ErrorCode.NONE, P1: ErrorCode.NONE}
    (transaction,) = coordinator.asked[0].transactions
    assert transaction.verify_only is not may_add
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("orders", 7, 3)
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 1])]


def test_verification_waits_for_the_end_of_the_previous_transaction() -> None:
    coordinator = Coordinator(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE)
    assert verify(coordinator) == {P0: ErrorCode.NONE, P1: ErrorCode.NONE}
    assert len(coordinator.asked) == 3


def test_verification_waits_for_the_previous_transaction_at_most_100_ms() -> None:
    coordinator = Coordinator(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert set(verify(coordinator).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert len(coordinator.asked) == 6, "at once and every 20 ms up to 100"


def test_a_verification_that_fails_with_producer_fenced_is_answered_invalid_producer_epoch() -> None:
    assert set(verify(Coordinator(ErrorCode.PRODUCER_FENCED)).values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}


def test_an_error_of_the_whole_request_is_that_of_all_partitions() -> None:
    answers = verify(Coordinator(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert answers == {P0: ErrorCode.INVALID_TXN_STATE, P1: ErrorCode.INVALID_TXN_STATE}
    answers = verify(Coordinator(error=ErrorCode.NOT_COORDINATOR))
    assert answers == {P0: ErrorCode.NOT_COORDINATOR, P1: ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize(
    ("code", "version", "heard"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_the_error_of_a_produce_whose_verification_failed(code: ErrorCode, version: int, heard: ErrorCode) -> None:
    assert produce_error(code, version) is heard

"""DescribeTransactions and ListTransactions (KIP-664): what an operator sees.

A prepared transaction is described with the partitions whose markers are still missing, as those are the ones that hold
it up. Ids that are expiring are left out. Lists are in Apache's order, that of its hash tables.

    ListTransactions   v1   only those that have been open for longer than a duration
                       v2   only those whose id matches a pattern as a whole
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache

from pessoa.base.java_order import concurrent_hash_order, hash_order, partition_hash, string_hash
from pessoa.base.linear_regex import InvalidRegex
from pessoa.coordinator.bounded_regex import Regex
from pessoa.coordinator.transactions.transaction import BY_TITLE, TopicPartition, Transaction
from pessoa.wire.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from pessoa.wire.api.describe_transactions import TransactionState as DescribedTransaction
from pessoa.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pessoa.wire.api.list_transactions import TransactionState as ListedTransaction
from pessoa.wire.errors import ErrorCode, Refusal


def describe_transactions(
    request: DescribeTransactionsRequest,
    transactions: Mapping[str, Transaction],
    unmarked: Mapping[str, AbstractSet[TopicPartition]],
) -> DescribeTransactionsResponse:
    states = []
    for name in request.transactional_ids:
        transaction = transactions.get(name)
        if transaction is None:
            states.append(describe_error(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
        else:
            states.append(_describe(transaction, unmarked.get(name, transaction.partitions)))
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def describe_error(transactional_id: str, error: ErrorCode) -> DescribedTransaction:
    return DescribedTransaction(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _describe(transaction: Transaction, partitions: AbstractSet[TopicPartition]) -> DescribedTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in hash_order(sorted(partitions), partition_hash):
        by_topic.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=ids) for topic, ids in by_topic.items()],
    )


def list_transactions(
    request: ListTransactionsRequest, transactions: Mapping[str, Transaction], now_ms: int
) -> ListTransactionsResponse:
    states = {BY_TITLE[title] for title in request.state_filters if title in BY_TITLE}
    producer_ids = set(request.producer_id_filters)
    pattern = pattern_of(request)
    found = [
        ListedTransaction(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.title,
        )
        for transaction in map(transactions.__getitem__, concurrent_hash_order(transactions, string_hash))
        if (not producer_ids or transaction.producer_id in producer_ids)
        # Filters of which none is known leave nothing.
        and (not request.state_filters or transaction.state in states)
        and (request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter)
        and (pattern is None or pattern.matches(transaction.transactional_id))
    ]
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown_states(request),
        transaction_states=found,
    )


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    return [title for title in dict.fromkeys(request.state_filters) if title not in BY_TITLE]


def pattern_of(request: ListTransactionsRequest) -> Regex | None:
    """Return the transactional id pattern of the request, None if it is empty. Raises a `Refusal` if it cannot be
    compiled."""
    text = request.transactional_id_pattern
    if not text:
        return None
    try:
        return _compile(text)
    except InvalidRegex as error:
        raise Refusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{text}` is not a valid regular expression: {error}.",
        ) from error


# Every partition of the topic is asked with the same pattern, one after the other.
@lru_cache(maxsize=8)
def _compile(text: str) -> Regex:
    return Regex(text)

"""A transaction as a record of `__transaction_state`, and back.

The value is written in version 1 once transaction.version is 1 or more. Version 0 has no room for the previous and the
next producer id and for the client's transaction.version; a cluster of that level never has them to tell.

In the state Empty the list of partitions is null, in all others it is a list, as Kafka writes it.
"""

from __future__ import annotations

from pessoa.coordinator.shard import CoordinatorRecord
from pessoa.coordinator.transactions.transaction import NO_EPOCH, State, Transaction
from pessoa.wire.stored.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

_FIRST_VERSION_WITH_FLEXIBLE_VALUES = 1


def to_record(transaction: Transaction, transaction_version: int) -> CoordinatorRecord:
    """Return the record of a transaction. `transaction_version` is the level of the cluster."""
    value_version = 1 if transaction_version >= _FIRST_VERSION_WITH_FLEXIBLE_VALUES else 0
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=_partitions(transaction),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if value_version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return CoordinatorRecord(TransactionLogKey(transactional_id=transaction.transactional_id), value, value_version)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def from_value(transactional_id: str, value: TransactionLogValue, last_producer_epoch: int = NO_EPOCH) -> Transaction:
    """Return the transaction of a record. The record does not hold `last_producer_epoch`; the live shard passes it."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions=frozenset(
            (schema.topic, partition)
            for schema in value.transaction_partitions or ()
            for partition in schema.partition_ids
        ),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_producer_epoch=last_producer_epoch,
        client_version=value.client_transaction_version,
    )


def _partitions(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is State.EMPTY:
        assert not transaction.partitions, f"an empty transaction has partitions: {transaction}"
        return None
    by_topic: dict[str, list[int]] = {}
    for topic, partition in transaction.sorted_partitions():
        by_topic.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]

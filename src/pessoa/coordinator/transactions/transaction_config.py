"""What an operator can set about transactions, under the names of Kafka's keys, with the defaults of Kafka 4.3."""

from __future__ import annotations

from dataclasses import dataclass

_SECOND_MS = 1000
_HOUR_MS = 60 * 60 * _SECOND_MS


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    transaction_max_timeout_ms: int = 15 * 60 * _SECOND_MS
    transactional_id_expiration_ms: int = 7 * 24 * _HOUR_MS
    # How often expired ids are looked for.
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _HOUR_MS
    # An open transaction is aborted when its time is over. This is when to try again if that could not be written.
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10 * _SECOND_MS
    # How long, and how often, a produce waits for the transaction before to be completed.
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    add_partitions_to_txn_retry_backoff_ms: int = 20

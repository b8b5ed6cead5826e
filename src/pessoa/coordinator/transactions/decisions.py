"""What a request may do to a transaction. Pure: a transaction goes in, the changed one comes out, or a `Refusal`.

`is_changing` says that a change of the transaction is on its way to the log, or that markers are: a request for another
one is refused (CONCURRENT_TRANSACTIONS). It is asked for before the producer is looked at, since what the producer
should be is just being changed. Only EndTxn of versions below 5 looks at the producer first; that is Kafka's order, and
old clients see it.

The end of a transaction in version 2, for a client with the present epoch or, as a retry, the one before:

                      abort, retry   abort, present   commit, retry   commit, present
    Empty             fenced         ends             fenced          INVALID_TXN_STATE
    CompleteAbort     as before      ends             INVALID_…       INVALID_…
    CompleteCommit    INVALID_…      ends             as before       INVALID_…

"Ends" is an abort of nothing: a client may have sent its partitions' first batches without knowing whether they came
in, and needs a new epoch to be sure. "As before" answers again what was answered. In versions below 2 a retry
cannot be told from the end of the next transaction, so the present epoch is the only one, and Complete answers its own
outcome. That is hard on a client whose AddPartitionsToTxn was lost together with its broker, and which then aborts: the
last transaction that the coordinator knows of was committed, so it hears INVALID_TXN_STATE, and librdkafka gives up for
good. To say yes would tell a client that asked for a commit, and then for an abort, that what is committed was aborted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pessoa.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    HIGHEST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdentity,
    State,
    TopicPartition,
    Transaction,
)
from pessoa.wire.errors import ErrorCode, Refusal

NextProducerId = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Fence:
    """The coordinator must abort the open transaction before the producer may begin."""


def begin_producer(
    transaction: Transaction,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    is_changing: bool,
    next_producer_id: NextProducerId,
    now_ms: int,
) -> Transaction | Fence:
    """Decide InitProducerId. `expected` is the producer id and epoch of a producer that continues after an error."""
    if is_changing:
        raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _may_go_on(transaction, expected):
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    if transaction.state is State.ONGOING:
        return Fence()
    assert transaction.state.is_idle, f"impossible at this point: {transaction}"
    if transaction.is_epoch_exhausted and (expected is None or expected.epoch == transaction.producer_epoch):
        return transaction.with_producer_id(
            next_producer_id(), timeout_ms, now_ms, keeps_last_epoch=expected is not None
        )
    return transaction.with_next_epoch(timeout_ms, None if expected is None else expected.epoch, now_ms)


def _may_go_on(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """Return whether the producer id is that of the transaction; its epoch is checked when it is raised."""
    if transaction.producer_epoch == NO_EPOCH or expected.id == transaction.producer_id:
        return True
    # It has used up its epochs and has not heard of the id that it got then.
    return expected.id == transaction.previous_producer_id and expected.epoch >= HIGHEST_CLIENT_EPOCH


def add_partitions(
    transaction: Transaction | None,
    producer: ProducerIdentity,
    partitions: frozenset[TopicPartition],
    client_version: int,
    is_changing: bool,
    now_ms: int,
) -> Transaction | None:
    """Decide AddPartitionsToTxn and AddOffsetsToTxn. None: the partitions are in the transaction already."""
    if transaction is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if is_changing:
        raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check_producer(transaction, producer)
    if transaction.state is State.ONGOING and partitions <= transaction.partitions:
        return None
    return transaction.with_partitions(partitions, client_version, now_ms)


def verify_partitions(
    transaction: Transaction | None, producer: ProducerIdentity, partitions: list[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return NONE for each partition that is in the open transaction, and an error for the others. A change in flight
    does not matter: the append that is verified is guarded against the end of the transaction."""
    if transaction is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    _check_producer(transaction, producer)
    if transaction.state.is_prepared:
        raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def end_transaction(
    transaction: Transaction | None,
    producer: ProducerIdentity,
    commits: bool,
    client_version: int,
    is_changing: bool,
    next_producer_id: NextProducerId,
    now_ms: int,
) -> Transaction | None:
    """Decide EndTxn. None: the transaction has ended that way already, and the response is the same as then."""
    if transaction is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version < EPOCH_BUMP_VERSION:
        return _end_below_version_2(transaction, producer, commits, is_changing, now_ms)
    if is_changing:
        raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_overflow_retry = (
        transaction.previous_producer_id == producer.id
        and producer.epoch == HIGHEST_CLIENT_EPOCH
        and transaction.producer_epoch == 0
    )
    if producer.id != transaction.producer_id and not is_overflow_retry:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_overflow_retry or transaction.producer_epoch == producer.epoch + 1
    is_present = producer.epoch == transaction.producer_epoch
    state = transaction.state
    if not is_present and not (is_retry and state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)):
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    if state is not State.ONGOING:
        if is_retry and state is (State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT):
            return None
        if is_retry or commits:
            raise Refusal(ErrorCode.INVALID_TXN_STATE)
    next_id = next_producer_id() if transaction.is_epoch_exhausted else NO_PRODUCER_ID
    return transaction.prepared(commits, client_version, next_id, now_ms)


def _end_below_version_2(
    transaction: Transaction, producer: ProducerIdentity, commits: bool, is_changing: bool, now_ms: int
) -> Transaction | None:
    _check_producer(transaction, producer)
    if is_changing:
        raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is State.ONGOING:
        return transaction.prepared(commits, 0, NO_PRODUCER_ID, now_ms)
    if transaction.state is (State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT):
        return None
    raise Refusal(ErrorCode.INVALID_TXN_STATE)


def fence(
    transaction: Transaction, transaction_version: int, next_producer_id: NextProducerId, now_ms: int
) -> Transaction:
    """Abort the open transaction without its producer, with a producer epoch above its own. `transaction_version` is
    the cluster's, since no client asked for this."""
    assert transaction.state is State.ONGOING, f"nothing is open: {transaction}"
    if transaction_version < EPOCH_BUMP_VERSION:
        return transaction.fenced().prepared(False, 0, NO_PRODUCER_ID, now_ms)
    next_id = next_producer_id() if transaction.is_epoch_exhausted else NO_PRODUCER_ID
    return transaction.prepared(False, transaction_version, next_id, now_ms)


def _check_producer(transaction: Transaction, producer: ProducerIdentity) -> None:
    if producer.id != transaction.producer_id:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer.epoch != transaction.producer_epoch:
        raise Refusal(ErrorCode.PRODUCER_FENCED)

"""What a partition remembers of its producers: idempotence, transactions and the last stable offset.

A batch of an idempotent producer carries (producer id, epoch, first sequence). The partition keeps one
`ProducerStateEntry` per producer id (`producer_entry`), and from it follows what a further batch means:

    same epoch, first sequence is the next one           in order: append it
    same epoch, equals one of the last five batches      a repetition: answer with the offsets it got the first time
    same epoch, any other sequence                       OUT_OF_ORDER_SEQUENCE_NUMBER
    higher epoch, first sequence 0                       the producer began anew: append it, forget the five
    higher epoch, any other sequence                     OUT_OF_ORDER_SEQUENCE_NUMBER
    lower epoch                                          INVALID_PRODUCER_EPOCH: a zombie
    no entry                                             append it, with any sequence: the entry may have expired or
                                                         gone with the head of the log

Transactions. The first transactional batch of a producer opens its transaction in this partition, a marker (a control
batch with COMMIT or ABORT, written by the transaction coordinator) ends it. From the first offset of an open
transaction on nothing is decided, and a marker above the high watermark may yet be lost; so

    first unstable offset = the least first offset of a transaction that is open, or whose marker is not replicated
    last stable offset    = the first unstable offset, but at most the high watermark

A transaction passes through three states here. Ongoing: between its first batch and its marker. Completed but not
replicated: `complete` puts it there, after the caller has put an aborted one into the transaction index. Gone: when the
high watermark passes its marker.

    update(batch) → CompletedTransaction → last_stable_offset(…) → (transaction index) → complete(…)

A marker carries the epoch of its coordinator, and one of an older coordinator is TRANSACTION_COORDINATOR_FENCED. Under
transaction version 2 (KIP-890) the coordinator raises the producer's epoch with every marker, so a marker must have a
higher epoch than the entry. There are two exceptions, both retries: no transaction is open (the marker was written, its
answer lost), and epoch 32767, which cannot be raised.

Verification (KIP-890). A delayed batch could open a transaction that its coordinator has long ended, and nothing would
end it again. So a transactional batch may open a transaction only with the guard of a verification: the broker calls
`start_verification`, asks the coordinator, and appends with the guard that it got. A marker that comes in between takes
the guard away.

Calls. `check` changes nothing and refuses with `ProducerRefused`; it is for appends of a leader, which have one
batch per partition. `update` refuses nothing; it is the only thing that learns from a batch, and the leader, a follower
and recovery call it alike, in the order of the log. A follower does not check: what stands in the leader's log has
happened. That includes what Apache's followers stop at, data outside the producer's open transaction.

Batches without producer id never come here on the hot path: the caller looks at `batch.producer_id` first.

Invariants: the keys of `_ongoing` rise, and each is the `current_txn_first_offset` of its producer's entry; the
completed ones are in the order of their markers. Facts from Apache Kafka 4.3.1; KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.producer_entry import (
    BATCHES_REMEMBERED,
    SEQUENCE_MASK,
    BatchMetadata,
    ProducerStateEntry,
)
from pessoa.records.batch import (
    CONTROL_FLAG,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
)
from pessoa.records.control_records import ControlRecordType, control_records
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.control_record_bodies import EndTxnMarker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pessoa.records.batch import RecordBatch

# Transaction version 2 is the one in which every marker raises the producer's epoch.
EPOCH_BUMP_TRANSACTION_VERSION = 2
UNKNOWN_TRANSACTION_VERSION = -1
PRODUCER_EPOCH_MAX = 32767

_TRANSACTIONAL_OR_CONTROL = TRANSACTIONAL_FLAG | CONTROL_FLAG
_new_tuple = tuple.__new__


class AppendOrigin(Enum):
    """The kind of writer of a batch, which decides how much is checked."""

    CLIENT = "client"
    # Group and transaction coordinators: markers, and offset commits, which have a producer but no sequence.
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    RAFT_LEADER = "raft leader"


_CLIENT = AppendOrigin.CLIENT
_REPLICATION = AppendOrigin.REPLICATION
_RAFT_LEADER = AppendOrigin.RAFT_LEADER


class ProducerRefused(Exception):
    """The batch may not be appended: an error code for its producer or coordinator, and a message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message

    def __str__(self) -> str:
        return f"{self.error.name}: {self.message}"


class CompletedTransaction(NamedTuple):
    """A transaction in this partition and how it ended; `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class EndMarker(NamedTuple):
    """The content of a transaction marker: a control record that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


class VerificationGuard:
    """Proof that a verification was begun after the last marker. A guard equals only itself."""

    __slots__ = ()


class Verification:
    """A verification under way: a batch would open a transaction, and the coordinator is asked whether it may. Several
    batches may wait for one answer. The lowest of their sequences must be appended first, or it would be out of order
    for ever after."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(self, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.started_ms = now_ms

    def join(self, sequence: int, epoch: int) -> None:
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence

    def __repr__(self) -> str:
        return f"Verification(epoch {self.epoch}, from sequence {self.lowest_sequence}, since {self.started_ms} ms)"


class ProducerState:
    """The producers of one partition. `end_offset` is where the log ended when this was true of it; the caller sets it
    after every append, because batches without producer move it too."""

    __slots__ = (
        "_ongoing",
        "_producers",
        "_unreplicated",
        "_verifications",
        "end_offset",
        "first_unstable_offset",
        "verification_enabled",
    )

    def __init__(self, *, verification_enabled: bool = True) -> None:
        self.end_offset = 0
        # transaction.partition.verification.enable, which may change while the broker runs
        self.verification_enabled = verification_enabled
        # Kept up to date, so that asking for it costs nothing.
        self.first_unstable_offset: int | None = None
        self._producers: dict[int, ProducerStateEntry] = {}
        self._verifications: dict[int, Verification] = {}
        # first offset → producer id
        self._ongoing: dict[int, int] = {}
        # Few, and none in most logs: an empty deque would be half of what there is to know about an empty log.
        self._unreplicated: list[CompletedTransaction] = []

    # ---- what an append means ----

    def check(
        self,
        batch: RecordBatch,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = UNKNOWN_TRANSACTION_VERSION,
    ) -> BatchMetadata | None:
        """Return None if the batch may be appended; if it repeats a batch, the metadata of the earlier append.

        `guard` is what `start_verification` gave. `transaction_version` is the one in which a marker was requested.
        """
        entry = self._producers.get(batch.producer_id)
        # The next batch of a known producer, inside or outside a transaction like the one before it.
        if (
            entry is not None
            and batch.base_sequence == entry.next_sequence
            and batch.producer_epoch == entry.epoch
            and batch.attributes & _TRANSACTIONAL_OR_CONTROL
            == (0 if entry.current_txn_first_offset is None else TRANSACTIONAL_FLAG)
            and not self._verifications
        ):
            return None
        if batch.producer_id < 0 or origin is _REPLICATION:
            return None
        if entry is not None and origin is _CLIENT:
            duplicate = entry.duplicate_of(batch)
            if duplicate is not None:
                return duplicate
        self._check_transaction(batch, entry, origin, guard)
        if batch.attributes & CONTROL_FLAG:
            _check_marker(batch, entry, transaction_version)
        else:
            self._check_data(batch, entry, origin)
        return None

    def update(self, batch: RecordBatch) -> CompletedTransaction | None:
        """Apply a batch that stands in the log. Return the transaction that it ends, if any, which stays ongoing until
        `complete`."""
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        attributes = batch.attributes
        if attributes & CONTROL_FLAG:
            return self._end_transaction(batch)
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerStateEntry(producer_id)
        if entry.epoch != batch.producer_epoch:
            entry.enter_epoch(batch.producer_epoch)
        base_offset = batch.base_offset
        offset_delta = batch.last_offset_delta
        last_sequence = batch.base_sequence
        if last_sequence != NO_SEQUENCE:
            last_sequence = (last_sequence + offset_delta) & SEQUENCE_MASK
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        entry.last_timestamp = timestamp = batch.max_timestamp
        batches = entry.batches
        if len(batches) == BATCHES_REMEMBERED:
            del batches[0]
        # Past the generated constructor, which is written in Python.
        batches.append(_new_tuple(BatchMetadata, (last_sequence, base_offset + offset_delta, offset_delta, timestamp)))
        if attributes & TRANSACTIONAL_FLAG:
            if entry.current_txn_first_offset is None:
                self._begin_transaction(entry, base_offset)
            if self._verifications:
                self._verifications.pop(producer_id, None)
        return None

    def _check_transaction(
        self,
        batch: RecordBatch,
        entry: ProducerStateEntry | None,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
    ) -> None:
        """Raise `ProducerRefused` if the batch would open a transaction that its coordinator has not verified."""
        if not batch.attributes & TRANSACTIONAL_FLAG or origin is _RAFT_LEADER:
            return
        if self.has_ongoing_transaction(batch.producer_id, batch.producer_epoch):
            return
        if entry is not None and batch.producer_epoch < entry.epoch:
            raise _fenced_error(batch.producer_id, batch.producer_epoch, entry)
        if not self.verification_enabled or batch.attributes & CONTROL_FLAG:
            return
        verification = self._verifications.get(batch.producer_id)
        if guard is None or verification is None or verification.guard is not guard:
            raise ProducerRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has no transaction here that its coordinator is known to have open",
            )

    def _check_data(self, batch: RecordBatch, entry: ProducerStateEntry | None, origin: AppendOrigin) -> None:
        if batch.producer_epoch < (NO_PRODUCER_EPOCH if entry is None else entry.epoch):
            raise _fenced_error(batch.producer_id, batch.producer_epoch, entry)
        if origin is _CLIENT:
            self._check_sequence(batch, entry)
        if entry is not None and entry.current_txn_first_offset is not None and not batch.is_transactional:
            raise ProducerRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has a transaction open since offset {entry.current_txn_first_offset} "
                "and sends a batch that is not part of it",
            )

    def _check_sequence(self, batch: RecordBatch, entry: ProducerStateEntry | None) -> None:
        sequence = batch.base_sequence
        verification = self._verifications.get(batch.producer_id)
        if verification is not None:
            # Such a producer starts each transaction with a new epoch at 0, so another sequence means that the one
            # before it is still to come.
            if verification.supports_epoch_bump and sequence != 0 and (entry is None or not entry.batches):
                raise _out_of_order_error(batch, "and nothing of this epoch is here, so 0 was expected")
            if sequence > verification.lowest_sequence:
                raise _out_of_order_error(
                    batch, f"and sequence {verification.lowest_sequence} waits to be verified first"
                )
        if entry is None or entry.epoch == NO_PRODUCER_EPOCH:
            return
        if batch.producer_epoch != entry.epoch:
            if sequence != 0:
                raise _out_of_order_error(batch, f"and a new epoch starts at 0 (the last one was {entry.epoch})")
        elif sequence != entry.next_sequence:
            raise _out_of_order_error(batch, f"and {entry.next_sequence} was expected")

    # ---- transactions ----

    def _begin_transaction(self, entry: ProducerStateEntry, first_offset: int) -> None:
        assert not self._ongoing or first_offset > next(reversed(self._ongoing)), (first_offset, self)
        entry.current_txn_first_offset = first_offset
        self._ongoing[first_offset] = entry.producer_id
        if self.first_unstable_offset is None:
            self.first_unstable_offset = first_offset

    def _end_transaction(self, batch: RecordBatch) -> CompletedTransaction | None:
        marker = read_end_marker(batch)
        if marker is None:
            return None
        producer_id = batch.producer_id
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerStateEntry(producer_id)
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, None
        entry.enter_epoch(batch.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        verification = self._verifications.get(producer_id)
        # The marker of the transaction before, which has raised the epoch to the one that is being verified, says
        # nothing about the transaction that is to begin.
        if verification is not None and not (
            verification.supports_epoch_bump and verification.epoch == batch.producer_epoch
        ):
            del self._verifications[producer_id]
        if first_offset is None:
            # A marker without data decides nothing that a reader could see.
            return None
        return CompletedTransaction(producer_id, first_offset, batch.base_offset, marker.is_abort)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return what the last stable offset will be after `complete`, as far as transactions decide it."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """Remove the transaction from the ongoing ones; it holds back the last stable offset until its marker is
        replicated. An aborted one must be in the transaction index."""
        producer_id = self._ongoing.pop(completed.first_offset, None)
        assert producer_id == completed.producer_id, (completed, self)
        assert not self._unreplicated or completed.last_offset > self._unreplicated[-1].last_offset, (completed, self)
        self._unreplicated.append(completed)
        self._find_first_unstable_offset()

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        unreplicated = self._unreplicated
        if unreplicated and unreplicated[0].last_offset < high_watermark:
            while unreplicated and unreplicated[0].last_offset < high_watermark:
                del unreplicated[0]
            self._find_first_unstable_offset()

    def _find_first_unstable_offset(self) -> None:
        first = next(iter(self._ongoing), None)
        for transaction in self._unreplicated:
            if first is None or transaction.first_offset < first:
                first = transaction.first_offset
        self.first_unstable_offset = first

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset is not None and entry.epoch == epoch

    # ---- verification ----

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Return the guard to append with once the coordinator has verified the transaction; None if it need not be
        asked: the transaction is open already, or verification is switched off. `supports_epoch_bump` is true for
        producers of transaction version 2, which raise their epoch per transaction. For them the verification also adds
        the partition to the transaction, so it always takes place."""
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _fenced_error(producer_id, epoch, entry)
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        if not self.verification_enabled and not supports_epoch_bump:
            return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(sequence, epoch, supports_epoch_bump, now_ms)
            self._verifications[producer_id] = verification
        else:
            verification.join(sequence, epoch)
        return verification.guard

    def verification(self, producer_id: int) -> Verification | None:
        return self._verifications.get(producer_id)

    # ---- the map as a whole ----

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def entries(self) -> Iterator[ProducerStateEntry]:
        """Every producer: for a snapshot, for DescribeProducers, for compaction."""
        return iter(self._producers.values())

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for `producer.id.expiration.ms` without an open transaction; return how
        many."""
        expired = [entry.producer_id for entry in self.entries() if entry.is_expired(now_ms, expiration_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.started_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(expired)

    def truncate_head(self, log_start_offset: int) -> None:
        """Take over a new log start offset. Producers stay, even if their batches were deleted: their sequences still
        count."""
        self.on_high_watermark_updated(log_start_offset)
        if self.end_offset < log_start_offset:
            self.end_offset = log_start_offset

    def reload(self, entries: Iterable[ProducerStateEntry], end_offset: int, now_ms: int, expiration_ms: int) -> None:
        """Become what a snapshot at `end_offset` says, for a log that was opened, or truncated to that offset or
        beyond.

        Batches from there on have to be replayed with `update`. Completed transactions that were not replicated are
        forgotten, because a log is never truncated below its high watermark. Verifications stay: their guards are of
        this broker's memory and not of the log.
        """
        self.clear(end_offset)
        self._producers = {entry.producer_id: entry for entry in entries if not entry.is_expired(now_ms, expiration_ms)}
        self._ongoing = dict(
            sorted(
                (entry.current_txn_first_offset, entry.producer_id)
                for entry in self.entries()
                if entry.current_txn_first_offset is not None
            )
        )
        self._find_first_unstable_offset()

    def clear(self, end_offset: int) -> None:
        """Forget every producer: the log is empty and starts at `end_offset`."""
        self._producers = {}
        self._ongoing = {}
        self._unreplicated.clear()
        self.first_unstable_offset = None
        self.end_offset = end_offset

    def __repr__(self) -> str:
        return (
            f"ProducerState({len(self._producers)} producers at offset {self.end_offset}, ongoing {self._ongoing}, "
            f"unreplicated {list(self._unreplicated)}, first unstable {self.first_unstable_offset}, "
            f"{len(self._verifications)} verifications)"
        )


def read_end_marker(batch: RecordBatch) -> EndMarker | None:
    """The marker in a control batch, or None where compaction has taken it out together with its transaction."""
    record = next(control_records(batch), None)
    if record is None or not isinstance(record.message, EndTxnMarker):
        return None
    return EndMarker(record.type is ControlRecordType.ABORT, record.message.coordinator_epoch, record.timestamp)


def _check_marker(batch: RecordBatch, entry: ProducerStateEntry | None, transaction_version: int) -> None:
    marker = read_end_marker(batch)
    if marker is None or entry is None:
        return
    epoch = batch.producer_epoch
    if transaction_version >= EPOCH_BUMP_TRANSACTION_VERSION and epoch == entry.epoch:
        is_retry = entry.current_txn_first_offset is None or epoch == PRODUCER_EPOCH_MAX
        if not is_retry:
            raise _fenced_error(batch.producer_id, epoch, entry, "not above")
    elif epoch < entry.epoch:
        raise _fenced_error(batch.producer_id, epoch, entry)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise ProducerRefused(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a marker for producer {batch.producer_id} comes from coordinator epoch {marker.coordinator_epoch}, and "
            f"{entry.coordinator_epoch} has written here",
        )


def _fenced_error(
    producer_id: int, epoch: int, entry: ProducerStateEntry | None, comparison: str = "below"
) -> ProducerRefused:
    last_seen = "none" if entry is None else entry.epoch
    return ProducerRefused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {producer_id} is {comparison} the last one seen, {last_seen}",
    )


def _out_of_order_error(batch: RecordBatch, reason: str) -> ProducerRefused:
    return ProducerRefused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} in epoch {batch.producer_epoch} sends sequence {batch.base_sequence}, {reason}",
    )

"""What the coordinator knows of one transactional id, and how it may change.

A `Transaction` is a value. A change makes another one; `transaction_encoding` writes it down and reads it back.

    Empty ──add──► Ongoing ──end──► PrepareCommit ──markers──► CompleteCommit ──add──► Ongoing …
      ▲               │                                             │
      │               └──end, fence, time-out──► PrepareAbort ──markers──► CompleteAbort ──add──► Ongoing …
      └───────────────────────── InitProducerId ◄───────────────────┘

PrepareEpochFence and Dead have a number and a name in Kafka's table and are never written: the first is an abort that
the coordinator begins itself, the second an id between its tombstone and the tombstone's commit.

**Epochs.** A producer writes under (id, epoch); a producer with an older epoch is a zombie. InitProducerId raises the
epoch. Since transaction version 2 (KIP-890) the end of every transaction raises it too, so that a request which was
delayed beyond the end of its transaction cannot be taken for one of the next. The epoch is a short. A client never gets
the last value, 32767: it is kept so that there is always one left to fence with. After 32766 the id changes:

    InitProducerId at 32766            → the new id, epoch 0, at once
    end of a transaction at 32766 (2)  → PrepareX under the old id with epoch 32767, for that is what the markers must
                                         carry, and `next_producer_id`; CompleteX under the new id with epoch 0

**Previous and last.** `previous_producer_id` is the id before the last change, nearly always the same; it is stored.
`last_producer_epoch` is the epoch that the producer had when it asked for the present one. With it a retried
InitProducerId is told from a zombie's (KIP-360). Kafka does not store it, so after a fail-over such a retry is fenced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from pessoa.wire.errors import ErrorCode, Refusal

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
LAST_EPOCH = 32767
# The highest that a client may have.
HIGHEST_CLIENT_EPOCH = LAST_EPOCH - 1
# The first transaction.version whose transactions raise the epoch at their end.
EPOCH_BUMP_VERSION = 2
# Only a participant of a two-phase commit, which has no time-out, asks for this one (KIP-939).
NO_TIMEOUT_MS = (1 << 31) - 1


class State(Enum):
    """The state of a transaction; the value is Kafka's number in the record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's display name of the state: PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers are being written."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, so that the transactional id may expire."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


BY_TITLE = {state.title: state for state in State}


class ProducerIdentity(NamedTuple):
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    last_update_ms: int
    # When the first partition was added; NO_TIME in a new id and after InitProducerId.
    start_ms: int = NO_TIME
    # Empty where the state is Empty or Complete.
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    # Set while a transaction ends whose end also brings a new producer id.
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    # The transaction.version that the client spoke at the last change.
    client_version: int = 0

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Return the transaction of an unused transactional id. InitProducerId raises its epoch, -1, to 0."""
        return cls(transactional_id, producer_id, NO_EPOCH, timeout_ms, State.EMPTY, now_ms)

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= HIGHEST_CLIENT_EPOCH

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the open transaction times out; None if none is open."""
        if self.state is not State.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_ms + self.timeout_ms + 1

    def sorted_partitions(self) -> list[TopicPartition]:
        return sorted(self.partitions)

    # ── InitProducerId ──

    def with_next_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction:
        """Return the transaction with the next producer epoch: for a producer that begins, or, with `expected_epoch`,
        for one that goes on after an error (KIP-360)."""
        if expected_epoch is None:
            epoch, last_epoch = self.producer_epoch + 1, NO_EPOCH
        elif self.producer_epoch in (NO_EPOCH, expected_epoch):
            epoch, last_epoch = self.producer_epoch + 1, self.producer_epoch
        elif expected_epoch == self.last_producer_epoch:
            # The producer has not heard of the epoch that it got.
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        else:
            raise Refusal(ErrorCode.PRODUCER_FENCED)
        assert epoch <= HIGHEST_CLIENT_EPOCH, f"no epoch is left: {self}"
        return self._reset(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_producer_id(self, producer_id: int, timeout_ms: int, now_ms: int, keeps_last_epoch: bool) -> Transaction:
        """Return the transaction with another producer id, since the epochs of the present one are used up."""
        last_epoch = self.producer_epoch if keeps_last_epoch else NO_EPOCH
        return self._reset(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _reset(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        assert self.state.is_idle, f"a transaction is open: {self}"
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIME,
            last_update_ms=now_ms,
        )

    # ── the open transaction ──

    def with_partitions(self, added: frozenset[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        assert not self.state.is_prepared, f"a transaction is ending: {self}"
        return replace(
            self,
            previous_producer_id=self.producer_id,
            state=State.ONGOING,
            partitions=self.partitions | added,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    # ── the end ──

    def prepared(self, commits: bool, client_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """Return the transaction with its outcome decided. In version 2 this raises the epoch, even if no partition was
        added."""
        if client_version >= EPOCH_BUMP_VERSION:
            # Beyond the last epoch nothing is left to raise to; an abort must be possible even then.
            assert self.producer_epoch < LAST_EPOCH or not commits, f"the last epoch must not commit: {self}"
            epoch = min(self.producer_epoch + 1, LAST_EPOCH)
            last_epoch = self.producer_epoch
        else:
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            state=State.PREPARE_COMMIT if commits else State.PREPARE_ABORT,
            # A transaction without partitions has no beginning, but a record of its end needs one.
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self) -> Transaction:
        """Return the transaction with an epoch above the producer's, with which an abort in versions 0 and 1 begins."""
        return replace(self, producer_epoch=min(self.producer_epoch + 1, LAST_EPOCH), last_producer_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> Transaction:
        """Return the transaction after all its markers were written."""
        assert self.state.is_prepared, f"nothing is to be completed: {self}"
        has_new_id = self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            producer_id=self.next_producer_id if has_new_id else self.producer_id,
            producer_epoch=0 if has_new_id else self.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

"""One producer in one partition: its epoch, its last five batches, and since when its transaction is open.

Five, because a producer has at most five requests in flight and gets no answer to the sixth before the first. Sequences
count records, and 0 follows 2^31 - 1.

What this means for the next batch is decided by `producer_state`; `.snapshot` files (`producer_snapshot_format`) hold a
list of these and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.records.batch import RecordBatch

BATCHES_REMEMBERED = 5
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = -1
SEQUENCE_MASK = 0x7FFFFFFF


class BatchMetadata(NamedTuple):
    """The sequences and offsets of an appended batch, by which a duplicate is recognised and answered."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """One producer in one partition. Invariants: at most five `batches`, of this epoch, the latest at the end;
    `next_sequence` follows the last of them and is 0 where there is none."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches = list(batches)
        assert len(self.batches) <= BATCHES_REMEMBERED
        self.next_sequence = (self.last_sequence + 1) & SEQUENCE_MASK

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The last offset of its last data batch in this epoch, or -1. Compaction keeps that batch, if need be without
        records."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the producer can be removed: it was idle for so long, and has no open transaction."""
        return self.current_txn_first_offset is None and now_ms - self.last_timestamp >= expiration_ms

    def duplicate_of(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch with exactly the sequences of this one."""
        if batch.producer_epoch == self.epoch:
            last_sequence = batch.last_sequence
            offset_delta = batch.last_offset_delta
            for known in self.batches:
                # The last sequence and the size give the first sequence.
                if known.last_sequence == last_sequence and known.offset_delta == offset_delta:
                    return known
        return None

    def enter_epoch(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStateEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry({self.producer_id}, epoch {self.epoch}, coordinator epoch {self.coordinator_epoch}, "
            f"last timestamp {self.last_timestamp}, transaction since {self.current_txn_first_offset}, "
            f"next sequence {self.next_sequence}, {self.batches})"
        )

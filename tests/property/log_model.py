"""A partition log as a list of batches: the simple model that the real one is compared with.

The model has the appended batches, in order, and no state derived from them. Every question is answered from the whole
list each time: what a producer may send next, which transactions are open, which leader wrote what. There are no
segments, indexes, snapshots or checkpoints here.

After a crash the content of a log is uncertain, so the model has what *must* be present and what *may* be:

    `batches`       what a reader finds; after a kill of the process, or a clean shutdown, exactly these
    `durable_end`   batches below it were synced, and must be present after a power loss
    `ghosts`        the lists from before truncations that no sync has made durable: after a power loss the log may be
                    one of them again, or a prefix
    `durable_start` the log start when it was last synced: a power loss may restore deleted records, but none below it

After a power loss the log must be a prefix of one of these lists, and reach at least to `durable_end`. It must never
be a mixture of two lists: batches of one leader, followed by those that another leader wrote after different batches,
look like a valid log and are not the same log.

Producers have a list of their own, `memory`: when the log drops batches (retention, compaction), producer snapshots
keep the state of their producers. Snapshots have only the last batch of each producer, so a reload may forget the four
before it; `recognised` has those that are still known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from pessoa.log.producer_entry import BatchMetadata, ProducerStateEntry
from pessoa.records.batch import RecordBatch
from pessoa.records.checksum import crc32c
from pessoa.records.control_records import ControlRecordType, control_records
from pessoa.records.record import Record, records
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.control_record_bodies import EndTxnMarker

SEQUENCES = 1 << 31
NO_TIMESTAMP = -1


class Marker(NamedTuple):
    is_abort: bool
    coordinator_epoch: int


class Stored:
    """A batch as it is in the log, byte for byte."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header = RecordBatch(data)
        self.base_offset = self.header.base_offset
        self.last_offset = self.header.last_offset
        self.next_offset = self.header.next_offset
        self.epoch = self.header.partition_leader_epoch
        self.producer_id = self.header.producer_id

    @cached_property
    def records(self) -> tuple[Record, ...]:
        return tuple(records(self.header))

    @cached_property
    def marker(self) -> Marker | None:
        if not self.header.is_control:
            return None
        record = next(control_records(self.header), None)
        if record is None:
            return None  # compaction has taken it out, and left the batch for its producer's sake
        assert isinstance(record.message, EndTxnMarker)
        return Marker(record.type is ControlRecordType.ABORT, record.message.coordinator_epoch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        kind = "" if self.marker is None else " abort" if self.marker.is_abort else " commit"
        return f"{self.base_offset}..{self.last_offset}@{self.epoch}{kind}"


def stamped(data: bytes | bytearray, base_offset: int, epoch: int, append_time_ms: int | None) -> Stored:
    """Return a produced batch as the leader appends it, made without the code under test."""
    batch = bytearray(data)
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, epoch)
    if append_time_ms is not None:
        (attributes,) = struct.unpack_from(">h", batch, 21)
        struct.pack_into(">h", batch, 21, attributes | 8)
        struct.pack_into(">q", batch, 35, append_time_ms)
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return Stored(bytes(batch))


@dataclass
class Producer:
    """The state of one producer, derived from all its batches."""

    epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    transaction_since: int | None = None
    # Of the epoch, the last five, and of those the ones that were not forgotten.
    batches: list[BatchMetadata] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        return (self.batches[-1].last_sequence + 1) % SEQUENCES if self.batches else 0


class Ghost(NamedTuple):
    """The content of the log before a truncation."""

    batches: list[Stored]
    memory: list[Stored]
    log_start: int


class Ended(NamedTuple):
    """A transaction that has its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


def learnt(batches: Iterable[Stored]) -> tuple[dict[int, Producer], list[Ended]]:
    """Return the producers and ended transactions that follow from all batches."""
    producers: dict[int, Producer] = {}
    ended: list[Ended] = []
    for batch in batches:
        if batch.producer_id < 0 or (batch.header.is_control and batch.marker is None):
            continue
        producer = producers.setdefault(batch.producer_id, Producer())
        header = batch.header
        if header.producer_epoch != producer.epoch:
            producer.epoch, producer.batches = header.producer_epoch, []
        producer.last_timestamp = header.max_timestamp
        if batch.marker is not None:
            producer.coordinator_epoch = batch.marker.coordinator_epoch
            if producer.transaction_since is not None:
                ended.append(Ended(batch.producer_id, producer.transaction_since, batch.base_offset))
            producer.transaction_since = None
            continue
        known = BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        producer.batches = [*producer.batches, known][-5:]
        if header.is_transactional and producer.transaction_since is None:
            producer.transaction_since = header.base_offset
    return producers, ended


@dataclass
class LogModel:
    """The model of one partition. Operations return what the real log must return; the fields are described above."""

    is_log_append_time: bool = False
    batches: list[Stored] = field(default_factory=list)
    memory: list[Stored] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0
    high_watermark: int = 0
    # A checkpoint may hold an older high watermark, even from before a truncation; never a higher one than ever was.
    highest_watermark: int = 0
    durable_end: int = 0
    durable_start: int = 0
    ghosts: list[Ghost] = field(default_factory=list)
    truncations: int = 0
    # Where the log ended at the last reload, which forgets that transactions are not replicated that ended before.
    reloaded_at: int = 0
    # Of the batches below `reloaded_at`, the last offsets of those whose repetitions are still recognised.
    recognised: set[int] = field(default_factory=set)
    # Below it leader epochs may be unknown: records came back that were deleted, because the checkpoint was lost.
    epochs_from: int = 0
    # Batches are gone from between others, and with them the places where leader epochs began.
    is_compacted: bool = False

    # ---- what the list says ----

    def producers(self) -> dict[int, Producer]:
        producers, _ = learnt(self.memory)
        for producer in producers.values():
            producer.batches = [
                batch
                for batch in producer.batches
                if batch.last_offset >= self.reloaded_at or batch.last_offset in self.recognised
            ]
        return producers

    def last_stable_offsets(self) -> tuple[int, int]:
        """Return the least and the greatest possible last stable offset; they differ if a reload may have lost a
        marker."""
        producers, ended = learnt(self.memory)
        still_open = [one.transaction_since for one in producers.values() if one.transaction_since is not None]
        unreplicated = [one for one in ended if one.marker_offset >= self.high_watermark]
        strict = still_open + [one.first_offset for one in unreplicated]
        lenient = still_open + [one.first_offset for one in unreplicated if one.marker_offset >= self.reloaded_at]
        return self._stable(strict), self._stable(lenient)

    def _stable(self, unstable: list[int]) -> int:
        return max(self.log_start, min([self.high_watermark, *unstable]))

    def visible(self) -> list[Stored]:
        return [batch for batch in self.batches if batch.last_offset >= self.log_start]

    def committed(self, batches: Sequence[Stored]) -> list[Record]:
        """Return the data records in these batches that are not part of an aborted transaction."""
        found: list[Record] = []
        for batch in batches:
            if batch.marker is None and not (batch.header.is_transactional and self.is_aborted(batch)):
                found += batch.records
        return found

    def is_aborted(self, batch: Stored) -> bool:
        for later in self.memory:
            is_of_it = later.base_offset > batch.base_offset and later.producer_id == batch.producer_id
            if is_of_it and later.marker is not None:
                return later.marker.is_abort
        return False

    def first_at_or_after(self, timestamp: int) -> Record | None:
        for batch in self.visible():
            for record in batch.records:
                if record.offset >= self.log_start and record.timestamp >= timestamp:
                    return record
        return None

    # ---- what an append means ----

    def refusal_of(self, data: bytes | bytearray) -> ErrorCode | BatchMetadata | None:
        """Return the error for a batch of a client, or the batch of which it is a duplicate, or None if it is
        appended."""
        batch = RecordBatch(data)
        producer = self.producers().get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch == producer.epoch:
            for known in producer.batches:
                if (known.first_sequence, known.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return known
        if batch.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        expected = producer.next_sequence if batch.producer_epoch == producer.epoch else 0
        if batch.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer.transaction_since is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def refusal_of_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> ErrorCode | None:
        producer = self.producers().get(producer_id)
        if producer is None:
            return None
        if epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    def lead(self, data: bytes | bytearray, epoch: int, now_ms: int) -> Stored:
        """Append as leader, and return the batch as it is in the log then."""
        batch = stamped(data, self.log_end, epoch, now_ms if self.is_log_append_time else None)
        self.follow([batch])
        return batch

    def follow(self, batches: Iterable[Stored]) -> None:
        for batch in batches:
            assert batch.base_offset >= self.log_end
            self.batches.append(batch)
            self.memory.append(batch)
            self.log_end = batch.next_offset

    # ---- everything else that moves ----

    def replicate(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end))
        self.highest_watermark = max(self.highest_watermark, self.high_watermark)

    def truncate(self, offset: int) -> None:
        if offset >= self.log_end:
            return
        self.ghosts.append(self._as_it_is())
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.memory = [batch for batch in self.memory if batch.last_offset < offset]
        self.log_end = offset
        self.log_start = min(self.log_start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.durable_end = min(self.durable_end, offset)
        self.durable_start = min(self.durable_start, offset)
        self.epochs_from = min(self.epochs_from, offset)
        self.truncations += 1
        self.reloaded_at = offset

    def last_batch_end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def shorten_to(self, offset: int) -> None:
        """Truncate to the offset: batches from there on are removed."""
        assert self.last_batch_end() <= offset
        self.log_end = self.reloaded_at = offset
        self.log_start = min(self.log_start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.durable_end = min(self.durable_end, offset)

    def restart(self, offset: int) -> None:
        """Remove all batches, and let the log continue at another offset."""
        self.ghosts.append(self._as_it_is())
        self.batches, self.memory = [], []
        self.log_start = self.log_end = self.high_watermark = offset
        self.highest_watermark = max(self.highest_watermark, offset)
        self.durable_end = self.durable_start = self.epochs_from = 0
        self.truncations += 1
        self.reloaded_at = offset
        self.recognised.clear()

    def _as_it_is(self) -> Ghost:
        return Ghost(list(self.batches), list(self.memory), self.log_start)

    def possible_logs(self) -> list[Ghost]:
        """Return the logs of which a power loss may leave a prefix."""
        return [self._as_it_is(), *self.ghosts]

    def delete_before(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)

    def synced(self, offset: int, truncations: int) -> None:
        """Note that a flush is complete which began at this offset, with these truncations."""
        if truncations == self.truncations:
            self.durable_end = max(self.durable_end, offset)
            self.ghosts.clear()

    def stopped_in_order(self) -> None:
        self.durable_end, self.durable_start = self.log_end, self.log_start
        self.ghosts.clear()

    def copy(self) -> LogModel:
        return replace(
            self,
            batches=list(self.batches),
            memory=list(self.memory),
            ghosts=list(self.ghosts),
            recognised=set(self.recognised),
        )


def describes(producer: Producer, producer_id: int, entry: ProducerStateEntry) -> bool:
    """Return whether an entry agrees with the producer, except for batches before its last that a reload may have lost.

    Times of batches are not compared: a snapshot has one time for producer and batch, as Kafka's has.
    """
    known = [batch[:3] for batch in entry.batches]
    all_of_them = [batch[:3] for batch in producer.batches]
    return (
        entry.producer_id == producer_id
        and entry.epoch == producer.epoch
        and entry.coordinator_epoch == producer.coordinator_epoch
        and entry.last_timestamp == producer.last_timestamp
        and entry.current_txn_first_offset == producer.transaction_since
        and entry.next_sequence == producer.next_sequence
        and known == [batch for batch in all_of_them if batch in known]
        and known[-1:] == all_of_them[-1:]
    )

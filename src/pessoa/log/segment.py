"""One segment: a `.log` file of record batches, named by the offset of its first record, with its indexes beside it.

    00000000000000368769.log         the batches, one behind the other
    00000000000000368769.index       offset → position
    00000000000000368769.timeindex   timestamp → offset
    00000000000000368769.txnindex    aborted transactions that end in this segment; absent if there are none

A segment only grows at its end, and only while it is the last of its log. What must hold:

- offsets rise from batch to batch, and stay within 2^31 of the base offset, since the indexes keep them as int32;
- every index entry is true of the log (entries may be missing, never wrong);
- `max_timestamp` is the largest of all batches; it decides what look-ups by time and retention by time do here.

Reading hands out a `FileSlice`: a place in the file, no bytes. They are read when the response is sent, or sent by the
kernel.

Suffixes mark segments on their way in or out, so that a crash leaves no doubt: `.cleaned` is being written by the
cleaner, `.swap` is complete and takes the place of others, `.deleted` is unreachable and waits to be removed.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.aborted_transactions import ENTRY_SIZE as ABORTED_ENTRY_SIZE
from pessoa.log.aborted_transactions import (
    AbortedTransaction,
    CorruptTransactionIndex,
    count_below,
    decode_aborted_transactions,
    encode_aborted_transaction,
)
from pessoa.log.index import MAX_RELATIVE_OFFSET, OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from pessoa.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchWalk,
    RecordBatch,
)
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pessoa.log.files import Disk, File
    from pessoa.log.log_config import LogConfig

log = logging.getLogger("pessoa.log")

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"

# Enough for the headers of a few dozen small batches, or to see that one large batch is what was looked for.
_HEADERS_CHUNK = 4096
# Recovery reads everything; a large piece at a time keeps the calls few.
_SCAN_CHUNK = 1 << 20
_LENGTH = Struct(">i")
_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class FileSlice(NamedTuple):
    """Some bytes of a file."""

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)


class BatchPlace(NamedTuple):
    """The position of a batch, and the fields of its header that look-ups need."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    partition_leader_epoch: int


class Segment:
    __slots__ = (
        "_bytes_since_index_entry",
        "_disk",
        "_first_timestamp",
        "_index_interval_bytes",
        "_index_room",
        "_indexed_timestamp",
        "_lacks_transaction_index",
        "_max_age_ms",
        "_max_bytes",
        "_max_index_bytes",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_transaction_index",
        "base_offset",
        "created_ms",
        "file",
        "offset_index",
        "prefix",
        "suffix",
        "time_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        create: bool = False,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.prefix = f"{directory}/{segment_name(base_offset)}"
        self.suffix = suffix
        self.file: File = disk.open(self._path(LOG_SUFFIX), create=create)
        # A missing index file is an empty index, which the loader fills.
        self.offset_index = OffsetIndex(disk.open(self._path(INDEX_SUFFIX), create=True), base_offset)
        self.time_index = TimeIndex(disk.open(self._path(TIME_INDEX_SUFFIX), create=True), base_offset)
        self._transaction_index: File | None = None
        self._lacks_transaction_index = False
        self._bytes_since_index_entry = 0
        # The time index ends with this timestamp or a later one.
        self._indexed_timestamp = NO_TIMESTAMP
        # Known at once for a new segment; for an old one read from the file at the first use.
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = NO_TIMESTAMP if self.file.size == 0 else None
        self._offset_of_max_timestamp = base_offset
        self.configure(config)

    def __repr__(self) -> str:
        return f"<Segment {self.prefix}{LOG_SUFFIX}{self.suffix}: {self.file.size} bytes, {self.offset_index!r}>"

    def _path(self, kind: str) -> str:
        return f"{self.prefix}{kind}{self.suffix}"

    # Sizes and timestamps.

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._find_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        if self._max_timestamp is None:
            self._find_max_timestamp()
        return self._offset_of_max_timestamp

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which the age of the segment counts; -1 if there is none."""
        if self._first_timestamp is None:
            first = next(self.places(), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    @property
    def last_modified_ms(self) -> int:
        return self._disk.modified_ms(self._path(LOG_SUFFIX))

    def largest_timestamp_or_modified(self) -> int:
        """The timestamp for `retention.ms`: the largest one, or the modification time of the file if no record has a
        timestamp."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.last_modified_ms

    def _find_max_timestamp(self) -> None:
        """Find the largest timestamp from the last entry of the time index and the batches after it."""
        timestamp, relative_offset = self.time_index.last or (NO_TIMESTAMP, 0)
        offset = self.base_offset + relative_offset
        start = self.offset_index.position_before(offset) if timestamp >= 0 else 0
        for place in self.places(start):
            if place.max_timestamp > timestamp:
                timestamp, offset = place.max_timestamp, place.last_offset
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    # Appending.

    def configure(self, config: LogConfig) -> None:
        """Take over the topic's configuration; the limits that every append compares with are computed here."""
        self._max_bytes = config.segment_bytes
        self._max_age_ms = config.segment_ms - config.segment_jitter_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes
        self._find_index_room()

    def _find_index_room(self) -> int:
        """Compute how many index entries this segment has room for. It may be too low by the batches that add no entry
        to the time index."""
        self._index_room = min(
            self._max_index_bytes // OFFSET_ENTRY.size - self.offset_index.entry_count,
            # One more, because a segment that ends adds the entry for its largest timestamp.
            self._max_index_bytes // TIME_ENTRY.size - self.time_index.entry_count - 1,
        )
        return self._index_room

    def has_room_for(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Return whether the batch fits into this segment; if not, a new segment must begin with it."""
        used = self.file.size
        if used > self._max_bytes - size or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        if not used:
            return True
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        # Kafka lets the records' own clock decide how old a segment is, if they have one.
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return age_ms <= self._max_age_ms and (self._index_room > 0 or self._find_index_room() > 0)

    def append(self, batch: RecordBatch) -> None:
        """Write a stamped batch behind the last one."""
        file = self.file
        position = file.size
        if self._max_timestamp is None:
            self._find_max_timestamp()
        file.append(batch.view)
        self._index_batch(position, batch.size, batch.base_offset + batch.last_offset_delta, batch.max_timestamp)

    def _index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Update the indexes and timestamps for a batch that is in the file."""
        if position == 0:
            self._first_timestamp = max_timestamp
        known = self._max_timestamp
        assert known is not None
        if max_timestamp > known:
            self._max_timestamp = known = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self._index_room -= 1
            if known > self._indexed_timestamp:
                self.time_index.maybe_append(known, self._offset_of_max_timestamp)
                self._indexed_timestamp = known
            self._bytes_since_index_entry = size
        else:
            self._bytes_since_index_entry += size

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        if self._transaction_index is None:
            self._transaction_index = self._disk.open(self._path(TRANSACTION_INDEX_SUFFIX), create=True)
        self._transaction_index.append(encode_aborted_transaction(transaction))

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions that end in this segment, in the order of their markers."""
        if not self._open_transaction_index():
            return []
        assert self._transaction_index is not None
        return decode_aborted_transactions(
            self._transaction_index.read(0, self._transaction_index.size), self.base_offset
        )

    @property
    def has_aborted_transactions(self) -> bool:
        """Whether any aborted transactions end in this segment. Every fetch of committed records asks this first."""
        index = self._transaction_index
        if index is None and (self._lacks_transaction_index or not self._open_transaction_index()):
            return False
        index = self._transaction_index
        assert index is not None
        return index.size > 0

    def _open_transaction_index(self) -> bool:
        """Open the transaction index if its file exists; return whether it does."""
        if self._transaction_index is None:
            if self._lacks_transaction_index:
                return False
            path = self._path(TRANSACTION_INDEX_SUFFIX)
            if not self._disk.exists(path):
                # Only this object creates one. Every read_committed fetch asks, so the disk is asked once.
                self._lacks_transaction_index = True
                return False
            self._transaction_index = self._disk.open(path)
        return True

    # Reading.

    def places(self, position: int = 0, end: int | None = None) -> Iterator[BatchPlace]:
        """Yield the whole batches from a position on, by their headers. Stops at bytes that are no header."""
        file = self.file
        end = file.size if end is None else min(end, file.size)
        chunk, chunk_start = b"", position
        while end - position >= HEADER_SIZE:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = file.read(position, _HEADERS_CHUNK), position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            base_offset, length, epoch, magic, _, _, last_delta, _, max_timestamp, _, _, _, _ = _unpack_header(
                chunk, at
            )
            size = length + LOG_OVERHEAD
            if magic != MAGIC or size < HEADER_SIZE or last_delta < 0 or position + size > file.size:
                return
            # Past the generated constructor, which is written in Python.
            yield _new_tuple(BatchPlace, (position, size, base_offset, base_offset + last_delta, max_timestamp, epoch))
            position += size

    def find(self, offset: int) -> BatchPlace | None:
        """Return the first batch that ends at or after `offset`. Raises `InvalidBatch` if there is damage before it."""
        indexed_offset, start = self.offset_index.entry_before(offset)
        end = start
        for place in self.places(start):
            if end == start and start and place.last_offset > indexed_offset:
                break
            if place.last_offset >= offset:
                return place
            end = place.position + place.size
        if start and end == start:
            # No batch of that offset stands where the index says. Left alone, it would lead past records.
            log.warning("an index of %r is wrong about position %s: both are rebuilt", self, start)
            self.rebuild_indexes()
            return self.find(offset)
        if end < self.file.size:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"no batch begins at position {end} of {self!r}")
        return None

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch that ends at or after `offset`; the end of the file if there is
        none."""
        place = self.find(offset)
        return place.position if place is not None else self.file.size

    def damage_before(self, offset: int) -> tuple[int, int]:
        """Return the next offset and the end position of the last intact batch before the damage that `find` met."""
        next_offset, end = self.base_offset, 0
        for place in self.places():
            next_offset, end = place.last_offset + 1, place.position + place.size
            if next_offset > offset:
                break
        return next_offset, end

    def read(self, offset: int, max_bytes: int, end_position: int, at_least_one_batch: bool) -> FileSlice | None:
        """Batches from the one that holds `offset`, within `end_position`. None if there is none at or after `offset`.

        The slice is cut at `max_bytes`, even within a batch; readers drop such a piece. With `at_least_one_batch` the
        first batch comes whole, however large.
        """
        place = self.find(offset)
        if place is None:
            return None
        position, size = place.position, place.size
        if max_bytes > size or not at_least_one_batch:
            size = max_bytes
        if size > end_position - position:
            size = max(0, end_position - position)
        return FileSlice(self.file, position, size)

    def offset_behind(self, slice_end: int) -> int | None:
        """Return an offset after every record before that position; None if the index does not reach so far."""
        return self.offset_index.offset_after(slice_end)

    def batch_at(self, place: BatchPlace) -> RecordBatch:
        return RecordBatch(self.file.read(place.position, place.size))

    def batches(self, position: int = 0) -> Iterator[tuple[int, RecordBatch]]:
        """Every whole batch with its position, read in large pieces.

        Stops at the torn end of the file; bytes that cannot be a batch raise `InvalidBatch`.
        """
        file, piece = self.file, _SCAN_CHUNK
        while position < file.size:
            walk = BatchWalk(file.read(position, piece))
            for batch in walk:
                yield position + walk.end - batch.size, batch
            if walk.end:
                position += walk.end
                piece = _SCAN_CHUNK
                continue
            # Not even one: the batch is larger than the piece, or the file ends within it.
            if len(walk.data) < HEADER_SIZE:
                return
            (length,) = _LENGTH.unpack_from(walk.data, LENGTH_POSITION)
            piece = length + LOG_OVERHEAD
            if position + piece > file.size:
                return

    def next_offset(self) -> int:
        """The offset behind the last batch."""
        return self.walk_to_end()[0]

    def walk_to_end(self) -> tuple[int, int]:
        """The offset and the position behind the last whole batch. If the position is not the size, there is damage."""
        last_entry = self.offset_index.last
        next_offset, end = self.base_offset, last_entry[1] if last_entry is not None else 0
        for place in self.places(end):
            next_offset, end = place.last_offset + 1, place.position + place.size
        return next_offset, end

    # Truncation and recovery.

    def truncate_to(self, offset: int, position: int) -> None:
        """Keep the batches that end before `offset`: those before `position`, which is `position_of(offset)`."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.truncate_transactions(offset)
        self.file.truncate(position)
        self._bytes_since_index_entry = 0
        self._indexed_timestamp = NO_TIMESTAMP
        self._find_index_room()
        self._max_timestamp = None if position else NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        if position == 0:
            self._first_timestamp = None

    def truncate_transactions(self, offset: int) -> None:
        """Forget the aborted transactions whose marker stands at or after `offset`."""
        kept = count_below(self.aborted_transactions(), offset)
        if self._transaction_index is not None:
            self._transaction_index.truncate(kept * ABORTED_ENTRY_SIZE)

    def indexes_are_plausible(self) -> bool:
        """Whether the last entries of both indexes can be right. Zeros, as a lost page leaves them, are not: the first
        batch of a segment has no entry, and no timestamp is 0."""
        for index in (self.offset_index, self.time_index):
            last = index.last
            if not index.is_whole:
                return False
            if last is None:
                continue
            if index.entry_count > 1 and last[0] <= index.entry(index.entry_count - 2)[0]:
                return False
            if index is self.offset_index:
                if not (last[0] >= 0 and 0 < last[1] < self.file.size):
                    return False
            elif not (last[0] > 0 and last[1] >= 0):
                return False
        return True

    def transactions_are_plausible(self) -> bool:
        try:
            # A marker stands behind what it ends; an entry of zeros would say otherwise.
            return all(one.first_offset < one.last_offset for one in self.aborted_transactions())
        except CorruptTransactionIndex:
            return False

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the headers of the batches and sync them: a flush does not sync older segments."""
        self._forget_indexes()
        for place in self.places():
            self._index_batch(place.position, place.size, place.last_offset, place.max_timestamp)
        self.finish()
        self.offset_index.file.sync()
        self.time_index.file.sync()

    def recover(
        self, least_epoch: int = -1, synced_to: int = 0, before_truncation: Callable[[Segment, int], None] | None = None
    ) -> Iterator[RecordBatch]:
        """Check every batch, rebuild the indexes, and truncate the file behind the last whole, valid batch.

        `before_truncation` is called with the segment and the offset behind that batch before anything is truncated.

        Yields the valid batches as it goes, so that the caller can rebuild what it knows about them. From `least_epoch`
        on, leader epochs never fall: where they do, a power loss has brought back what a truncation had taken away. In
        what was synced none can do that. No CRC covers an epoch, so there a disk has changed it, and all is kept.

        What is kept beyond `synced_to` is written again: a sync of it may have failed before the process ended.
        """
        self._forget_indexes()
        if self._open_transaction_index():
            assert self._transaction_index is not None
            self._transaction_index.truncate(0)
        valid_end, next_offset = 0, self.base_offset
        synced_end: int | None = None
        try:
            for position, batch in self.batches():
                if not batch.is_valid() or batch.base_offset < next_offset or batch.last_offset_delta < 0:
                    break
                if batch.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                    break
                if batch.base_offset >= synced_to:
                    if -1 < batch.partition_leader_epoch < least_epoch:
                        break
                    least_epoch = max(least_epoch, batch.partition_leader_epoch)
                next_offset = batch.next_offset
                if synced_end is None and next_offset > synced_to:
                    synced_end = position
                self._index_batch(position, batch.size, batch.last_offset, batch.max_timestamp)
                yield batch
                valid_end = position + batch.size
        except InvalidBatch:
            pass  # what follows is no batch: the truncation below removes it
        if valid_end < self.file.size:
            if before_truncation is not None:
                before_truncation(self, next_offset)
            self.file.truncate(valid_end)
        if synced_end is not None:
            self.file.write_again(synced_end)
        self.finish()

    def _forget_indexes(self) -> None:
        self.offset_index.truncate_entries(0)
        self.time_index.truncate_entries(0)
        self._bytes_since_index_entry = 0
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._first_timestamp, self._indexed_timestamp = None, NO_TIMESTAMP
        self._find_index_room()

    # Closing, renaming and removing.

    def finish(self) -> None:
        """End the segment: add the entry for its largest timestamp to the time index, and write both indexes."""
        if self.file.size:
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.write()
        self.time_index.write()
        self.file.trim()

    def files(self) -> list[File]:
        found = [self.file, self.offset_index.file, self.time_index.file]
        if self._transaction_index is not None:
            found.append(self._transaction_index)
        return found

    def sync(self) -> None:
        self.offset_index.write()
        self.time_index.write()
        for file in self.files():
            file.sync()

    def close(self) -> None:
        self.finish()
        for file in self.files():
            file.close()

    def change_suffix(self, suffix: str) -> None:
        """Rename all files; readers that hold slices go on with the same files."""
        kinds = [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX]
        if self._disk.exists(self._path(TRANSACTION_INDEX_SUFFIX)):
            kinds.append(TRANSACTION_INDEX_SUFFIX)
        self.offset_index.write()
        self.time_index.write()
        old = {kind: self._path(kind) for kind in kinds}
        self.suffix = suffix
        for kind in kinds:
            self._disk.rename(old[kind], self._path(kind))
        for file in self.files():
            file.path = next(self._path(kind) for kind in kinds if old[kind] == file.path)

    def relocate(self, directory: str) -> None:
        """Take over the new name of its directory."""
        self.prefix = f"{directory}/{segment_name(self.base_offset)}"
        for file in self.files():
            file.path = f"{directory}/{file.path.rpartition('/')[2]}"

    def remove_files(self) -> None:
        for path in self.release():
            self._disk.remove(path, missing_ok=True)

    def release(self) -> list[str]:
        """Close the files; return the paths of all files that a segment may have."""
        for file in self.files():
            file.close()
        return [self._path(kind) for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)]

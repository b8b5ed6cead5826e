"""The lines of `kafka-dump-log` for what stands beside a segment: its indexes, and the snapshots of producer state.

    .index       offset: 150 position: 5072
    .timeindex   timestamp: 1794777811579 offset: 150
    .txnindex    version: 0 producerId: 4 firstOffset: 4 lastOffset: 7 lastStableOffset: 8
    .snapshot    producerId: 4 producerEpoch: 0 … lastSequence: 11 lastOffset: 14 offsetDelta: 2 timestamp: …

An entry of the offset index must point to a batch that ends with its offset; one of the time index must name a batch
that ends with its offset and whose newest record has its timestamp, and be newer than the entry before. What is not so
goes to the findings.

A broker that was killed leaves its indexes as large as they may become, with zeros behind the last entry (Apache's; see
`pessoa.log.index` for ours). So an entry for the base offset that is not the first ends an index.

The formats are those of `pessoa.log`, and their modules are the only ones of a broker's inside that this tool knows.
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING

from pessoa.cli.dump_log.batch_lines import base_offset_of, batches, java_optional
from pessoa.cli.dump_log.findings import Unreadable
from pessoa.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, NO_TIMESTAMP
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from struct import Struct

    from pessoa.cli.dump_log.findings import Findings
    from pessoa.records.batch import RecordBatch


def offset_index_lines(
    path: str, sanity_only: bool, verify_only: bool, max_message_size: int, findings: Findings
) -> Iterator[str]:
    from pessoa.log.index import OFFSET_ENTRY

    base_offset, data = base_offset_of(path), _bytes_of(path)
    with open(_log_beside(path), "rb") as log:
        if len(data) < OFFSET_ENTRY.size:
            yield f"{path} is empty."
            return
        if sanity_only:
            last_offset = base_offset + _last_entry(data, OFFSET_ENTRY)[0]
            _check_sanity(path, data, OFFSET_ENTRY, last_offset, base_offset)
            yield f"{path} passed sanity check."
            return
        for number, (relative_offset, position) in enumerate(_entries(data, OFFSET_ENTRY)):
            if relative_offset == 0 and number > 0:
                return
            offset = base_offset + relative_offset
            log.seek(position)
            found = _last_offset(log.read(HEADER_SIZE), max_message_size, f"{path}, entry {number}")
            if found != offset:
                findings.index_mismatch(path, offset, found)
            if not verify_only:
                yield f"offset: {offset} position: {position}"


def _last_offset(header: bytes, max_message_size: int, where: str) -> int:
    """Return the last offset of the batch that begins with these bytes."""
    if len(header) < HEADER_SIZE:
        raise Unreadable(f"{where}: it points behind the end of the log")
    base_offset, length, _, magic, _, _, last_offset_delta, *_ = HEADER.unpack(header)
    if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
        raise Unreadable(f"{where}: it points to no batch")
    if length + LOG_OVERHEAD > max_message_size:
        raise Unreadable(f"{where}: the batch has {length + LOG_OVERHEAD} bytes; --max-message-size allows more")
    last_offset: int = base_offset + last_offset_delta
    return last_offset


def time_index_lines(path: str, sanity_only: bool, verify_only: bool, findings: Findings) -> Iterator[str]:
    from pessoa.log.index import TIME_ENTRY

    base_offset, data = base_offset_of(path), _bytes_of(path)
    if sanity_only:
        if len(data) >= TIME_ENTRY.size:
            (first_timestamp, _), (timestamp, relative_offset) = (
                TIME_ENTRY.unpack_from(data),
                _last_entry(data, TIME_ENTRY),
            )
            if timestamp < first_timestamp:
                raise Unreadable(f"{path}: its last timestamp, {timestamp}, is older than its first, {first_timestamp}")
            _check_sanity(path, data, TIME_ENTRY, base_offset + relative_offset, base_offset)
        yield f"{path} passed sanity check."
        return
    previous = NO_TIMESTAMP
    search = _BatchSearch(_log_beside(path))
    for number, (timestamp, relative_offset) in enumerate(_entries(data, TIME_ENTRY)):
        if relative_offset == 0 and number > 0:
            return
        offset = base_offset + relative_offset
        batch = search.ending_at_or_after(offset)
        if batch is None or batch.last_offset != offset:
            findings.offset_not_found(path, offset, -1 if batch is None else batch.last_offset)
        else:
            newest = _newest_timestamp(batch, path)
            if newest != timestamp:
                findings.timestamp_mismatch(path, timestamp, newest)
            if previous >= timestamp:
                findings.timestamp_out_of_order(path, timestamp, previous)
        if not verify_only:
            yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp


class _BatchSearch:
    """The search for offsets in a log. The entries of a valid index increase, so one pass through the log serves
    them all."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._walk = self._restart()
        self._offset = -1
        self._found: RecordBatch | None = None

    def _restart(self) -> Iterator[tuple[int, RecordBatch]]:
        with open(self._path, "rb") as file:
            yield from batches(file)

    def ending_at_or_after(self, offset: int) -> RecordBatch | None:
        if offset < self._offset:
            self._walk, self._found = self._restart(), None
        self._offset = offset
        while self._found is None or self._found.last_offset < offset:
            next_batch = next(self._walk, None)
            if next_batch is None:
                return None
            self._found = next_batch[1]
        return self._found


def _newest_timestamp(batch: RecordBatch, path: str) -> int:
    try:
        return max((record.timestamp for record in records(batch)), default=NO_TIMESTAMP)
    except InvalidBatch as problem:
        raise Unreadable(f"{path}, the batch of offset {batch.base_offset}: {problem.message}") from problem


def transaction_index_lines(path: str) -> Iterator[str]:
    from pessoa.log.aborted_transactions import VERSION, CorruptTransactionIndex, decode_aborted_transactions

    try:
        transactions = decode_aborted_transactions(_bytes_of(path), base_offset_of(path))
    except CorruptTransactionIndex as problem:
        raise Unreadable(f"{path}: {problem}") from problem
    for one in transactions:
        yield (
            f"version: {VERSION} producerId: {one.producer_id} firstOffset: {one.first_offset}"
            f" lastOffset: {one.last_offset} lastStableOffset: {one.last_stable_offset}"
        )


def producer_snapshot_lines(path: str, findings: Findings) -> Iterator[str]:
    from pessoa.log.producer_snapshot_format import CorruptSnapshot, decode_snapshot

    try:
        entries = decode_snapshot(_bytes_of(path))
    except CorruptSnapshot as problem:
        findings.sentence(f"{path}: {problem}")
        return
    for entry in entries:
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch}"
            f" currentTxnFirstOffset: {java_optional(entry.current_txn_first_offset)}"
            f" lastTimestamp: {entry.last_timestamp}"
        )
        if entry.batches:
            batch = entry.batches[0]
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
                f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
            )
        yield line


def _check_sanity(path: str, data: bytes, entry: Struct, last_offset: int, base_offset: int) -> None:
    """Raise Unreadable for an index that a starting broker would rebuild: with an incomplete entry, or a last offset
    before its base offset."""
    if last_offset < base_offset:
        raise Unreadable(f"{path}: its last offset, {last_offset}, lies before its base offset {base_offset}")
    if len(data) % entry.size:
        raise Unreadable(f"{path}: {len(data)} bytes are not a whole number of entries of {entry.size}")


def _entries(data: bytes, entry: Struct) -> Iterator[tuple[int, int]]:
    for start in range(0, len(data) - entry.size + 1, entry.size):
        first, second = entry.unpack_from(data, start)
        yield first, second


def _last_entry(data: bytes, entry: Struct) -> tuple[int, int]:
    first, second = entry.unpack_from(data, (len(data) // entry.size - 1) * entry.size)
    return first, second


def _log_beside(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{name.partition('.')[0]}.log")


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()

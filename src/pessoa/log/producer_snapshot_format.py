"""The `.snapshot` file: the producers of a partition as they were at one offset, which is in the file's name.

    position  size  field
           0     2  version, 1
           2     4  CRC-32C of everything behind it
           6     4  count of entries
          10        the entries, 46 bytes each:

                    producer id (8), epoch (2), last sequence (4), last offset (8), offset delta (4), timestamp (8),
                    coordinator epoch (4), first offset of the open transaction (8) or -1

A snapshot spares recovery the reading of all older segments. It keeps one batch of the five: what is needed to refuse a
gap, and to recognise the repetition of the last batch. The batch is missing (last sequence and offset -1, delta 0)
where the producer's last act was a marker that raised its epoch. `timestamp` is the entry's last one, and stands for
the batch's as well.

The order of the entries means nothing to a reader. Apache Kafka writes them in the order of its `HashMap`, and so do
we, because then the same state has the same bytes on every replica, Apache's or ours. (Only where producers have
expired may the two differ: Java's table does not shrink.)

A file that is not this is `CorruptSnapshot`; the reader then falls back on an older one, or on the whole log. Bytes
behind the last entry count as damage too. The declaration in `wire.stored.producer_entries` is the form of the file
behind its version.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pessoa.log.producer_entry import NO_OFFSET, BatchMetadata, ProducerStateEntry
from pessoa.records import checksum
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.stored.producer_entries import ProducerEntry, ProducerSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1

_VERSION_AND_CRC = struct.Struct(">hI")
_CRC = struct.Struct(">I")

# A HashMap begins with 16 buckets and doubles them when more than three quarters as many entries are in it.
_SMALLEST_TABLE = 16


class CorruptSnapshot(Exception):
    """These bytes are no snapshot of producer state; the message says why."""


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    snapshot = ProducerSnapshot(
        crc=0, producer_entries=[_to_snapshot_entry(entry) for entry in _in_order_of_a_hash_map(entries)]
    )
    body = snapshot.encode(VERSION)[_CRC.size :]
    return _VERSION_AND_CRC.pack(VERSION, checksum.crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    if len(data) < _VERSION_AND_CRC.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a version and a checksum")
    version, crc = _VERSION_AND_CRC.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"the version is {version}, and only {VERSION} is known")
    computed_crc = checksum.crc32c(memoryview(data)[_VERSION_AND_CRC.size :])
    if crc != computed_crc:
        raise CorruptSnapshot(f"the checksum is {computed_crc:#010x}, and {crc:#010x} was written")
    try:
        snapshot = ProducerSnapshot.decode(data[_VERSION_AND_CRC.size - _CRC.size :], VERSION)
    except ProtocolViolation as violation:
        raise CorruptSnapshot(str(violation)) from violation
    return [_from_snapshot_entry(entry) for entry in snapshot.producer_entries]


def _in_order_of_a_hash_map(entries: Iterable[ProducerStateEntry]) -> list[ProducerStateEntry]:
    """Return the entries in the order of a java.util.HashMap<Long, …>: by bucket, and within a bucket as they came."""
    listed = list(entries)
    capacity = _SMALLEST_TABLE
    while len(listed) > capacity * 3 // 4:
        capacity *= 2

    def bucket(entry: ProducerStateEntry) -> int:
        folded = (entry.producer_id ^ entry.producer_id >> 32) & 0xFFFFFFFF
        return (folded ^ folded >> 16) & (capacity - 1)

    return sorted(listed, key=bucket)


def _to_snapshot_entry(entry: ProducerStateEntry) -> ProducerEntry:
    first_offset = entry.current_txn_first_offset
    return ProducerEntry(
        producer_id=entry.producer_id,
        epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_offset=entry.last_data_offset,
        offset_delta=entry.last_offset_delta,
        timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_first_offset=NO_OFFSET if first_offset is None else first_offset,
    )


def _from_snapshot_entry(stored: ProducerEntry) -> ProducerStateEntry:
    batch = BatchMetadata(stored.last_sequence, stored.last_offset, stored.offset_delta, stored.timestamp)
    first_offset = stored.current_txn_first_offset
    return ProducerStateEntry(
        stored.producer_id,
        stored.epoch,
        stored.coordinator_epoch,
        stored.timestamp,
        first_offset if first_offset >= 0 else None,
        (batch,) if stored.last_offset >= 0 else (),
    )

"""What compaction does with one batch: opens it for its keys, and writes it anew with some of its records.

Pure: bytes in, bytes out. `cleaning_pass` decides and moves the bytes.

A batch that keeps all its records is copied as it is. One that loses some is written as Apache Kafka writes it:

- base offset, last offset, leader epoch, producer id, epoch and sequence stay, because producer state and the place in
  the log are rebuilt from them; records keep their offsets;
- the base timestamp becomes that of the first record that is left, the max timestamp the largest that is left;
- a batch that keeps a tombstone, or a marker whose transaction has no data left, gets a *delete horizon* (KIP-534): now
  + `delete.retention.ms`, in the place of the base timestamp. From then on it stays as it is, and the first pass after
  the horizon takes those records out;
- a batch that must stay although it has no records (the last of a producer, the last of the pass) keeps its header.

**Speed.** Opening a batch is the only thing done per record, so `read_keys` reads no more than it must: a record says
its own length, and a length of -1 is the single byte 01, so value and headers are never looked at. Bytes of a varint
before its last have the high bit, which is how numbers are skipped. Lengths of one and two bytes, up to 8 KiB, are
worked out in place. Records that stay are copied as ranges of bytes
if the base timestamp stays; with another base every record counts its timestamp anew, and the batch is built from
records.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pessoa.log.compaction.offset_map import DEAD, LIVE, TOMBSTONE
from pessoa.records import checksum
from pessoa.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    RecordBatch,
)
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec, compress
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import records, unpacked_records
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

# The varint of -1: the length of a null key or value.
_NULL = 0x01
_MORE = 0x80

_pack_crc = Struct(">I").pack_into


def read_keys(data: bytes, count: int) -> tuple[list[bytes | None], bytearray]:
    """Return the keys of the unpacked records of a batch, and for each record whether it is LIVE, a TOMBSTONE, or DEAD
    because it has no key."""
    keys: list[bytes | None] = []
    verdicts = bytearray((LIVE,)) * count if 0 <= count <= len(data) else bytearray()
    add = keys.append
    size = len(data)
    position = 0
    try:
        for number in range(count):
            # The length of the record, then its attributes.
            length = data[position]
            if length < _MORE:
                end = position + 1 + (length >> 1)
                position += 2
            elif (second := data[position + 1]) < _MORE:
                end = position + 2 + ((length & 0x7F | second << 7) >> 1)
                position += 3
            else:
                length, position = _varint(data, position)
                end = position + length
                position += 1
            while data[position] >= _MORE:
                position += 1
            position += 1  # the timestamp delta
            while data[position] >= _MORE:
                position += 1
            position += 1  # the offset delta
            key_size = data[position]
            position += 1
            if key_size == _NULL:
                add(None)
                verdicts[number] = DEAD
            else:
                if key_size >= _MORE:
                    key_size, position = _varint(data, position - 1)
                else:
                    key_size = (key_size >> 1) ^ -(key_size & 1)
                key_end = position + key_size
                add(data[position:key_end])
                position = key_end
                if data[position] == _NULL:
                    verdicts[number] = TOMBSTONE
            # A key that ends before it begins, or behind its record, is caught here as well.
            if not 0 < position < end <= size:
                raise _wrong(number, count)
            position = end
    except IndexError:
        raise _wrong(len(keys), count) from None
    if position != size or count < 0:
        raise _wrong(len(keys), count)
    return keys, verdicts


def keep_records(batch: RecordBatch, verdicts: Sequence[int], new_delete_horizon_ms: int | None) -> RecordBatch:
    """Return the batch with only those records that are not DEAD, of which there is at least one.
    `new_delete_horizon_ms` is for a batch that has no delete horizon and gets one."""
    if new_delete_horizon_ms is None and not batch.attributes & LOG_APPEND_TIME_FLAG:
        data = unpacked_records(batch)
        kept, first_delta, largest_delta = _kept_ranges(data, verdicts)
        if first_delta == 0 or batch.has_delete_horizon:
            return _with_records(batch, kept, sum(map(bool, verdicts)), batch.base_timestamp + largest_delta)
    survivors = [record for record, verdict in zip(records(batch), verdicts, strict=True) if verdict != DEAD]
    horizon = batch.delete_horizon_ms if new_delete_horizon_ms is None else new_delete_horizon_ms
    return RecordBatch(
        build_batch(
            survivors,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            codec=batch.codec,
            log_append_time=batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_FLAG else None,
            delete_horizon_ms=horizon,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
            control=batch.is_control,
            partition_leader_epoch=batch.partition_leader_epoch,
        )
    )


def drop_records(batch: RecordBatch) -> RecordBatch:
    """Return the batch without its records: its offsets, its producer and its sequence stay."""
    return RecordBatch(
        build_batch(
            (),
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            log_append_time=batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_FLAG else None,
            max_timestamp=batch.max_timestamp,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
            control=batch.is_control,
            partition_leader_epoch=batch.partition_leader_epoch,
        )
    )


def _kept_ranges(data: bytes, verdicts: Sequence[int]) -> tuple[list[bytes], int, int]:
    """Return the bytes of the records that stay, the first of their timestamp deltas and the largest."""
    ranges: list[bytes] = []
    deltas: list[int] = []
    range_start = -1
    position = 0
    for verdict in verdicts:
        start = position
        length = data[position]
        if length < _MORE:
            position += 1
            end = position + (length >> 1)
        elif (second := data[position + 1]) < _MORE:
            position += 2
            end = position + ((length & 0x7F | second << 7) >> 1)
        else:
            length, position = _varint(data, position)
            end = position + length
        if verdict != DEAD:
            if range_start < 0:
                range_start = start
            delta = data[position + 1]
            if delta >= _MORE:
                delta, _ = _varint(data, position + 1)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            deltas.append(delta)
        elif range_start >= 0:
            ranges.append(data[range_start:start])
            range_start = -1
        position = end
    if range_start >= 0:
        ranges.append(data[range_start:position])
    return ranges, deltas[0], max(deltas)


def _with_records(batch: RecordBatch, kept: list[bytes], count: int, max_timestamp: int) -> RecordBatch:
    """Return the batch with other records, whose offset and timestamp deltas have the same base."""
    payload = b"".join(kept)
    if batch.codec is not Codec.NONE:
        payload = compress(batch.codec, payload)
    size = HEADER_SIZE + len(payload)
    data = bytearray(size)
    HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        size - LOG_OVERHEAD,
        batch.partition_leader_epoch,
        MAGIC,
        0,
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    data[HEADER_SIZE:] = payload
    _pack_crc(data, CRC_POSITION, checksum.crc32c(memoryview(data)[ATTRIBUTES_POSITION:]))
    return RecordBatch(data)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag-coded number of up to ten bytes, and the position after it."""
    raw = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < _MORE:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise InvalidBatch(ErrorCode.INVALID_RECORD, "a variable-length number has more than ten bytes")


def _wrong(number: int, count: int) -> InvalidBatch:
    return InvalidBatch(
        ErrorCode.INVALID_RECORD, f"record {number} of {count} does not lie within its batch, or not as it says"
    )

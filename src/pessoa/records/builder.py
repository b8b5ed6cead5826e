"""Making a batch out of records.

All that write records without a producer use this: coordinators and the quorum for their own topics, compaction and
recompression for batches that change, tools and tests. Uncompressed batches are byte for byte those of Apache's
`MemoryRecordsBuilder`.

Records bring their own offsets, which must rise and may have gaps: compaction keeps the offsets of what it keeps. A
batch for a new append counts from 0, and the leader stamps it (see `stamping`); `bytearray` comes out because that
needs writable bytes.

What the header says follows from the records, except:

- `base_offset` and `last_offset` may be wider than the records are, so that a compacted batch still covers the range,
  and thereby the sequence numbers, that it had. With them a batch may even be empty;
- `log_append_time` makes the batch one of LogAppendTime with that time; the records keep the deltas of their own
  timestamps;
- `delete_horizon_ms` takes the place of the base timestamp, and the records count theirs from it;
- `max_timestamp` is for an empty batch, which keeps the one it had while it had records.

A mistake in the arguments is the caller's and raises ValueError.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from pessoa.records import checksum
from pessoa.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
)
from pessoa.records.compression import Codec, compress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.records.record import Header, Record

_INT32_MAX = (1 << 31) - 1
_INT64_LIMIT = 1 << 63
_pack_crc = struct.Struct(">I").pack_into


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    log_append_time: int | None = None,
    delete_horizon_ms: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return one batch with these records. The offsets default to those of the first and the last record."""
    if not records:
        if base_offset is None or last_offset is None:
            raise ValueError("an empty batch needs its base_offset and last_offset")
        codec = Codec.NONE
    if base_offset is None:
        base_offset = records[0].offset
    if last_offset is None:
        last_offset = records[-1].offset
    _check_offsets(records, base_offset, last_offset)

    base_timestamp = _base_timestamp(records, delete_horizon_ms)
    payload = encode_records(records, base_offset, base_timestamp)
    if codec is not Codec.NONE:
        payload = compress(codec, payload, level)

    attributes = (
        codec
        | (LOG_APPEND_TIME_FLAG if log_append_time is not None else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )
    if log_append_time is not None:
        max_timestamp = log_append_time
    elif records:
        max_timestamp = max(record.timestamp for record in records)

    fields = (
        attributes,
        last_offset - base_offset,
        base_timestamp,
        NO_TIMESTAMP if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _add_header(payload, base_offset, partition_leader_epoch, fields)


def _add_header(payload: bytes, base_offset: int, partition_leader_epoch: int, fields: tuple[int, ...]) -> bytearray:
    """Return the batch: a header, then `payload`. `fields` are those that the CRC covers, in the order of the
    header."""
    batch = bytearray(HEADER_SIZE + len(payload))
    batch[HEADER_SIZE:] = payload
    length = len(batch) - LOG_OVERHEAD
    try:
        HEADER.pack_into(batch, 0, base_offset, length, partition_leader_epoch, MAGIC, 0, *fields)
    except struct.error as error:
        raise ValueError(f"a number does not fit the header of a batch: {error}") from None
    crc = checksum.crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    _pack_crc(batch, CRC_POSITION, crc)
    return batch


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Return the bytes of the records in an uncompressed batch with this base offset and timestamp."""
    varint = _varint
    parts: list[bytes] = []
    for offset, timestamp, key, value, headers in records:
        body = b"".join(
            (
                b"\0",
                varint(timestamp - base_timestamp),
                varint(offset - base_offset),
                b"\x01" if key is None else varint(len(key)) + key,
                b"\x01" if value is None else varint(len(value)) + value,
                _encode_headers(headers) if headers else b"\0",
            )
        )
        parts += (varint(len(body)), body)
    return b"".join(parts)


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [_varint(len(headers))]
    for name, value in headers:
        encoded_name = name.encode()
        parts += (_varint(len(encoded_name)), encoded_name)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (_varint(len(value)), value)
    return b"".join(parts)


# Lengths and deltas repeat: within a batch nearly every number has been seen before.
@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    """Return `value` zigzag-coded, seven bits a byte, lowest first; the same code serves int32 and int64."""
    if not -_INT64_LIMIT <= value < _INT64_LIMIT:
        raise ValueError(f"{value} is beyond 64 bits")
    raw = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def _base_timestamp(records: Sequence[Record], delete_horizon_ms: int | None) -> int:
    if delete_horizon_ms is not None:
        return delete_horizon_ms
    return records[0].timestamp if records else NO_TIMESTAMP


def _check_offsets(records: Sequence[Record], base_offset: int, last_offset: int) -> None:
    if not 0 <= last_offset - base_offset <= _INT32_MAX:
        raise ValueError(f"a batch cannot reach from offset {base_offset} to {last_offset}")
    previous = base_offset - 1
    for record in records:
        if record.offset <= previous:
            raise ValueError(f"offset {record.offset} does not follow {previous}")
        previous = record.offset
    if previous > last_offset:
        raise ValueError(f"the record at offset {previous} is past the last offset {last_offset}")

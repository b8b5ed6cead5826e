"""Records, and reading them out of a batch.

    record   varint length of what follows, int8 attributes (none are defined), varlong timestamp delta, varint offset
             delta, varint key length (-1: null), key, varint value length (-1: null), value, varint count of headers,
             headers
    header   varint length of its name, name (UTF-8), varint value length (-1: null), value

Varints are zigzag-coded int32s of at most five bytes, varlongs int64s of at most ten. The timestamp of a record is the
batch's base timestamp plus its delta, even when the base holds a delete horizon; in a batch of LogAppendTime it is the
batch's max timestamp.

Every length may be a lie. None is used before it is compared with what is left, a record must end where its length
says, and the batch must end after its last record; otherwise `InvalidBatch` with INVALID_RECORD. Records come out one
by one: the smallest takes 7 bytes in a batch and some hundreds as an object, so a list of all could be thirty times
larger than the bytes that `limit` allowed. For the same reason a record's headers count against `limit` as the objects
they become.

`spans` only finds where things are, to check a batch or to copy records without making objects of them.
`largest_timestamp` steps from record to record and reads their timestamps alone, in a ninth of that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.records.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, NO_TIMESTAMP
from pessoa.records.compression import DECOMPRESSED_LIMIT, decompress
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.records.batch import RecordBatch

Header = tuple[str, bytes | None]

# Its length, attributes, timestamp delta, offset delta, key length, value length and count of headers: a byte each.
SMALLEST_RECORD_SIZE = 7

# About what a (name, value) pair takes: a tuple of two, and its place in the tuple of headers.
_HEADER_OBJECT_BYTES = 64

# The number that a byte is, or None if it is only the first of a longer one.
_SMALL = tuple((byte >> 1) ^ -(byte & 1) if byte < 0x80 else None for byte in range(256))

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1


class Record(NamedTuple):
    """One record with its offset in the log. `value` None is a tombstone; a header name may occur twice."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Span(NamedTuple):
    """The positions of a record's parts in the decompressed records. `key_end` - `key_start` is the key's size, -1
    for null."""

    offset_delta: int
    timestamp_delta: int
    key_start: int
    key_end: int
    value_start: int
    value_end: int
    headers_start: int
    headers_count: int
    end: int


def _invalid_record(message: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, message)


def unpacked_records(batch: RecordBatch, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """Return the bytes of the batch's records, decompressed."""
    return decompress(batch.codec, batch.view[HEADER_SIZE:], limit)


def records(batch: RecordBatch, limit: int = DECOMPRESSED_LIMIT) -> Iterator[Record]:
    """Read the records of `batch`, whose compressed form may not unpack to more than `limit` bytes."""
    data = unpacked_records(batch, limit)
    base_offset = batch.base_offset
    base_timestamp = batch.base_timestamp
    log_append_time = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_FLAG else None
    headers_limit = limit // _HEADER_OBJECT_BYTES
    new = tuple.__new__
    for (
        offset_delta,
        timestamp_delta,
        key_start,
        key_end,
        value_start,
        value_end,
        headers_start,
        headers_count,
        _,
    ) in _spans(data, batch.records_count):
        timestamp = base_timestamp + timestamp_delta if log_append_time is None else log_append_time
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise _invalid_record(f"a timestamp of {timestamp} is beyond 64 bits")
        if headers_count > headers_limit:
            raise InvalidBatch(
                ErrorCode.MESSAGE_TOO_LARGE, f"a record has {headers_count} headers, and {headers_limit} are read"
            )
        # Past the generated constructor, which is written in Python and takes a third of the time of a small record.
        yield new(
            Record,
            (
                base_offset + offset_delta,
                timestamp,
                data[key_start:key_end] if key_end >= key_start else None,
                data[value_start:value_end] if value_end >= value_start else None,
                _headers(data, headers_start, headers_count) if headers_count else (),
            ),
        )


def spans(batch: RecordBatch, limit: int = DECOMPRESSED_LIMIT) -> tuple[bytes, Iterator[Span]]:
    """Return the decompressed records, and the positions of each record's parts in them."""
    data = unpacked_records(batch, limit)
    return data, map(Span._make, _spans(data, batch.records_count))


def _spans(data: bytes, count: int) -> Iterator[tuple[int, int, int, int, int, int, int, int, int]]:
    """Walk `count` records, check every length in them, and yield the fields of a `Span` for each.

    The first byte of each number is looked up in place, because nearly always it is the only one.
    """
    if count < 0:
        raise _invalid_record(f"the batch claims {count} records")
    small = _SMALL
    data_end = len(data)
    position = 0
    try:
        for _ in range(count):
            length = small[data[position]]
            position += 1
            if length is None:
                length, position = _varint(data, position - 1)
            end = position + length
            if length < 0 or end > data_end:
                raise _invalid_record(f"a record claims {length} bytes, and {data_end - position} are left")
            position += 1  # the attributes, none of which are defined
            timestamp_delta = small[data[position]]
            position += 1
            if timestamp_delta is None:
                timestamp_delta, position = _varint(data, position - 1, 64)
            offset_delta = small[data[position]]
            position += 1
            if offset_delta is None:
                offset_delta, position = _varint(data, position - 1)
            key_start, key_end = _find_bounds(data, position, end, "key")
            value_start, value_end = _find_bounds(data, key_end if key_end >= key_start else key_start, end, "value")
            position = value_end if value_end >= value_start else value_start
            headers_count = small[data[position]]
            position += 1
            if headers_count is None:
                headers_count, position = _varint(data, position - 1)
            headers_start = position
            if headers_count:
                position = _skip_headers(data, position, end, headers_count)
            if position != end:
                raise _invalid_record(f"the parts of a record take {position - end:+} bytes beyond its length")
            yield (
                offset_delta,
                timestamp_delta,
                key_start,
                key_end,
                value_start,
                value_end,
                headers_start,
                headers_count,
                end,
            )
    except IndexError:
        raise _invalid_record(f"the batch ends before the last of its {count} records") from None
    if position != data_end:
        raise _invalid_record(f"{data_end - position} bytes are left after the {count} records that the batch claims")


def largest_timestamp(batch: RecordBatch, limit: int = DECOMPRESSED_LIMIT) -> int:
    """Return the largest timestamp of the records: the max timestamp that the header of a CreateTime batch must have.
    As in Kafka it is -1 if no record has a larger one.

    Raises `InvalidBatch` if the records are not as many as the header claims or do not end where the batch does. The
    bytes of a record behind its timestamp are not read.
    """
    data = unpacked_records(batch, limit)
    count = batch.records_count
    small = _SMALL
    position = 0
    largest = _INT64_MIN
    try:
        for _ in range(count):
            first = data[position]
            if first < 0x80:
                position += 1
                end = position + (first >> 1)
            elif (second := data[position + 1]) < 0x80:
                position += 2
                end = position + ((first & 0x7F | second << 7) >> 1)
            else:
                length, position = _varint(data, position)
                end = position + length
            # The lowest bit is the sign.
            if first & 1:
                raise _invalid_record("a record claims a negative length")
            delta = small[data[position + 1]]
            if delta is None:
                delta, _ = _varint(data, position + 1, 64)
            if delta > largest:
                largest = delta
            position = end
    except IndexError:
        raise _invalid_record(f"the batch ends before the last of its {count} records") from None
    if position != len(data):
        raise _invalid_record(f"{count} records end at {position} of {len(data)} bytes")
    return max(batch.base_timestamp + largest, NO_TIMESTAMP)


def _find_bounds(data: bytes, position: int, end: int, name: str) -> tuple[int, int]:
    """Return where a length-prefixed value starts and ends; a null ends one before its start."""
    size = _SMALL[data[position]]
    position += 1
    if size is None:
        size, position = _varint(data, position - 1)
    if size < -1 or position + size > end:
        raise _invalid_record(f"a {name} claims {size} bytes, and {end - position} are left in its record")
    return position, position + size


def _skip_headers(data: bytes, position: int, end: int, count: int) -> int:
    # A header takes two bytes at least, so this also ends the loop early for an absurd count.
    if not 0 < count <= (end - position) // 2:
        raise _invalid_record(f"a record claims {count} headers, and has {end - position} bytes for them")
    for _ in range(count):
        name_start, name_end = _find_bounds(data, position, end, "header name")
        if name_end < name_start:
            raise _invalid_record("a header has no name")
        value_start, value_end = _find_bounds(data, name_end, end, "header value")
        position = max(value_start, value_end)
    return position


def _headers(data: bytes, position: int, count: int) -> tuple[Header, ...]:
    """Return the headers, which `_skip_headers` has checked; as in Kafka, bytes of a name that are not UTF-8 are
    replaced."""
    end = len(data)
    headers: list[Header] = []
    for _ in range(count):
        name_start, name_end = _find_bounds(data, position, end, "header name")
        value_start, value_end = _find_bounds(data, name_end, end, "header value")
        position = max(value_start, value_end)
        value = data[value_start:value_end] if value_end >= value_start else None
        headers.append((data[name_start:name_end].decode("utf-8", "replace"), value))
    return tuple(headers)


def _varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """Return the varint at `position`, which has more than one byte, and the position behind it; a varlong has 64
    `bits`."""
    second = data[position + 1]
    if second < 0x80:
        raw = data[position] & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    raw = shift = 0
    while shift < bits:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise _invalid_record(f"a variable-length number has more than {bits} bits")

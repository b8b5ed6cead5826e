"""A record batch of format 2, seen through its header.

Kafka keeps records in batches, and a batch has the same bytes in a Produce request, in a segment file and in a Fetch
response. So a broker that treats the batch as opaque reads 61 bytes of it and copies nothing:

    position  size  field
           0     8  base offset             set by the leader: the offset of the first record
           8     4  batch length            bytes after this field
          12     4  partition leader epoch  set by the leader
          16     1  magic                   2; the formats 0 and 1 also have their magic at this place
          17     4  crc                     CRC-32C of everything from the attributes to the end
          21     2  attributes              bits 0-2  codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
                                            bit 3     timestamp type: 0 CreateTime, 1 LogAppendTime
                                            bit 4     transactional
                                            bit 5     control: the records are the broker's own
                                            bit 6     the base timestamp holds the delete horizon
          23     4  last offset delta       last offset - base offset; sequence numbers go by it as well
          27     8  base timestamp          the first record's, or the delete horizon
          35     8  max timestamp           the largest of its records, or the time of the append
          43     8  producer id             -1: not idempotent
          51     2  producer epoch
          53     4  base sequence
          57     4  records count
          61        the records, compressed as one piece if there is a codec

The CRC leaves out the first 21 bytes on purpose: a leader stamps base offset and leader epoch without computing it
again.

Compaction keeps base offset, last offset and sequence of a batch even if it takes records out, because producer state
is rebuilt from them. Hence `records_count` may be less than `last_offset_delta + 1`, and even 0. A batch that comes
from a producer may not have such gaps; that is for `batch_validation` to say, not for this file.

`RecordBatch` refuses only what cannot be looked at as a batch: too few bytes, a size that contradicts them, another
magic. It does not check the CRC; `is_valid` does. Its fields are read once, when it is made, in one `struct` call: that
costs less than reading even three of them apart. A change of the bytes must change the fields too (see `stamping`).

KIP-98 brought this format, KIP-534 the delete horizon.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from pessoa.records import checksum
from pessoa.records.compression import Codec
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61

LENGTH_POSITION = 8
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35

# The base offset and the length itself are not counted in the batch length.
LOG_OVERHEAD = 12

MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

# Sequence numbers are the non-negative int32s, and 0 follows the last of them.
_SEQUENCE_MASK = 0x7FFFFFFF

_CODECS: tuple[Codec | None, ...] = (*Codec, None, None, None)
assert len(_CODECS) == CODEC_MASK + 1

_LENGTH = struct.Struct(">i")
_unpack_header = HEADER.unpack_from
_unpack_length = _LENGTH.unpack_from


class TimestampType(IntEnum):
    """Whose clock gave the timestamps of a batch; `config_name` is the value of `message.timestamp.type`."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def config_name(self) -> str:
        return "CreateTime" if self is TimestampType.CREATE_TIME else "LogAppendTime"


def increment_sequence(sequence: int, increment: int) -> int:
    """The sequence number `increment` records later."""
    return (sequence + increment) & _SEQUENCE_MASK


class RecordBatch:
    """A batch with the fields of its header. `view` is the whole batch, and `size` its bytes including the header."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
        "view",
    )

    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    size: int
    view: memoryview

    def __init__(self, data: bytes | bytearray | memoryview, position: int = 0) -> None:
        """Read the header of the batch that starts at `position`; bytes after its end are ignored."""
        view = data if type(data) is memoryview else memoryview(data)
        try:
            (
                self.base_offset,
                length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.records_count,
            ) = _unpack_header(view, position)
        except struct.error:
            raise _batch_error(view[position:]) from None
        self.size = size = length + LOG_OVERHEAD
        end = position + size
        if self.magic != MAGIC or size < HEADER_SIZE or end > len(view):
            raise _batch_error(view[position:])
        self.view = view if size == len(view) else view[position:end]

    @property
    def codec(self) -> Codec:
        codec = _CODECS[self.attributes & CODEC_MASK]
        if codec is None:
            raise InvalidBatch(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"the attributes name codec {self.attributes & CODEC_MASK}, which does not exist",
            )
        return codec

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop the tombstones and markers of this batch; None before a pass has
        set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    def computed_crc(self) -> int:
        return checksum.crc32c(self.view[ATTRIBUTES_POSITION:])

    def is_valid(self) -> bool:
        """Whether the CRC matches the bytes."""
        return self.crc == checksum.crc32c(self.view[ATTRIBUTES_POSITION:])

    def __repr__(self) -> str:
        codec = _CODECS[self.attributes & CODEC_MASK]
        flags = "".join(
            f", {name}"
            for name, is_set in (
                ("transactional", self.is_transactional),
                ("control", self.is_control),
                ("delete horizon", self.has_delete_horizon),
            )
            if is_set
        )
        return (
            f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.records_count} records, "
            f"{self.size} bytes, leader epoch {self.partition_leader_epoch}, "
            f"{codec.name.lower() if codec is not None else 'unknown codec'}, {self.timestamp_type.config_name} "
            f"{self.max_timestamp}, producer {self.producer_id} epoch {self.producer_epoch}, "
            f"sequence {self.base_sequence}..{self.last_sequence}{flags})"
        )


def _batch_error(view: memoryview) -> InvalidBatch:
    """Return the error that says why these bytes are not a batch. It is off the hot path, so it may read them again."""
    available = len(view)
    if available > MAGIC_POSITION:
        magic = struct.unpack_from("b", view, MAGIC_POSITION)[0]
        if magic in (0, 1):
            return InvalidBatch(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"this is a message of format {magic}; only batches of format {MAGIC} are read",
            )
        if magic != MAGIC:
            return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"no record batch has the magic byte {magic}")
    if available >= LOG_OVERHEAD:
        size = _unpack_length(view, LENGTH_POSITION)[0] + LOG_OVERHEAD
        if size < HEADER_SIZE:
            return InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE, f"the batch says it has {size} bytes; its header alone takes {HEADER_SIZE}"
            )
        return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"the batch says it has {size} bytes, but there are {available}")
    return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{available} bytes are too few for the header of a batch")


class BatchWalk:
    """The batches that stand one after another in `data`.

    A Fetch response and a torn segment may end in an incomplete batch. Iteration stops before it, and `end` is its
    position: the size of the complete batches. Bytes that cannot begin a batch raise `InvalidBatch`, and `end` is their
    position.
    """

    __slots__ = ("data", "end")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = data if type(data) is memoryview else memoryview(data)
        self.end = 0

    @property
    def has_partial_tail(self) -> bool:
        """After the walk: whether bytes of an unfinished batch are left."""
        return self.end < len(self.data)

    def __iter__(self) -> Iterator[RecordBatch]:
        data = self.data
        data_end = len(data)
        self.end = position = 0
        # As in Kafka's readers, a corrupt batch is distinguished from an incomplete one once the magic byte is there.
        while data_end - position > MAGIC_POSITION:
            size = _unpack_length(data, position + LENGTH_POSITION)[0] + LOG_OVERHEAD
            if position + size > data_end and data[position + MAGIC_POSITION] == MAGIC:
                return
            batch = RecordBatch(data, position)
            self.end = position = position + batch.size
            yield batch

    def __repr__(self) -> str:
        return f"BatchWalk({self.end} of {len(self.data)} bytes)"


def batches(data: bytes | bytearray | memoryview) -> BatchWalk:
    """Walk the batches in `data`; an incomplete batch at the end stops the walk, see `BatchWalk.end`."""
    return BatchWalk(data)


def whole_batches(data: bytes | bytearray | memoryview) -> Iterator[RecordBatch]:
    """Walk the batches in `data`, where an incomplete batch at the end is an error."""
    walk = BatchWalk(data)
    yield from walk
    if walk.has_partial_tail:
        raise _batch_error(walk.data[walk.end :])

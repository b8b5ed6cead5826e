"""The same batch in another codec, for topics whose `compression.type` is not `producer`.

The records stay as they are, byte for byte; they are unpacked, packed anew, and the header gets the codec, the length
and the CRC that go with them. What the producer said about offsets, times and sequences is left alone, so to readers
it is the batch that was sent.
"""

from __future__ import annotations

import struct

from pessoa.records import checksum
from pessoa.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    RecordBatch,
)
from pessoa.records.compression import DECOMPRESSED_LIMIT, Codec, compress
from pessoa.records.record import unpacked_records

_pack_length = struct.Struct(">i").pack_into
_pack_crc = struct.Struct(">I").pack_into
_pack_attributes = struct.Struct(">h").pack_into


def recompress(
    batch: RecordBatch, codec: Codec, level: int | None = None, limit: int = DECOMPRESSED_LIMIT
) -> RecordBatch:
    """Return a new batch with the records of this one. Raises `InvalidBatch` if they cannot be decompressed, or are
    more than `limit` bytes."""
    data = bytearray(batch.view[:HEADER_SIZE])
    data += compress(codec, unpacked_records(batch, limit), level)
    _pack_length(data, LENGTH_POSITION, len(data) - LOG_OVERHEAD)
    _pack_attributes(data, ATTRIBUTES_POSITION, batch.attributes & ~CODEC_MASK | codec)
    _pack_crc(data, CRC_POSITION, checksum.crc32c(memoryview(data)[ATTRIBUTES_POSITION:]))
    return RecordBatch(data)

"""The header fields that a leader sets, in place, in a batch that it accepts.

A produced batch counts its offsets from 0 and knows no leader epoch. The leader fills in both when it appends. They
stand before the part that the CRC covers, so this is one `pack_into` and the records are not touched. The max timestamp
lies under the CRC, so a new one costs a second pass over the bytes: in topics with
`message.timestamp.type=LogAppendTime`, and where a producer has sent another one than its records have.

All functions change the bytes under `batch.view`, which must be writable, and the fields of `batch` with them.

There is no stamping of a delete horizon: it takes the place of the base timestamp, from which every record counts its
own, so compaction writes the batch anew (`builder.build_batch(..., delete_horizon_ms=...)`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pessoa.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_POSITION,
    TRANSACTIONAL_FLAG,
)

if TYPE_CHECKING:
    from pessoa.records.batch import RecordBatch

# Base offset, length, leader epoch. The length between the two is written back as it was: one call instead of two.
_pack_assignment = struct.Struct(">qii").pack_into
_pack_crc = struct.Struct(">I").pack_into
_pack_attributes = struct.Struct(">h").pack_into
_pack_timestamp = struct.Struct(">q").pack_into

# Bits without a meaning are cleared where the attributes are written anyway, as Kafka does.
_KNOWN_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG


def stamp(batch: RecordBatch, base_offset: int, partition_leader_epoch: int) -> None:
    """Write the base offset and the leader epoch into the batch; the CRC covers neither."""
    _pack_assignment(batch.view, 0, base_offset, batch.size - LOG_OVERHEAD, partition_leader_epoch)
    batch.base_offset = base_offset
    batch.partition_leader_epoch = partition_leader_epoch


def stamp_log_append_time(batch: RecordBatch, now_ms: int) -> None:
    """Make `now_ms` the timestamp of every record of the batch, and update the CRC."""
    batch.attributes |= LOG_APPEND_TIME_FLAG
    stamp_max_timestamp(batch, now_ms)


def stamp_max_timestamp(batch: RecordBatch, timestamp: int) -> None:
    """Set the max timestamp in the header of the batch, and update the CRC."""
    view = batch.view
    batch.attributes &= _KNOWN_ATTRIBUTES
    batch.max_timestamp = timestamp
    _pack_attributes(view, ATTRIBUTES_POSITION, batch.attributes)
    _pack_timestamp(view, MAX_TIMESTAMP_POSITION, timestamp)
    batch.crc = batch.computed_crc()
    _pack_crc(view, CRC_POSITION, batch.crc)

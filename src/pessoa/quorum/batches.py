"""Metadata records to batches and back, and a committed batch as the listeners of the quorum get it.

Every record is framed with its type and version (`pessoa.wire.stored.record_framing`), has no key, and one batch holds
what one decision of the controller wrote: it is in the log whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pessoa.records.builder import build_batch
from pessoa.records.control_records import control_records
from pessoa.records.record import Record, records
from pessoa.wire.stored.control_record_bodies import KRaftVersionRecord
from pessoa.wire.stored.record_framing import decode_metadata_record, encode_metadata_record

if TYPE_CHECKING:
    from pessoa.records.batch import RecordBatch
    from pessoa.wire.schema import Message

# A record, and the version in which it is written.
VersionedRecord = tuple["Message", int]


class UnknownMetadataRecord(Exception):
    """The log has a metadata record that this release does not know. The image would be wrong without it."""


class MetadataBatch(NamedTuple):
    """A decoded batch of the metadata log. A control batch has no records, only offsets."""

    last_offset: int
    epoch: int
    append_time_ms: int
    records: Sequence[Message]
    # The level of the feature `kraft.version`, if this batch sets it.
    kraft_version: int | None = None
    # In the log.
    size: int = 0


def encode_batch(versioned: Sequence[VersionedRecord], now_ms: int, base_offset: int = 0, epoch: int = -1) -> bytearray:
    return build_batch(
        [
            Record(base_offset + index, now_ms, None, encode_metadata_record(record, version))
            for index, (record, version) in enumerate(versioned)
        ],
        partition_leader_epoch=epoch,
    )


def decode_batch(batch: RecordBatch) -> MetadataBatch:
    last_offset = batch.base_offset + batch.last_offset_delta
    decoded: list[Message] = []
    kraft_version = None
    if batch.is_control:
        for control in control_records(batch):
            if isinstance(control.message, KRaftVersionRecord):
                kraft_version = control.message.kraft_version
    else:
        decoded.extend(_decode_records(batch))
    epoch, time_ms = batch.partition_leader_epoch, batch.max_timestamp
    return MetadataBatch(last_offset, epoch, time_ms, decoded, kraft_version, batch.size)


def _decode_records(batch: RecordBatch) -> Iterator[Message]:
    for record in records(batch):
        if record.value is None:
            raise UnknownMetadataRecord(f"the metadata record at offset {record.offset} has no value")
        message = decode_metadata_record(record.value)
        if message is None:
            raise UnknownMetadataRecord(f"the metadata record at offset {record.offset} is of a newer Kafka")
        yield message

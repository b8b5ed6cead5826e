"""Control records: what brokers write into a log for themselves, and clients pass over.

A batch with the control flag holds no user's data. The key of each of its records says what the record is, and the
value is a message of `pessoa.wire.stored.control_record_bodies`:

    key    int16 version (0), int16 type
    value  int16 version, then the message in that version

    type  name             message               written by
       0  ABORT            EndTxnMarker          the leader of a partition, when a transaction in it is aborted
       1  COMMIT           EndTxnMarker          the same, when one is committed
       2  LEADER_CHANGE    LeaderChangeMessage   a new leader of the metadata quorum, first of all
       3  SNAPSHOT_HEADER  SnapshotHeaderRecord  the node that begins a snapshot of the metadata log
       4  SNAPSHOT_FOOTER  SnapshotFooterRecord  and ends it
       5  KRAFT_VERSION    KRaftVersionRecord    the quorum leader, when voters may change (KIP-853)
       6  KRAFT_VOTERS     VotersRecord          the quorum leader, when they do

A transaction marker stands alone in its batch, which carries the producer's id and epoch, is transactional as well, and
has no sequence number. The others come from no producer, and several of them may share a batch.

The quorum's messages begin with a field `version` of their own; that is the version before the message in the table
above. Apache Kafka 4.3 writes 0 in all of them.

**Newer writers.** A type that is not in the table is passed over as Kafka does: `type` is None. So is the message if
its version is unknown. Only a transaction marker is read in every version, by its first field, because passing
over it would leave the transaction open.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.records.builder import build_batch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record, records
from pessoa.wire.errors import ErrorCode, ProtocolViolation
from pessoa.wire.stored.control_record_bodies import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pessoa.records.batch import RecordBatch

QuorumMessage = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
ControlMessage = EndTxnMarker | QuorumMessage


class ControlRecordType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(NamedTuple):
    """A decoded control record; see the head of this file for None."""

    offset: int
    timestamp: int
    type: ControlRecordType | None
    message: ControlMessage | None


_QUORUM_TYPES: dict[type[QuorumMessage], ControlRecordType] = {
    LeaderChangeMessage: ControlRecordType.LEADER_CHANGE,
    SnapshotHeaderRecord: ControlRecordType.SNAPSHOT_HEADER,
    SnapshotFooterRecord: ControlRecordType.SNAPSHOT_FOOTER,
    KRaftVersionRecord: ControlRecordType.KRAFT_VERSION,
    VotersRecord: ControlRecordType.KRAFT_VOTERS,
}
_QUORUM_MESSAGES = {control_type: message for message, control_type in _QUORUM_TYPES.items()}
_TRANSACTION_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0
_VERSION = struct.Struct(">h")
_MARKER_VERSION = 0
_MARKER_SIZE = 4


def build_transaction_marker(
    control_type: ControlRecordType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """Return the batch that ends a producer's transaction in one partition; `control_type` is COMMIT or ABORT."""
    if control_type not in _TRANSACTION_MARKERS:
        raise ValueError(f"{control_type.name} does not end a transaction")
    marker = EndTxnMarker(coordinator_epoch=coordinator_epoch)
    value = _VERSION.pack(_MARKER_VERSION) + marker.encode(_MARKER_VERSION)
    return build_batch(
        [Record(base_offset, timestamp, _KEY.pack(_KEY_VERSION, control_type), value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def build_quorum_batch(
    messages: Sequence[QuorumMessage], *, timestamp: int, base_offset: int = 0, partition_leader_epoch: int = -1
) -> bytearray:
    """Return a batch of the control records that the metadata quorum writes about itself, at consecutive offsets."""
    return build_batch(
        [
            Record(
                base_offset + index,
                timestamp,
                _KEY.pack(_KEY_VERSION, _QUORUM_TYPES[type(message)]),
                message.encode(message.version),
            )
            for index, message in enumerate(messages)
        ],
        control=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def control_records(batch: RecordBatch) -> Iterator[ControlRecord]:
    """Read the records of a control batch."""
    assert batch.is_control, f"not a control batch: {batch}"
    return map(read_control_record, records(batch))


def read_control_record(record: Record) -> ControlRecord:
    """Return the decoded record of a control batch. Raises `InvalidBatch` with INVALID_RECORD."""
    control_type = read_control_type(record.key)
    if control_type is None:
        return ControlRecord(record.offset, record.timestamp, None, None)
    value = record.value
    if value is None or len(value) < _VERSION.size:
        raise _invalid_record(f"the {control_type.name} record at offset {record.offset} has no version")
    version = _VERSION.unpack_from(value)[0]
    if version < 0:
        raise _invalid_record(f"the {control_type.name} record at offset {record.offset} has version {version}")
    try:
        message = _read_message(control_type, version, value)
    except ProtocolViolation as violation:
        raise _invalid_record(f"the {control_type.name} record at offset {record.offset}: {violation}") from violation
    return ControlRecord(record.offset, record.timestamp, control_type, message)


def read_control_type(key: bytes | None) -> ControlRecordType | None:
    """Return the type that a control record's key names; None for a type of a newer Kafka."""
    if key is None or len(key) < _KEY.size:
        raise _invalid_record(f"a control record has a key of {_KEY.size} bytes, but here is {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise _invalid_record(f"a control record has a key of version {version}")
    return _TYPES.get(number)


def _read_message(control_type: ControlRecordType, version: int, value: bytes) -> ControlMessage | None:
    if control_type in _TRANSACTION_MARKERS:
        body = value[_VERSION.size :]
        return EndTxnMarker.decode(body if version == _MARKER_VERSION else body[:_MARKER_SIZE], _MARKER_VERSION)
    declared = _QUORUM_MESSAGES[control_type]
    return declared.decode(value, version) if version in declared.versions else None


def _invalid_record(message: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, message)


_TYPES = {int(control_type): control_type for control_type in ControlRecordType}

"""The lines of `kafka-dump-log` for a file of record batches: a segment's `.log`, or a `.checkpoint` of the metadata.

    Log starting offset: 0
    baseOffset: 0 lastOffset: 2 count: 3 … position: 0 CreateTime: 1794777814802 size: 100 … isvalid: true
    | offset: 0 CreateTime: 1794777814802 keySize: 1 valueSize: 5 sequence: 0 headerKeys: [] key: k payload: v

`batches` is the way to the batches for the indexes' lines, too. It reads the file from front to back and holds one
batch in memory, however large the file is. It stops before a batch that the file has not all of; bytes that cannot
be a batch end the run, because nothing says where the next batch would begin.

Messages of the formats 0 and 1, which Apache's tool still prints, are among those bytes.
"""

from __future__ import annotations

import os.path
import re
from typing import TYPE_CHECKING

from pessoa.cli.dump_log.findings import Unreadable
from pessoa.records.batch import LENGTH_POSITION, LOG_OVERHEAD, MAGIC_POSITION, RecordBatch, increment_sequence
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from pessoa.cli.dump_log.findings import Findings
    from pessoa.records.record import Record

    # Key and value as they are printed; None: not at all.
    Decode = Callable[[Record], tuple[str | None, str | None]]

BOOTSTRAP_NAME = "bootstrap.checkpoint"
_CHECKPOINT_NAME = re.compile(r"([0-9]{20})-([0-9]{10})")
_INT32_MAX = (1 << 31) - 1
# Where no batch can begin any more: Kafka looks as far as the magic byte before it takes bytes for a batch.
_LEAST_BYTES = MAGIC_POSITION + 1
_READ_BUFFER_BYTES = 1 << 20


class Detail:
    """The detail in which a batch is printed: with its records or not, their metadata or not, and their contents if
    decoded."""

    __slots__ = ("decode", "metadata", "records")

    def __init__(self, records: bool, metadata: bool, decode: Decode | None) -> None:
        self.records = records
        self.metadata = metadata
        self.decode = decode


def lines(path: str, detail: Detail, max_bytes: int, findings: Findings) -> Iterator[str]:
    yield _headline(path)
    end, previous_offset = 0, -1
    with open(path, "rb", _READ_BUFFER_BYTES) as file:
        for position, batch in batches(file, max_bytes):
            end = position + batch.size
            try:
                yield batch_line(position, batch)
                for record in records(batch) if detail.records else ():
                    if record.offset != previous_offset + 1:
                        findings.gap(path, previous_offset, record.offset)
                    previous_offset = record.offset
                    yield record_line(batch, record, detail)
            except InvalidBatch as problem:
                raise Unreadable(f"{path}, in the batch at position {position}: {problem.message}") from problem
    if max_bytes == _INT32_MAX and (rest := os.path.getsize(path) - end) > 0:
        yield f"Found {rest} invalid bytes at the end of {os.path.basename(path)}"


def _headline(path: str) -> str:
    name = os.path.basename(path)
    if name.endswith(".log"):
        return f"Log starting offset: {base_offset_of(path)}"
    if name == BOOTSTRAP_NAME:
        return "KRaft bootstrap snapshot"
    found = _CHECKPOINT_NAME.match(name)
    if found is None:
        raise Unreadable(f"{path}: a snapshot's name says offset and epoch, like {0:020d}-{1:010d}.checkpoint")
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}"


def base_offset_of(path: str) -> int:
    digits, _, kind = os.path.basename(path).partition(".")
    if not (digits.isascii() and digits.isdigit()):
        raise Unreadable(f"{path}: the name of a segment's file begins with an offset, like {0:020d}.{kind}")
    return int(digits)


def batches(file: BinaryIO, max_bytes: int = _INT32_MAX, position: int = 0) -> Iterator[tuple[int, RecordBatch]]:
    """Yield every complete batch of the file, with its position."""
    file.seek(0, 2)
    end = min(file.tell(), max_bytes)
    file.seek(position)
    # Strictly more: with exactly as many bytes Kafka does not look either.
    while end - position > _LEAST_BYTES:
        head = file.read(_LEAST_BYTES)
        size = int.from_bytes(head[LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if position + size > end:
            return
        try:
            batch = RecordBatch(head + file.read(size - _LEAST_BYTES) if size > _LEAST_BYTES else head)
        except InvalidBatch as problem:
            raise Unreadable(f"{file.name}, position {position}: {problem.message}") from problem
        yield position, batch
        position += size


def batch_line(position: int, batch: RecordBatch) -> str:
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.records_count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence}"
        f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
        f" partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {_java_bool(batch.is_transactional)} isControl: {_java_bool(batch.is_control)}"
        f" deleteHorizonMs: {java_optional(batch.delete_horizon_ms)} position: {position}"
        f" {batch.timestamp_type.config_name}: {batch.max_timestamp} size: {batch.size} magic: {batch.magic}"
        f" compresscodec: {batch.codec.name.lower()} crc: {batch.crc} isvalid: {_java_bool(batch.is_valid())}"
    )


def record_line(batch: RecordBatch, record: Record, detail: Detail) -> str:
    parts = []
    if detail.metadata:
        parts.append(_metadata(batch, record))
        if batch.is_control:
            parts.append(_control(record))
    if detail.decode is not None and not batch.is_control:
        if not detail.metadata:
            parts.append("|")
        key, value = detail.decode(record)
        parts += [f"key: {key}"] if key is not None else []
        parts += [f"payload: {value}"] if value is not None else []
        if parts == ["|"]:
            return ""
    return " ".join(parts)


def _metadata(batch: RecordBatch, record: Record) -> str:
    sequence = batch.base_sequence
    if sequence >= 0:
        sequence = increment_sequence(sequence, record.offset - batch.base_offset)
    return (
        f"| offset: {record.offset} {batch.timestamp_type.config_name}: {record.timestamp}"
        f" keySize: {_size(record.key)} valueSize: {_size(record.value)} sequence: {sequence}"
        f" headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )


def _control(record: Record) -> str:
    from pessoa.cli.dump_log.message_json import as_json
    from pessoa.records.control_records import ControlRecordType, read_control_record
    from pessoa.wire.stored.control_record_bodies import EndTxnMarker

    control = read_control_record(record)
    if isinstance(control.message, EndTxnMarker):
        assert control.type is not None
        return f"endTxnMarker: {control.type.name} coordinatorEpoch: {control.message.coordinator_epoch}"
    if control.type is None or control.message is None:
        number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
        return f"controlType: UNKNOWN({number})"
    title = {
        ControlRecordType.LEADER_CHANGE: "LeaderChange:",
        ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
        ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
        ControlRecordType.KRAFT_VERSION: "KRaftVersion",
        ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
    }[control.type]
    return f"{title} {as_json(control.message, control.message.version)}"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _java_bool(value: bool) -> str:
    return "true" if value else "false"


def java_optional(value: int | None) -> str:
    """Return a number that may be missing as Java prints an OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"

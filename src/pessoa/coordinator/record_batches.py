"""Coordinator records as batches, and batches as coordinator records.

The records of one `Output` make one batch: either all of them are in the log or none. A batch of a transaction
carries its producer and no sequence number, as Kafka's coordinators write it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pessoa.coordinator.shard import CoordinatorRecord, Producer
from pessoa.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordBatch
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, control_records
from pessoa.records.record import Record, records
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import (
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class StoredRecord(NamedTuple):
    offset: int
    key: Message
    value: Message | None


class TransactionEnd(NamedTuple):
    producer_id: int
    producer_epoch: int
    committed: bool


def encode_batch(
    coordinator_records: Sequence[CoordinatorRecord],
    now_ms: int,
    producer: Producer | None = None,
    codec: Codec = Codec.NONE,
) -> bytearray:
    stored = [
        Record(
            index,
            now_ms,
            encode_coordinator_key(key),
            None if value is None else encode_coordinator_value(value, version),
        )
        for index, (key, value, version) in enumerate(coordinator_records)
    ]
    if producer is None:
        return build_batch(stored, codec=codec)
    return build_batch(stored, codec=codec, producer_id=producer.id, producer_epoch=producer.epoch, transactional=True)


def empty_batch() -> bytearray:
    """Return a batch that takes up an offset and has no records. Compaction leaves such batches, so every reader knows
    them."""
    return build_batch([], base_offset=0, last_offset=0)


def decode_batch(log: str, batch: RecordBatch) -> Iterator[StoredRecord | TransactionEnd]:
    """Yield the records and markers in a batch of `log` (GROUP_LOG, TRANSACTION_LOG). Types and versions that a newer
    Kafka wrote are skipped, as in Kafka: they may be left from a downgrade."""
    if batch.is_control:
        for control in control_records(batch):
            if control.type in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                yield TransactionEnd(batch.producer_id, batch.producer_epoch, control.type is ControlRecordType.COMMIT)
        return
    for record in records(batch):
        if record.key is None:
            continue
        key = decode_coordinator_key(log, record.key)
        if key is None:
            continue
        if record.value is None:
            yield StoredRecord(record.offset, key, None)
            continue
        value = decode_coordinator_value(log, key, record.value)
        if value is not None:
            yield StoredRecord(record.offset, key, value)

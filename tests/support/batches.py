"""Small record batches for tests of the log: plain, idempotent, transactional, and the markers that end transactions.

Each is a writable view, since a leader stamps the batch that it appends in place. Offsets begin at 0 unless `at` is
given. Values are `v0`, `v1`, …, so that records can be recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.records.batch import RecordBatch, batches
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.record import Record, records

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW_MS = 1_700_000_000_000


def plain(
    count: int = 1,
    *,
    at: int = 0,
    epoch: int = -1,
    timestamp: int = NOW_MS,
    timestamps: Sequence[int] | None = None,
    size: int | None = None,
    codec: Codec = Codec.NONE,
    last_offset: int | None = None,
) -> memoryview:
    """Return a batch of `count` records at offset `at`. The last value is padded so that the whole batch has `size`
    bytes."""
    times = list(timestamps) if timestamps is not None else [timestamp] * count
    batch = build_batch(
        [Record(at + index, time, None, b"v%d" % (at + index)) for index, time in enumerate(times)],
        codec=codec,
        partition_leader_epoch=epoch,
        last_offset=last_offset,
    )
    if size is None or size == len(batch):
        return memoryview(batch)
    # The varint lengths in front of a longer value take more bytes as well, so the size of the value is found by
    # trying.
    for padding in range(size - len(batch), -1, -1):
        padded = build_batch(
            [
                Record(at + index, time, None, b"v%d" % (at + index) + (b"." * padding if index == count - 1 else b""))
                for index, time in enumerate(times)
            ],
            partition_leader_epoch=epoch,
        )
        if len(padded) == size:
            return memoryview(padded)
    raise ValueError(f"no batch of {count} records has exactly {size} bytes")


def idempotent(
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    at: int = 0,
    producer_epoch: int = 0,
    epoch: int = -1,
    timestamp: int = NOW_MS,
    transactional: bool = False,
) -> memoryview:
    """Return a batch of an idempotent producer."""
    return memoryview(
        build_batch(
            [
                Record(at + index, timestamp, None, b"p%d-%d" % (producer_id, sequence + index))
                for index in range(count)
            ],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
            partition_leader_epoch=epoch,
        )
    )


def transactional(
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    at: int = 0,
    producer_epoch: int = 0,
    epoch: int = -1,
    timestamp: int = NOW_MS,
) -> memoryview:
    """Return a batch of a transactional producer."""
    return idempotent(
        producer_id,
        sequence,
        count,
        at=at,
        producer_epoch=producer_epoch,
        epoch=epoch,
        timestamp=timestamp,
        transactional=True,
    )


def commit(producer_id: int, **place: int) -> memoryview:
    return _marker(ControlRecordType.COMMIT, producer_id, **place)


def abort(producer_id: int, **place: int) -> memoryview:
    return _marker(ControlRecordType.ABORT, producer_id, **place)


def _marker(
    kind: ControlRecordType,
    producer_id: int,
    at: int = 0,
    producer_epoch: int = 0,
    epoch: int = -1,
    timestamp: int = NOW_MS,
    coordinator_epoch: int = 0,
) -> memoryview:
    return memoryview(
        build_transaction_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
            base_offset=at,
            partition_leader_epoch=epoch,
        )
    )


def values(data: bytes) -> list[tuple[int, bytes | None]]:
    """Return offset and value of every record of the complete data batches in `data`."""
    return [
        (record.offset, record.value) for batch in batches(data) if not batch.is_control for record in records(batch)
    ]


def offsets(data: bytes) -> list[tuple[int, int]]:
    """Return first and last offset of every complete batch in `data`."""
    return [(batch.base_offset, batch.last_offset) for batch in batches(data)]


def stored(view: memoryview) -> RecordBatch:
    return RecordBatch(view)

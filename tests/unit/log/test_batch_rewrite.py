"""Compaction of one batch: reading its keys, and building it again with some of its records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.log.compaction.batch_rewrite import drop_records, keep_records, read_keys
from pessoa.log.compaction.offset_map import DEAD, LIVE, TOMBSTONE
from pessoa.records.batch import RecordBatch, TimestampType
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, build_transaction_marker, control_records
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record, records, unpacked_records

NOW_MS = 1_700_000_000_000


def record(offset: int, timestamp: int, key: bytes | None, value: bytes | None = b"v") -> Record:
    return Record(offset, timestamp, key, value, (("h", b"x" * 200),))


THREE = [record(10, NOW_MS, b"a"), record(12, NOW_MS + 500, b"b", None), record(13, NOW_MS + 20, None)]


def batch_of(made: list[Record], codec: Codec = Codec.NONE, log_append_time: int | None = None) -> RecordBatch:
    return RecordBatch(
        build_batch(
            made,
            base_offset=10,
            last_offset=19,
            codec=codec,
            log_append_time=log_append_time,
            producer_id=5,
            producer_epoch=2,
            base_sequence=77,
            partition_leader_epoch=3,
        )
    )


def assert_same_place(batch: RecordBatch, original: RecordBatch) -> None:
    for field in ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "last_sequence"):
        assert getattr(batch, field) == getattr(original, field), field
    assert batch.partition_leader_epoch == original.partition_leader_epoch
    assert batch.timestamp_type is original.timestamp_type
    assert batch.is_valid()


@given(
    st.lists(
        st.tuples(
            st.integers(-(1 << 40), 1 << 40), st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300)
        ),
        max_size=20,
    )
)
def test_read_keys_finds_the_same_keys_and_tombstones_as_decoding_the_records(
    parts: list[tuple[int, bytes | None, bytes | None]],
) -> None:
    made = [record(10 + number, NOW_MS + delta, key, value) for number, (delta, key, value) in enumerate(parts)]
    data = unpacked_records(RecordBatch(build_batch(made, base_offset=10, last_offset=40)))
    keys, verdicts = read_keys(data, len(made))
    assert keys == [one.key for one in made]
    assert list(verdicts) == [DEAD if one.key is None else TOMBSTONE if one.value is None else LIVE for one in made]


@given(st.binary(max_size=60), st.integers(-3, 10))
def test_reading_keys_from_arbitrary_bytes_returns_keys_or_raises_invalid_batch(data: bytes, count: int) -> None:
    try:
        keys, verdicts = read_keys(data, count)
    except InvalidBatch:
        return
    assert len(keys) == len(verdicts) == count


@given(st.binary(max_size=100), st.integers(0, 99), st.integers(0, 255))
def test_reading_keys_from_records_with_a_damaged_byte_returns_keys_or_raises_invalid_batch(
    key: bytes, position: int, byte: int
) -> None:
    data = bytearray(unpacked_records(batch_of([record(10, NOW_MS, key), record(11, NOW_MS, b"b")])))
    data[position % len(data)] = byte
    try:
        keys, verdicts = read_keys(bytes(data), 2)
    except InvalidBatch:
        return
    assert len(keys) == len(verdicts) == 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kept", [(1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)])
@pytest.mark.parametrize("log_append_time", [None, NOW_MS + 9])
def test_a_rewritten_batch_has_the_kept_records_and_the_offsets_and_sequences_of_the_original(
    codec: Codec, kept: tuple[int, ...], log_append_time: int | None
) -> None:
    batch = batch_of(THREE, codec, log_append_time)
    cleaned = keep_records(batch, kept, None)
    survivors = [one for one, stays in zip(records(batch), kept, strict=True) if stays]
    assert list(records(cleaned)) == survivors
    assert_same_place(cleaned, batch)
    assert cleaned.codec is codec
    assert cleaned.max_timestamp == max(one.timestamp for one in survivors)
    # Byte for byte what a builder makes of the same records, which is what Apache Kafka does.
    assert bytes(cleaned.view) == bytes(
        build_batch(
            survivors,
            base_offset=10,
            last_offset=19,
            codec=codec,
            log_append_time=log_append_time,
            producer_id=5,
            producer_epoch=2,
            base_sequence=77,
            partition_leader_epoch=3,
        )
    )


@pytest.mark.parametrize("log_append_time", [None, NOW_MS + 9])
def test_a_delete_horizon_replaces_the_base_timestamp_and_is_kept_by_later_rewrites(
    log_append_time: int | None,
) -> None:
    batch = batch_of(THREE, log_append_time=log_append_time)
    marked = keep_records(batch, (1, 1, 0), NOW_MS + 60_000)
    assert marked.delete_horizon_ms == marked.base_timestamp == NOW_MS + 60_000
    assert list(records(marked)) == list(records(batch))[:2]
    later = keep_records(marked, (0, 1), None)
    assert later.delete_horizon_ms == NOW_MS + 60_000
    assert list(records(later)) == list(records(batch))[1:2]
    assert_same_place(later, batch)


def test_a_batch_without_its_records_keeps_its_offsets_sequence_and_max_timestamp() -> None:
    for log_append_time in (None, NOW_MS + 9):
        batch = batch_of(THREE, Codec.ZSTD, log_append_time)
        empty = drop_records(batch)
        assert_same_place(empty, batch)
        assert (empty.records_count, empty.size, empty.codec) == (0, 61, Codec.NONE)
        assert (empty.base_timestamp, empty.max_timestamp) == (-1, batch.max_timestamp)
        assert bytes(drop_records(empty).view) == bytes(empty.view)


def test_a_rewritten_transaction_marker_gets_a_delete_horizon_and_keeps_its_control_record() -> None:
    batch = RecordBatch(
        build_transaction_marker(
            ControlRecordType.ABORT,
            producer_id=5,
            producer_epoch=2,
            coordinator_epoch=9,
            timestamp=NOW_MS,
            base_offset=33,
        )
    )
    marked = keep_records(batch, b"\1", NOW_MS + 1)
    assert (marked.is_control, marked.is_transactional) == (True, True)
    assert marked.delete_horizon_ms == NOW_MS + 1
    assert list(control_records(marked)) == list(control_records(batch))
    assert marked.timestamp_type is TimestampType.CREATE_TIME

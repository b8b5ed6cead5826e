"""Building batches: the header fields, and arguments that are refused."""

from __future__ import annotations

import pytest

from pessoa.records.batch import RecordBatch, TimestampType
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.record import Record, records

RECORDS = [Record(3, 50, b"a", b"1"), Record(5, 70, b"b", b"2"), Record(6, 60, None, None)]


def test_the_header_of_a_built_batch_is_derived_from_its_records() -> None:
    batch = RecordBatch(build_batch(RECORDS))
    assert (batch.base_offset, batch.last_offset_delta, batch.records_count) == (3, 3, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (50, 70)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.partition_leader_epoch == -1
    assert batch.attributes == 0
    assert batch.is_valid()


def test_build_batch_sets_all_flags_and_fields() -> None:
    batch = RecordBatch(
        build_batch(
            RECORDS,
            codec=Codec.GZIP,
            producer_id=2**62,
            producer_epoch=2**15 - 1,
            base_sequence=2**31 - 1,
            transactional=True,
            control=True,
            partition_leader_epoch=12,
        )
    )
    assert (batch.codec, batch.is_transactional, batch.is_control) == (Codec.GZIP, True, True)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**62, 2**15 - 1, 2**31 - 1)
    assert batch.partition_leader_epoch == 12
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.is_valid()


def test_a_compacted_batch_keeps_its_offset_range() -> None:
    batch = RecordBatch(
        build_batch(RECORDS, base_offset=0, last_offset=20, base_sequence=5, producer_id=1, producer_epoch=0)
    )
    assert (batch.base_offset, batch.last_offset, batch.last_sequence) == (0, 20, 25)
    assert list(records(batch)) == RECORDS


def test_a_batch_without_records_is_a_header_without_codec_or_base_timestamp() -> None:
    data = build_batch([], base_offset=4, last_offset=8, codec=Codec.ZSTD, max_timestamp=99)
    batch = RecordBatch(data)
    assert len(data) == 61
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (4, 8, 0)
    assert (batch.base_timestamp, batch.max_timestamp, batch.codec) == (-1, 99, Codec.NONE)
    assert batch.is_valid()


def test_log_append_time_sets_type_and_time_and_keeps_the_deltas() -> None:
    batch = RecordBatch(build_batch(RECORDS, log_append_time=500))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (batch.base_timestamp, batch.max_timestamp) == (50, 500)
    create_time = RecordBatch(build_batch(RECORDS))
    assert batch.view[61:] == create_time.view[61:]


def test_a_delete_horizon_keeps_the_timestamps_of_the_records() -> None:
    batch = RecordBatch(build_batch(RECORDS, delete_horizon_ms=1_000))
    assert batch.delete_horizon_ms == 1_000
    assert batch.max_timestamp == 70
    assert list(records(batch)) == RECORDS


@pytest.mark.parametrize("delta", [0, 1, 63, 64, -1, -64, -65, 8191, 8192, 2**31, -(2**31), 2**62, -(2**62)])
def test_timestamp_deltas_of_every_width_are_encoded_and_decoded(delta: int) -> None:
    base = 0 if abs(delta) > 2**40 else 10**12
    built = [Record(0, base, None, b""), Record(1, base + delta, None, b"")]
    assert list(records(RecordBatch(build_batch(built)))) == built


@pytest.mark.parametrize(
    ("offsets", "options"),
    [
        ([5, 5], {}),
        ([5, 4], {}),
        ([5], {"base_offset": 6}),
        ([5, 7], {"last_offset": 6}),
        ([0, 2**31], {}),
        ([], {}),
        ([], {"base_offset": 5}),
        ([], {"base_offset": 5, "last_offset": 4}),
    ],
)
def test_records_whose_offsets_do_not_form_a_batch_are_refused(offsets: list[int], options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"offset"):
        build_batch([Record(offset, 0, None, None) for offset in offsets], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"producer_id": 2**63},
        {"producer_epoch": 2**15},
        {"base_sequence": 2**31},
        {"partition_leader_epoch": -(2**31) - 1},
    ],
)
def test_numbers_too_large_for_their_field_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        build_batch(RECORDS, **options)  # type: ignore[arg-type]


def test_a_timestamp_delta_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond 64 bits"):
        build_batch([Record(0, -(2**62), None, None), Record(1, 2**63 - 1, None, None)])

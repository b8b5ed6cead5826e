"""Stamping changes only its fields of the header, and the view agrees with the bytes afterwards."""

from __future__ import annotations

import pytest

from pessoa.records.batch import RecordBatch, TimestampType
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.record import Record, records
from pessoa.records.stamping import stamp, stamp_log_append_time, stamp_max_timestamp

PRODUCED = [Record(0, 100, b"k", b"v"), Record(1, 90, None, b"w")]


@pytest.mark.parametrize("codec", list(Codec))
def test_offset_and_leader_epoch_are_written_in_place_and_the_crc_stays_right(codec: Codec) -> None:
    data = build_batch(PRODUCED, codec=codec)
    before = bytes(data)
    batch = RecordBatch(data)
    stamp(batch, base_offset=2**40, partition_leader_epoch=7)
    assert bytes(data[:8]) == (2**40).to_bytes(8, "big")
    assert bytes(data[8:12]) == before[8:12]
    assert bytes(data[12:16]) == (7).to_bytes(4, "big")
    assert bytes(data[16:]) == before[16:]
    assert batch.is_valid()
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (2**40, 2**40 + 1, 7)
    assert [record.offset for record in records(RecordBatch(data))] == [2**40, 2**40 + 1]


def test_stamping_a_batch_within_a_larger_buffer_does_not_change_other_bytes() -> None:
    data = bytearray(b"before") + build_batch(PRODUCED) + bytearray(b"after")
    stamp(RecordBatch(data, 6), 5, 1)
    assert data.startswith(b"before")
    assert data.endswith(b"after")
    assert RecordBatch(data, 6).base_offset == 5


def test_log_append_time_becomes_the_timestamp_of_every_record() -> None:
    data = build_batch(PRODUCED, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    batch = RecordBatch(data)
    stamp_log_append_time(batch, 5_000)
    again = RecordBatch(data)
    assert again.is_valid()
    assert again.crc == batch.crc
    assert again.timestamp_type is batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert again.max_timestamp == batch.max_timestamp == 5_000
    assert again.is_transactional
    assert [record.timestamp for record in records(again)] == [5_000, 5_000]


@pytest.mark.parametrize("timestamp", [-1, 0, 1_700_000_000_000])
def test_a_max_timestamp_is_written_with_a_valid_crc_and_without_unused_attribute_bits(timestamp: int) -> None:
    data = build_batch([Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")])
    expected = build_batch([Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")])
    batch = RecordBatch(data)
    batch.attributes |= 0x7F80
    stamp_max_timestamp(batch, timestamp)
    assert (batch.max_timestamp, batch.attributes) == (timestamp, 0)
    again = RecordBatch(data)
    assert (again.max_timestamp, again.attributes, again.crc, again.is_valid()) == (timestamp, 0, batch.crc, True)
    assert (data[:17], data[21:35], data[43:]) == (expected[:17], expected[21:35], expected[43:])


def test_read_only_bytes_cannot_be_stamped() -> None:
    with pytest.raises((TypeError, BufferError)):
        stamp(RecordBatch(bytes(build_batch(PRODUCED))), 1, 1)

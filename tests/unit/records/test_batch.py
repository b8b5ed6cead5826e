"""The view of a batch header, on bytes that are listed here.

The batch below was written by hand from the table at the head of `pessoa.records.batch`; aiokafka and Apache Kafka make
the same bytes of the same records (tests/conformance/test_record_batches_with_clients.py).
"""

from __future__ import annotations

import pytest

from pessoa.records.batch import (
    HEADER_SIZE,
    RecordBatch,
    TimestampType,
    batches,
    increment_sequence,
    whole_batches,
)
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record, records
from pessoa.wire.errors import ErrorCode

TWO_RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("trace", b"\x01\x02"), ("none", None))),
    Record(1, 1_700_000_000_005, None, None),
]
TWO_RECORDS_BYTES = bytes.fromhex(
    "0000000000000000"  # base offset
    "00000056"  # batch length
    "ffffffff"  # partition leader epoch
    "02"  # magic
    "52997afa"  # crc
    "0000"  # attributes
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56805"  # max timestamp
    "0000000000000fa0"  # producer id
    "0002"  # producer epoch
    "0000000a"  # base sequence
    "00000002"  # records count
    "3a 00 00 00"  # length 29, attributes, timestamp delta 0, offset delta 0
    "06 6b6579 0a 76616c7565"  # key, value
    "04 0a 7472616365 04 0102 08 6e6f6e65 01"  # two headers, the second without a value
    "0c 00 0a 02 01 01 00"  # length 6, attributes, timestamp delta 5, offset delta 1, no key, no value, no headers
)


def test_a_batch_is_built_to_the_bytes_in_the_table() -> None:
    built = build_batch(TWO_RECORDS, producer_id=4000, producer_epoch=2, base_sequence=10)
    assert bytes(built) == TWO_RECORDS_BYTES


def test_the_view_reads_every_field_of_the_header() -> None:
    batch = RecordBatch(TWO_RECORDS_BYTES)
    assert batch.base_offset == 0
    assert batch.size == len(TWO_RECORDS_BYTES) == 98
    assert batch.partition_leader_epoch == -1
    assert batch.magic == 2
    assert batch.crc == 0x52997AFA == batch.computed_crc()
    assert batch.is_valid()
    assert batch.attributes == 0
    assert batch.codec is Codec.NONE
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert not batch.is_transactional
    assert not batch.is_control
    assert not batch.has_delete_horizon
    assert batch.delete_horizon_ms is None
    assert (batch.last_offset_delta, batch.last_offset, batch.next_offset) == (1, 1, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_700_000_000_005)
    assert batch.has_producer_id
    assert (batch.producer_id, batch.producer_epoch) == (4000, 2)
    assert (batch.base_sequence, batch.last_sequence) == (10, 11)
    assert batch.records_count == 2
    assert bytes(batch.view) == TWO_RECORDS_BYTES


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_record_batch_is_a_view_of_any_buffer_without_a_copy(kind: type) -> None:
    data = kind(TWO_RECORDS_BYTES)
    batch = RecordBatch(data)
    assert batch.view.obj is (data.obj if isinstance(data, memoryview) else data)
    assert list(records(batch)) == TWO_RECORDS


@pytest.mark.parametrize("size", range(len(TWO_RECORDS_BYTES)))
def test_a_batch_truncated_anywhere_is_corrupt(size: int) -> None:
    with pytest.raises(InvalidBatch) as refusal:
        RecordBatch(TWO_RECORDS_BYTES[:size])
    assert refusal.value.error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("tail", [b"\0", b"tail", TWO_RECORDS_BYTES])
def test_bytes_after_a_batch_are_not_part_of_it(tail: bytes) -> None:
    batch = RecordBatch(TWO_RECORDS_BYTES + tail)
    assert batch.size == len(TWO_RECORDS_BYTES)
    assert batch.is_valid()
    assert list(records(batch)) == TWO_RECORDS


def test_a_batch_may_start_anywhere_in_the_bytes() -> None:
    batch = RecordBatch(b"before" + TWO_RECORDS_BYTES + b"after", 6)
    assert bytes(batch.view) == TWO_RECORDS_BYTES


@pytest.mark.parametrize("position", range(21, len(TWO_RECORDS_BYTES)))
def test_a_changed_byte_under_the_crc_makes_the_batch_invalid(position: int) -> None:
    data = bytearray(TWO_RECORDS_BYTES)
    data[position] ^= 0x10
    assert not RecordBatch(data).is_valid()


@pytest.mark.parametrize("position", [*range(8), *range(12, 16)])
def test_base_offset_and_leader_epoch_are_outside_the_crc(position: int) -> None:
    data = bytearray(TWO_RECORDS_BYTES)
    data[position] ^= 0x10
    assert RecordBatch(data).is_valid()


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_of_older_message_formats_are_named_as_such(magic: int) -> None:
    data = bytearray(TWO_RECORDS_BYTES)
    data[16] = magic
    with pytest.raises(InvalidBatch, match=f"format {magic}") as refusal:
        RecordBatch(data)
    assert refusal.value.error is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_short_message_of_an_older_format_is_named_as_such_too() -> None:
    with pytest.raises(InvalidBatch) as refusal:
        RecordBatch(bytes(8) + b"\0\0\0\x0e" + bytes(4) + b"\x01" + bytes(9))
    assert refusal.value.error is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    data = bytearray(TWO_RECORDS_BYTES)
    data[16] = magic
    with pytest.raises(InvalidBatch, match="magic") as refusal:
        RecordBatch(data)
    assert refusal.value.error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(1 << 31), -13, -12, -1, 0, 48, 87, 1 << 20, (1 << 31) - 1])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    data = TWO_RECORDS_BYTES[:8] + length.to_bytes(4, "big", signed=True) + TWO_RECORDS_BYTES[12:]
    with pytest.raises(InvalidBatch) as refusal:
        RecordBatch(data)
    assert refusal.value.error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", list(Codec))
def test_the_codec_is_in_the_lowest_three_bits(codec: Codec) -> None:
    assert RecordBatch(build_batch(TWO_RECORDS, codec=codec)).codec is codec


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_reading_an_unknown_codec_of_a_batch_raises_invalid_batch(bits: int) -> None:
    data = bytearray(TWO_RECORDS_BYTES)
    data[22] = bits
    batch = RecordBatch(data)
    assert "unknown codec" in repr(batch)
    with pytest.raises(InvalidBatch) as refusal:
        _ = batch.codec
    assert refusal.value.error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_delete_horizon_is_in_the_field_of_the_base_timestamp() -> None:
    batch = RecordBatch(build_batch(TWO_RECORDS, delete_horizon_ms=1_800_000_000_000))
    assert batch.has_delete_horizon
    assert batch.delete_horizon_ms == batch.base_timestamp == 1_800_000_000_000
    assert list(records(batch)) == TWO_RECORDS


@pytest.mark.parametrize(
    ("sequence", "increment", "expected"),
    [(0, 0, 0), (0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (5, 2**31 - 1, 4)],
)
def test_sequence_numbers_wrap_around_after_the_last_int32(sequence: int, increment: int, expected: int) -> None:
    assert increment_sequence(sequence, increment) == expected


def test_the_last_sequence_wraps_around_and_is_minus_one_without_a_base_sequence() -> None:
    wrapped = build_batch(TWO_RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 1)
    assert RecordBatch(wrapped).last_sequence == 0
    assert RecordBatch(build_batch(TWO_RECORDS)).last_sequence == -1


def test_repr_shows_the_state_of_a_batch() -> None:
    data = build_batch(
        [Record(7, 5, None, b"v")],
        producer_id=9,
        producer_epoch=1,
        base_sequence=3,
        transactional=True,
        codec=Codec.ZSTD,
        partition_leader_epoch=4,
        log_append_time=6,
    )
    assert repr(RecordBatch(data)) == (
        f"RecordBatch(offsets 7..7, 1 records, {len(data)} bytes, leader epoch 4, zstd, LogAppendTime 6, "
        "producer 9 epoch 1, sequence 3..3, transactional)"
    )


class TestWalk:
    FIRST = bytes(build_batch([Record(0, 1, b"a", b"b")]))
    SECOND = bytes(build_batch([Record(1, 1, b"c", b"d"), Record(2, 1, b"e", None)]))

    def test_batches_come_in_their_order(self) -> None:
        walk = batches(self.FIRST + self.SECOND)
        assert [batch.base_offset for batch in walk] == [0, 1]
        assert walk.end == len(self.FIRST + self.SECOND)
        assert not walk.has_partial_tail

    def test_no_bytes_are_no_batches(self) -> None:
        walk = batches(b"")
        assert list(walk) == []
        assert not walk.has_partial_tail
        assert list(whole_batches(b"")) == []

    @pytest.mark.parametrize("cut", range(1, len(SECOND)))
    def test_an_incomplete_second_batch_ends_the_walk_at_its_start(self, cut: int) -> None:
        data = self.FIRST + self.SECOND[:cut]
        walk = batches(data)
        assert [bytes(batch.view) for batch in walk] == [self.FIRST]
        assert walk.end == len(self.FIRST)
        assert walk.has_partial_tail
        with pytest.raises(InvalidBatch) as refusal:
            list(whole_batches(data))
        assert refusal.value.error is ErrorCode.CORRUPT_MESSAGE

    def test_a_damaged_header_of_an_incomplete_batch_raises_invalid_batch(self) -> None:
        damaged = bytearray(self.SECOND)
        damaged[16] = 9
        walk = batches(self.FIRST + bytes(damaged[:20]))
        with pytest.raises(InvalidBatch, match="magic byte 9"):
            list(walk)
        assert walk.end == len(self.FIRST)

    @pytest.mark.parametrize("length", [-(1 << 31), -12, -1, 0, HEADER_SIZE - 13])
    def test_a_batch_length_below_the_header_size_is_corrupt(self, length: int) -> None:
        data = self.FIRST[:8] + length.to_bytes(4, "big", signed=True) + self.FIRST[12:]
        with pytest.raises(InvalidBatch) as refusal:
            list(batches(self.SECOND + data))
        assert refusal.value.error is ErrorCode.CORRUPT_MESSAGE

    def test_a_batch_walk_can_be_iterated_again(self) -> None:
        walk = batches(self.FIRST + self.SECOND)
        assert len(list(walk)) == len(list(walk)) == 2
        assert repr(walk) == f"BatchWalk({len(walk.data)} of {len(walk.data)} bytes)"

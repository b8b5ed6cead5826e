"""Batches that a leader refuses, with Kafka's error codes, and in Kafka's order of checks if two things are wrong."""

from __future__ import annotations

import pytest

from pessoa.records import checksum
from pessoa.records.batch import RecordBatch, TimestampType
from pessoa.records.batch_validation import (
    RECORD_ERRORS_REPORTED,
    UNBOUNDED_MS,
    AppendRules,
    check_produced,
    check_records,
)
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.invalid_batch import InvalidBatch, RecordError
from pessoa.records.record import Record
from pessoa.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RECORDS = [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS - 5, None, b"w")]
PRODUCED = bytes(build_batch(RECORDS))
RULES = AppendRules()


def change_bytes(position: int, value: bytes, data: bytes = PRODUCED) -> bytes:
    """Return the batch with other bytes at `position` and a valid CRC."""
    batch = bytearray(data)
    batch[position : position + len(value)] = value
    batch[17:21] = checksum.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def check(data: bytes | bytearray, rules: AppendRules = RULES, version: int = 12) -> RecordBatch:
    return check_produced(memoryview(data), rules, NOW_MS, version)


def refusal_of(data: bytes | bytearray, rules: AppendRules = RULES, version: int = 12) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as refusal:
        check(data, rules, version)
    assert refusal.value.message
    return refusal.value


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_accepted(codec: Codec) -> None:
    batch = check(build_batch(RECORDS, codec=codec))
    assert (batch.codec, batch.records_count) == (codec, 2)


def test_idempotent_and_transactional_batches_are_accepted() -> None:
    assert check(build_batch(RECORDS, producer_id=0, producer_epoch=0, base_sequence=0)).has_producer_id
    assert check(
        build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=2**31 - 1, transactional=True)
    ).is_transactional


@pytest.mark.parametrize("size", range(len(PRODUCED)))
def test_a_produced_batch_truncated_anywhere_is_refused(size: int) -> None:
    assert refusal_of(PRODUCED[:size]).error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", range(1, len(PRODUCED)))
def test_an_incomplete_second_batch_is_dropped(size: int) -> None:
    batch = check(PRODUCED + PRODUCED[:size])
    assert bytes(batch.view) == PRODUCED


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_second_batch_is_refused(magic: int) -> None:
    refusal = refusal_of(PRODUCED + change_bytes(16, bytes([magic])))
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert "exactly one" in refusal.message


def test_damage_after_the_batch_is_corrupt() -> None:
    assert refusal_of(PRODUCED + bytes(8) + b"\xff" * 13).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_the_older_formats_are_an_invalid_record_in_every_version_of_produce_that_is_served(magic: int) -> None:
    refusal = refusal_of(change_bytes(16, bytes([magic])))
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert f"format {magic}" in refusal.message


@pytest.mark.parametrize("magic", [3, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    assert refusal_of(change_bytes(16, bytes([magic]))).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_a_length_below_the_header_is_corrupt(length: int) -> None:
    assert refusal_of(change_bytes(8, length.to_bytes(4, "big", signed=True))).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("position", range(17, len(PRODUCED)))
def test_a_changed_byte_is_corrupt(position: int) -> None:
    data = bytearray(PRODUCED)
    data[position] ^= 0x01
    assert refusal_of(data).error is ErrorCode.CORRUPT_MESSAGE


def test_zstd_needs_produce_version_7() -> None:
    data = build_batch(RECORDS, codec=Codec.ZSTD)
    assert refusal_of(data, version=6).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert check(data, version=7).codec is Codec.ZSTD


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_unsupported(bits: int) -> None:
    assert refusal_of(change_bytes(22, bytes([bits]))).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_base_offset_other_than_0_is_refused() -> None:
    refusal = refusal_of(build_batch([Record(5, NOW_MS, None, b"")]))
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert "5" in refusal.message


def test_a_batch_larger_than_the_topic_accepts_is_too_large() -> None:
    assert refusal_of(PRODUCED, AppendRules(max_message_bytes=len(PRODUCED) - 1)).error is ErrorCode.MESSAGE_TOO_LARGE
    check(PRODUCED, AppendRules(max_message_bytes=len(PRODUCED)))


def test_the_default_max_message_bytes_is_kafkas() -> None:
    assert AppendRules().max_message_bytes == 1_048_588


@pytest.mark.parametrize(
    ("last_offset_delta", "count"),
    [(1, 0), (1, -1), (1, 1), (1, 3), (0, 2), (-1, 0), (-2, -1), (2**31 - 1, 2), (-(2**31), 2), (-1, 2)],
)
def test_counts_and_offsets_that_disagree_are_refused(last_offset_delta: int, count: int) -> None:
    data = change_bytes(57, count.to_bytes(4, "big", signed=True))
    data = change_bytes(23, last_offset_delta.to_bytes(4, "big", signed=True), data)
    refusal = refusal_of(data)
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert "records" in refusal.message


def test_a_client_may_not_write_control_records() -> None:
    refusal = refusal_of(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0, control=True))
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert "control" in refusal.message


@pytest.mark.parametrize("sequence", [-1, -2, -(2**31)])
def test_a_producer_id_needs_a_sequence(sequence: int) -> None:
    refusal = refusal_of(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=sequence))
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert "sequence" in refusal.message


def test_a_transactional_batch_needs_a_producer_id() -> None:
    refusal = refusal_of(build_batch(RECORDS, transactional=True))
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert "producer id" in refusal.message


@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_a_produced_batch_with_log_append_time_is_refused(timestamp_type: TimestampType) -> None:
    refusal = refusal_of(build_batch(RECORDS, log_append_time=NOW_MS), AppendRules(timestamp_type=timestamp_type))
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP


def test_unused_attribute_bits_are_accepted() -> None:
    assert check(change_bytes(21, b"\x7f\x80")).attributes == 0x7F80


def test_the_first_violated_rule_determines_the_error() -> None:
    too_large = AppendRules(max_message_bytes=10)
    broken_crc = bytearray(PRODUCED)
    broken_crc[17] ^= 1
    assert refusal_of(broken_crc, too_large).error is ErrorCode.MESSAGE_TOO_LARGE
    broken_crc[7] = 1
    assert refusal_of(broken_crc, too_large).error is ErrorCode.INVALID_RECORD
    zstd = build_batch([Record(1, 0, None, b"")], codec=Codec.ZSTD)
    assert refusal_of(zstd + zstd, too_large, version=3).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def claiming(max_timestamp: int, data: bytes = PRODUCED) -> bytearray:
    return bytearray(change_bytes(35, max_timestamp.to_bytes(8, "big", signed=True), data))


# A batch of one record whose record is cut short: a reader that opens it refuses it.
HOLLOW = change_bytes(61, b"\x7e", bytes(build_batch([Record(0, NOW_MS, b"k", b"v")])))


class TestTimestamps:
    def test_a_record_from_too_far_in_the_future_is_refused_and_named(self) -> None:
        late = [RECORDS[0], Record(1, NOW_MS + HOUR_MS + 1, None, b"")]
        refusal = refusal_of(build_batch(late, codec=Codec.LZ4))
        assert refusal.error is ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in refusal.record_errors] == [1]
        check(build_batch([Record(0, NOW_MS + HOUR_MS, None, b"")]))

    @pytest.mark.parametrize(
        "claim", [NOW_MS + HOUR_MS + 1, 2**63 - 1, NOW_MS - HOUR_MS - 1, NOW_MS - 1, 0, -1, -(2**63)]
    )
    @pytest.mark.parametrize("codec", list(Codec))
    def test_a_header_that_is_not_trusted_gets_the_max_timestamp_of_the_records(self, claim: int, codec: Codec) -> None:
        true = build_batch(RECORDS, codec=codec)
        batch = check(claiming(claim, bytes(true)))
        assert bytes(batch.view) == true
        assert (batch.max_timestamp, batch.is_valid()) == (NOW_MS, True)

    @pytest.mark.parametrize("claim", [0, -1, NOW_MS])
    def test_a_batch_of_records_without_timestamps_gets_max_timestamp_minus_one(self, claim: int) -> None:
        true = build_batch([Record(0, -1, b"k", b"v"), Record(1, -1, b"k", b"v")])
        for rules in (RULES, AppendRules(is_compacted=True), AppendRules(timestamp_before_max_ms=HOUR_MS)):
            batch = check(claiming(claim, bytes(true)), rules)
            assert (bytes(batch.view), batch.max_timestamp) == (bytes(true), -1)

    def test_a_batch_of_records_before_1970_gets_max_timestamp_minus_one(self) -> None:
        assert check(build_batch([Record(0, -5, None, b"")])).max_timestamp == -1

    @pytest.mark.parametrize("retention_ms", [-1, 10 * HOUR_MS, 2 * HOUR_MS, HOUR_MS, 1000, 1, 0])
    def test_records_are_read_if_the_max_timestamp_is_further_from_now_than_an_hour_or_half_the_retention(
        self, retention_ms: int
    ) -> None:
        rules = AppendRules(retention_ms=retention_ms)
        past_ms = HOUR_MS if retention_ms < 0 else min(HOUR_MS, retention_ms // 2)
        for base, claim in ((NOW_MS - past_ms, NOW_MS - past_ms), (NOW_MS, NOW_MS + HOUR_MS)):
            believed = change_bytes(27, base.to_bytes(8, "big"), bytes(claiming(claim, HOLLOW)))
            assert check(believed, rules).max_timestamp == claim
        for base, claim in (
            (NOW_MS - past_ms - 1, NOW_MS),
            (NOW_MS - past_ms - 1, NOW_MS - past_ms - 1),
            (NOW_MS, NOW_MS - 1),
            (NOW_MS, NOW_MS + HOUR_MS + 1),
            (NOW_MS + HOUR_MS + 1, NOW_MS + HOUR_MS + 1),
        ):
            doubtful = change_bytes(27, base.to_bytes(8, "big"), bytes(claiming(claim, HOLLOW)))
            assert refusal_of(doubtful, rules).error is ErrorCode.INVALID_RECORD

    def test_with_unbounded_timestamps_a_header_is_still_trusted_for_an_hour_only(self) -> None:
        rules = AppendRules(timestamp_after_max_ms=UNBOUNDED_MS)
        assert check(claiming(2**63 - 1), rules).max_timestamp == NOW_MS
        late = build_batch([Record(0, NOW_MS + 5 * HOUR_MS, None, b"")])
        assert check(late, rules).max_timestamp == NOW_MS + 5 * HOUR_MS

    def test_a_timestamp_beyond_64_bits_is_refused(self) -> None:
        data = build_batch([Record(0, 0, None, b""), Record(1, 10, None, b"")])
        beyond = change_bytes(27, (2**63 - 1).to_bytes(8, "big"), bytes(data))
        for rules in (RULES, AppendRules(timestamp_after_max_ms=UNBOUNDED_MS)):
            assert refusal_of(bytearray(beyond), rules).error is ErrorCode.INVALID_TIMESTAMP

    def test_a_record_from_too_far_in_the_past_is_refused(self) -> None:
        rules = AppendRules(timestamp_before_max_ms=4)
        refusal = refusal_of(PRODUCED, rules)
        assert refusal.error is ErrorCode.INVALID_TIMESTAMP
        assert refusal.record_errors == (
            RecordError(1, f"its timestamp {NOW_MS - 5} is not within [{NOW_MS - 4}, {NOW_MS + HOUR_MS}]"),
        )
        check(PRODUCED, AppendRules(timestamp_before_max_ms=5))

    def test_a_record_without_a_timestamp_is_not_from_the_past(self) -> None:
        check(build_batch([Record(0, -1, None, b"")]), AppendRules(timestamp_before_max_ms=4))

    def test_timestamps_are_not_checked_on_topics_with_log_append_time(self) -> None:
        rules = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=0)
        assert not rules.opens_records
        check(build_batch([Record(0, 0, None, b""), Record(1, NOW_MS * 2, None, b"")]), rules)

    def test_timestamps_are_not_checked_without_a_bound(self) -> None:
        rules = AppendRules(timestamp_after_max_ms=UNBOUNDED_MS)
        assert not rules.opens_records
        check(build_batch([Record(0, 2**62, None, b"")]), rules)


class TestCounts:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_very_many_smallest_records_are_accepted(self, codec: Codec) -> None:
        for count in (1, 2, 100, 20_000):
            smallest = [Record(number, NOW_MS, None, None) for number in range(count)]
            assert check(build_batch(smallest, codec=codec)).records_count == count

    @pytest.mark.parametrize("codec", list(Codec))
    def test_a_records_count_that_the_bytes_cannot_hold_is_refused(self, codec: Codec) -> None:
        data = bytes(build_batch(RECORDS, codec=codec))
        most = (len(data) - 61) * 4 if codec else (len(data) - 61) // 7
        for count in (most + 1, 2**31 - 1):
            untrue = change_bytes(57, count.to_bytes(4, "big"), change_bytes(23, (count - 1).to_bytes(4, "big"), data))
            assert refusal_of(untrue).error is ErrorCode.INVALID_RECORD


class TestRecords:
    COMPACTED = AppendRules(is_compacted=True)

    @pytest.mark.parametrize("codec", list(Codec))
    def test_a_compacted_topic_requires_keys(self, codec: Codec) -> None:
        refusal = refusal_of(build_batch(RECORDS, codec=codec), self.COMPACTED)
        assert refusal.error is ErrorCode.INVALID_RECORD
        assert refusal.record_errors == (RecordError(1, "a compacted topic accepts no record without a key"),)
        keyed = [Record(0, NOW_MS, b"", None), Record(1, NOW_MS, b"k", b"v")]
        check(build_batch(keyed, codec=codec), self.COMPACTED)

    def test_the_error_for_a_wrong_timestamp_precedes_that_for_a_missing_key(self) -> None:
        rules = AppendRules(is_compacted=True, timestamp_before_max_ms=5)
        produced = [Record(0, NOW_MS, None, b""), Record(1, NOW_MS - 6, b"k", b"")]
        refusal = refusal_of(build_batch(produced), rules)
        assert refusal.error is ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in refusal.record_errors] == [0, 1]

    def test_the_error_for_many_wrong_records_names_the_first_and_counts_all(self) -> None:
        count = RECORD_ERRORS_REPORTED + 50
        refusal = refusal_of(build_batch([Record(i, NOW_MS, None, b"") for i in range(count)]), self.COMPACTED)
        assert len(refusal.record_errors) == RECORD_ERRORS_REPORTED
        assert f"{count} of {count} records" in refusal.message

    def test_offset_deltas_that_are_not_consecutive_are_refused_if_records_are_read(self) -> None:
        gap = build_batch([Record(0, NOW_MS, b"k", b""), Record(2, NOW_MS, b"k", b"")], last_offset=2)
        data = change_bytes(23, (1).to_bytes(4, "big"), bytes(gap))
        check(data)
        refusal = refusal_of(data, self.COMPACTED)
        assert refusal.error is ErrorCode.INVALID_RECORD
        assert refusal.record_errors == (RecordError(1, "its offset delta is 2"),)

    def test_a_batch_with_damaged_records_is_refused_if_records_are_read(self) -> None:
        hollow = build_batch([Record(0, NOW_MS, b"k", b"v")])
        hollow[61] += 2
        data = change_bytes(0, b"", bytes(hollow))
        check(data)
        assert refusal_of(data, self.COMPACTED).error is ErrorCode.INVALID_RECORD

    def test_decompression_is_bounded_by_the_append_rules(self) -> None:
        data = build_batch([Record(0, NOW_MS, b"k", bytes(100_000))], codec=Codec.ZSTD)
        rules = AppendRules(is_compacted=True, decompressed_limit=50_000)
        assert refusal_of(data, rules).error is ErrorCode.MESSAGE_TOO_LARGE

    def test_the_records_of_a_batch_can_be_validated_apart_from_its_header(self) -> None:
        check_records(RecordBatch(PRODUCED), RULES, NOW_MS)
        with pytest.raises(InvalidBatch):
            check_records(RecordBatch(PRODUCED), self.COMPACTED, NOW_MS)


def test_a_refused_batch_has_an_error_code_and_a_message() -> None:
    assert str(refusal_of(PRODUCED + PRODUCED)) == (
        "INVALID_RECORD: a Produce request has exactly one record batch for a partition"
    )

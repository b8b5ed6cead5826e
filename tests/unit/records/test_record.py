"""Reading records: valid records are returned, and every wrong length is detected."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from pessoa.records.batch import RecordBatch
from pessoa.records.builder import build_batch, encode_records
from pessoa.records.compression import Codec, compress
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record, largest_timestamp, records, spans, unpacked_records
from pessoa.wire.errors import ErrorCode

RECORDS = [
    Record(10, 1_000, b"key", b"value", (("h", b"1"), ("h", None), ("", b""))),
    Record(11, 900, None, b""),
    Record(15, 1_000_000, b"", None),
    Record(400, 2_000, b"k" * 70, b"v" * 9_000, (("länge", b"x" * 300),)),
]


def batch_of(payload: bytes, count: int = 1, codec: Codec = Codec.NONE) -> RecordBatch:
    """Return a batch with a valid header whose records are `payload`."""
    data = build_batch([Record(0, 0, None, None)])
    data[61:] = payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] = codec
    data[57:61] = count.to_bytes(4, "big", signed=True)
    return RecordBatch(data)


@pytest.mark.parametrize("codec", list(Codec))
def test_decoded_records_have_their_own_offsets(codec: Codec) -> None:
    batch = RecordBatch(build_batch(RECORDS, codec=codec))
    assert list(records(batch)) == RECORDS
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (10, 400, 4)


def test_records_with_log_append_time_have_the_timestamp_of_the_batch() -> None:
    batch = RecordBatch(build_batch(RECORDS, log_append_time=77))
    assert [record.timestamp for record in records(batch)] == [77] * 4


def test_record_spans_have_the_positions_of_key_value_and_headers() -> None:
    data, found = spans(RecordBatch(build_batch(RECORDS, codec=Codec.LZ4)))
    first, second, third, fourth = found
    assert data[first.key_start : first.key_end] == b"key"
    assert data[first.value_start : first.value_end] == b"value"
    assert first.headers_count == 3
    assert second.key_end - second.key_start == -1
    assert second.value_end - second.value_start == 0
    assert third.value_end - third.value_start == -1
    assert (fourth.offset_delta, fourth.timestamp_delta, fourth.end) == (390, 1_000, len(data))


@pytest.mark.parametrize("codec", list(Codec))
def test_the_largest_timestamp_of_a_batch_is_the_maximum_of_its_records(codec: Codec) -> None:
    rng = Random(7)
    for _ in range(50):
        times = [rng.choice((-1, -50, 0, 1_000, rng.randrange(1 << 41))) for _ in range(rng.randrange(1, 20))]
        sizes = [rng.choice((0, 5, 60, 200, 9_000, 20_000)) for _ in times]
        made = [Record(at, time, None, b"." * size) for at, (time, size) in enumerate(zip(times, sizes, strict=True))]
        assert largest_timestamp(RecordBatch(build_batch(made, codec=codec))) == max(-1, *times)


def test_searching_the_largest_timestamp_refuses_every_wrong_count_and_length() -> None:
    payload = encode_records(RECORDS[:3], 10, 1_000)
    assert largest_timestamp(batch_of(payload, 3)) == 1_000_000 - 1_000
    for broken in (*(batch_of(payload, count) for count in (-1, 0, 1, 2, 4, 2**31 - 1)), batch_of(payload + b"\0", 3)):
        with pytest.raises(InvalidBatch) as refusal:
            largest_timestamp(broken)
        assert refusal.value.error is ErrorCode.INVALID_RECORD
    for size in range(len(payload)):
        with pytest.raises(InvalidBatch):
            largest_timestamp(batch_of(payload[:size], 3))
    for hostile in (
        *("negative record length", "record longer than the batch", "record longer than 2 GiB"),
        *("record length that does not end", "record length of 33 bits"),
        *("timestamp delta that does not end", "timestamp delta of 65 bits"),
    ):
        with pytest.raises(InvalidBatch):
            largest_timestamp(batch_of(bytes.fromhex(HOSTILE[hostile])))


@pytest.mark.parametrize("size", range(len(encode_records(RECORDS[:3], 10, 1_000))))
def test_records_truncated_anywhere_are_refused(size: int) -> None:
    payload = encode_records(RECORDS[:3], 10, 1_000)
    with pytest.raises(InvalidBatch) as refusal:
        list(records(batch_of(payload[:size], 3)))
    assert refusal.value.error is ErrorCode.INVALID_RECORD


def test_bytes_after_the_last_record_are_refused() -> None:
    payload = encode_records(RECORDS[:3], 10, 1_000)
    with pytest.raises(InvalidBatch, match="1 bytes are left after the 3 records"):
        list(records(batch_of(payload + b"\0", 3)))


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 2, 4, 2**31 - 1])
def test_a_records_count_that_differs_from_the_records_is_refused(count: int) -> None:
    payload = encode_records(RECORDS[:3], 10, 1_000)
    with pytest.raises(InvalidBatch) as refusal:
        list(records(batch_of(payload, count)))
    assert refusal.value.error is ErrorCode.INVALID_RECORD


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    batch = RecordBatch(build_batch([], base_offset=5, last_offset=9, max_timestamp=3))
    assert list(records(batch)) == []


GOOD = "10 00 00 00 02 6b 02 76 00"  # length 8, attributes, timestamp delta, offset delta, "k", "v", no headers

HOSTILE = {
    "negative record length": "01 00 00 00 02 6b 02 76 00",
    "record longer than the batch": "12 00 00 00 02 6b 02 76 00",
    "record longer than 2 GiB": "fe ff ff ff 0f 00 00 00 02 6b 02 76 00",
    "record shorter than its parts": "0e 00 00 00 02 6b 02 76 00",
    "record longer than its parts": "12 00 00 00 02 6b 02 76 00 00",
    "record of no bytes": "00",
    "record of attributes only": "02 00",
    "record length that does not end": "80 80 80 80 80 80 80 80 80 80 80 80",
    "record length of 33 bits": "90 80 80 80 10 00 00 00 02 6b 02 76 00",
    "timestamp delta that does not end": "1e 00 80 80 80 80 80 80 80 80 80 80 00 01 01 00",
    "timestamp delta of 65 bits": "1e 00 80 80 80 80 80 80 80 80 80 02 00 01 01 00",
    "offset delta that does not end": "14 00 00 80 80 80 80 80 00 01 01 00",
    "offset delta of 33 bits": "14 00 00 80 80 80 80 10 01 01 00",
    "key below null": "10 00 00 00 03 6b 02 76 00",
    "key far below null": "16 00 00 00 ff ff ff ff 0f 02 76 00",
    "key longer than the record": "10 00 00 00 0c 6b 02 76 00",
    "key into the next record": "10 00 00 00 0a 6b 02 76 00" + GOOD,
    "value below null": "10 00 00 00 02 6b 03 76 00",
    "value longer than the record": "10 00 00 00 02 6b 06 76 00",
    "value longer than 2 GiB": "16 00 00 00 02 6b fe ff ff ff 0f 00",
    "negative count of headers": "10 00 00 00 02 6b 02 76 01",
    "a billion headers": "18 00 00 00 01 01 80 a8 d6 b9 07 00 00",
    "one header too many": "12 00 00 00 01 01 04 02 68 01",
    "header without a name": "10 00 00 00 01 01 02 01 01",
    "header name past the record": "10 00 00 00 01 01 02 08 01",
    "header value past the record": "10 00 00 00 01 01 02 00 08",
    "header value below null": "10 00 00 00 01 01 02 00 03",
    "no count of headers": "0e 00 00 00 02 6b 02 76",
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_hostile_record_is_an_invalid_record(payload: str, codec: Codec) -> None:
    with pytest.raises(InvalidBatch) as refusal:
        list(records(batch_of(compress(codec, bytes.fromhex(payload)), codec=codec)))
    assert refusal.value.error is ErrorCode.INVALID_RECORD


def test_a_valid_record_beside_hostile_ones_is_decoded() -> None:
    assert list(records(batch_of(bytes.fromhex(GOOD)))) == [Record(0, 0, b"k", b"v")]


def test_varints_in_more_bytes_than_needed_are_decoded() -> None:
    payload = bytes.fromhex("9c 80 00" + "00" + "80 80 00" + "80 00" + "82 80 00 6b" + "82 00 76" + "80 00")
    payload = bytes([0x80 | 2 * (len(payload) - 3)]) + payload[1:]
    assert list(records(batch_of(payload))) == [Record(0, 0, b"k", b"v")]


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    batch = RecordBatch(build_batch([Record(0, 2**63 - 1, None, None), Record(1, 2**63 - 2, None, None)]))
    batch.base_timestamp += 2
    with pytest.raises(InvalidBatch, match="beyond 64 bits"):
        list(records(batch))


def test_a_header_name_that_is_not_utf8_is_read_with_replacements() -> None:
    payload = bytes.fromhex("12 00 00 00 01 01 02 02 ff 01")
    assert next(records(batch_of(payload))).headers == (("\ufffd", None),)


def test_headers_count_for_the_memory_limit_by_the_size_of_their_objects() -> None:
    many = Record(0, 0, None, None, tuple(("", None) for _ in range(20_000)))
    batch = RecordBatch(build_batch([many], codec=Codec.ZSTD))
    assert len(unpacked_records(batch)) < 100_000
    with pytest.raises(InvalidBatch) as refusal:
        list(records(batch, limit=100_000))
    assert refusal.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert list(records(batch)) == [many]


def test_records_are_decoded_lazily_so_that_many_small_ones_do_not_exhaust_memory() -> None:
    payload = b"\x0c\0\0\0\x01\x01\0" * 20_000
    batch = batch_of(payload, 20_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in records(batch)) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(payload) + 50_000


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_decompress_beyond_the_limit_are_refused(codec: Codec) -> None:
    batch = RecordBatch(build_batch([Record(0, 0, None, bytes(100_000))], codec=codec))
    with pytest.raises(InvalidBatch) as refusal:
        list(records(batch, limit=50_000))
    assert refusal.value.error is ErrorCode.MESSAGE_TOO_LARGE

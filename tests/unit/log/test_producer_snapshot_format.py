"""The bytes of a `.snapshot` file; damage of every kind is detected."""

from __future__ import annotations

import struct

import crc32c
import pytest

from pessoa.log.producer_entry import BatchMetadata, ProducerStateEntry
from pessoa.log.producer_snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot

OPEN = ProducerStateEntry(1_003, 3, 9, 1_700_000_000_123, 70, [BatchMetadata(41, 81, 1, 1_700_000_000_123)])
AFTER_A_MARKER = ProducerStateEntry(2**40 + 15, 32767, 0, 55)


def with_crc(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c.crc32c(body)) + body


def test_every_byte_of_a_snapshot() -> None:
    body = (
        struct.pack(">i", 2)
        + struct.pack(">qhiqiqiq", 1_003, 3, 41, 81, 1, 1_700_000_000_123, 9, 70)
        + struct.pack(">qhiqiqiq", 2**40 + 15, 32767, -1, -1, 0, 55, 0, -1)
    )
    assert encode_snapshot([OPEN, AFTER_A_MARKER]) == with_crc(body)
    assert len(body) == 4 + 2 * 46


def test_an_encoded_producer_snapshot_decodes_to_the_same_entries() -> None:
    assert decode_snapshot(encode_snapshot([OPEN, AFTER_A_MARKER])) == [OPEN, AFTER_A_MARKER]
    assert decode_snapshot(encode_snapshot([])) == []


@pytest.mark.parametrize(
    ("producer_ids", "written"),
    [
        ([2, 0, 1], [0, 1, 2]),
        # 16 buckets: 1000 is in the ninth.
        ([1000, 8, 9, 7, 24], [7, 1000, 8, 24, 9]),
        # The thirteenth entry doubles the buckets, and 17 no longer shares one with 1.
        ([17, *range(11)], [0, 17, *range(1, 11)]),
        ([17, *range(12)], [*range(12), 17]),
        # The upper halves of the number and of its hash are folded into the lower ones.
        ([2**32, 2, 2**16, 1, 2**48 + 3], [2**32, 2**16, 1, 2, 2**48 + 3]),
    ],
)
def test_entries_are_in_the_order_of_javas_hash_map(producer_ids: list[int], written: list[int]) -> None:
    entries = decode_snapshot(encode_snapshot(map(ProducerStateEntry, producer_ids)))
    assert [entry.producer_id for entry in entries] == written


def test_a_producer_snapshot_keeps_the_last_batch_and_the_last_timestamp_of_a_producer() -> None:
    batches = [BatchMetadata(i, 10 + i, 0, 100 + i) for i in range(5)]
    marked = ProducerStateEntry(1, 0, 2, last_timestamp=500, batches=batches)
    (loaded,) = decode_snapshot(encode_snapshot([marked]))
    assert loaded.batches == [BatchMetadata(4, 14, 0, 500)]
    assert (loaded.last_timestamp, loaded.next_sequence) == (500, 5)


@pytest.mark.parametrize("size", range(10 + 46))
def test_a_truncated_producer_snapshot_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(encode_snapshot([OPEN])[:size])


@pytest.mark.parametrize("position", range(10 + 46))
def test_a_producer_snapshot_with_a_flipped_bit_is_corrupt(position: int) -> None:
    data = bytearray(encode_snapshot([OPEN]))
    data[position] ^= 0x10
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(data))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (with_crc(struct.pack(">i", 0), version=2), "the version is 2, and only 1 is known"),
        (with_crc(struct.pack(">i", 0), version=0), "the version is 0, and only 1 is known"),
        (b"\x00\x01\x00\x00\x00\x07", "the checksum is 0x00000000, and 0x00000007 was written"),
        (b"\x00", "1 bytes are too few for a version and a checksum"),
    ],
)
def test_the_error_for_a_corrupt_producer_snapshot_names_the_problem(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptSnapshot) as corrupt:
        decode_snapshot(data)
    assert str(corrupt.value) == problem


@pytest.mark.parametrize("count", [-1, 1, 3, 2**31 - 1])
def test_a_count_that_does_not_fit_the_bytes_is_corrupt_although_the_checksum_is_right(count: int) -> None:
    body = struct.pack(">i", count) + encode_snapshot([OPEN, AFTER_A_MARKER])[10:]
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(with_crc(body))

"""Varints and sections of tagged fields, byte by byte."""

from __future__ import annotations

import pytest

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.primitives import ArrayPackers, ArrayUnpackers, read_uvarint, uvarint, write_tagged_fields

UVARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2_097_151, "ffff7f"),
    (2_097_152, "80808001"),
    (268_435_456, "8080808001"),
    ((1 << 31) - 1, "ffffffff07"),
    ((1 << 32) - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), UVARINTS)
def test_a_varint_has_seven_bits_a_byte_lowest_first(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert uvarint(value) == data
    assert read_uvarint(data, 0) == (value, len(data))
    assert read_uvarint(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))


@pytest.mark.parametrize(("value", "encoded"), UVARINTS)
def test_a_truncated_varint_raises_an_index_error(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            read_uvarint(data[:cut], 0)


def test_a_varint_may_be_encoded_in_more_bytes_than_needed() -> None:
    # Java's reader takes it as well.
    assert read_uvarint(b"\x81\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffff7f", "808080808000", "ffffffffffffffffffffff"])
def test_a_varint_beyond_32_bits_is_a_violation(encoded: str) -> None:
    with pytest.raises(ProtocolViolation, match="varint"):
        read_uvarint(bytes.fromhex(encoded), 0)


def test_tagged_fields_are_written_lowest_tag_first() -> None:
    out = bytearray(b"before")
    write_tagged_fields(out, [(300, b"xyz"), (0, b""), (2, bytes(130))])
    assert out == b"before" + b"\x03" + b"\x00\x00" + b"\x02\x82\x01" + bytes(130) + b"\xac\x02\x03xyz"


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1000])
def test_an_array_of_integers_is_packed_and_unpacked_in_one_call(count: int) -> None:
    numbers = list(range(count))
    packed = b"".join(number.to_bytes(2, "big") for number in numbers)
    packers, unpackers = ArrayPackers((("bi", "h"),), "", extra=0), ArrayUnpackers("h")
    for _ in range(2):
        assert packers[count](7, count, *numbers) == b"\x07" + count.to_bytes(4, "big") + packed
        assert list(unpackers[count](b"\xff" + packed, 1)) == numbers
    assert len(packers) == len(unpackers) == (1 if count < 32 else 0)


def test_the_length_of_a_compact_array_is_one_more_than_its_count_and_zero_for_null() -> None:
    packers = ArrayPackers((("B", "b"),), "", extra=1)
    assert packers[0](0) == b"\x00"
    assert packers[1](1) == b"\x01"
    assert packers[3](3, 8, 9) == b"\x03\x08\x09"
    assert ArrayPackers((("i", "b"),), "", extra=0)[-1](-1) == b"\xff\xff\xff\xff"


def test_several_arrays_and_the_following_fields_are_packed_in_one_call() -> None:
    packers = ArrayPackers((("hB", "i"), ("B", "b")), "bx", extra=1)
    assert packers[2, 3](5, 2, 9, 3, 7, 8, -1) == bytes.fromhex("0005 02 00000009 03 07 08 ff 00")


def test_the_cache_of_array_packers_is_bounded() -> None:
    packers = ArrayPackers((("", "b"), ("", "b")), "", extra=0)
    for first in range(40):
        for second in range(40):
            assert packers[first, second](*range(first), *range(second)) == bytes([*range(first), *range(second)])
    assert len(packers) <= 256

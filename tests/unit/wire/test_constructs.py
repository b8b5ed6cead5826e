"""Every construct of the schema language as bytes, in its classic and its compact form.

The messages exist only for the tests: version 0 is classic, version 1 flexible, so that one table has both. Each row is
checked in both directions, with all bytes.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.errors import EncodeError, ProtocolViolation
from pessoa.wire.schema import (
    ALL,
    Message,
    Struct,
    array,
    batches,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Bool(Message, versions="0-1", flexible="1+"):
    value: bool = boolean()


class Int8(Message, versions="0-1", flexible="1+"):
    value: int = int8()


class Int16(Message, versions="0-1", flexible="1+"):
    value: int = int16()


class Uint16(Message, versions="0-1", flexible="1+"):
    value: int = uint16()


class Int32(Message, versions="0-1", flexible="1+"):
    value: int = int32()


class Uint32(Message, versions="0-1", flexible="1+"):
    value: int = uint32()


class Int64(Message, versions="0-1", flexible="1+"):
    value: int = int64()


class Float64(Message, versions="0-1", flexible="1+"):
    value: float = float64()


class OneUuid(Message, versions="0-1", flexible="1+"):
    value: Uuid = uuid()


class Text(Message, versions="0-1", flexible="1+"):
    value: str = string()


class NullableText(Message, versions="0-1", flexible="1+"):
    value: str | None = string(nullable=ALL)


class Bytes(Message, versions="0-1", flexible="1+"):
    value: bytes = binary()


class NullableBytes(Message, versions="0-1", flexible="1+"):
    value: bytes | None = binary(nullable=ALL)


class Records(Message, versions="0-1", flexible="1+"):
    value: memoryview | None = batches(nullable=ALL)


class Numbers(Message, versions="0-1", flexible="1+"):
    value: list[int] = array("int16")


class NullableNumbers(Message, versions="0-1", flexible="1+"):
    value: list[int] | None = array("int16", nullable=ALL)


class Texts(Message, versions="0-1", flexible="1+"):
    value: list[str] = array("string")


class Flags(Message, versions="0-1", flexible="1+"):
    value: list[bool] = array("bool")


class Uuids(Message, versions="0-1", flexible="1+"):
    value: list[Uuid] = array("uuid")


class Point(Struct):
    x: int = int8()
    y: int = int8()


class Nested(Message, versions="0-1", flexible="1+"):
    value: Point = struct(Point)


class NullableNested(Message, versions="0-1", flexible="1+"):
    value: Point | None = struct(Point, nullable=ALL)


class Points(Message, versions="0-1", flexible="1+"):
    value: list[Point] = array(Point)


class NullablePoints(Message, versions="0-1", flexible="1+"):
    value: list[Point] | None = array(Point, nullable=ALL)


ID = Uuid(bytes(range(16)))
ID_HEX = bytes(range(16)).hex()

# message, value, classic, compact: the latter without the empty section of tagged fields that ends the message.
TABLE: list[tuple[type[Message], Any, str, str]] = [
    (Bool, True, "01", "01"),
    (Bool, False, "00", "00"),
    (Int8, -128, "80", "80"),
    (Int8, 127, "7f", "7f"),
    (Int16, -2, "fffe", "fffe"),
    (Int16, 32767, "7fff", "7fff"),
    (Uint16, 65535, "ffff", "ffff"),
    (Int32, -(1 << 31), "80000000", "80000000"),
    (Int32, 258, "00000102", "00000102"),
    (Uint32, (1 << 32) - 1, "ffffffff", "ffffffff"),
    (Int64, -(1 << 63), "8000000000000000", "8000000000000000"),
    (Int64, (1 << 63) - 1, "7fffffffffffffff", "7fffffffffffffff"),
    (Float64, 1.5, "3ff8000000000000", "3ff8000000000000"),
    (Float64, -math.inf, "fff0000000000000", "fff0000000000000"),
    (OneUuid, ID, ID_HEX, ID_HEX),
    (OneUuid, ZERO_UUID, "00" * 16, "00" * 16),
    (Text, "", "0000", "01"),
    (Text, "ab", "0002 6162", "03 6162"),
    (Text, "ç日🙂", "0009 c3a7 e697a5 f09f9982", "0a c3a7 e697a5 f09f9982"),
    (Text, "x" * 126, "007e" + "78" * 126, "7f" + "78" * 126),
    (Text, "x" * 127, "007f" + "78" * 127, "8001" + "78" * 127),
    (Text, "x" * 32767, "7fff" + "78" * 32767, "808002" + "78" * 32767),
    (NullableText, None, "ffff", "00"),
    (NullableText, "", "0000", "01"),
    (NullableText, "ab", "0002 6162", "03 6162"),
    (Bytes, b"", "00000000", "01"),
    (Bytes, b"\x00\xff", "00000002 00ff", "03 00ff"),
    (Bytes, bytes(16_383), "00003fff" + "00" * 16_383, "808001" + "00" * 16_383),
    (NullableBytes, None, "ffffffff", "00"),
    (NullableBytes, b"", "00000000", "01"),
    (NullableBytes, b"\x07", "00000001 07", "02 07"),
    (Records, None, "ffffffff", "00"),
    (Records, memoryview(b""), "00000000", "01"),
    (Records, memoryview(b"batch"), "00000005 6261746368", "06 6261746368"),
    (Numbers, [], "00000000", "01"),
    (Numbers, [1, -1], "00000002 0001 ffff", "03 0001 ffff"),
    (Numbers, [0] * 127, "0000007f" + "0000" * 127, "8001" + "0000" * 127),
    (NullableNumbers, None, "ffffffff", "00"),
    (NullableNumbers, [], "00000000", "01"),
    (NullableNumbers, [3], "00000001 0003", "02 0003"),
    (Texts, ["", "a"], "00000002 0000 0001 61", "03 01 02 61"),
    (Flags, [True, False], "00000002 01 00", "03 01 00"),
    (Uuids, [ID, ZERO_UUID], "00000002" + ID_HEX + "00" * 16, "03" + ID_HEX + "00" * 16),
    (Nested, Point(x=1, y=2), "01 02", "01 02 00"),
    # One byte says whether the struct is there (KIP-893).
    (NullableNested, None, "ff", "ff"),
    (NullableNested, Point(x=1, y=2), "01 01 02", "01 01 02 00"),
    (Points, [], "00000000", "01"),
    (Points, [Point(x=1, y=2), Point(x=3, y=4)], "00000002 01 02 03 04", "03 01 02 00 03 04 00"),
    (NullablePoints, None, "ffffffff", "00"),
    (NullablePoints, [Point(x=1, y=2)], "00000001 01 02", "02 01 02 00"),
]


def case(row: Any) -> str | None:
    return row.__name__ if isinstance(row, type) else None


@pytest.mark.parametrize(("kind", "value", "classic", "compact"), TABLE, ids=case)
def test_each_construct_of_the_protocol_has_the_expected_bytes(
    kind: Any, value: Any, classic: str, compact: str
) -> None:
    message = kind(value=value)
    for version, expected in enumerate((bytes.fromhex(classic), bytes.fromhex(compact) + b"\x00")):
        assert message.encode(version) == expected
        assert kind.decode(expected, version) == message
        # Somewhere in a larger buffer, with other bytes around it.
        read, pos = kind.decoder(version)(b"\x55\x55" + expected + b"\x55", 2, 2 + len(expected))
        assert (read, pos) == (message, 2 + len(expected))
        assert b"".join(kind.encoder(version)(message, bytearray(b"\x55"))) == b"\x55" + expected


def test_nan_keeps_its_bits() -> None:
    data = bytes.fromhex("7ff8000000000001")
    assert Float64.decode(data, 0).encode(0) == data


def test_any_byte_but_zero_decodes_to_true() -> None:
    assert Bool.decode(b"\x02", 0) == Bool(value=True)


def test_a_non_negative_marker_means_that_the_struct_is_present() -> None:
    assert NullableNested.decode(b"\x00\x01\x02", 0).value == Point(x=1, y=2)
    assert NullableNested.decode(b"\x80", 0).value is None


def test_text_that_is_not_utf8_has_replacement_characters_as_in_java() -> None:
    assert Text.decode(b"\x00\x03a\xffb", 0).value == "a\ufffdb"


def test_record_data_is_decoded_as_a_view_of_the_frame_and_encoded_without_a_copy() -> None:
    data = bytearray(b"\x00\x00\x00\x05batch")
    decoded, _ = Records.decoder(0)(data, 0, len(data))
    data[4:9] = b"BATCH"
    assert bytes(decoded.value) == b"BATCH"
    given = memoryview(b"batch")
    buffers = Records.encoder(1)(Records(value=given), bytearray(b"before"))
    assert [bytes(buffer) for buffer in buffers] == [b"before\x06", b"batch", b"\x00"]
    assert buffers[1] is given


NULLS: list[tuple[type[Message], str, str]] = [
    (Text, "ffff", "00"),
    (Bytes, "ffffffff", "00"),
    (Numbers, "ffffffff", "00"),
    (Texts, "ffffffff", "00"),
    (Points, "ffffffff", "00"),
]


@pytest.mark.parametrize(("kind", "classic", "compact"), NULLS, ids=case)
def test_a_null_that_is_not_allowed_is_refused_in_decoding_and_encoding(kind: Any, classic: str, compact: str) -> None:
    for version, data in enumerate((bytes.fromhex(classic), bytes.fromhex(compact) + b"\x00")):
        with pytest.raises(ProtocolViolation, match="null"):
            kind.decode(data, version)
        with pytest.raises(EncodeError):
            kind(value=None).encode(version)


NEGATIVE: list[tuple[type[Message], str]] = [
    (Text, "fffe"),
    (NullableText, "fffe"),
    (NullableText, "8000"),
    (Bytes, "80000000"),
    (NullableBytes, "fffffffe"),
    (Records, "fffffffe"),
    (Numbers, "fffffffe"),
    (NullableNumbers, "fffffffe"),
    (NullablePoints, "80000000"),
]


@pytest.mark.parametrize(("kind", "data"), NEGATIVE, ids=case)
def test_a_length_below_that_of_null_is_a_violation(kind: Any, data: str) -> None:
    with pytest.raises(ProtocolViolation, match="negative"):
        kind.decode(bytes.fromhex(data) + bytes(8), 0)


GREEDY: list[tuple[type[Message], int, str]] = [
    (Numbers, 0, "3b9aca00"),
    (Numbers, 1, "81 94 eb dc 03"),
    (Numbers, 0, "00000002 0001 00"),
    (Texts, 0, "3b9aca00"),
    (Texts, 1, "ffffffff0f"),
    (Flags, 1, "ffffffff0f"),
    (Uuids, 0, "00000002" + ID_HEX),
    (Points, 0, "3b9aca00 0000"),
    (Points, 1, "ffffffff0f 0000"),
    (NullablePoints, 0, "7fffffff"),
]


@pytest.mark.parametrize(("kind", "version", "data"), GREEDY, ids=case)
def test_an_array_that_claims_more_than_the_bytes_can_hold_is_a_violation(kind: Any, version: int, data: str) -> None:
    with pytest.raises(ProtocolViolation, match="claims more value than there are bytes"):
        kind.decode(bytes.fromhex(data), version)


@pytest.mark.parametrize("kind", [Text, Bytes, Records], ids=case)
def test_a_size_past_the_end_of_the_frame_is_a_violation_even_if_the_buffer_has_more_bytes(kind: Any) -> None:
    data = bytes(3) + b"\x08" if kind is not Text else b"\x00\x08"
    with pytest.raises(ProtocolViolation, match="ends too early"):
        kind.decoder(0)(data + bytes(20), 0, len(data) + 3)


OUT_OF_RANGE: list[tuple[type[Message], Any]] = [
    (Int8, 128),
    (Int8, -129),
    (Int16, 1 << 15),
    (Uint16, -1),
    (Uint16, 1 << 16),
    (Int32, 1 << 31),
    (Uint32, -1),
    (Int64, 1 << 63),
    (Int32, 1.0),
    (Int32, None),
    (Int32, "1"),
    (Float64, "1"),
    (Text, 1),
    (Text, b"bytes"),
    (Text, "\ud800"),
    (Bytes, "text"),
    (Numbers, [1, 1 << 15]),
    (Numbers, 7),
    (Texts, [None]),
    (Nested, None),
    (Points, [None]),
]


@pytest.mark.parametrize(("kind", "value"), OUT_OF_RANGE, ids=case)
@pytest.mark.parametrize("version", [0, 1])
def test_a_value_that_cannot_be_encoded_is_an_encode_error(kind: Any, value: Any, version: int) -> None:
    with pytest.raises(EncodeError, match=f"{kind.__name__} v{version}"):
        kind(value=value).encode(version)


@pytest.mark.parametrize("version", [0, 1])
def test_a_string_longer_than_an_int16_can_count_is_refused_in_classic_and_compact_form(version: int) -> None:
    # Apache's reader refuses it in the compact form as well, where the length would have room.
    with pytest.raises(EncodeError):
        Text(value="x" * 32768).encode(version)
    with pytest.raises(EncodeError):
        NullableText(value="é" * 16384).encode(version)


@pytest.mark.parametrize("kind", [Text, NullableText])
def test_a_compact_string_longer_than_an_int16_can_count_is_a_violation(kind: Any) -> None:
    with pytest.raises(ProtocolViolation, match="32767"):
        kind.decode(b"\x81\x80\x02" + b"x" * 32768 + b"\x00", 1)


def test_bytes_left_over_behind_a_message_are_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="2 bytes are left over behind Int8 version 0"):
        Int8.decode(b"\x01\x02\x03", 0)


@pytest.mark.parametrize("version", [-1, 2])
def test_a_version_that_a_message_does_not_have_is_refused(version: int) -> None:
    with pytest.raises(EncodeError, match="has versions 0-1"):
        Int8.decoder(version)
    with pytest.raises(EncodeError, match="has versions 0-1"):
        Int8(value=1).encode(version)

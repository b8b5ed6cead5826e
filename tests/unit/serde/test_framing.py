"""Wire format frames and message indexes, byte by byte and compared with confluent-kafka's."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.serde.framing import Frame, decode_message_indexes, encode_message_indexes, frame, unframe
from pessoa.serde.schema_problems import DataProblem

GUID = UUID("01234567-89ab-cdef-0123-456789abcdef")


def test_a_frame_with_a_schema_id_begins_with_0_and_four_bytes() -> None:
    assert frame(258, b"xyz") == b"\0\0\0\1\2xyz"
    assert unframe(b"\0\0\0\1\2xyz") == Frame(258, b"xyz")


def test_a_frame_with_a_schema_guid_begins_with_1_and_sixteen_bytes() -> None:
    framed = frame(GUID, b"xyz")
    assert framed == b"\1" + GUID.bytes + b"xyz"
    assert unframe(framed) == Frame(GUID, b"xyz")


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\1", b"\1" + b"\0" * 15, b"\2\0\0\0\1x", b'{"a":1}'])
def test_bytes_that_are_no_schema_frame_are_refused(data: bytes) -> None:
    with pytest.raises(DataProblem):
        unframe(data)


@pytest.mark.parametrize("schema_id", [-1, 2**31])
def test_an_id_out_of_range_is_refused(schema_id: int) -> None:
    with pytest.raises(DataProblem):
        frame(schema_id, b"")


@pytest.mark.parametrize(
    ("indexes", "encoded"),
    [((0,), b"\0"), ((1,), b"\2\2"), ((0, 0), b"\4\0\0"), ((2, 1, 3), b"\6\4\2\6"), ((100,), b"\2\xc8\1")],
)
def test_message_indexes_are_zig_zag_varints(indexes: tuple[int, ...], encoded: bytes) -> None:
    assert encode_message_indexes(indexes) == encoded
    assert decode_message_indexes(encoded + b"tail") == (indexes, b"tail")


def test_the_message_index_0_may_also_be_encoded_as_a_list() -> None:
    assert decode_message_indexes(b"\2\0tail") == ((0,), b"tail")


@pytest.mark.parametrize("data", [b"", b"\2", b"\4\0", b"\1", b"\2\1", b"\xff\xff\xff\xff\xff\xff", b"\x80\x80\4"])
def test_truncated_or_invalid_message_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(DataProblem):
        decode_message_indexes(data)


@given(st.lists(st.integers(0, 2**30), min_size=1, max_size=6))
def test_message_indexes_are_those_of_confluent_kafka(indexes: list[int]) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    buffer = io.BytesIO()
    ProtobufSerializer._encode_varints(buffer, indexes)
    assert encode_message_indexes(tuple(indexes)) == buffer.getvalue()
    assert decode_message_indexes(buffer.getvalue())[0] == tuple(indexes)

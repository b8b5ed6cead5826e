"""Splitting received bytes into frames, in the receive buffer of connections."""

from __future__ import annotations

import tracemalloc

import pytest

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES
from tests.support.frame_reader import FrameReader


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def frames_of(reader: FrameReader) -> list[bytes]:
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(bytes(frame))
    return found


def next_of(reader: FrameReader) -> bytes:
    frame = reader.next_frame()
    assert frame is not None
    return bytes(frame)


def test_a_frame_arrives_byte_by_byte() -> None:
    reader = FrameReader()
    stream = framed(b"hello")
    for position in range(len(stream) - 1):
        reader.feed(stream[position : position + 1])
        assert reader.next_frame() is None
    reader.feed(stream[-1:])
    assert frames_of(reader) == [b"hello"]
    assert reader.waiting_bytes == 0


def test_many_frames_in_one_chunk_come_out_in_order() -> None:
    reader = FrameReader()
    reader.feed(b"".join(framed(bytes([n]) * n) for n in range(1, 50)) + b"\x00\x00")
    assert frames_of(reader) == [bytes([n]) * n for n in range(1, 50)]
    assert reader.waiting_bytes == 2


@pytest.mark.parametrize("size", range(1, 12))
def test_frames_across_chunks_come_out_whole(size: int) -> None:
    reader, found = FrameReader(), []
    stream = framed(b"first") + framed(b"") + framed(b"the second")
    for start in range(0, len(stream), size):
        reader.feed(stream[start : start + size])
        found += frames_of(reader)
    assert found == [b"first", b"", b"the second"]


def test_an_empty_frame_is_delivered() -> None:
    reader = FrameReader()
    reader.feed(framed(b"") + framed(b"x"))
    assert frames_of(reader) == [b"", b"x"]


def test_feeding_no_bytes_to_a_frame_reader_changes_nothing() -> None:
    reader = FrameReader()
    reader.feed(b"")
    assert reader.next_frame() is None
    assert reader.waiting_bytes == 0


def test_a_frame_may_be_as_large_as_the_limit_and_no_larger() -> None:
    reader = FrameReader(max_frame_bytes=3)
    reader.feed(framed(b"abc") + framed(b"abcd"))
    assert next_of(reader) == b"abc"
    with pytest.raises(ProtocolViolation, match="4 bytes was announced; the limit is 3"):
        reader.next_frame()


def test_the_frame_size_limit_is_that_of_apache_kafka_by_default() -> None:
    assert FrameReader().max_frame_bytes == DEFAULT_MAX_FRAME_BYTES == 104_857_600


def test_the_limit_may_change_between_frames() -> None:
    reader = FrameReader(max_frame_bytes=3)
    reader.feed(framed(b"abc"))
    assert next_of(reader) == b"abc"
    reader.max_frame_bytes = 10
    reader.feed(framed(b"0123456789"))
    assert next_of(reader) == b"0123456789"


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff", b"GET "])
def test_an_impossible_size_is_a_violation_as_soon_as_its_four_bytes_are_there(size: bytes) -> None:
    reader = FrameReader()
    reader.feed(size[:3])
    assert reader.next_frame() is None
    reader.feed(size[3:])
    with pytest.raises(ProtocolViolation, match="announced"):
        reader.next_frame()


def test_a_frame_reader_raises_again_after_a_protocol_violation() -> None:
    reader = FrameReader()
    reader.feed(b"\xff\xff\xff\xff" + framed(b"good"))
    with pytest.raises(ProtocolViolation):
        reader.next_frame()
    reader.feed(framed(b"good"))
    with pytest.raises(ProtocolViolation, match="announced"):
        reader.next_frame()


def test_frames_before_a_violation_are_delivered() -> None:
    reader = FrameReader()
    reader.feed(framed(b"good") + b"\xff\xff\xff\xff")
    assert next_of(reader) == b"good"
    with pytest.raises(ProtocolViolation):
        reader.next_frame()


def test_a_frame_reader_allocates_no_memory_for_an_announced_frame_size() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        reader.feed(DEFAULT_MAX_FRAME_BYTES.to_bytes(4, "big") + b"x")
        assert reader.next_frame() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_a_peer_that_sends_single_bytes_does_not_cost_an_object_each() -> None:
    size = 20_000
    reader = FrameReader()
    tracemalloc.start()
    try:
        reader.feed(size.to_bytes(4, "big"))
        for number in range(size - 1):
            reader.feed(number.to_bytes(4, "big")[3:])
            assert reader.next_frame() is None
        _, peak = tracemalloc.get_traced_memory()
        reader.feed(b"!")
    finally:
        tracemalloc.stop()
    # An object for each would take three hundred bytes a byte.
    assert peak < 8 * size
    assert next_of(reader) == bytes(number & 0xFF for number in range(size - 1)) + b"!"

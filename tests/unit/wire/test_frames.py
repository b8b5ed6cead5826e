"""Frames out of bytes, and bytes out of messages."""

from __future__ import annotations

import tracemalloc

import pytest

from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from pessoa.wire.errors import EncodeError, ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES, FrameReader, request_frame, response_frame


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
    assert reader.buffered_bytes == 0


def test_many_frames_in_one_chunk_come_out_in_order() -> None:
    reader = FrameReader()
    reader.feed(b"".join(framed(bytes([n]) * n) for n in range(1, 50)) + b"\x00\x00")
    assert frames_of(reader) == [bytes([n]) * n for n in range(1, 50)]
    assert reader.buffered_bytes == 2


@pytest.mark.parametrize("size", range(1, 12))
def test_frames_across_chunks_come_out_whole(size: int) -> None:
    reader, found = FrameReader(), []
    stream = framed(b"first") + framed(b"") + framed(b"the second")
    for start in range(0, len(stream), size):
        reader.feed(stream[start : start + size])
        found += frames_of(reader)
    assert found == [b"first", b"", b"the second"]


def test_an_empty_frame_is_a_frame() -> None:
    reader = FrameReader()
    reader.feed(framed(b"") + framed(b"x"))
    assert frames_of(reader) == [b"", b"x"]


def test_feeding_nothing_changes_nothing() -> None:
    reader = FrameReader()
    reader.feed(b"")
    assert reader.next_frame() is None
    assert reader.buffered_bytes == 0


def test_a_frame_that_came_in_one_piece_is_a_view_of_it() -> None:
    reader = FrameReader()
    chunk = framed(b"one") + framed(b"two")
    reader.feed(chunk)
    one, two = reader.next_frame(), reader.next_frame()
    assert one is not None
    assert two is not None
    assert one.obj is chunk
    assert two.obj is chunk


def test_a_frame_may_be_as_large_as_the_limit_and_no_larger() -> None:
    reader = FrameReader(max_frame_bytes=3)
    reader.feed(framed(b"abc") + framed(b"abcd"))
    assert next_of(reader) == b"abc"
    with pytest.raises(ProtocolViolation, match="4 bytes was announced; the limit is 3"):
        reader.next_frame()


def test_the_limit_is_kafkas_unless_said_otherwise() -> None:
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


def test_after_a_violation_the_reader_says_so_for_ever_and_keeps_nothing() -> None:
    reader = FrameReader()
    reader.feed(b"\xff\xff\xff\xff" + framed(b"good"))
    with pytest.raises(ProtocolViolation):
        reader.next_frame()
    reader.feed(framed(b"good"))
    assert reader.buffered_bytes == 0
    with pytest.raises(ProtocolViolation, match="announced"):
        reader.next_frame()
    assert "broken" in repr(reader)


def test_frames_before_a_violation_are_delivered() -> None:
    reader = FrameReader()
    reader.feed(framed(b"good") + b"\xff\xff\xff\xff")
    assert next_of(reader) == b"good"
    with pytest.raises(ProtocolViolation):
        reader.next_frame()


def test_nothing_is_allocated_on_the_word_of_a_peer() -> None:
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
    assert peak < 4 * size
    assert next_of(reader) == bytes(number & 0xFF for number in range(size - 1)) + b"!"


def test_a_reader_shows_what_it_waits_for() -> None:
    reader = FrameReader()
    assert repr(reader) == "<FrameReader waiting for a size, has 0>"
    reader.feed(b"\x00\x00\x00\x05ab")
    assert reader.next_frame() is None
    assert repr(reader) == "<FrameReader waiting for 5 bytes, has 2>"


REQUESTS = [
    # size, api key, version, correlation id, client id, and in flexible versions the header's tagged fields
    (8, "cli", "00000014 0003 0008 00000102 0003 636c69 ffffffff 01 00 00"),
    (9, "cli", "00000013 0003 0009 00000102 0003 636c69 00 00 01 00 00 00"),
    (9, None, "00000010 0003 0009 00000102 ffff 00 00 01 00 00 00"),
]


@pytest.mark.parametrize(("version", "client_id", "expected"), REQUESTS)
def test_a_request_frame_byte_by_byte(version: int, client_id: str | None, expected: str) -> None:
    request = MetadataRequest(topics=None)
    assert b"".join(request_frame(request, version, 258, client_id)) == bytes.fromhex(expected)


def test_a_response_frame_has_the_header_of_its_version() -> None:
    response = MetadataResponse(brokers=[], topics=[])
    for version, header in ((8, b"\x00\x00\x01\x02"), (9, b"\x00\x00\x01\x02\x00")):
        body = header + response.encode(version)
        assert b"".join(response_frame(response, version, 258)) == framed(body)


@pytest.mark.parametrize("version", range(5))
def test_the_response_to_api_versions_never_has_tagged_fields_in_its_header(version: int) -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    body = b"\x00\x00\x01\x02" + response.encode(version)
    assert b"".join(response_frame(response, version, 258)) == framed(body)


def test_a_flexible_request_for_api_versions_does_have_them() -> None:
    request = ApiVersionsRequest(client_software_name="p", client_software_version="1")
    assert b"".join(request_frame(request, 3, 1, None)) == framed(
        bytes.fromhex("0012 0003 00000001 ffff 00") + request.encode(3)
    )


def test_record_data_passes_through_a_response_frame_untouched() -> None:
    slices = [memoryview(bytes([n]) * 1000) for n in range(3)]
    partitions = [
        PartitionData(partition_index=n, error_code=0, high_watermark=9, aborted_transactions=None, records=records)
        for n, records in enumerate(slices)
    ]
    response = FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    buffers = response_frame(response, 12, 7)
    assert [buffer for buffer in buffers if isinstance(buffer, memoryview)] == slices
    assert all(any(buffer is piece for buffer in buffers) for piece in slices)
    whole = b"".join(buffers)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert FetchResponse.decode(whole[9:], 12) == response


def test_a_message_that_cannot_be_encoded_makes_no_frame() -> None:
    with pytest.raises(EncodeError):
        request_frame(MetadataRequest(topics=None), 0, 1, None)
    with pytest.raises(EncodeError):
        request_frame(MetadataRequest(topics=None), 99, 1, None)

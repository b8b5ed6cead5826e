"""Frames from the receive buffer, compared with a simple reader that joins all bytes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.net.receive_buffer import INITIAL_BYTES, ReceiveBuffer
from pessoa.wire.errors import ProtocolViolation


def put(buffer: ReceiveBuffer, data: bytes) -> None:
    """Put bytes into the buffer as a socket does: at a time as much as it has space for."""
    while data:
        space = buffer.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        buffer.received(count)
        data = data[count:]


def take(buffer: ReceiveBuffer) -> bytes | None:
    frame = buffer.take_frame()
    if frame is None:
        return None
    data, start, end = frame
    return bytes(data[start:end])


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(
    bodies=st.lists(st.binary(max_size=40) | st.integers(0, 3 * INITIAL_BYTES).map(bytes), max_size=6),
    cuts=st.lists(st.integers(1, 5000), max_size=30),
    release=st.booleans(),
)
def test_frames_are_received_unchanged_however_their_bytes_arrive(
    bodies: list[bytes], cuts: list[int], release: bool
) -> None:
    buffer, found = ReceiveBuffer(), []
    stream = b"".join(map(framed, bodies))
    for size in [*cuts, len(stream)]:
        piece, stream = stream[:size], stream[size:]
        put(buffer, piece)
        while (frame := take(buffer)) is not None:
            found.append(frame)
        if release:
            buffer.release()
    assert found == bodies
    assert buffer.waiting_bytes == 0


def test_a_frame_in_use_is_not_overwritten_by_what_arrives_next() -> None:
    buffer = ReceiveBuffer()
    put(buffer, framed(b"first"))
    frame = buffer.take_frame()
    assert frame is not None
    view = memoryview(frame[0])[frame[1] : frame[2]]
    put(buffer, framed(bytes(3 * INITIAL_BYTES)))
    assert bytes(view) == b"first"
    buffer.release()
    assert take(buffer) == bytes(3 * INITIAL_BYTES)


def test_a_frame_can_be_modified_in_place() -> None:
    buffer = ReceiveBuffer()
    put(buffer, framed(b"stamp me"))
    frame = buffer.take_frame()
    assert frame is not None
    view = memoryview(frame[0])[frame[1] : frame[2]]
    view[:5] = b"STAMP"
    assert bytes(view) == b"STAMP me"


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_an_impossible_size_is_refused_before_anything_is_allocated_for_it(size: int) -> None:
    buffer = ReceiveBuffer(max_frame_bytes=100)
    put(buffer, size.to_bytes(4, "big", signed=True))
    with pytest.raises(ProtocolViolation, match="the limit is 100"):
        buffer.take_frame()


def test_the_receive_buffer_grows_with_the_received_bytes_and_not_with_the_announced_size() -> None:
    buffer = ReceiveBuffer()
    put(buffer, (90 * 1024 * 1024).to_bytes(4, "big") + bytes(10))
    assert buffer.take_frame() is None
    assert len(buffer.space()) < 2 * INITIAL_BYTES


def test_a_receive_buffer_that_grew_for_a_large_frame_is_released() -> None:
    buffer = ReceiveBuffer()
    put(buffer, framed(bytes(5 * 1024 * 1024)))
    assert take(buffer) is not None
    buffer.release()
    assert len(buffer.space()) == INITIAL_BYTES


def test_a_steady_stream_of_large_frames_settles_in_one_buffer_with_room_for_two() -> None:
    buffer, body = ReceiveBuffer(), bytes(3 * INITIAL_BYTES // 2)
    stream = framed(body) * 20
    used = []
    while stream:
        space = buffer.space()
        count = min(len(space), len(stream))
        space[:count], stream = stream[:count], stream[count:]
        buffer.received(count)
        while (frame := buffer.take_frame()) is not None:
            used.append(frame[0])
        buffer.release()
    assert len(used) == 20
    assert all(one is used[5] for one in used[5:])
    assert len(used[5]) >= 2 * len(body)


def test_received_bytes_move_to_the_front_of_the_buffer_once_no_earlier_frame_is_in_use() -> None:
    buffer = ReceiveBuffer()
    put(buffer, framed(bytes(INITIAL_BYTES - 100)) + framed(b"half of this is here")[:12])
    taken = buffer.take_frame()
    assert taken is not None
    buffer.release()
    assert len(buffer.space()) == INITIAL_BYTES - 12
    put(buffer, framed(b"half of this is here")[12:])
    assert take(buffer) == b"half of this is here"
    assert buffer.take_frame() is None


def test_an_idle_connection_costs_little_and_a_busy_one_gets_room_with_its_first_full_read() -> None:
    buffer = ReceiveBuffer()
    first = len(buffer.space())
    assert first <= 4096
    # The head of a frame that is larger than that.
    buffer.space()[:4] = (100_000).to_bytes(4, "big")
    buffer.received(first)
    assert buffer.take_frame() is None
    assert len(buffer.space()) >= INITIAL_BYTES - first

"""The frame reader, compared with a simple one that joins all bytes and then splits them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pessoa.wire.errors import ProtocolViolation
from tests.support.frame_reader import FrameReader

LIMIT = 5000

bodies = st.lists(st.binary(max_size=20) | st.integers(0, LIMIT).map(bytes), max_size=8)
# Sizes of the pieces in which the stream arrives; the rest comes in one.
cuts = st.lists(st.integers(1, 30) | st.integers(1000, 3000), max_size=40)


def pieces(stream: bytes, sizes: list[int]) -> list[bytes]:
    found = []
    for size in sizes:
        found.append(stream[:size])
        stream = stream[size:]
    return [*found, stream]


@given(bodies=bodies, sizes=cuts, eager=st.booleans())
def test_frames_are_decoded_unchanged_however_the_stream_is_split(
    bodies: list[bytes], sizes: list[int], eager: bool
) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader, found = FrameReader(LIMIT), []
    for piece in pieces(stream, sizes):
        reader.feed(piece)
        while eager and (frame := reader.next_frame()) is not None:
            found.append(frame)
    while (frame := reader.next_frame()) is not None:
        found.append(frame)
    # Compared at the end, so that a frame which a later piece overwrote would show.
    assert [bytes(frame) for frame in found] == bodies
    assert reader.waiting_bytes == 0


def dumb_frames(stream: bytes) -> tuple[list[bytes], bool]:
    """Return every complete frame, and whether the stream then violates the protocol."""
    found: list[bytes] = []
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big", signed=True)
        if not 0 <= size <= LIMIT:
            return found, True
        if len(stream) < 4 + size:
            break
        found.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return found, False


@given(bodies=bodies, tail=st.binary(max_size=12), sizes=cuts)
def test_any_stream_gives_the_frames_and_the_violation_that_a_simple_reader_finds(
    bodies: list[bytes], tail: bytes, sizes: list[int]
) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies) + tail
    reader, broke = FrameReader(LIMIT), False
    found: list[bytes] = []
    for piece in pieces(stream, sizes):
        reader.feed(piece)
        try:
            while (frame := reader.next_frame()) is not None:
                found.append(bytes(frame))
        except ProtocolViolation:
            broke = True
    assert (found, broke) == dumb_frames(stream)

"""The pure connection: received bytes to frames and steps, responses to bytes to send. No loop and no socket."""

from __future__ import annotations

from typing import cast

import pytest

from pessoa.net.connection import CLOSE, END, PAUSE, READ, WAIT_FOR_ROOM, Connection, Step
from pessoa.net.receive_buffer import Frame
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer

PRODUCE, OTHER = b"\0\0", b"\0\1"


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(connection: Connection, data: bytes) -> None:
    """Feed bytes into the connection as a socket does: at a time as much as it has space for."""
    while data:
        space = connection.space()
        piece = data[: len(space)]
        space[: len(piece)] = piece
        connection.received(len(piece))
        data = data[len(piece) :]


def body_of(frame: Frame | None) -> bytes | None:
    return None if frame is None else bytes(frame[0][frame[1] : frame[2]])


def taken(connection: Connection) -> list[Buffer]:
    """Return the output as the shell takes it."""
    output, connection.output, connection.output_bytes = connection.output, [], 0
    return output


def sent(connection: Connection) -> bytes:
    return b"".join(taken(connection))


class Server:
    """Serves a connection: requests that begin with "later" or "produce" are answered later; "produce" lets the next
    in."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.seen: list[bytes] = []
        self.output = b""
        self.owed: dict[bytes, object] = {}

    def turn(self) -> Step:
        connection = self.connection
        try:
            while (frame := connection.next_frame()) is not None:
                body = cast("bytes", body_of(frame))[2:]
                self.seen.append(body)
                self._serve(body, frame)
        except ProtocolViolation as violation:
            connection.refuse(violation)
        self.output += sent(connection)
        return connection.end_turn()

    def _serve(self, body: bytes, frame: Frame) -> None:
        if body == b"bad":
            raise ProtocolViolation("this is bad")
        if body.startswith((b"later", b"produce")):
            pending = self.owed[body] = object()
            self.connection.defer_response(pending, frame, lets_next_in=body.startswith(b"produce"))
        else:
            self.connection.answer([body + b";"])

    def settle(self, body: bytes) -> Step | None:
        """Return the step after the response, or None while earlier responses are missing."""
        if not self.connection.settle(self.owed.pop(body), [body + b";"], now_ms=7):
            return None
        self.output += sent(self.connection)
        return self.turn()


def served(*requests: bytes) -> Server:
    server = Server(Connection())
    feed(server.connection, b"".join(map(framed, requests)))
    return server


def test_pipelined_requests_are_served_in_order_and_answered_in_one_output() -> None:
    server = served(OTHER + b"1", OTHER + b"2", OTHER + b"3")
    assert server.turn() is READ
    assert server.output == b"1;2;3;"


def test_a_frame_is_delivered_when_its_last_byte_has_arrived() -> None:
    connection = Connection()
    stream = framed(OTHER + b"whole")
    for byte in stream[:-1]:
        feed(connection, bytes([byte]))
        assert connection.next_frame() is None
        assert connection.end_turn() is READ
    feed(connection, stream[-1:])
    assert body_of(connection.next_frame()) == OTHER + b"whole"


def test_a_frame_is_a_view_of_the_receive_buffer_and_stays_valid_until_its_answer() -> None:
    connection = Connection()
    feed(connection, framed(OTHER + b"later"))
    frame = connection.next_frame()
    assert frame is not None
    connection.defer_response("pending", frame, lets_next_in=False)
    assert connection.end_turn() is READ
    feed(connection, framed(OTHER + bytes(200_000)))
    assert body_of(frame) == OTHER + b"later"
    assert connection.settle("pending", None, now_ms=1)
    assert body_of(connection.next_frame()) == OTHER + bytes(200_000)


def test_the_next_request_is_not_delivered_while_an_answer_is_pending() -> None:
    server = served(OTHER + b"later", OTHER + b"behind")
    assert server.turn() is READ
    assert server.connection.is_in_progress
    assert server.seen == [b"later"]
    assert server.settle(b"later") is READ
    assert server.output == b"later;behind;"
    assert not server.connection.is_in_progress


def test_further_produces_are_served_while_one_waits_for_replicas_and_answers_leave_in_order() -> None:
    server = served(
        PRODUCE + b"produce 1", PRODUCE + b"produce 2", PRODUCE + b"at once", PRODUCE + b"produce 3", OTHER + b"x"
    )
    server.turn()
    assert server.seen == [b"produce 1", b"produce 2", b"at once", b"produce 3"]
    assert server.settle(b"produce 3") is None
    assert server.settle(b"produce 2") is None
    assert server.output == b""
    assert server.settle(b"produce 1") is READ
    assert server.output == b"produce 1;produce 2;at once;produce 3;x;"


def test_a_request_of_another_api_waits_for_every_answer_before_it() -> None:
    server = served(PRODUCE + b"produce 1", PRODUCE + b"produce 2", OTHER + b"other")
    server.turn()
    assert server.settle(b"produce 1") is READ
    assert server.seen[-1] == b"produce 2"
    server.settle(b"produce 2")
    assert server.seen[-1] == b"other"


def test_a_pending_produce_that_still_needs_its_frame_blocks_the_next_produce() -> None:
    server = served(PRODUCE + b"produce 1", PRODUCE + b"later", PRODUCE + b"produce 2")
    server.turn()
    assert server.settle(b"later") is None
    server.settle(b"produce 1")
    assert server.seen == [b"produce 1", b"later", b"produce 2"]
    assert server.output == b"produce 1;later;"


def test_a_connection_has_a_bounded_number_of_pending_produce_answers() -> None:
    server = served(*(PRODUCE + b"produce %d" % number for number in range(40)))
    server.turn()
    server.turn()
    assert len(server.seen) == 32
    server.settle(b"produce 0")
    assert len(server.seen) == 33


def test_a_bounded_number_of_requests_is_served_before_other_connections_are_served() -> None:
    server = served(*(OTHER + b"%d" % number for number in range(33)))
    server.turn()
    assert (len(server.seen), server.connection.is_cut_short) == (32, True)
    server.turn()
    assert (len(server.seen), server.connection.is_cut_short) == (33, False)


def test_a_protocol_violation_closes_the_connection_after_the_earlier_requests_are_answered() -> None:
    server = served(OTHER + b"good", OTHER + b"bad", OTHER + b"never served")
    assert server.turn() is CLOSE
    assert server.output == b"good;"
    assert server.turn() is CLOSE
    assert server.seen == [b"good", b"bad"]


def test_a_protocol_violation_waits_for_pending_answers_before_it_closes_the_connection() -> None:
    server = served(PRODUCE + b"produce", PRODUCE + b"bad", PRODUCE + b"never served")
    assert server.turn() is not CLOSE
    assert server.settle(b"produce") is CLOSE
    assert server.output == b"produce;"
    assert str(server.connection.violation) == "this is bad"


@pytest.mark.parametrize("size", [-1, 1001, 0x7FFFFFFF])
def test_an_impossible_frame_size_is_a_violation_as_soon_as_it_is_received(size: int) -> None:
    server = Server(Connection(max_frame_bytes=1000))
    feed(server.connection, size.to_bytes(4, "big", signed=True))
    assert server.turn() is CLOSE


def test_a_connection_whose_peer_does_not_read_is_neither_read_nor_served() -> None:
    server = served(OTHER + b"1", OTHER + b"2")
    server.connection.can_write = False
    assert server.turn() is PAUSE
    assert server.seen == []
    server.connection.can_write = True
    assert server.turn() is READ
    assert server.output == b"1;2;"


def test_large_answers_are_sent_before_the_turn_of_the_connection_ends() -> None:
    connection = Connection()
    feed(connection, framed(OTHER) * 3)
    large: list[Buffer] = [bytes(200_000)]
    assert connection.next_frame()
    assert not connection.answer(large)
    assert connection.next_frame()
    assert connection.answer(large), "more would only wait"
    assert len(taken(connection)) == 2
    assert connection.next_frame()
    assert not connection.answer(large)


def test_a_connection_with_a_pending_answer_is_read_up_to_a_limit() -> None:
    server = served(OTHER + b"later")
    assert server.turn() is READ
    feed(server.connection, framed(OTHER + bytes(1 << 20)))
    assert server.turn() is PAUSE
    assert server.settle(b"later") is READ


def test_a_draining_connection_serves_the_received_requests_and_closes() -> None:
    server = served(OTHER + b"later", OTHER + b"behind", OTHER + b"half a frame")
    feed(server.connection, b"\0\0\0\x09half")
    server.turn()
    server.connection.is_draining = True
    assert server.turn() is PAUSE
    assert server.settle(b"later") is END
    assert server.output == b"later;behind;half a frame;"


def test_a_draining_connection_whose_peer_does_not_read_waits_for_it() -> None:
    server = served(OTHER + b"1")
    server.connection.is_draining = True
    server.connection.can_write = False
    assert server.turn() is PAUSE
    server.connection.can_write = True
    assert server.turn() is END


class Refusing:
    """An owner of the receive memory that grants none."""

    def may_grow(self, more_bytes: int, frame_bytes: int, *, must: bool) -> bool:
        return False

    def has_grown(self, memory_bytes: int) -> None:
        assert memory_bytes <= 64 * 1024


def test_a_muted_connection_serves_no_received_request_until_its_time_is_over() -> None:
    server = served(b"..first", b"..second")
    server.connection.mute(1_000)
    assert server.turn() is Step.MUTE
    assert server.seen == []
    assert server.connection.unmute(999) == 1
    assert server.turn() is Step.MUTE
    assert server.connection.unmute(1_000) == 0
    assert server.turn() is Step.READ
    assert server.seen == [b"first", b"second"]
    # It was neither idle nor slow: it could not send.
    assert server.connection.active_at_ms == server.connection.finished_at_ms == 1_000


def test_pending_answers_are_sent_while_the_connection_is_muted() -> None:
    server = served(b"pppproduce 1", b"pppproduce 2", b"pppproduce 3")
    server.connection.mute(0)
    server.connection.unmute(0)
    frame = server.connection.next_frame()
    assert frame is not None
    server._serve(b"produce 1", frame)
    server.connection.mute(1_000)
    assert server.turn() is Step.MUTE
    assert server.settle(b"produce 1") is Step.MUTE
    assert server.output == b"produce 1;"
    assert server.seen == []


def test_a_connection_that_is_muted_twice_stays_muted_until_the_later_time() -> None:
    connection = Connection()
    connection.mute(500)
    connection.mute(2_000)
    connection.mute(1_000)
    assert connection.unmute(1_500) == 500
    assert connection.unmute(2_000) == 0
    assert connection.unmute(2_000) == 0


def test_a_draining_connection_is_not_muted() -> None:
    server = served(b"..first", b"..second")
    server.connection.mute(1_000)
    server.connection.is_draining = True
    server.connection.unmute(10)
    server.connection.mute(1_000)
    assert server.turn() is Step.END
    assert server.seen == [b"first", b"second"]


def test_a_muted_connection_whose_peer_broke_the_protocol_is_closed() -> None:
    server = served(b"..bad")
    server.turn()
    server.connection.mute(1_000)
    assert server.turn() is Step.CLOSE


def test_a_connection_without_memory_to_read_into_waits_for_room() -> None:
    connection = Connection(owner=Refusing())
    stream = framed(OTHER + bytes(100_000))[: 64 * 1024]
    feed(connection, stream[:-1])
    assert connection.end_turn() is READ
    feed(connection, stream[-1:])
    assert connection.next_frame() is None
    assert connection.end_turn() is WAIT_FOR_ROOM
    assert connection.frame_bytes() == 4 + 2 + 100_000


def test_a_lost_connection_returns_its_pending_answers_in_order() -> None:
    server = served(PRODUCE + b"produce 1", PRODUCE + b"at once", PRODUCE + b"produce 2")
    server.turn()
    assert list(server.connection.lose()) == [server.owed[b"produce 1"], server.owed[b"produce 2"]]


# Authentication and TLS.


def test_before_authentication_other_apis_and_large_frames_are_violations() -> None:
    for request in (framed(OTHER + b"x"), framed(PRODUCE + bytes(99))):
        server = Server(Connection())
        server.connection.admit_only(frozenset({0}), max_frame_bytes=100)
        feed(server.connection, framed(PRODUCE + b"token") + request)
        assert server.turn() is CLOSE
        assert server.output == b"token;"


def test_all_apis_and_large_frames_are_admitted_after_authentication() -> None:
    server = Server(Connection())
    server.connection.admit_only(frozenset({0}), max_frame_bytes=100)
    feed(server.connection, framed(PRODUCE + b"later"))
    server.turn()
    feed(server.connection, framed(OTHER + bytes(200)))
    # The answer that ends the exchange, and what the peer has sent behind it.
    server.connection.admit_all(max_frame_bytes=1000)
    assert server.settle(b"later") is READ
    assert server.seen == [b"later", bytes(200)]

"""The shell around a `Connection`: asyncio's protocol for one accepted connection.

The transport's calls become calls of the pure `Connection`, and its steps become calls of the transport. What one read
brought is served before anything is written, and then written with one call.

An answer that comes later is a `Pending`. Most fetches wait for records, and a produce that brings them is what makes
their answers ready: so the listener makes those as soon as everything that came with the produce is served, and not in
the next turn of the loop (`Listener.settle`).

A peer that breaks the protocol gets one log line and a closed connection; a request that fails for a mistake of ours
costs its connection. Other connections do not notice either. A peer that does not read its answers is not read from:
above the transport's high-water mark nothing is served or read until it has drained, so a slow reader costs a bounded
amount of memory. So does a slow writer of large requests: all of them share the room that `receive_room.py` keeps, in
which this protocol is a `ReceivingConnection`.

A connection ends in two steps. A socket that is closed while something in it is unread resets the connection, and the
peer may lose answers that were sent to it. So only our side is closed, and what still comes is read and dropped, until
the peer closes its side or has had a moment to.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Protocol, cast

from pessoa.net.connection import CLOSE, END, MUTE, PAUSE, READ, Connection, Step
from pessoa.net.file_sending import InFile, RangeLost, file_sender, read_ranges
from pessoa.net.pending import Pending
from pessoa.net.receive_buffer import INITIAL_BYTES
from pessoa.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.clock import Timer
    from pessoa.net.file_sending import FileSender
    from pessoa.net.listener import Listener
    from pessoa.net.receive_buffer import Frame
    from pessoa.wire.frames import Buffer

log = logging.getLogger("pessoa.net")

_connection_ids = count(1)
# What peers have, when a listener closes, to close their side as well. One that sent nothing for so long is not
# expected to send anything now.
_CLOSING_MS = 500
_DROPPED = memoryview(bytearray(64 * 1024))
# Up to this, copying answers into one buffer is quicker than handing many to the transport.
_JOINED_BYTES = 16 * 1024


class Serve(Protocol):
    """Handles one frame and returns its response, a `Pending`, or None if the peer wants no response. The range of the
    frame is valid until the response is made, or until a `Pending` was returned that lets the next request in."""

    def __call__(
        self, connection: Connection, data: bytearray, start: int, end: int, /
    ) -> list[Buffer] | Pending | None: ...


class ServerProtocol(asyncio.BufferedProtocol):
    """One accepted connection. It is in its listener's `connections` while it is open."""

    __slots__ = (
        "_files",
        "_goes_on",
        "_is_asyncio",
        "_is_early",
        "_is_ending",
        "_is_reading",
        "_listener",
        "_mute_timer",
        "_transport",
        "connection",
        "gate",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.connection = Connection(next(_connection_ids), listener.limits.socket_request_max_bytes, self)
        # What serves its frames until it is authenticated, and as long as its session can end; None: the listener.
        self.gate: Serve | None = None
        self._transport: asyncio.Transport | None = None
        # Whether the rest of what has come is to be served in the next turn of the loop.
        self._goes_on = False
        self._is_asyncio = False
        # Sends what answers have in files, from the first of them on; None if the transport does that.
        self._files: FileSender | None = None
        # Whether nothing is read because its turn has not come.
        self._is_early = False
        # Runs while the connection is muted.
        self._mute_timer: Timer | None = None
        self._is_reading = True
        # Whether our side is closed, and what comes is dropped.
        self._is_ending = False

    def __repr__(self) -> str:
        return f"<ServerProtocol of {self.connection!r}{'' if self._is_reading else ', not reading'}>"

    # What the transport tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        # In some versions of Python its `writelines` does not say when the peer is slow (CVE-2024-12254).
        self._is_asyncio = isinstance(transport, asyncio.Transport)
        connection, listener = self.connection, self._listener
        peername = transport.get_extra_info("peername")
        if peername:
            connection.host, connection.peer = peername[0], f"{peername[0]}:{peername[1]}"
        connection.active_at_ms = listener.now_ms()
        early_s = listener.admit(self)
        if early_s is None:
            self._transport.abort()
        elif early_s > 0:
            # uvloop begins to read behind this call, whatever is said in it; some of it may be served.
            listener.loop.call_soon(self._wait_for_turn, early_s)

    def _wait_for_turn(self, early_s: float) -> None:
        # One behind the other: a loop that was held up runs what is due by the clock before what is due now.
        self._is_early = True
        self._pause()
        self._listener.clock.call_after_ms(ceil(early_s * 1000), self._turn_came)

    def _turn_came(self) -> None:
        self._is_early = False
        self._go_on()

    def hold(self, hold_ms: int) -> None:
        """Read and serve nothing, and close the connection in `hold_ms`."""
        listener = self._listener
        # What is read before reading is paused must not be served either.
        self.connection.mute(listener.now_ms() + 2 * hold_ms)
        listener.loop.call_soon(self._pause)
        listener.clock.call_after_ms(hold_ms, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._files is not None:
            self._files.close()
            self._files = None
        for pending in self.connection.lose():
            assert isinstance(pending, Pending)
            # Behind its first step: what a task that never began would have awaited is complained about.
            self._listener.loop.call_soon(pending.cancel)
        if self._mute_timer is not None:
            # Bytes over a quota may mute a connection for days: nothing is to be kept for one that has ended.
            self._mute_timer.cancel()
        self._listener.room.forget(self)
        self._listener.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _DROPPED if self._is_ending else self.connection.space()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_ending:
            connection, listener = self.connection, self._listener
            connection.received(nbytes)
            connection.active_at_ms = listener.now_ms()
            listener.serve_turn(self)

    def pause_writing(self) -> None:
        self.connection.can_write = False
        self._listener.slow_readers.add(self)
        self._pause()

    def resume_writing(self) -> None:
        self.connection.can_write = True
        self._listener.slow_readers.discard(self)
        if self._files is not None and self._files.is_busy:
            self._send_files()
            if not self.connection.can_write:
                return
        # A connection that is being closed only sends its last answers.
        if self._is_open():
            self.take_turn()

    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and not self._is_ending

    # Serving.

    def take_turn(self) -> None:
        """Serve every request that may be served, send the responses, and do what `end_turn` returns."""
        connection = self.connection
        serve = self.gate or self._listener.serve
        try:
            while (frame := connection.next_frame()) is not None:
                answer = serve(connection, *frame)
                if isinstance(answer, list):
                    if connection.answer(answer):
                        # Where the peer does not read, this is what stops the loop.
                        self._write()
                elif answer is not None:
                    self._defer_response(answer, frame)
        except ProtocolViolation as violation:
            connection.refuse(violation)
        except Exception as bug:  # noqa: BLE001 (whatever it is, it must not reach the other connections)
            self._abort_for(bug)
            return
        self._write()
        step = connection.end_turn(self._listener.room.is_short)
        if step is READ:
            if not self._is_reading:
                self._resume()
        else:
            self._do(step)
        if connection.is_cut_short and not self._goes_on:
            self._goes_on = True
            self._listener.loop.call_soon(self._go_on)

    def _do(self, step: Step) -> None:
        if step is END:
            self.end()
        elif step is CLOSE:
            assert self.connection.violation is not None
            self._close_for(self.connection.violation)
        else:
            self._pause()
            if step is MUTE:
                self._unmute_in_time()
            elif step is not PAUSE:
                self._listener.room.wait(self, self.connection.frame_bytes(), self._listener.now_ms())

    def _unmute_in_time(self) -> None:
        muted_until_ms = self.connection.muted_until_ms
        if self._mute_timer is None and muted_until_ms is not None:
            left_ms = max(1, muted_until_ms - self._listener.now_ms())
            self._mute_timer = self._listener.clock.call_after_ms(left_ms, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        if self.connection.unmute(self._listener.now_ms()) > 0:
            # It was muted for longer meanwhile, or the timer was early by the clock's resolution.
            self._unmute_in_time()
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._goes_on = False
        if self._is_open():
            self._listener.serve_turn(self)

    def _defer_response(self, pending: Pending, frame: Frame) -> None:
        self.connection.defer_response(pending, frame, lets_next_in=pending.lets_next_in)
        settle = self.settle if pending.is_last_step else partial(self._listener.settle, self)
        pending.when_ready(partial(settle, pending))

    def settle(self, pending: Pending) -> None:
        """Make the response, and send it if all earlier ones are sent."""
        if self._transport is None:
            return
        connection = self.connection
        try:
            answer = pending.frames()
        except ProtocolViolation as violation:
            connection.drop(pending)
            connection.refuse(violation)
            self._close_for(violation)
            return
        except Exception as bug:  # noqa: BLE001
            connection.drop(pending)
            self._abort_for(bug)
            return
        if connection.settle(pending, answer, self._listener.now_ms()):
            self._write()
            if self._is_open():
                self.take_turn()

    def _write(self) -> None:
        connection, transport = self.connection, self._transport
        answers = connection.output
        if not answers:
            return
        connection.output = []
        connection.output_bytes = 0
        if transport is None:
            return
        if self._files is not None and self._files.is_busy:
            self._send_files(answers)
        elif len(answers) == 1:
            transport.write(answers[0])
        elif sum(map(len, answers)) <= _JOINED_BYTES:
            transport.write(b"".join(answers))
        else:
            self._write_large(answers, transport)

    def _write_large(self, answers: list[Buffer], transport: asyncio.Transport) -> None:
        has_ranges = any(isinstance(one, InFile) for one in answers)
        if has_ranges and self._files is None:
            self._files = file_sender(transport)
        if has_ranges and self._files is not None:
            self._send_files(answers)
            return
        try:
            buffers = read_ranges(answers) if has_ranges else answers
        except RangeLost as lost:
            self._abort_for_lost(lost)
            return
        if self._is_asyncio:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)

    def _send_files(self, answers: Sequence[Buffer] = ()) -> None:
        """Send these buffers after what is still to be sent from files."""
        assert self._files is not None
        try:
            if answers:
                self._files.send(answers)
            else:
                self._files.go_on()
        except RangeLost as lost:
            self._abort_for_lost(lost)

    def _flush_files(self) -> None:
        """Write everything that is still to be sent to the transport, before our side is closed."""
        if self._files is not None and self._files.is_busy:
            try:
                self._files.flush()
            except RangeLost as lost:
                self._abort_for_lost(lost)

    def _abort_for_lost(self, lost: RangeLost) -> None:
        log.warning("%s is cut, its answer cannot be sent: %s", self.peer, lost)
        self.abort()

    def _pause(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        connection = self.connection
        if self._is_reading or self._is_early or connection.is_draining or connection.muted_until_ms is not None:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._is_reading = True
            self._listener.room.leave(self)
            self._transport.resume_reading()

    # Memory: what its buffer and the room ask.

    def may_grow(self, more_bytes: int, frame_bytes: int, *, must: bool) -> bool:
        room = self._listener.room
        if not room.has(self):
            self.connection.finished_at_ms = self._listener.now_ms()
        return room.admits(self, more_bytes, frame_bytes, must=must)

    def has_grown(self, memory_bytes: int) -> None:
        self._listener.room.count(self, memory_bytes if memory_bytes > INITIAL_BYTES else 0)

    def give_back(self) -> None:
        self.connection.give_back()

    def room_came(self) -> bool:
        connection = self.connection
        # One that is paused for another reason asks when that is over.
        if connection.can_write and not connection.is_in_progress:
            if not connection.has_space():
                return False
            connection.finished_at_ms = self._listener.now_ms()
            self._resume()
        return True

    @property
    def peer(self) -> str:
        return self.connection.peer

    @property
    def is_in_progress(self) -> bool:
        return self.connection.is_in_progress

    @property
    def finished_at_ms(self) -> int:
        return self.connection.finished_at_ms

    @property
    def unread_bytes(self) -> int:
        """The bytes of responses that the peer has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # Ending.

    def drain(self) -> None:
        """Serve the requests that were received, and then close: the listener closes. With a request in progress, after
        its response."""
        connection = self.connection
        connection.is_draining = True
        connection.unmute(self._listener.now_ms())
        # A peer that sends one request after another would never come to an end.
        self._pause()
        if not connection.is_in_progress and not self._goes_on and connection.can_write:
            self._listener.serve_turn(self)

    def end(self) -> None:
        """Close our side after what was written has been sent. The connection is closed when the peer closes its side,
        or after a time limit."""
        transport, listener = self._transport, self._listener
        if transport is None or self._is_ending or transport.is_closing():
            return
        if listener.now_ms() - self.connection.active_at_ms > _CLOSING_MS or not transport.can_write_eof():
            self.close()
            return
        self._flush_files()
        self._is_ending = True
        try:
            transport.write_eof()
        except OSError:
            # The peer has reset the connection, and the loop has not heard of it.
            transport.abort()
            return
        listener.clock.call_after_ms(_CLOSING_MS, self.close)
        if not self._is_reading:
            self._is_reading = True
            transport.resume_reading()

    def close(self) -> None:
        """Close the connection after everything that was written has been sent."""
        self._flush_files()
        if self._transport is not None:
            self._transport.close()

    def close_overdue(self) -> None:
        """Close the connection when its time to close is over; responses that the peer has not read are dropped."""
        if self.unread_bytes:
            self.abort()
        else:
            self.close()

    @property
    def is_closing(self) -> bool:
        return self._transport is not None and self._transport.is_closing()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _abort_for(self, bug: Exception) -> None:
        """Log an exception that is a bug, and abort this connection; other connections are served on."""
        log.error("a request of %s could not be served", self.peer, exc_info=bug)
        self._listener.on_bug(bug)
        self.abort()

    def _close_for(self, violation: ProtocolViolation) -> None:
        if self._transport is not None and not self._transport.is_closing():
            log.warning("%s on %s: %s; the connection is closed", self.peer, self._listener.address, violation)
            self.close()

"""A connection without its socket: what may be served, in which order answers leave, when to read and when to close.

    bytes ──▶ ReceiveBuffer ──▶ next_frame ──▶ served by the shell
                                                          │
    bytes ◀── output ◀─────── order of answers ◀──────────┴── answer, or defer_response and later settle

The shell (`server_protocol.py`) puts what the socket brings into `space` and says so with `received`. Then it takes a
turn: it serves every frame that `next_frame` gives, sends `output`, and does what `end_turn` says:

    READ            read on
    PAUSE           do not read: the peer is slow, or it has sent enough ahead, or the listener closes
    WAIT_FOR_ROOM   do not read: there is no memory to read into
    MUTE            do not read until `muted_until_ms`: the client is over a quota. Then `unmute`, and take a turn
    END             the listener closes and everything was answered: close our side
    CLOSE           the peer broke the protocol (`violation`), and everything before that was answered

As in Kafka, a connection has one request in progress at a time, so answers leave in the order of the requests. The
exception is for producers: while a request waits for replicas alone (`lets_next_in`), requests of the same API are
served, so that one round of replication carries all that a producer has sent ahead. Their answers wait for their turn:

    nothing owed ──defer_response──▶ one answer owed, no frame is given ──settle──▶ nothing owed
                 ──defer_response, lets_next_in──▶ frames of that API are given, up to _MAX_OWED ──settle…──▶ nothing
                                                                                                              owed

Limits: `_MAX_OWED` answers are owed to a producer; `_MAX_AT_ONCE` requests are served in a turn, before those of other
connections; `_PIPELINED_BYTES` are read ahead of the request in progress; nothing is given while the peer does not read
(`can_write`). Memory is the matter of the buffer and its owner (`receive_buffer.py`).

A connection that is muted serves nothing, whole requests that have come included, and is not read from; answers that
are owed leave all the same. A listener that closes unmutes its connections.

Before a peer is authenticated, `admit_only` names the APIs that it may ask for and a lower limit of frames, and nothing
is read ahead. Of TLS nothing is known here: it stands in front of the shell (`tls.py`).

A frame may be in use until its answer is there, or until a request that lets the next one in is owed: so long its bytes
stay where they are.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from pessoa.net.receive_buffer import API_BYTES, ReceiveBuffer
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES, Buffer
from pessoa.wire.request_context import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pessoa.net.receive_buffer import Frame, Owner

# What a connection may send ahead while a request of it is in progress.
_PIPELINED_BYTES = 1024 * 1024
# So many answers may be outstanding to a producer that sends ahead.
_MAX_OWED = 32
# So many requests of one connection are served before others have their turn.
_MAX_AT_ONCE = 32
# So much is collected before it is written; more would only wait.
_WRITE_BYTES = 256 * 1024
# While the last answer owed is of this API, no frame is given.
_NO_API = -1


class Step(Enum):
    """What the shell does next."""

    READ = "read on"
    PAUSE = "do not read"
    WAIT_FOR_ROOM = "do not read until there is memory"
    MUTE = "do not read until a time"
    END = "close our side"
    CLOSE = "close for a violation"


# Looked at after every read, where an attribute of an enumeration is slow.
READ, PAUSE, WAIT_FOR_ROOM, MUTE, END, CLOSE = Step


class Connection:
    """One connection without I/O; `host` and `peer` (with its port) are the other end, as the shell knows it."""

    __slots__ = (
        "_admitted_apis",
        "_buffer",
        "_frames_left_in_turn",
        "_owed_responses",
        "_pipelined_api",
        "_read_ahead_bytes",
        "_take_frame",
        "active_at_ms",
        "authenticate_by_ms",
        "can_write",
        "client_id",
        "finished_at_ms",
        "header_tail",
        "host",
        "id",
        "is_cut_short",
        "is_draining",
        "is_token_authenticated",
        "muted_until_ms",
        "output",
        "output_bytes",
        "peer",
        "principal",
        "received",
        "space",
        "violation",
    )

    def __init__(
        self,
        connection_id: int = 0,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        owner: Owner | None = None,
    ) -> None:
        self.id = connection_id
        self.host = self.peer = "?"
        # Who the peer has proved to be.
        self.principal = ANONYMOUS
        self.is_token_authenticated = False
        # What the last request's header had behind the correlation id, in a flexible version, and the client id in it:
        # it is the same in every request of a client, and need not be decoded again.
        self.header_tail = b""
        self.client_id: str | None = None
        # When it is closed if it has not proved anything; None: it need not.
        self.authenticate_by_ms: int | None = None
        self._buffer = ReceiveBuffer(max_frame_bytes, owner)
        self._take_frame = self._buffer.take_frame
        # `space()` is where the socket should put its next bytes; `received(count)` then says how many.
        self.space: Callable[[], memoryview] = self._buffer.space
        self.received: Callable[[int], None] = self._buffer.received
        # Answers, and objects that stand for answers which come later. The first is not an answer: that would be sent.
        self._owed_responses: deque[list[Buffer] | object] = deque()
        # The API whose requests are served though answers are owed.
        self._pipelined_api = _NO_API
        # What may be read ahead of the request in progress.
        self._read_ahead_bytes = _PIPELINED_BYTES
        # The APIs that are served; None: all.
        self._admitted_apis: frozenset[int] | None = None
        # What is to be sent. The shell takes it, and leaves an empty list and 0.
        self.output: list[Buffer] = []
        self.output_bytes = 0
        # How many requests may be served in this turn.
        self._frames_left_in_turn = _MAX_AT_ONCE
        # Whether the last turn ended because of that: then another one should follow soon.
        self.is_cut_short = False
        # What the peer did wrong. Nothing is served after it.
        self.violation: ProtocolViolation | None = None
        # Whether the peer reads its answers: set by the shell.
        self.can_write = True
        # Whether the listener closes: what has come is served, and nothing more is read.
        self.is_draining = False
        # Until when nothing is served, since the client is over a quota; None if it is not muted.
        self.muted_until_ms: int | None = None
        # When the last bytes came, which the shell says, and when a request last ended or its answer left.
        self.active_at_ms = self.finished_at_ms = 0

    def __repr__(self) -> str:
        if self.violation is not None:
            state = "refused"
        elif self._owed_responses:
            state = f"owes {len(self._owed_responses)}"
        elif self.muted_until_ms is not None:
            state = f"muted until {self.muted_until_ms}"
        else:
            state = "idle" if self.can_write else "waits for its reader"
        return f"<Connection {self.id} from {self.peer}: {state}, {self._buffer!r}>"

    # Before authentication.

    def admit_only(self, apis: frozenset[int], max_frame_bytes: int) -> None:
        """Refuse, until `admit_all`, a request for another API or a larger frame as a violation."""
        self._admitted_apis = apis
        self._read_ahead_bytes = 0
        self._buffer.max_frame_bytes = max_frame_bytes

    def admit_any_frame(self) -> None:
        """Admit frames of any content: the next ones are raw SASL tokens. The size limit of `admit_only` stays."""
        self._admitted_apis = None

    def admit_all(self, max_frame_bytes: int) -> None:
        self._admitted_apis = None
        self._read_ahead_bytes = _PIPELINED_BYTES
        self._buffer.max_frame_bytes = max_frame_bytes

    @property
    def is_before_login(self) -> bool:
        """Whether the peer has not authenticated yet."""
        return self._admitted_apis is not None

    # Bytes in, frames out.

    def next_frame(self) -> Frame | None:
        """Return the next request that may be served in this turn; None if there is none. Raises a `ProtocolViolation`,
        which the shell then passes to `refuse`, as it does with its own."""
        if self._owed_responses:
            if self._pipelined_api == _NO_API or len(self._owed_responses) >= _MAX_OWED:
                return None
            if self._buffer.next_api() != self._pipelined_api:
                return None
        if (
            not self._frames_left_in_turn
            or not self.can_write
            or self.muted_until_ms is not None
            or self.violation is not None
        ):
            return None
        frame = self._take_frame()
        if frame is not None:
            self._frames_left_in_turn -= 1
            if self._admitted_apis is not None:
                self._check_admitted(frame)
        return frame

    def _check_admitted(self, frame: Frame) -> None:
        api = _api_of(frame)
        if self._admitted_apis is not None and api not in self._admitted_apis:
            raise ProtocolViolation(f"API {api} was asked for before authentication")

    def mute(self, until_ms: int) -> None:
        """Serve and read nothing until `until_ms`, or until the later time of an earlier call."""
        if not self.is_draining and (self.muted_until_ms is None or self.muted_until_ms < until_ms):
            self.muted_until_ms = until_ms

    def unmute(self, now_ms: int) -> int:
        """Serve and read again if the mute time is over. Return for how many milliseconds the connection stays
        muted."""
        if self.muted_until_ms is None:
            return 0
        if now_ms < self.muted_until_ms and not self.is_draining:
            return self.muted_until_ms - now_ms
        self.muted_until_ms = None
        # Its peer could not send: neither was it idle, nor slow with a request.
        self.active_at_ms = self.finished_at_ms = now_ms
        return 0

    def refuse(self, violation: ProtocolViolation) -> None:
        """Serve nothing more. `end_turn` returns CLOSE when the requests before it were answered."""
        self.violation = violation

    # Answers in, bytes out.

    def answer(self, answer: list[Buffer]) -> bool:
        """Add the response to the last frame. Return whether there is enough output to send it before the turn is
        over."""
        if self._owed_responses:
            # Its API lets the next one in, and this one was answered at once.
            self._owed_responses.append(answer)
            return False
        self.output += answer
        self.output_bytes += len(answer[0]) if len(answer) == 1 else sum(map(len, answer))
        return self.output_bytes > _WRITE_BYTES

    def defer_response(self, pending: object, frame: Frame, *, lets_next_in: bool) -> None:
        """Note that the response to the last frame comes later, as `pending`. Responses leave in the order of their
        requests."""
        self._pipelined_api = _api_of(frame) if lets_next_in else _NO_API
        self._owed_responses.append(pending)

    def settle(self, pending: object, answer: list[Buffer] | None, now_ms: int) -> bool:
        """Take the response that `pending` stood for; None if the peer wants none. Return whether it was the first that
        is owed: then there may be output, and a turn should follow."""
        owed = self._owed_responses
        if owed[0] is not pending:
            owed[owed.index(pending)] = [] if answer is None else answer
            return False
        output = self.output
        if answer is not None:
            output += answer
        owed.popleft()
        while owed and isinstance(first := owed[0], list):
            output += first
            owed.popleft()
        self.active_at_ms = self.finished_at_ms = now_ms
        if not owed:
            self._buffer.release()
        return True

    def drop(self, pending: object) -> None:
        """Remove `pending` from the responses that are owed: it cannot be made."""
        self._owed_responses.remove(pending)

    # What comes next.

    def end_turn(self, is_memory_short: bool = False) -> Step:
        """Return what the shell does next, after it has sent the output. `is_memory_short`: keep no more memory than
        necessary."""
        owed, buffer, left = self._owed_responses, self._buffer, self._frames_left_in_turn
        if not owed or self._pipelined_api != _NO_API:
            buffer.release()
            if is_memory_short:
                buffer.shrink()
        if left < _MAX_AT_ONCE:
            self.finished_at_ms = self.active_at_ms
            self._frames_left_in_turn = _MAX_AT_ONCE
        self.is_cut_short = not left
        if not owed and self.violation is not None:
            return CLOSE
        if self.is_draining:
            return PAUSE if owed or not left or not self.can_write else END
        if self.muted_until_ms is not None:
            return MUTE
        if not self.can_write or ((owed or not left) and buffer.waiting_bytes > self._read_ahead_bytes):
            return PAUSE
        return READ if buffer.has_space() else WAIT_FOR_ROOM

    @property
    def is_in_progress(self) -> bool:
        """Whether the peer waits for a response that comes later."""
        return bool(self._owed_responses)

    # Memory.

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that were received and not returned as frames."""
        return self._buffer.waiting_bytes

    def frame_bytes(self) -> int:
        """The size of the next frame, whether it is complete or not; 0 if its size was not received."""
        return self._buffer.frame_bytes()

    def has_space(self) -> bool:
        """Whether bytes can be received; False if the buffer is full and its owner allows it no more memory."""
        return self._buffer.has_space()

    def give_back(self) -> None:
        """Shrink the buffer to the size that every connection has, if the received bytes fit into it."""
        self._buffer.shrink()

    # Ending.

    def lose(self) -> Iterator[object]:
        """Return the pending responses that are owed, in their order: the peer has disconnected."""
        self._buffer.disown()
        return (one for one in self._owed_responses if not isinstance(one, list))


def _api_of(frame: Frame) -> int:
    data, start, _ = frame
    return int.from_bytes(data[start : start + API_BYTES], "big")

"""One HTTP/2 connection, for a service whose clients speak nothing else, as ksqlDB's Java client does.

A connection begins as one of HTTP/1.1 (`http.py`). If its first bytes are the preface of HTTP/2, this class takes it
over: over TLS, where ALPN has offered `h2`, as over plain TCP. Frames, header compression and the state of streams are
the business of the library h2; here are exchanges, windows and bounds.

    frames ──h2──▶ events ──▶ Http2Exchange, one for each stream ──ASGI──▶ app
    an answer waits in its exchange (`out`) until the caller's windows let it through: `pump`

    what a caller can hold on to                     how long
    a connection on which nothing is asked           `head_timeout_s`, then `keep_alive_s` after an answer
    streams at once                                  MAX_STREAMS, each a task of the app
    tasks of streams that it has reset               MAX_STREAMS with the former; further requests are refused
    a head                                           `head_bytes`
    bodies that the app has not taken                WINDOW_BYTES each, CONNECTION_WINDOW_BYTES in all
    answers that are not read, or windows kept shut  `head_timeout_s` without a byte being taken: the stream is reset
    the rest of a body whose answer has gone out     LINGER_S, then the stream is reset
    streams that are opened and reset at once        MAX_RESETS more than were answered (CVE-2023-44487)

A caller that sends GOAWAY without an error has its running requests answered, then the connection ends; one that names
an error gets no more answers. While the socket takes nothing, nothing is read from it, so answers to PING and SETTINGS
cannot pile up.
What it deliberately lacks: server push, priorities, trailers, the upgrade from HTTP/1.1 (which RFC 9113 has dropped).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, ConnectionState, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from starlette.types import Message

from pessoa.web.answers import EXCHANGE_KEY, Answer
from pessoa.web.http_exchange import HIGH_WATER_BYTES, NO_BODY, App, Exchange, Header, checked_value
from pessoa.web.send_queue import unsent_bytes

if TYPE_CHECKING:
    from pessoa.web.http import ServerState, Watch

log = logging.getLogger(__name__)

MAX_STREAMS = 100
WINDOW_BYTES = 64 * 1024 - 1
CONNECTION_WINDOW_BYTES = 1024 * 1024
MAX_RESETS = 100
LINGER_S = 2.0
_METHOD = re.compile(rb"[A-Za-z-]{1,20}")
# Of HTTP/1.1 only: in HTTP/2 they would be an error.
_OF_THE_CONNECTION = (b"connection", b"keep-alive", b"transfer-encoding", b"upgrade")


class _OpenAfterGoaway(H2ConnectionStateMachine):
    """A state machine that lets running streams end after the caller's GOAWAY (RFC 9113, 6.8); the library's own
    closes the connection, and raises at each frame after it (https://github.com/python-hyper/h2/issues/1181)."""

    _transitions = {  # noqa: RUF012 - as in the library
        **H2ConnectionStateMachine._transitions,
        (ConnectionState.SERVER_OPEN, ConnectionInputs.RECV_GOAWAY): (None, ConnectionState.SERVER_OPEN),
    }


class _Library(H2Connection):
    def __init__(self) -> None:
        super().__init__(H2Configuration(client_side=False, header_encoding=None))
        self.state_machine = _OpenAfterGoaway()

    def clear_outbound_data_buffer(self) -> None:
        """Keep the bytes to send, such as an acknowledgement of PING: a GOAWAY does not forbid them."""


class Http2Connection(asyncio.Protocol):
    def __init__(self, watch: Watch, app: App, server_state: ServerState) -> None:
        self._watch = watch
        self._app = app
        self._state = server_state
        self._h2 = _Library()
        self._exchanges: dict[int, Http2Exchange] = {}
        # Tasks of the app, also of streams that have been reset: a handler is not interrupted.
        self._running_count = 0
        self._is_ending = False
        self._answered_count = 0
        self._reset_count = 0
        # When the connection became idle; since when the socket has taken no bytes.
        self._idle_since_s = 0.0
        self._patience_s = watch.limits.head_timeout_s
        self._full_since_s = inf
        # See send_queue.py; as of the last sweep, or of when the transport was full.
        self._unsent_bytes = 0
        # Set when the connection ends: until this time received bytes are discarded, and unsent bytes are still sent.
        self._deaf_until_s = inf

    def __repr__(self) -> str:
        return f"<Http2Connection with {len(self._exchanges)} exchanges{', ending' if self._is_ending else ''}>"

    def take_over(self, transport: asyncio.Transport, first: bytes) -> None:
        """Serve the transport of a connection whose first bytes are `first`."""
        self.transport = transport
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._peer = tuple(peer[:2]) if peer else None
        self._local_address = tuple(local[:2]) if local else None
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._state.connections.add(self)
        self._watch.add(self)
        self._idle_since_s = self._watch.now_s
        head_bytes = self._watch.limits.head_bytes
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                SettingCodes.MAX_HEADER_LIST_SIZE: head_bytes,
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                SettingCodes.ENABLE_PUSH: 0,
            },
        )
        self._h2.decoder.max_header_list_size = head_bytes
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES - self._h2.inbound_flow_control_window)
        transport.set_protocol(self)
        self.data_received(first)

    # Callbacks of the transport.

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            events = self._h2.receive_data(data)
        except H2Error as wrong:
            log.debug("%s does not speak HTTP/2: %s", self._peer, wrong)
            self._refuse(ErrorCodes.PROTOCOL_ERROR)
            return
        self._on_events(_resets_first(events))
        self.flush()

    def connection_lost(self, failure: Exception | None) -> None:
        self._state.connections.discard(self)
        self._watch.connections.discard(self)
        self._lose_all()

    def eof_received(self) -> None:
        """Close the transport after its unsent bytes are sent; the caller has until the deadline to read them."""
        self._deaf_until_s = min(self._deaf_until_s, self._watch.now_s + self._watch.limits.head_timeout_s)
        self._lose_all()

    def _lose_all(self) -> None:
        exchanges, self._exchanges = list(self._exchanges.values()), {}
        for exchange in exchanges:
            exchange.lost()

    def pause_writing(self) -> None:
        self._unsent_bytes = unsent_bytes(self.transport)
        self._full_since_s = self._watch.now_s
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._full_since_s = inf
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self._pump_all()

    # Events of the library.

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            if not self._is_over:
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=int(stream_id), headers=list(headers)):
                self._begin(stream_id, headers)
            case DataReceived(stream_id=int(stream_id), data=bytes(data), flow_controlled_length=int(size)):
                exchange = self._exchanges.get(stream_id)
                # Padding counts, and no handler will take it.
                self.taken(stream_id, size - len(data) if exchange is not None else size)
                if exchange is not None:
                    exchange.add(data)
            case StreamEnded(stream_id=int(stream_id)):
                self._complete(stream_id)
            case StreamReset(stream_id=int(stream_id)):
                self._forget_reset(stream_id)
            case ConnectionTerminated(error_code=code):
                self._on_goaway(code)
            case WindowUpdated(stream_id=int(stream_id)) if stream_id:
                if stream_id in self._exchanges:
                    self._pump(self._exchanges[stream_id])
            case WindowUpdated() | RemoteSettingsChanged():
                self._pump_all()
            case _:
                pass

    def _begin(self, stream_id: int, headers: list[Header]) -> None:
        if self._is_ending:
            self._h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        if self._running_count >= MAX_STREAMS:
            self._h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            self._count_reset()
            return
        pseudo = {name: value for name, value in headers if name.startswith(b":")}
        if not _METHOD.fullmatch(pseudo.get(b":method", b"")):
            self._h2.reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
            return
        exchange = Http2Exchange(self, stream_id)
        raw_path, _, query = pseudo.get(b":path", b"/").partition(b"?")
        path = raw_path.decode("latin-1")
        host = [(b"host", pseudo[b":authority"])] if b":authority" in pseudo else []
        exchange.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": pseudo[b":method"].decode("ascii"),
            "scheme": self._scheme,
            "server": self._local_address,
            "client": self._peer,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": host + [(name, value) for name, value in headers if not name.startswith(b":")],
            EXCHANGE_KEY: exchange,
        }
        self._exchanges[stream_id] = exchange
        self._running_count += 1
        task = asyncio.get_running_loop().create_task(exchange.run(self._app))
        self._state.tasks.add(task)
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._running_count -= 1
        self._state.tasks.discard(task)

    def _complete(self, stream_id: int) -> None:
        exchange = self._exchanges.get(stream_id)
        if exchange is not None:
            exchange.complete()
            if exchange.is_answered:
                self.forget(stream_id)

    def _forget_reset(self, stream_id: int) -> None:
        exchange = self._exchanges.get(stream_id)
        if exchange is not None:
            exchange.lost()
            self.forget(stream_id)
        self._count_reset()

    def _count_reset(self) -> None:
        self._reset_count += 1
        if self._reset_count > MAX_RESETS + self._answered_count:
            log.warning("%s resets its requests again and again; its connection is ended", self._peer)
            self._refuse(ErrorCodes.ENHANCE_YOUR_CALM)

    def _on_goaway(self, code: ErrorCodes | int | None) -> None:
        if code == ErrorCodes.NO_ERROR:
            self.shutdown()
        else:
            log.debug("%s ends its connection with error %s", self._peer, code)
            self._lose_all()
            self._end()

    # Called by exchanges.

    def taken(self, stream_id: int, size: int) -> None:
        """Enlarge the caller's flow-control window by the bytes that the app has taken."""
        if size and not self._is_over:
            self._h2.acknowledge_received_data(size, stream_id)

    def send_head(self, stream_id: int, status: int, headers: Iterable[Header], *, is_all: bool) -> None:
        lines = [(b":status", b"%d" % status)]
        lines += [(name.lower(), checked_value(value)) for name, value in headers]
        self._h2.send_headers(
            stream_id, [line for line in lines if line[0] not in _OF_THE_CONNECTION], end_stream=is_all
        )
        if is_all:
            self._end_answer(stream_id)

    def pump(self, exchange: Http2Exchange) -> None:
        self._pump(exchange)
        self.flush()

    def _pump(self, exchange: Http2Exchange) -> None:
        """Write as much of the answer as the caller's windows let through."""
        if exchange.is_answered:
            return
        out, stream_id = exchange.out, exchange.stream_id
        while out:
            room = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
            if room <= 0:
                exchange.shut_since_s = min(exchange.shut_since_s, self._watch.now_s)
                return
            exchange.shut_since_s = inf
            self._h2.send_data(stream_id, bytes(out[:room]))
            del out[:room]
        if exchange.is_all_here:
            self._h2.end_stream(stream_id)
            self._end_answer(stream_id)
        exchange.let_go_on()

    def _pump_all(self) -> None:
        for exchange in list(self._exchanges.values()):
            if exchange.out:
                self._pump(exchange)
            else:
                exchange.let_go_on()
        self.flush()

    @property
    def is_full(self) -> bool:
        """Whether the socket's send buffer is full."""
        return self._full_since_s != inf

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """End a stream whose answer will not be completed."""
        if stream_id in self._exchanges and not self._is_over:
            self._h2.reset_stream(stream_id, code)
            self.forget(stream_id)
            self.flush()

    def _end_answer(self, stream_id: int) -> None:
        self._answered_count += 1
        exchange = self._exchanges[stream_id]
        exchange.answered()
        if exchange.is_complete:
            self.forget(stream_id)
        else:
            # The rest of its body is discarded for a while: some clients send all of it before they read.
            exchange.lingers_until_s = self._watch.now_s + LINGER_S

    def forget(self, stream_id: int) -> None:
        del self._exchanges[stream_id]
        if not self._exchanges:
            self._idle_since_s, self._patience_s = self._watch.now_s, self._watch.limits.keep_alive_s
            if self._is_ending:
                self._end()

    def flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self._is_over:
            self.transport.write(data)

    # The end.

    @property
    def _is_over(self) -> bool:
        return self._deaf_until_s != inf or self.transport.is_closing()

    @property
    def deadline_s(self) -> float:
        limits = self._watch.limits
        if self._deaf_until_s != inf:
            return self._deaf_until_s
        if not self._exchanges:
            return self._idle_since_s + self._patience_s
        shut_since_s = min(exchange.shut_since_s for exchange in self._exchanges.values())
        lingers_until_s = min(exchange.lingers_until_s for exchange in self._exchanges.values())
        return min(min(self._full_since_s, shut_since_s) + limits.head_timeout_s, lingers_until_s)

    def notice_progress(self) -> None:
        """Extend the deadline of a caller that has read bytes since the last check."""
        before, self._unsent_bytes = self._unsent_bytes, unsent_bytes(self.transport)
        now_s = self._watch.now_s
        if not 0 < self._unsent_bytes < before:
            return
        if self._deaf_until_s != inf:
            self._deaf_until_s = max(self._deaf_until_s, now_s + self._watch.limits.head_timeout_s)
        elif self.is_full:
            self._full_since_s = now_s
            for exchange in self._exchanges.values():
                if exchange.shut_since_s != inf:
                    # The frames that open its window are not read while the socket is full.
                    exchange.shut_since_s = now_s

    def time_is_up(self) -> None:
        limits = self._watch.limits
        if self._deaf_until_s != inf or self._full_since_s + limits.head_timeout_s < self._watch.now_s:
            self.transport.abort()
        elif not self._exchanges:
            self._end()
        else:
            for exchange in list(self._exchanges.values()):
                if exchange.lingers_until_s < self._watch.now_s:
                    # The caller need not send the rest of what it asks (RFC 9113, 8.1).
                    self.reset(exchange.stream_id, ErrorCodes.NO_ERROR)
                elif exchange.shut_since_s + limits.head_timeout_s < self._watch.now_s:
                    exchange.lost()
                    self.reset(exchange.stream_id, ErrorCodes.CANCEL)

    def shutdown(self) -> None:
        """Close the connection after the answers in progress: uvicorn stops, or the caller has sent GOAWAY."""
        self._is_ending = True
        if not self._exchanges:
            self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._h2.close_connection()
            self.flush()
            self._deaf_until_s = self._watch.now_s + self._watch.limits.head_timeout_s
            self.transport.close()

    def _refuse(self, code: ErrorCodes) -> None:
        """Send the caller a GOAWAY with this error. The socket is closed later: with unread bytes in it, TCP would
        reset the connection and discard the GOAWAY."""
        if self._is_over:
            return
        try:
            self._h2.close_connection(code)
        except H2Error:
            # The library has closed it, and has its own message ready.
            log.debug("%s: the connection of HTTP/2 is closed already", self._peer)
        self.flush()
        self._deaf_until_s = self._watch.now_s + LINGER_S
        self._lose_all()
        if self.transport.can_write_eof():
            self.transport.write_eof()


def _resets_first(events: list[Event]) -> list[Event]:
    """Return the events of one read with resets first, and without requests on reset streams. The library has closed
    a reset stream before it returns the first event, so no event may send frames on it."""
    reset = {event.stream_id: event for event in events if isinstance(event, StreamReset)}
    others = [
        event
        for event in events
        if not isinstance(event, StreamReset) and not (isinstance(event, RequestReceived) and event.stream_id in reset)
    ]
    return [*reset.values(), *others]


class Http2Exchange(Exchange):
    """One request and its answer on a stream of an HTTP/2 connection."""

    def __init__(self, connection: Http2Connection, stream_id: int) -> None:
        super().__init__()
        self._connection = connection
        self.stream_id = stream_id
        # The unsent part of the answer, and whether it includes the end.
        self.out = bytearray()
        self.is_all_here = False
        # Since when the caller's windows let nothing through.
        self.shut_since_s = inf
        # Set when the answer is sent and its request has not arrived completely.
        self.lingers_until_s = inf
        self._has_room: asyncio.Future[None] | None = None

    def lost(self) -> None:
        super().lost()
        # Bytes that no handler will take are returned to the window of the connection.
        self._take()
        self.out.clear()
        self.let_go_on()

    def _note_taken(self, size: int) -> None:
        self._connection.taken(self.stream_id, size)
        self._connection.flush()

    def _invite(self) -> None:
        if self._expects_invitation():
            self._connection.send_head(self.stream_id, 100, (), is_all=False)
            self._connection.flush()

    def _break_off(self) -> None:
        if not self.is_all_here:
            self._connection.reset(self.stream_id, ErrorCodes.INTERNAL_ERROR)

    # Sending.

    def respond(self, answer: Answer) -> None:
        if self._is_lost:
            return
        self._start(answer.status_code, answer.raw_headers)
        if self.is_answered:
            self._connection.flush()
        else:
            self.out += answer.body
            self.is_all_here = True
            self._connection.pump(self)

    async def send(self, message: Message) -> None:
        if self._is_lost:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
            self._connection.flush()
        elif not self.is_answered:
            self.out += message.get("body", b"")
            self.is_all_here = not message.get("more_body", False)
            self._connection.pump(self)
        while not self._is_done and (len(self.out) > HIGH_WATER_BYTES or self._connection.is_full):
            self._has_room = asyncio.get_running_loop().create_future()
            await self._has_room

    @property
    def _is_done(self) -> bool:
        return self._is_lost or self.is_answered

    def _start(self, status: int, headers: Iterable[Header]) -> None:
        assert not self.is_started, "an answer has one head"
        self.is_started = True
        is_bare = self.scope["method"] == "HEAD" or status in NO_BODY
        self._connection.send_head(self.stream_id, status, headers, is_all=is_bare)

    def let_go_on(self) -> None:
        """Wake the app if it waits until more can be sent."""
        if self._has_room is not None and not self._has_room.done():
            self._has_room.set_result(None)

    def answered(self) -> None:
        self._mark_answered()

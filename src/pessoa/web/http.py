"""One HTTP/1.1 connection, from bytes to exchanges and back: the protocol that our servers give to uvicorn.

uvicorn's own protocol trusts its callers: a head may be without end, and a caller may take hours for a request or never
read the answer. Ours bounds each of these, and writes a whole answer at once where uvicorn writes head and body apart.

    bytes ──httptools──▶ Http1Exchange (one request and its answer) ──ASGI──▶ app ──▶ one write
                          one at a time; requests that came early wait in `_queue`

    what a caller can hold on to                        how long
    a connection on which nothing is asked              `head_timeout_s`, or `keep_alive_s` after an answer
    half a head                                         `head_timeout_s` from its first byte, `head_bytes` of it
    bytes that lead to nothing: trailers, extensions    `head_bytes`
    half a body                                         see bodies.py: the app decides, since a stream may be slow
    an answer that is not read                          `head_timeout_s` without a byte being taken
    the last bytes of a connection that is closed       the same
    requests that come early                            MAX_WAITING and a piece; what follows is parsed after them
    connections                                         `max_connections`, the next one is told 503

Deadlines are looked at once a second for all connections together (`Watch`): a timer per request would cost more than
the request. An answer that leaves before the request's body has come whole ends the connection.

A caller that has gone is noticed by reading, which rests while requests wait behind the one that runs. Behind an answer
that goes on until its caller goes (`end_with_caller`) none waits: what such a caller asks is read and not answered.

A request for an upgrade is answered as if it had not asked, unless its handler answers 101 itself: then what the caller
sends from there on comes to it as the body (websockets.py). What it deliberately lacks: compression.

The connection of a caller that begins with the preface of HTTP/2 goes to http2.py, where a service takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import unquote

import httptools

from pessoa.web.answers import EXCHANGE_KEY
from pessoa.web.http1_exchange import Http1Exchange, plain_head
from pessoa.web.http_exchange import App, Header
from pessoa.web.send_queue import unsent_bytes

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger(__name__)

MAX_HEADERS = 200
# A read may hold ten thousand requests: it is parsed in pieces, until this many requests are queued.
MAX_WAITING = 64
PIECE_BYTES = 4096
# How long the rest of a refused body is discarded, so that the caller can read the error.
LINGER_S = 2.0
SWEEP_S = 1.0

# What a connection of HTTP/2 begins with (RFC 9113, 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a connection: a head may be twice as large as Jetty's, and the time-outs are Jetty's."""

    head_bytes: int = 16 * 1024
    head_timeout_s: float = 30.0
    keep_alive_s: float = 75.0
    max_connections: int = 5000


class Watched(Protocol):
    """A connection of any HTTP version, as `Watch` sees it."""

    transport: asyncio.Transport

    @property
    def deadline_s(self) -> float: ...

    def notice_progress(self) -> None: ...

    def time_is_up(self) -> None: ...

    def shutdown(self) -> None: ...


class ServerState(Protocol):
    """The connections and tasks that uvicorn waits for when it stops."""

    connections: set[Watched]
    tasks: set[asyncio.Task[None]]


class Watch:
    """All connections of one server; checks their deadlines and keeps the current time."""

    def __init__(self, limits: Limits, *, takes_http2: bool = False) -> None:
        self.limits = limits
        self.takes_http2 = takes_http2
        self.connections: set[Watched] = set()
        self.now_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Watch over {len(self.connections)} connections>"

    def protocol(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Connection:
        """Return the protocol of a new connection; uvicorn calls this."""
        return Connection(self, config.loaded_app, server_state)

    def add(self, connection: Watched) -> None:
        self.connections.add(connection)
        if self._timer is None:
            self._sweep()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now_s = loop.time()
        # First: a connection that fails below must not cost all others their deadlines.
        self._timer = loop.call_later(SWEEP_S, self._sweep) if self.connections else None
        for connection in list(self.connections):
            try:
                connection.notice_progress()
                if connection.deadline_s < self.now_s:
                    connection.time_is_up()
            except Exception:
                log.exception("%r cannot be ended in order", connection)
                connection.transport.abort()


class Connection(asyncio.Protocol):
    def __init__(self, watch: Watch, app: App, server_state: ServerState) -> None:
        self._watch = watch
        self._limits = watch.limits
        self._app = app
        self._state = server_state
        self._parser = httptools.HttpRequestParser(self)
        # Whether a new parser is fed a head again, only to parse the body of a request whose head was parsed before.
        self._is_going_on = False
        self._queue: deque[Http1Exchange] = deque()
        self._current: Http1Exchange | None = None
        # The exchange whose request is being parsed; the last of the queue, or the current one.
        self._parsed_exchange: Http1Exchange | None = None
        self._headers: list[Header] = []
        self._url = b""
        self._is_in_head = False
        # Received bytes that have not been fed to the parser, after the queued requests.
        self._unparsed = b""
        # The size of what was fed to the parser since its last callback.
        self._idle_bytes = 0
        # Received bytes are discarded.
        self._is_deaf = False
        self._is_closing = False
        # The beginning of a preface of HTTP/2; None when the connection is known to speak HTTP/1.1.
        self._preface: bytes | None = b"" if watch.takes_http2 else None
        # The last request of the connection, if it asked for an upgrade.
        self._upgraded_exchange: Http1Exchange | None = None
        # The caller will send nothing more; it may still read.
        self._has_ended = False
        self._drain_waiter: asyncio.Future[None] | None = None
        # See send_queue.py; as of the last sweep, or of when the transport was full.
        self._unsent_bytes = 0
        self.deadline_s = inf

    def __repr__(self) -> str:
        return f"<Connection {self._peer}, {len(self._queue)} waiting, {self._current!r}>"

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self.transport = cast(asyncio.Transport, transport)
        self._peer = transport.get_extra_info("peername")[:2] if transport.get_extra_info("peername") else None
        local = transport.get_extra_info("sockname")
        self._local_address = tuple(local[:2]) if local else None
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._state.connections.add(self)
        self._watch.add(self)
        self.deadline_s = self._watch.now_s + self._limits.head_timeout_s + SWEEP_S
        if len(self._watch.connections) > self._limits.max_connections:
            self.refuse(503)

    def connection_lost(self, failure: Exception | None) -> None:
        self._state.connections.discard(self)
        self._watch.connections.discard(self)
        self._is_closing = self._is_deaf = True
        # Parser and connection refer to each other, and would stay until the garbage collector runs.
        del self._parser
        self.deadline_s = inf
        for exchange in (self._current, *self._queue):
            if exchange is not None:
                exchange.lost()
        self._queue.clear()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._preface is not None:
            data = self._preface + data
            if _PREFACE.startswith(data[: len(_PREFACE)]):
                self._preface = data
                if len(data) >= len(_PREFACE):
                    self._hand_over(data)
                return
            self._preface = None
        self._unparsed += data
        self._parse_on()

    def _parse_on(self) -> None:
        """Feed the parser with unparsed bytes until MAX_WAITING requests are queued."""
        data, position = self._unparsed, 0
        while position < len(data) and len(self._queue) < MAX_WAITING and not self._is_deaf:
            if self._upgraded_exchange is not None:
                self._upgraded_exchange.add(data[position:])
                position = len(data)
            else:
                self._parse_piece(data[position : position + PIECE_BYTES])
                position += PIECE_BYTES
        self._unparsed = b"" if self._is_deaf else data[position:]
        self._mark_last()

    def _parse_piece(self, piece: bytes) -> None:
        self._idle_bytes += len(piece)
        try:
            while piece:
                piece = self._parse(piece)
        except httptools.HttpParserError as wrong:
            log.debug("%s does not speak HTTP: %s", self._peer, wrong)
            self.refuse(400)
        if self._idle_bytes > self._limits.head_bytes:
            self.refuse(431 if self._is_in_head else 400)

    def _hand_over(self, data: bytes) -> None:
        """Hand the connection, on which these bytes have arrived, over to HTTP/2."""
        from pessoa.web.http2 import Http2Connection

        self._state.connections.discard(self)
        self._watch.connections.discard(self)
        Http2Connection(self._watch, self._app, self._state).take_over(self.transport, data)

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser; return the rest for the parser that takes over after a request that offers HTTP/2."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._idle_bytes = 0
            rest = data[upgrade.args[0] :]
            if self._offers_http2():
                self._go_on_in_http1()
                return rest
            upgrading = self._parsed_exchange or (self._queue[-1] if self._queue else self._current)
            if upgrading is not None and not upgrading.ends_with_caller:
                upgrading.keep_alive = False
                self._upgraded_exchange = upgrading
                upgrading.add(rest)
        return b""

    def _offers_http2(self) -> bool:
        """Whether the request offers an Upgrade to a protocol other than websockets; a server may decline it."""
        return self._parser.should_upgrade() and (b"upgrade", b"websocket") not in (
            (name, value.lower()) for name, value in self._headers
        )

    def _body_headers(self) -> list[tuple[bytes, bytes]]:
        return [one for one in self._headers if one[0] in (b"content-length", b"transfer-encoding")]

    def _go_on_in_http1(self) -> None:
        """Replace the parser: after an Upgrade header it reads no body and no further request."""
        self._parser = httptools.HttpRequestParser(self)
        if self._parsed_exchange is not None:
            self._is_going_on = True
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in self._body_headers())
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + lines + b"\r\n")

    def eof_received(self) -> bool:
        """Return True: a client that has sent all its requests may still wait for answers, so the connection stays."""
        current, self._has_ended = self._current, True
        if current is None or current.ends_with_caller or self._parsed_exchange is not None or self._scheme == "https":
            self._close()
            return False
        self._mark_last()
        return True

    def _mark_last(self) -> None:
        """Close the connection after the last request of a caller that has sent EOF."""
        last = self._queue[-1] if self._queue else self._current
        if self._has_ended and not self._unparsed and last is not None:
            last.keep_alive = False

    def pause_writing(self) -> None:
        self._drain_waiter = asyncio.get_running_loop().create_future()
        self._unsent_bytes = unsent_bytes(self.transport)
        self.deadline_s = self._watch.now_s + self._limits.head_timeout_s

    def resume_writing(self) -> None:
        drained, self._drain_waiter = self._drain_waiter, None
        if drained is not None and not drained.done():
            drained.set_result(None)
            if not self._is_closing:
                self.deadline_s = inf if self._current is not None else self._idle_deadline_s()
            self._begin_next()

    def end_with_caller(self) -> None:
        """Go on reading, to notice when the caller of the current exchange disconnects; its pipelined requests are
        dropped."""
        assert self._current is not None
        if self._queue:
            self._current.keep_alive = False
            self._queue.clear()
            self._parsed_exchange, self._unparsed = None, b""
            self._is_deaf = True
        self.resume()
        if self._has_ended:
            self._close()

    async def drain(self) -> None:
        if self._drain_waiter is not None:
            await self._drain_waiter

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._is_going_on:
            return
        self._headers = []
        self._url = b""
        self._is_in_head = True
        if self._current is None:
            self.deadline_s = self._watch.now_s + self._limits.head_timeout_s + SWEEP_S

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._is_going_on:
            self._is_going_on = False
            return
        self._is_in_head = False
        if self._is_deaf:
            return
        is_long = self._idle_bytes > self._limits.head_bytes
        if len(self._headers) > MAX_HEADERS or (is_long and self._head_size() > self._limits.head_bytes):
            self.refuse(431)
            return
        self._idle_bytes = 0
        if self._current is not None and self._current.ends_with_caller:
            self._current.keep_alive = False
            self._is_deaf = True
            return
        parser = self._parser
        url = httptools.parse_url(self._url)
        raw_path: bytes = url.path or b"/"
        path = raw_path.decode("latin-1")
        exchange = self._parsed_exchange = Http1Exchange(self)
        exchange.keep_alive = parser.should_keep_alive()
        exchange.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": parser.get_http_version(),
            "method": parser.get_method().decode("ascii"),
            "scheme": self._scheme,
            "server": self._local_address,
            "client": self._peer,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "headers": self._headers,
            EXCHANGE_KEY: exchange,
        }
        self._queue.append(exchange)
        self._begin_next()

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        if self._parsed_exchange is not None:
            self._parsed_exchange.add(body)

    def on_message_complete(self) -> None:
        self._idle_bytes = 0
        if self._offers_http2() and self._body_headers():
            # The body is still to come, through another parser.
            return
        parsed, self._parsed_exchange = self._parsed_exchange, None
        if parsed is not None:
            parsed.complete()

    # One exchange after the other.

    def _begin_next(self) -> None:
        if not self._queue or self._is_closing:
            return
        if self._current is not None or self._drain_waiter is not None:
            self.pause()
            return
        self._current = self._queue.popleft()
        self.deadline_s = inf
        task = asyncio.get_running_loop().create_task(self._current.run(self._app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def answered(self, exchange: Http1Exchange) -> None:
        """Go on after an answer was written: close the connection, or begin the next request."""
        assert exchange is self._current
        self._current = None
        if not exchange.keep_alive or not exchange.is_complete:
            self._close_soon(linger=not exchange.is_complete)
            return
        if self._drain_waiter is None:
            self.deadline_s = self._idle_deadline_s()
        self._begin_next()
        if not self._queue:
            self._parse_on()
        if not self._queue:
            self.resume()

    def _idle_deadline_s(self) -> float:
        return self._watch.now_s + self._limits.keep_alive_s

    # The end.

    def refuse(self, status: int) -> None:
        """Answer bytes that are no valid request with an error, after the answer in progress."""
        if self._is_deaf:
            return
        self._is_deaf = True
        current = self._current
        if current is not None and current is not self._parsed_exchange:
            self._queue.clear()
            current.keep_alive = False
            return
        if current is not None:
            current.lost()
        if current is None or not current.is_started:
            phrase = HTTPStatus(status).phrase
            text = f'{{"error_code":{status},"message":"HTTP {status} {phrase}"}}'.encode()
            head = plain_head(status, "application/json") + b"%d\r\nconnection: close\r\n\r\n" % len(text)
            self.transport.write(head + text)
        self._close_soon(linger=True)

    def _close_soon(self, *, linger: bool) -> None:
        if not linger:
            self._close()
            return
        self._is_closing = self._is_deaf = True
        self.resume()
        self._unsent_bytes = unsent_bytes(self.transport)
        self.deadline_s = self._watch.now_s + self._closing_patience_s() + SWEEP_S
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _close(self) -> None:
        """Close the connection as soon as its unsent bytes are sent; the caller has until the deadline to read them."""
        self._is_closing = self._is_deaf = True
        self.deadline_s = self._watch.now_s + self._limits.head_timeout_s + SWEEP_S
        self.transport.close()

    def pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def body_taken(self) -> None:
        """Resume reading after the app has taken the body, unless requests are queued."""
        if not self._queue:
            self.resume()

    def _closing_patience_s(self) -> float:
        return self._limits.head_timeout_s if self._unsent_bytes else LINGER_S

    def notice_progress(self) -> None:
        """Extend the deadline of a caller that has read bytes since the last check."""
        before, self._unsent_bytes = self._unsent_bytes, unsent_bytes(self.transport)
        if self._unsent_bytes < before and self._is_closing:
            self.deadline_s = self._watch.now_s + self._closing_patience_s()
        elif self._unsent_bytes < before and self._drain_waiter is not None:
            self.deadline_s = self._watch.now_s + self._limits.head_timeout_s

    def time_is_up(self) -> None:
        self.deadline_s = inf
        if self._drain_waiter is not None or self._is_closing or self._current is not None:
            self.transport.abort()
        elif self._is_in_head:
            self.refuse(408)
        else:
            self._close()

    def shutdown(self) -> None:
        """Close after the answer in progress; uvicorn calls this when it stops."""
        if self._current is None:
            self._close()
        else:
            self._current.keep_alive = False

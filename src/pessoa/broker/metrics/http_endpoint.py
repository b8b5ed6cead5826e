"""A small HTTP server for pages that a node makes of itself: GET and HEAD of a few paths, one request a connection.

It stands on a port of its own and reads nothing but a request line and headers. Its bounds: `MAX_HEAD_BYTES` of a
request, `MAX_CONNECTIONS` at once, `TIMEOUT_MS` for a connection from its first byte to its last; behind any of them
a connection is closed. Where there are too many, that is the oldest that has not sent a whole request; so silent
connections keep no other out, and those that wait for their page get it.

With a `Guard` it speaks TLS, and some of its pages are for those alone whom the guard lets in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.clock import Clock, Timer
    from pessoa.net.network import ListeningSocket, Network

log = logging.getLogger("pessoa.broker")

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 16
TIMEOUT_MS = 10_000
# Of a `SharedPage`, after it was made.
REUSED_MS = 1_000
_END_OF_HEAD = b"\r\n\r\n"
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
            405: "Method Not Allowed", 500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip


class Page(NamedTuple):
    status: int
    content_type: str
    body: bytes
    # Lines of the head, each with its end.
    more_head: str = ""


MakePage: TypeAlias = Callable[[], Awaitable[Page]]


class Guard(Protocol):
    def secure(self, inner: asyncio.BufferedProtocol) -> asyncio.BufferedProtocol:
        """Return the connection with TLS around it."""

    async def refusal(self, path: str, authorization: str | None, host: str) -> Page | None:
        """Return the error page for a request that is not allowed; None if it is. `host` is the client's address."""


def text_page(status: int, text: str) -> Page:
    return Page(status, "text/plain; charset=utf-8", text.encode())


class SharedPage:
    """A page that is expensive to make: made once for all requests that wait for it, and reused for `REUSED_MS`."""

    def __init__(self, make: MakePage, clock: Clock) -> None:
        self._make = make
        self._clock = clock
        # The one that was made last.
        self.last: Page | None = None
        self._made_ms = 0
        self._task: asyncio.Task[Page] | None = None

    def __repr__(self) -> str:
        return f"<SharedPage{', being made' if self._task is not None else ''}>"

    async def get(self) -> Page:
        if self.last is not None and self._clock.monotonic_ms() - self._made_ms < REUSED_MS:
            return self.last
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._make_anew())
        # A request whose client has gone takes the page from none of the others.
        return await asyncio.shield(self._task)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _make_anew(self) -> Page:
        self.last = None
        try:
            self.last = await self._make()
            self._made_ms = self._clock.monotonic_ms()
            return self.last
        finally:
            self._task = None


class HttpEndpoint:
    """`await open()`, then `port`; `close()`."""

    def __init__(
        self,
        network: Network,
        host: str,
        port: int,
        pages: Mapping[str, MakePage],
        clock: Clock,
        guard: Guard | None = None,
    ) -> None:
        self.guard = guard
        self.host = host
        self.port = port
        self.pages = pages
        self.clock = clock
        # The oldest first.
        self.connections: dict[_Connection, None] = {}
        self._network = network
        self._socket: ListeningSocket | None = None

    def __repr__(self) -> str:
        return f"<HttpEndpoint {self.host}:{self.port}: {len(self.connections)} connections>"

    async def open(self) -> None:
        self._socket = await self._network.listen(self._make_protocol, self.host, self.port)
        self.port = self._socket.port

    def _make_protocol(self) -> asyncio.BufferedProtocol:
        connection = _Connection(self)
        return connection if self.guard is None else self.guard.secure(connection)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        for one in tuple(self.connections):
            one.abort()

    def admit(self, connection: _Connection) -> None:
        """Add a connection, and close one if there are too many: the oldest that has not sent a request, which may be
        this one, or before this one the oldest that does not read its page."""
        silent = next((one for one in self.connections if not one.has_request_head), None)
        slow = next((one for one in self.connections if one.is_answered), None)
        self.connections[connection] = None
        if len(self.connections) > MAX_CONNECTIONS:
            (silent or slow or connection).abort()


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._buffer = memoryview(bytearray(MAX_HEAD_BYTES + 1))
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def has_request_head(self) -> bool:
        """Whether the client has sent the whole head of a request."""
        return self._task is not None

    @property
    def is_answered(self) -> bool:
        """Whether the page is written, so that only the client has to read it."""
        return self._task is not None and self._task.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._endpoint.clock.call_after_ms(TIMEOUT_MS, self.abort)
        self._endpoint.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._endpoint.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._task is not None:
            return
        self._head += self._buffer[:nbytes]
        if len(self._head) > MAX_HEAD_BYTES:
            self.abort()
        elif _END_OF_HEAD in self._head:
            self._task = asyncio.get_running_loop().create_task(self._answer())

    def abort(self) -> None:
        self._endpoint.connections.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self) -> None:
        method, page = await self._make()
        if self._transport is not None:
            head = (
                f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
                f"Content-Length: {len(page.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n"
                f"{page.more_head}\r\n"
            )
            self._transport.write(head.encode("ascii") + (b"" if method == "HEAD" else page.body))
            self._transport.close()

    async def _make(self) -> tuple[str, Page]:
        first, *lines = bytes(self._head).partition(_END_OF_HEAD)[0].decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "", text_page(400, "This is no request of HTTP/1.1.\n")
        path = words[1].partition("?")[0]
        method, make = words[0], self._endpoint.pages.get(path)
        if make is None:
            return method, text_page(404, f"There are {', '.join(self._endpoint.pages)}.\n")
        if method not in ("GET", "HEAD"):
            return method, text_page(405, "Only GET and HEAD are served.\n")
        try:
            if self._endpoint.guard is not None:
                refusal = await self._endpoint.guard.refusal(path, _header(lines, "authorization"), self._host)
                if refusal is not None:
                    return method, refusal
            return method, await make()
        except Exception:
            log.exception("%s could not be made", path)
            return method, text_page(500, "The page could not be made; the log says why.\n")

    @property
    def _host(self) -> str:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""


def _header(lines: Iterable[str], name: str) -> str | None:
    """Return the value of a header; None if it is missing."""
    for line in lines:
        found, _, value = line.partition(":")
        if found.lower() == name:
            return value.strip()
    return None

"""The client side of a connection: requests out, their answers back.

    send ──▶ (connect, ask which versions the peer speaks) ──▶ frame ──▶ … ──▶ the answer, in the order of the requests

Requests are pipelined: many may be on their way, and as a Kafka broker answers one after another, the first answer
belongs to the first request. An answer that comes out of turn, does not decode, or does not come in time ends the
connection, and every request that waits on it fails with `ChannelFailed`: whether it was carried out is then unknown.
The next `send` connects anew; a channel never gives up by itself, and never tries a request twice.

Where the peer demands it, `login` runs on a new connection before any request, and again, on the same connection, when
most of the session has passed that it said (KIP-368); requests wait for it.

A request is sent in the version that its sender wants, or in the newest of the peer if that is older.

Record data in an answer is a view of the receive buffer. The channel then leaves the buffer to the holder of the view,
so the view stays good, and may even be stamped in place.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from pessoa.net.receive_buffer import ReceiveBuffer
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES, request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import has_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from pessoa.net.network import Network
    from pessoa.wire.schema import Decoder, Message

log = logging.getLogger("pessoa.net")

# Asking for the versions is the first thing on a connection; version 0 is the one that every peer can answer.
_FIRST_QUESTION_VERSION = 0
# The share of a session after which it is renewed.
_RENEWED_AFTER = 0.85


class ChannelFailed(Exception):
    """The request has no response and gets none: the connection was refused, reset or timed out, or the peer broke the
    protocol."""


class ChannelTimedOut(ChannelFailed):
    """No response came in time; the peer may be alive, and slow."""


class Login(Protocol):
    def __call__(self, peer: str, ask: Callable[[Message, int], Awaitable[Message]], /) -> Awaitable[int]:
        """Return how many milliseconds the session lasts; 0: it has no end. Raises `ChannelFailed`."""


class _SentRequest(NamedTuple):
    correlation_id: int
    decode_header: Decoder
    decode_response: Decoder
    has_records: bool
    answer: asyncio.Future[Message]


class _Connection(asyncio.BufferedProtocol):
    """One connection of a channel, from `connection_made` to `connection_lost`."""

    def __init__(self, peer: str, client_id: str, max_frame_bytes: int, on_lost: Callable[[], None]) -> None:
        self._peer = peer
        self._on_lost = on_lost
        self._client_id = client_id
        self._buffer = ReceiveBuffer(max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_SentRequest] = deque()
        self._next_id = 0
        # The buffer of an answer with record data, of which views may be held: nothing in it may be overwritten.
        self._lent: bytearray | None = None
        # API key → (oldest, newest) that the peer speaks
        self.versions: dict[int, tuple[int, int]] = {}
        self.why_lost: str | None = None
        # When its session is to be renewed, by the time of the loop; None: never.
        self.renew_at_s: float | None = None

    @property
    def is_due(self) -> bool:
        return self.renew_at_s is not None and asyncio.get_running_loop().time() >= self.renew_at_s

    @property
    def is_open(self) -> bool:
        return self.why_lost is None

    # What the transport tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.why_lost is None:
            self.lose(str(exc) if exc is not None else "the connection was closed")
            self._on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer.received(nbytes)
        try:
            while (frame := self._buffer.take_frame()) is not None:
                self._complete_first_request(*frame)
        except ProtocolViolation as violation:
            log.warning("%s: %s; the connection is closed", self._peer, violation)
            self.lose(str(violation))

    def _complete_first_request(self, data: bytearray, start: int, end: int) -> None:
        if not self._in_flight:
            raise ProtocolViolation("an answer came to no request")
        question = self._in_flight[0]
        header, pos = question.decode_header(data, start, end)
        if header.correlation_id != question.correlation_id:
            raise ProtocolViolation(
                f"the answer to request {header.correlation_id} came in place of {question.correlation_id}"
            )
        message, _ = question.decode_response(data, pos, end)
        self._in_flight.popleft()
        if question.has_records:
            self._lent = data
        elif data is not self._lent:
            self._lent = None
            self._buffer.release()
        if not question.answer.done():
            question.answer.set_result(message)

    # What the channel does.

    def ask(self, request: Message, wanted_version: int) -> asyncio.Future[Message]:
        if self.why_lost is not None:
            raise ChannelFailed(f"{self._peer}: {self.why_lost}")
        key = request.api_key
        version = wanted_version
        if self.versions:
            oldest, newest = self.versions.get(key, (0, -1))
            version = min(wanted_version, newest)
            if version < oldest:
                raise ChannelFailed(f"{self._peer} does not serve {ApiKey(key).title} in version {wanted_version}")
        kind, response = type(request), ApiKey(key).response
        self._next_id += 1
        question = _SentRequest(
            self._next_id,
            ResponseHeader.decoder(response_header_version(kind, version)),
            response.decoder(version),
            has_records(response),
            asyncio.get_running_loop().create_future(),
        )
        buffers = request_frame(request, version, question.correlation_id, self._client_id)
        assert self._transport is not None
        self._in_flight.append(question)
        self._transport.writelines(buffers)
        return question.answer

    def lose(self, why: str) -> None:
        """Fail every request that waits for a response: the connection has ended."""
        if self.why_lost is not None:
            return
        self.why_lost = why
        if self._transport is not None:
            self._transport.abort()
        while self._in_flight:
            _fail(self._in_flight.popleft(), f"{self._peer}: {why}")


def _ignore_failure(connecting: asyncio.Task[_Connection]) -> None:
    """Retrieve the exception of a failed connection for which no request waits any more, so that asyncio does not log
    it."""
    if not connecting.cancelled():
        connecting.exception()


def _fail(question: _SentRequest, why: str) -> None:
    if not question.answer.done():
        question.answer.set_exception(ChannelFailed(why))


class Channel:
    """`await send(request, version, timeout_ms)`; one connection at a time, made when it is needed."""

    def __init__(
        self,
        network: Network,
        host: str,
        port: int,
        client_id: str,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        login: Login | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._network = network
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._login = login
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._is_closed = False
        # Called when the peer, or the network, ends a connection.
        self.on_lost: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        state = "connected" if self._is_connected else "connecting" if self._connecting is not None else "idle"
        return f"<Channel of {self._client_id} to {self.host}:{self.port}: {'closed' if self._is_closed else state}>"

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def send(self, request: Message, version: int, timeout_ms: int) -> Message:
        """Return the response, within `timeout_ms`, which includes connecting. Raises `ChannelFailed`."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = self._connection
                if connection is None or not connection.is_open or connection.is_due:
                    connection = await self._connect_if_needed()
                return await connection.ask(request, version)
        except TimeoutError:
            why = f"no answer to {type(request).__name__} within {timeout_ms} ms"
            self.disconnect(why)
            raise ChannelTimedOut(f"{self.host}:{self.port}: {why}") from None

    def close(self) -> None:
        """Fail the requests in flight and close the connection. Nothing can be sent any more."""
        self._is_closed = True
        self.disconnect("the channel is closed")

    async def _connect_if_needed(self) -> _Connection:
        if self._is_closed:
            raise ChannelFailed(f"the channel to {self.host}:{self.port} is closed")
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect_or_renew())
            self._connecting.add_done_callback(_ignore_failure)
        connecting = self._connecting
        # Several may wait for one connection, and one that gives up must not take it from the others.
        await asyncio.wait([connecting])
        if self._connecting is connecting:
            self._connecting = None
        if connecting.cancelled():
            raise ChannelFailed(f"connecting to {self.host}:{self.port} was given up")
        try:
            return connecting.result()
        except OSError as error:
            raise ChannelFailed(f"{self.host}:{self.port}: {error.strerror or error}") from error

    def _connect_or_renew(self) -> Coroutine[None, None, _Connection]:
        connection = self._connection
        return self._connect() if connection is None or not connection.is_open else self._renew(connection)

    async def _renew(self, connection: _Connection) -> _Connection:
        # Its requests in progress are answered first. No other comes between: `send` waits for this.
        try:
            await self._log_in(connection)
        except BaseException:
            connection.lose("its session could not be renewed")
            raise
        return connection

    async def _log_in(self, connection: _Connection) -> None:
        if self._login is not None:
            lifetime_ms = await self._login(f"{self.host}:{self.port}", connection.ask)
            now_s = asyncio.get_running_loop().time()
            connection.renew_at_s = now_s + lifetime_ms / 1000 * _RENEWED_AFTER if lifetime_ms > 0 else None

    async def _connect(self) -> _Connection:
        peer = f"{self.host}:{self.port}"
        connection = await self._network.connect(
            lambda: _Connection(peer, self._client_id, self._max_frame_bytes, self.on_lost), self.host, self.port
        )
        try:
            answer = await connection.ask(ApiVersionsRequest(), _FIRST_QUESTION_VERSION)
            assert isinstance(answer, ApiVersionsResponse)
            connection.versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
            await self._log_in(connection)
        except BaseException:
            connection.lose("connecting was given up")
            raise
        self._connection = connection
        return connection

    def disconnect(self, why: str) -> None:
        """Fail the requests in flight and close the connection. The next `send` connects again."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.lose(why)
            self._connection = None


class Channels:
    """The channels of one purpose, one for every peer: a long fetch must not hold up requests of another purpose."""

    def __init__(self, network: Network, client_id: str, login: Login | None = None) -> None:
        self._network = network
        self._client_id = client_id
        self._login = login
        self._channels: dict[tuple[str, int], Channel] = {}
        # As that of each channel.
        self.on_lost: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<Channels of {self._client_id}: {list(self._channels.values())}>"

    def of(self, host: str, port: int) -> Channel:
        found = self._channels.get((host, port))
        if found is None:
            found = self._channels[host, port] = Channel(self._network, host, port, self._client_id, login=self._login)
            found.on_lost = self.on_lost
        return found

    def leave_all_but(self, peer: tuple[str, int], why: str) -> None:
        """Fail the requests in flight to all peers but this one."""
        for endpoint, channel in self._channels.items():
            if endpoint != peer:
                channel.disconnect(why)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

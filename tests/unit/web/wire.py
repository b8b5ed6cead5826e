"""A transport in memory, for tests that control when bytes are sent, and an HTTP/2 client at its other end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event

from pessoa.web.http import Connection, Watch
from pessoa.web.http_exchange import App

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Return a test that runs in an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Wire(asyncio.Transport):
    """A transport that accepts all bytes; `unsent_bytes` is the size of its buffer that it reports."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.sent = bytearray()
        self._wrote = asyncio.Event()
        self.unsent_bytes = 0
        self._is_paused = False
        self.is_closed = False
        self._is_aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.sent += data
        self._wrote.set()

    async def wait_for(self, text: bytes) -> None:
        async with asyncio.timeout(60):
            while text not in self.sent:
                self._wrote.clear()
                await self._wrote.wait()

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self._is_aborted = True

    def is_aborted(self) -> bool:
        return self._is_aborted

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return not self._is_paused and not self.is_closed

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False


def let_pass(watch: Watch, seconds: float) -> None:
    """Check deadlines as if this time had passed since the last check."""
    loop = asyncio.get_running_loop()
    true_time, moved = loop.time, max(watch.now_s, loop.time()) + seconds
    if watch._timer is not None:
        watch._timer.cancel()
    loop.time = lambda: moved  # type: ignore[method-assign]
    try:
        watch._sweep()
    finally:
        loop.time = true_time  # type: ignore[method-assign]


class State:
    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()


class WiredClient:
    """A client whose bytes arrive at once, in one read for each `send`."""

    def __init__(self, watch: Watch, app: App) -> None:
        self.wire = Wire()
        self.state = State()
        self.wire.protocol = Connection(watch, app, self.state)
        self.wire.protocol.connection_made(self.wire)
        self.h2 = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
        self.events: list[Event] = []

    def start_http2(self) -> None:
        self.h2.initiate_connection()
        self.exchange()

    def ask(self, path: str, method: str = "GET", *, is_all: bool = True) -> int:
        """Write the head of a request without sending it; return the stream id."""
        stream_id = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":authority", "here"), (":path", path)]
        head.append(("content-type", "application/json"))
        self.h2.send_headers(stream_id, head, end_stream=is_all)
        return stream_id

    def exchange(self) -> None:
        """Deliver the written bytes at both ends."""
        self.wire.protocol.data_received(self.h2.data_to_send())
        self.receive()

    def receive(self) -> None:
        sent, self.wire.sent = bytes(self.wire.sent), bytearray()
        self.events += self.h2.receive_data(sent)

    async def settle(self) -> None:
        """Wait until all handlers have ended."""
        async with asyncio.timeout(60):
            while self.state.tasks:
                await asyncio.wait(list(self.state.tasks))

    def body(self, stream_id: int) -> bytes:
        return b"".join(
            event.data or b""
            for event in self.events
            if isinstance(event, DataReceived) and event.stream_id == stream_id
        )

"""Callers of HTTP/1.1 that disconnect during an endless response, on real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.ksql.server.api.streamed_answer import StreamedAnswer
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import App, make_app
from pessoa.web.bodies import read_body
from pessoa.web.http import Limits, Watch
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer
from pessoa.web.websockets import WebsocketAnswer, accept_key
from tests.unit.web.wire import WiredClient, in_loop

# What a test waits for comes at once; after this time the test fails.
PATIENCE_S = 30.0
# More than is held of a body before reading rests.
LONG = 200_000


class Push:
    """A push query that returns one row."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()
        self._may_end = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._may_end.set)

    async def rows(self) -> AsyncGenerator[bytes, None]:
        self._loop = asyncio.get_running_loop()
        try:
            yield b"row\n"
            await self._may_end.wait()
        finally:
            self.has_ended.set()

    async def query(self, request: Request) -> Response:
        await read_body(request)
        return StreamedAnswer(self.rows(), "text/plain")

    async def websocket(self, request: Request) -> Response:
        return WebsocketAnswer(self.rows(), accept_key(request))

    async def deaf(self, _: Request) -> Response:
        return Answer(b"here")

    def app(self) -> App:
        endpoints = [
            Endpoint("POST", "/query", self.query, produces=()),
            Endpoint("GET", "/websocket", self.websocket, produces=()),
            Endpoint("GET", "/deaf", self.deaf, produces=()),
        ]
        return make_app("small", endpoints)


@pytest.fixture
def push() -> Push:
    return Push()


@pytest.fixture
def caller(push: Push) -> Iterator[socket.socket]:
    async def make() -> App:
        return push.app()

    with ThreadedServer(make) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as caller:
            yield caller
        push.end()


def query(body: bytes = b"{}") -> bytes:
    head = b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


GET = b"GET /deaf HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = (
    b"GET /websocket HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n"
)


def read_row(caller: socket.socket) -> bytes:
    found = b""
    while b"row\n" not in found:
        data = caller.recv(1000)
        assert data, f"the connection ended after {found!r}"
        found += data
    return found


def leave(caller: socket.socket) -> None:
    """Reset the connection."""
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()


@pytest.mark.parametrize(
    ("asked", "behind"),
    [
        (query(), b""),
        (query(b"y" * LONG), b""),
        (query() + GET, b""),
        (query() + query(b"y" * LONG), b""),
        (query(), GET + GET),
        (query(), query(b"y" * LONG)),
        (query(), UPGRADE + b"z" * LONG),
        (UPGRADE, b"z" * 100),
    ],
    ids=[
        "alone", "long body", "request behind it", "long request behind it", "later requests", "later long request",
        "later upgrade", "websocket",
    ],
)  # fmt: skip
def test_a_push_query_ends_when_its_client_disconnects_whatever_the_client_has_sent(
    push: Push, caller: socket.socket, asked: bytes, behind: bytes
) -> None:
    caller.sendall(asked)
    read_row(caller)
    caller.sendall(behind)
    leave(caller)
    assert push.has_ended.wait(PATIENCE_S)


@in_loop
async def test_reading_continues_when_a_long_body_that_arrived_in_one_read_has_been_consumed() -> None:
    push = Push()
    client = WiredClient(Watch(Limits()), push.app())
    client.wire.protocol.data_received(query(b"y" * LONG))
    assert not client.wire.is_reading()
    await client.wire.wait_for(b"row")
    assert client.wire.is_reading()
    client.wire.protocol.connection_lost(None)
    await client.settle()
    assert push.has_ended.is_set()


def test_a_connection_is_closed_after_a_response_behind_which_requests_were_dropped(
    push: Push, caller: socket.socket
) -> None:
    caller.sendall(query() + GET)
    assert b"connection: close" in read_row(caller)
    push.end()
    left = b""
    while data := caller.recv(1000):
        left += data
    assert left.endswith(b"0\r\n\r\n")


def test_a_connection_is_kept_after_a_response_without_further_requests(push: Push, caller: socket.socket) -> None:
    caller.sendall(query(b"y" * LONG))
    read_row(caller)
    push.end()
    left = b""
    while not left.endswith(b"0\r\n\r\n"):
        left += caller.recv(1000)
    caller.sendall(GET)
    assert caller.recv(1000).startswith(b"HTTP/1.1 200 ")

"""Deadlines for slow readers of HTTP/1.1, and the limit of pipelined requests, on a transport in memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.web.answers import Answer
from pessoa.web.asgi_app import make_app
from pessoa.web.http import MAX_WAITING, PIECE_BYTES, Limits, Watch
from pessoa.web.routing import Endpoint
from pessoa.web.send_queue import unsent_bytes
from tests.unit.web.wire import WiredClient, in_loop, let_pass

HEAD_TIMEOUT_S, KEEP_ALIVE_S = 30.0, 75.0
GET = b"GET /deaf HTTP/1.1\r\nHost: x\r\n\r\n"


async def deaf(_: Request) -> Response:
    return Answer(b"here")


async def endless(_: Request) -> Response:
    await asyncio.Event().wait()
    return Answer(b"never")


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[WiredClient, Watch]]:
    watch = Watch(Limits(head_timeout_s=HEAD_TIMEOUT_S, keep_alive_s=KEEP_ALIVE_S))
    endpoints = [Endpoint("GET", "/deaf", deaf, produces=()), Endpoint("GET", "/endless", endless, produces=())]
    yield WiredClient(watch, make_app("small", endpoints)), watch
    assert watch._timer is not None
    watch._timer.cancel()


@in_loop
@pytest.mark.parametrize("ends", ["asks for it", "is idle", "half-closes", "half-closes under way", "is shut down"])
async def test_a_connection_that_ends_with_unread_bytes_is_aborted_in_the_end(ends: str) -> None:
    async with connected() as (client, watch):
        wire, connection = client.wire, client.wire.protocol
        connection.data_received(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") if "asks" in ends else GET)
        await client.settle()
        wire.unsent_bytes = 10
        if ends == "is idle":
            let_pass(watch, KEEP_ALIVE_S + 1)
        elif ends == "half-closes":
            assert not connection.eof_received()
        elif ends == "half-closes under way":
            connection.data_received(
                GET.replace(b"deaf", b"endless") + b"POST /deaf HTTP/1.1\r\nContent-Length: 5\r\n\r\n"
            )
            connection.pause_writing()
            assert not connection.eof_received()
            connection.resume_writing()
        elif ends == "is shut down":
            connection.shutdown()
        assert wire.is_closing()
        let_pass(watch, HEAD_TIMEOUT_S - 1)
        assert not wire.is_aborted()
        let_pass(watch, 3)
        assert wire.is_aborted()


@in_loop
@pytest.mark.parametrize("state", ["under way", "answered", "closed", "refused"])
async def test_a_caller_that_reads_slowly_keeps_its_connection_until_it_stops(state: str) -> None:
    async with connected() as (client, watch):
        wire, connection = client.wire, client.wire.protocol
        wire.unsent_bytes = 1_000_000
        if state == "under way":
            connection.data_received(GET.replace(b"deaf", b"endless"))
            connection.pause_writing()
        elif state == "refused":
            connection.data_received(b"nonsense\r\n\r\n")
        else:
            connection.data_received(GET)
            connection.pause_writing()
            await client.settle()
            if state == "closed":
                connection.shutdown()
        let_pass(watch, 1)
        for _ in range(20):
            wire.unsent_bytes -= 10
            let_pass(watch, HEAD_TIMEOUT_S - 2)
            assert not wire.is_aborted()
        let_pass(watch, HEAD_TIMEOUT_S + 2)
        assert wire.is_aborted()


@in_loop
async def test_bytes_that_a_client_reads_before_a_late_first_sweep_count_as_progress() -> None:
    """As on a machine that is busy for longer than the deadline."""
    async with connected() as (client, watch):
        client.wire.protocol.data_received(GET.replace(b"deaf", b"endless"))
        client.wire.unsent_bytes = 1_000_000
        client.wire.protocol.pause_writing()
        client.wire.unsent_bytes -= 10
        let_pass(watch, HEAD_TIMEOUT_S + 5)
        assert not client.wire.is_aborted()
        let_pass(watch, HEAD_TIMEOUT_S + 5)
        assert client.wire.is_aborted()


@in_loop
async def test_bytes_that_leave_the_socket_count_as_progress_though_the_transport_cannot_write() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        here.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=here)
        assert unsent_bytes(transport) == 0
        while not transport.get_write_buffer_size():
            transport.write(b"x" * 10_000)
        held, unsent = transport.get_write_buffer_size(), unsent_bytes(transport)
        assert unsent > held
        there.recv(100_000)
        # The loop has not run: the transport holds as much as before.
        assert transport.get_write_buffer_size() == held
        assert unsent_bytes(transport) < unsent
        transport.abort()


@in_loop
async def test_pipelined_requests_beyond_a_limit_wait_unparsed_and_are_all_answered() -> None:
    count = 5_000
    last = GET.replace(b"deaf", b"last")
    async with connected() as (client, _):
        connection = client.wire.protocol
        connection.data_received(GET.replace(b"deaf", b"endless"))
        connection.data_received(GET * count)
        assert len(connection._queue) <= MAX_WAITING + PIECE_BYTES // len(GET) + 1
        assert not client.wire.is_reading()
        connection.connection_lost(None)
    async with connected() as (client, _):
        client.wire.protocol.data_received(GET * count + last)
        await client.wire.wait_for(b" 404 ")
        assert client.wire.sent.count(b"HTTP/1.1 200 ") == count
        assert client.wire.is_reading()


@in_loop
async def test_unparsed_requests_are_answered_when_the_client_stops_sending() -> None:
    count = 1_000
    async with connected() as (client, _):
        client.wire.protocol.data_received(GET * count)
        assert client.wire.protocol.eof_received()
        await client.wire.wait_for(b"connection: close")
        assert client.wire.sent.count(b"HTTP/1.1 200 ") == count
        assert client.wire.is_closing()

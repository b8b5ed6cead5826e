"""How a listener closes: requests that have arrived are answered, and no response is lost by a connection reset."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pessoa.base.clock import ManualClock
from pessoa.broker.assembly import loop_factory
from pessoa.net.connection import Connection
from pessoa.net.listener import Listener, ListenerLimits
from pessoa.net.pending import Pending
from pessoa.net.server_protocol import ServerProtocol
from pessoa.wire.frames import Buffer
from tests.support.pending_frames import PendingFrames

TIMEOUT_S = 60


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.fixture(params=[asyncio.new_event_loop, loop_factory()], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(scenario, TIMEOUT_S))

    return run


Run = Callable[[Coroutine[Any, Any, None]], None]


class Held:
    """A handler that echoes a request when the test releases it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    def serve(self, connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        body = bytes(data[start:end])
        self.seen.append(body)
        self.asked.set()
        return PendingFrames(self._answer(body), lets_next_in=True)

    async def _answer(self, body: bytes) -> list[Buffer] | None:
        await self.gate.wait()
        return [framed(body)]


def test_a_peer_reads_its_last_answer_though_it_has_sent_requests_that_are_not_served(run: Run) -> None:
    async def scenario() -> None:
        held = Held()
        listener = Listener("127.0.0.1", 0, held.serve)
        await listener.__aenter__()
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(peer, framed(b"\0\0asked"))
            await held.asked.wait()
            closing = asyncio.ensure_future(listener.__aexit__())
            await asyncio.sleep(0)
            # More than any buffer of ours would hide: it stays in the socket.
            await loop.sock_sendall(peer, framed(b"\0\1" + bytes(100_000)))
            held.gate.set()
            assert await loop.sock_recv(peer, 1000) == framed(b"\0\0asked")
            assert await loop.sock_recv(peer, 1000) == b"", "the end, and no reset"
            peer.close()
            await closing
        assert held.seen == [b"\0\0asked"]

    run(scenario())


def test_a_closing_listener_answers_the_requests_that_it_has_received(run: Run) -> None:
    async def scenario() -> None:
        held = Held()
        listener = Listener("127.0.0.1", 0, held.serve)
        await listener.__aenter__()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        # The second is of another API, so it waits for the first.
        writer.write(framed(b"\0\0first") + framed(b"\0\1second"))
        await held.asked.wait()
        closing = asyncio.ensure_future(listener.__aexit__())
        await asyncio.sleep(0)
        held.gate.set()
        assert await reader.read() == framed(b"\0\0first") + framed(b"\0\1second")
        writer.close()
        await closing

    run(scenario())


def test_a_peer_that_keeps_its_side_open_does_not_delay_closing_the_listener(run: Run) -> None:
    async def scenario() -> None:
        held = Held()
        held.gate.set()
        listener = Listener("127.0.0.1", 0, held.serve)
        await listener.__aenter__()
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(peer, framed(b"\0\0asked"))
            assert await loop.sock_recv(peer, 1000) == framed(b"\0\0asked")
            began = time.monotonic()
            await listener.__aexit__()
            assert time.monotonic() - began < 4, "before connections are cut that did not end in time"

    run(scenario())


def test_a_listener_closes_though_a_peer_has_just_reset_its_connection(run: Run) -> None:
    async def scenario() -> None:
        held = Held()
        held.gate.set()
        listener = Listener("127.0.0.1", 0, held.serve)
        await listener.__aenter__()
        loop = asyncio.get_running_loop()
        peer = socket.create_connection(("127.0.0.1", listener.port))
        peer.setblocking(False)
        await loop.sock_sendall(peer, framed(b"\0\0asked"))
        assert await loop.sock_recv(peer, 100) == framed(b"\0\0asked")
        # A close with linger 0 is a reset. The loop has no turn to hear of it before the listener closes.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await listener.__aexit__()
        assert not listener.connections

    run(scenario())


def test_a_connection_that_is_accepted_while_the_listener_closes_is_ended_at_once(run: Run) -> None:
    async def scenario() -> None:
        held = Held()
        listener = Listener("127.0.0.1", 0, held.serve)
        await listener.__aenter__()
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", listener.port)) as first:
            first.setblocking(False)
            await loop.sock_sendall(first, framed(b"\0\0asked"))
            await held.asked.wait()
            # The first waits for its answer, so the listener is closing and has not closed.
            closing = asyncio.ensure_future(listener.__aexit__())
            await asyncio.sleep(0)
            ours, late = socket.socketpair()
            late.setblocking(False)
            await loop.connect_accepted_socket(lambda: ServerProtocol(listener), ours)
            assert await loop.sock_recv(late, 1) == b""
            late.close()
            held.gate.set()
            assert await loop.sock_recv(first, 100) == framed(b"\0\0asked")
        await closing

    run(scenario())


# Peers that do not read their answers.


def serve_much(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
    return [bytes(1 << 20)]


class Unread:
    """A listener with a manual clock, and a peer that requests more than its socket's buffers hold and does not
    read."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        limits = ListenerLimits(connections_max_idle_ms=60_000)
        self.listener = Listener("127.0.0.1", 0, serve_much, limits, drain_seconds=0.1, clock=self.clock)
        self.peer: socket.socket

    async def ask(self, requests: bytes) -> ServerProtocol:
        self.peer = socket.create_connection(("127.0.0.1", self.listener.port))
        self.peer.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(self.peer, requests)
        await until(lambda: self.listener.unread_bytes > 0)
        (protocol,) = self.listener.connections
        return protocol


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (the condition is in an object that tells no one)
        await asyncio.sleep(0.001)


def test_an_idle_peer_that_does_not_read_its_answers_is_disconnected(run: Run) -> None:
    async def scenario() -> None:
        one = Unread()
        async with one.listener:
            await one.ask(framed(b"x") * 100)
            one.clock.advance_ms(60_000)
            assert one.listener.connections
            one.clock.advance_ms(5_000)
            await until(lambda: not one.listener.connections)
        one.peer.close()

    run(scenario())


def test_an_unauthenticated_peer_that_does_not_read_its_answers_is_disconnected(run: Run) -> None:
    async def scenario() -> None:
        one = Unread()
        async with one.listener:
            protocol = await one.ask(framed(b"x") * 100)
            protocol.connection.authenticate_by_ms = one.clock.monotonic_ms() + 7_000
            one.clock.advance_ms(5_000)
            assert one.listener.connections
            one.clock.advance_ms(5_000)
            await until(lambda: not one.listener.connections)
        one.peer.close()

    run(scenario())


def test_a_peer_that_is_being_closed_has_a_while_to_read_its_last_answers(run: Run) -> None:
    async def scenario() -> None:
        one = Unread()
        async with one.listener:
            protocol = await one.ask(framed(b"x") * 100)
            protocol.close()
            one.clock.advance_ms(5_000)
            await asyncio.sleep(0)
            assert one.listener.connections
            one.clock.advance_ms(5_000)
            await until(lambda: not one.listener.connections)
        one.peer.close()

    run(scenario())


def test_a_connection_counts_as_closed_after_its_requests_were_cancelled(run: Run) -> None:
    """A request that took a step after `on_closed` could begin what only the end of its connection ends."""

    async def scenario() -> None:
        steps: list[str] = []

        async def answer() -> list[Buffer] | None:
            steps.append("begun")
            while True:
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    steps.append("cancelled")
                    raise
                steps.append("step")
                stepped.set()

        stepped = asyncio.Event()
        closed = asyncio.Event()

        def note_closed(_: Connection) -> None:
            steps.append("closed")
            closed.set()

        async with Listener("127.0.0.1", 0, lambda *_: PendingFrames(answer())) as listener:
            listener.on_closed.append(note_closed)
            with socket.create_connection(("127.0.0.1", listener.port)) as peer:
                peer.sendall(framed(b"\0\0asked"))
                await stepped.wait()
            await closed.wait()
            await asyncio.sleep(0)
            last_closed = len(steps) - steps[::-1].index("closed")
            assert "step" in steps[:last_closed]
            assert "step" not in steps[last_closed:]

    run(scenario())

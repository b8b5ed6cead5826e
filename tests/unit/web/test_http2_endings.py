"""How requests and connections of HTTP/2 end: GOAWAY, resets, and deadlines, on a transport in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, PingAckReceived, StreamReset
from starlette.requests import Request
from starlette.responses import Response

from pessoa.web import http
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import App, make_app
from pessoa.web.http import Limits, Watch
from pessoa.web.http2 import LINGER_S, MAX_RESETS, MAX_STREAMS
from pessoa.web.routing import Endpoint
from tests.unit.web.wire import WiredClient, in_loop, let_pass

LARGE = 200_000


class Service:
    """An app whose slow handlers wait for `gate`, with its authentication."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.gate = asyncio.Event()
        self.running = 0
        self.watch = Watch(limits or Limits(), takes_http2=True)
        self.app: App = make_app(
            "small",
            [
                Endpoint("GET", "/slow", self.slow, produces=()),
                Endpoint("GET", "/large", self.large, produces=()),
                Endpoint("POST", "/deaf", self.deaf, produces=()),
                Endpoint("GET", "/deaf", self.deaf, produces=()),
            ],
        )

    async def slow(self, _: Request) -> Response:
        self.running += 1
        await self.gate.wait()
        self.running -= 1
        return Answer(b"done")

    async def large(self, _: Request) -> Response:
        return Answer(b"x" * LARGE)

    async def deaf(self, _: Request) -> Response:
        return Answer(b"no")

    def client(self) -> WiredClient:
        client = WiredClient(self.watch, self.app)
        client.start_http2()
        return client

    async def begin(self, client: WiredClient) -> None:
        """Run the loop until all handlers wait."""
        client.exchange()
        for _ in range(5):
            await asyncio.sleep(0)
        client.receive()


@asynccontextmanager
async def serving(limits: Limits | None = None) -> AsyncIterator[Service]:
    """Yield a service, in a loop in which no error may stay unreported."""
    unheard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    service = Service(limits)
    yield service
    service.gate.set()
    assert service.watch._timer is not None
    service.watch._timer.cancel()
    assert unheard == []


def of_kind(client: WiredClient, kind: type[Event]) -> list[Any]:
    return [event for event in client.events if isinstance(event, kind)]


def send_goaway(client: WiredClient, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
    """Write GOAWAY as bytes, because the client's HTTP/2 library would take the connection for closed."""
    client.h2.close_connection(code)
    client.h2.state_machine.state = ConnectionState.CLIENT_OPEN


@in_loop
async def test_requests_that_run_when_the_caller_sends_goaway_are_answered_and_then_the_connection_ends() -> None:
    async with serving() as service:
        client = service.client()
        slow, large = client.ask("/slow"), client.ask("/large")
        await service.begin(client)
        client.h2.ping(b"12345678")
        send_goaway(client)
        # Behind the GOAWAY, in the same read, and later.
        client.h2.acknowledge_received_data(65_535, large)
        client.exchange()
        assert of_kind(client, PingAckReceived)
        while len(client.body(large)) < LARGE:
            client.h2.increment_flow_control_window(65_535)
            client.h2.increment_flow_control_window(65_535, large)
            client.exchange()
        assert not client.wire.is_closing()
        service.gate.set()
        await client.settle()
        client.receive()
        assert client.body(slow) == b"done"
        assert of_kind(client, ConnectionTerminated)
        assert client.wire.is_closing()
        assert "with 0 exchanges" in repr(client.wire.protocol)


@in_loop
async def test_a_request_after_a_goaway_is_refused() -> None:
    async with serving() as service:
        client = service.client()
        client.ask("/slow")
        await service.begin(client)
        send_goaway(client)
        late = client.ask("/deaf")
        client.exchange()
        assert [(one.stream_id, one.error_code) for one in of_kind(client, StreamReset)] == [
            (late, ErrorCodes.REFUSED_STREAM)
        ]


@in_loop
async def test_a_goaway_on_an_idle_connection_ends_it() -> None:
    async with serving() as service:
        for has_asked in (False, True):
            client = service.client()
            if has_asked:
                client.ask("/deaf")
                await service.begin(client)
            send_goaway(client)
            client.exchange()
            assert client.wire.is_closing()


@in_loop
async def test_a_goaway_with_an_error_ends_the_connection_and_its_requests_without_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as service:
        client = service.client()
        client.ask("/slow")
        await service.begin(client)
        send_goaway(client, ErrorCodes.INTERNAL_ERROR)
        client.exchange()
        assert client.wire.is_closing()
        assert "with 0 exchanges" in repr(client.wire.protocol)
        service.gate.set()
        await client.settle()
        assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@in_loop
async def test_deadlines_are_kept_after_a_goaway_that_follows_an_early_answer() -> None:
    """The stream lingers, since its request has not come whole; its reset is what ends it."""
    async with serving() as service:
        client = service.client()
        stream_id = client.ask("/deaf", "POST", is_all=False)
        await service.begin(client)
        assert client.body(stream_id) == b"no"
        send_goaway(client)
        client.exchange()
        let_pass(service.watch, LINGER_S + 1)
        client.receive()
        assert [one.error_code for one in of_kind(client, StreamReset)] == [ErrorCodes.NO_ERROR]
        assert client.wire.is_closing()


@in_loop
async def test_a_connection_that_cannot_be_closed_cleanly_is_aborted_and_the_sweep_continues(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SWEEP_S", 1000.0)
    async with serving() as service:
        clients = [service.client() for _ in range(3)]
        for client in clients:
            client.wire.protocol._end = lambda: 1 / 0
        let_pass(service.watch, 100)
        assert all(client.wire.is_aborted() for client in clients)
        assert caplog.text.count("cannot be ended in order") == len(clients)
        timer = service.watch._timer
        assert timer is not None
        assert timer.when() > asyncio.get_running_loop().time()


@in_loop
async def test_a_window_that_opens_and_a_reset_in_one_read_end_the_stream_and_not_the_connection() -> None:
    async with serving() as service:
        client = service.client()
        large, slow = client.ask("/large"), client.ask("/slow")
        await service.begin(client)
        client.h2.acknowledge_received_data(65_535, large)
        client.h2.reset_stream(large, ErrorCodes.CANCEL)
        client.exchange()
        assert not of_kind(client, ConnectionTerminated)
        service.gate.set()
        await client.settle()
        client.receive()
        assert client.body(slow) == b"done"


@in_loop
async def test_a_request_that_is_reset_in_the_read_that_brings_it_does_not_begin() -> None:
    async with serving() as service:
        client = service.client()
        whole, half, odd = client.ask("/slow"), client.ask("/slow", is_all=False), client.ask("/slow", "NO METHOD")
        client.h2.send_data(half, b"z" * 16_000)
        for stream_id in (whole, half, odd):
            client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        asked = client.ask("/deaf")
        await service.begin(client)
        assert service.running == 0
        assert client.body(asked) == b"no"


@in_loop
async def test_no_request_is_served_after_the_reset_that_closes_the_connection() -> None:
    async with serving() as service:
        client = service.client()
        for _ in range(MAX_RESETS + 1):
            client.h2.reset_stream(client.ask("/slow"), ErrorCodes.CANCEL)
        client.ask("/slow")
        await service.begin(client)
        assert [one.error_code for one in of_kind(client, ConnectionTerminated)] == [ErrorCodes.ENHANCE_YOUR_CALM]
        assert service.running == 0


@in_loop
@pytest.mark.parametrize("ends", ["is idle", "sends GOAWAY", "half-closes", "is shut down"])
async def test_a_connection_that_ends_with_unread_bytes_is_aborted_in_the_end(ends: str) -> None:
    async with serving(Limits(head_timeout_s=30, keep_alive_s=75)) as service:
        client = service.client()
        client.ask("/deaf")
        await service.begin(client)
        client.wire.unsent_bytes = 10
        if ends == "is idle":
            let_pass(service.watch, 76)
        elif ends == "sends GOAWAY":
            send_goaway(client)
            client.exchange()
        elif ends == "half-closes":
            client.ask("/slow")
            await service.begin(client)
            client.wire.protocol.eof_received()
            client.wire.close()
        else:
            client.wire.protocol.shutdown()
        assert client.wire.is_closing()
        let_pass(service.watch, 29)
        assert not client.wire.is_aborted()
        let_pass(service.watch, 3)
        assert client.wire.is_aborted()


@in_loop
@pytest.mark.parametrize("state", ["under way", "closed"])
async def test_a_caller_that_reads_slowly_keeps_its_connection_until_it_stops(state: str) -> None:
    async with serving(Limits(head_timeout_s=30, keep_alive_s=75)) as service:
        client = service.client()
        client.ask("/large")
        await service.begin(client)
        client.wire.unsent_bytes = 1_000_000
        client.wire.protocol.pause_writing()
        if state == "closed":
            client.wire.protocol._end()
        for _ in range(20):
            client.wire.unsent_bytes -= 10
            let_pass(service.watch, 35)
            assert not client.wire.is_aborted()
        client.receive()
        assert not of_kind(client, StreamReset)
        let_pass(service.watch, 32)
        assert client.wire.is_aborted()


@in_loop
async def test_methods_that_a_caller_invents_share_one_row_of_the_metrics() -> None:
    async with serving() as service:
        client = service.client()
        for number in range(50):
            client.ask("/deaf", "MAKE" + "ABCDEFGHIJ"[number // 10] + "ABCDEFGHIJ"[number % 10])
        await service.begin(client)
        await client.settle()
        page, _ = service.app.metrics.page()
        counted = [line for line in page.decode().splitlines() if line.startswith("http_requests_total")]
        assert counted == ['http_requests_total{method="other",path="unknown",status="405"} 50.0']


@in_loop
async def test_handlers_of_reset_streams_count_until_they_end() -> None:
    async with serving() as service:
        client = service.client()
        for _ in range(2 * MAX_STREAMS):
            # Enough answers for the resets.
            client.ask("/deaf")
            await service.begin(client)
        for _ in range(MAX_STREAMS):
            stream_id = client.ask("/slow")
            await service.begin(client)
            client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        refused = [client.ask("/slow") for _ in range(10)]
        await service.begin(client)
        assert service.running == MAX_STREAMS
        assert [(one.stream_id, one.error_code) for one in of_kind(client, StreamReset)] == [
            (stream_id, ErrorCodes.REFUSED_STREAM) for stream_id in refused
        ]
        service.gate.set()
        await client.settle()
        asked = client.ask("/slow")
        await service.begin(client)
        assert client.body(asked) == b"done"

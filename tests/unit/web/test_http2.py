"""One HTTP/2 connection: many requests at once, closed flow-control windows, resets, and invalid bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes, Settings
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pessoa.ksql.server.api.streamed_answer import StreamedAnswer
from pessoa.web import http, http2
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import App, json_response, make_app
from pessoa.web.bodies import read_body
from pessoa.web.http import Limits
from pessoa.web.http2 import CONNECTION_WINDOW_BYTES, MAX_RESETS, MAX_STREAMS
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer, Tls
from tests.services.certificates import Authority

PATIENCE_S = 60.0
LARGE = 5_000_000
BODY_LIMIT = 3 * CONNECTION_WINDOW_BYTES
JSON = {"content-type": "application/json"}


class Gate:
    """Blocks requests until a test releases them."""

    def __init__(self) -> None:
        self.asked = 0
        self.opened = asyncio.Event()
        self.has_seen_the_caller_go = asyncio.Event()


gates: dict[str, Gate] = {}


async def echo(request: Request) -> Response:
    return json_response(request, {"size": len(await read_body(request)), "host": request.headers.get("host")})


async def deaf(request: Request) -> Response:
    return json_response(request, {"path": request.url.path, "query": request.url.query})


async def large(_: Request) -> Response:
    return Answer(b"x" * LARGE, content_type="text/plain")


async def parts(_: Request) -> Response:
    return StreamingResponse(iter(["one ", "two"]), media_type="text/plain", headers={"connection": "close"})


async def lines(request: Request) -> Response:
    """Return a response that has each line of the body as soon as it arrives."""

    async def answers() -> AsyncGenerator[bytes, None]:
        async for piece in request.stream():
            if piece:
                yield b"heard " + piece

    return StreamedAnswer(answers(), "text/plain", watches=False)


async def broken(_: Request) -> Response:
    async def answers() -> AsyncIterator[bytes]:
        yield b"half"
        raise ValueError("the other half is missing")

    return StreamingResponse(answers(), media_type="text/plain")


async def gated(request: Request) -> Response:
    gate = gates.setdefault(request.query_params["gate"], Gate())
    gate.asked += 1
    await gate.opened.wait()
    return Answer(b"through")


async def watching(request: Request) -> Response:
    gate = gates.setdefault(request.query_params["gate"], Gate())
    gate.asked += 1
    await read_body(request)
    assert (await request.receive())["type"] == "http.disconnect"
    gate.has_seen_the_caller_go.set()
    return Answer(b"without a reader")


async def look(request: Request) -> Response:
    gate = gates.setdefault(request.query_params["gate"], Gate())
    if request.query_params.get("open"):
        gate.opened.set()
    return json_response(request, {"asked": gate.asked, "gone": gate.has_seen_the_caller_go.is_set()})


ENDPOINTS = [
    Endpoint("POST", "/echo", echo),
    Endpoint("GET", "/deaf", deaf),
    Endpoint("POST", "/deaf", deaf),
    Endpoint("GET", "/large", large, produces=()),
    Endpoint("GET", "/parts", parts, produces=()),
    Endpoint("POST", "/lines", lines, produces=()),
    Endpoint("GET", "/broken", broken, produces=()),
    Endpoint("GET", "/gated", gated, produces=()),
    Endpoint("POST", "/watching", watching, produces=()),
    Endpoint("GET", "/look", look),
]


@contextlib.contextmanager
def serving(*, takes_http2: bool = True, tls: Tls | None = None, **limits: float) -> Iterator[ThreadedServer]:
    async def make() -> App:
        return make_app("small", ENDPOINTS, body_limit=BODY_LIMIT, takes_http2=takes_http2)

    with ThreadedServer(make, tls=tls, limits=Limits(**limits)) as server:  # type: ignore[arg-type]
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with serving() as server:
        yield server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server check deadlines more often than once a second."""
    monkeypatch.setattr(http, "SWEEP_S", 0.02)
    monkeypatch.setattr(http2, "LINGER_S", 0.05)


@pytest.fixture
def client(server: ThreadedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, http1=False, http2=True, timeout=PATIENCE_S) as client:
        yield client


class Caller:
    """A client that controls when a frame is sent and when windows open."""

    def __init__(self, port: int, window_bytes: int = 65_535) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.h2 = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
        self.h2.local_settings = Settings(client=True, initial_values={SettingCodes.INITIAL_WINDOW_SIZE: window_bytes})
        self.h2.initiate_connection()
        self.events: list[Event] = []
        self.body = bytearray()
        self.send()

    def send(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def ask(self, path: str, method: str = "GET", *, is_all: bool = True) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        head = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "here"),
            (":path", path),
            ("content-type", "application/json"),
        ]
        self.h2.send_headers(stream_id, head, end_stream=is_all)
        self.send()
        return stream_id

    def wait_for(self, kind: type[Event], stream_id: int | None = None) -> Event:
        """Return the first event of this kind, which may have arrived already."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and stream_id in (None, getattr(event, "stream_id", None)):
                    return event
            data = self.socket.recv(65_536)
            assert data, f"the connection ended after {self.events[-3:]}"
            for event in self.h2.receive_data(data):
                self.events.append(event)
                if isinstance(event, DataReceived):
                    self.body += event.data or b""
            self.send()

    def wait_for_end(self) -> None:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while data := self.socket.recv(65_536):
                self.events += self.h2.receive_data(data)


@pytest.fixture
def caller(server: ThreadedServer) -> Iterator[Caller]:
    caller = Caller(server.port)
    yield caller
    caller.socket.close()


def test_requests_are_answered_over_http2(client: httpx.Client) -> None:
    got = client.get("/deaf?a=%20b")
    assert (got.status_code, got.http_version, got.json()) == (200, "HTTP/2", {"path": "/deaf", "query": "a=%20b"})
    assert client.head("/large").headers["content-length"] == str(LARGE)
    assert client.get("/nowhere").status_code == 404
    assert client.get("/parts").text == "one two"


def test_a_request_body_larger_than_the_flow_control_windows_is_received_completely(client: httpx.Client) -> None:
    size = 2 * CONNECTION_WINDOW_BYTES
    got = client.post("/echo", content=b"y" * size, headers=JSON)
    assert got.json()["size"] == size
    assert got.json()["host"].startswith("127.0.0.1:")
    assert client.post("/echo", content=b"y" * (BODY_LIMIT + 1), headers=JSON).status_code == 413
    assert client.post("/echo", content=b"{}", headers={"content-type": "image/png"}).status_code == 415


def test_a_response_larger_than_the_flow_control_windows_is_sent_completely(client: httpx.Client) -> None:
    assert client.get("/large").content == b"x" * LARGE


def test_the_same_port_serves_http1(server: ThreadedServer) -> None:
    got = httpx.get(f"{server.url}/deaf")
    assert (got.status_code, got.http_version) == (200, "HTTP/1.1")


@pytest.mark.parametrize(("takes_http2", "version"), [(True, "HTTP/2"), (False, "HTTP/1.1")])
def test_over_tls_http2_is_negotiated_if_the_client_offers_it(takes_http2: bool, version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.sign("server")
    trust = ssl.create_default_context(cafile=authority.path)
    with (
        serving(takes_http2=takes_http2, tls=Tls(certificate, certificate)) as server,
        httpx.Client(base_url=server.url, http2=True, verify=trust, timeout=PATIENCE_S) as client,
    ):
        got = client.get("/large")
    assert (got.http_version, len(got.content)) == (version, LARGE)


def test_an_http2_preface_that_arrives_byte_by_byte_is_recognised(server: ThreadedServer) -> None:
    caller = Caller.__new__(Caller)
    caller.__dict__.update(events=[], body=bytearray(), h2=H2Connection())
    caller.socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
    caller.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    caller.h2.initiate_connection()
    for byte in caller.h2.data_to_send():
        caller.socket.sendall(bytes([byte]))
    caller.wait_for(StreamEnded, caller.ask("/deaf"))
    caller.socket.close()


def test_a_service_without_http2_refuses_the_preface() -> None:
    with serving(takes_http2=False) as server, socket.create_connection(("127.0.0.1", server.port)) as plain:
        plain.settimeout(PATIENCE_S)
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 400")


def test_requests_of_one_connection_do_not_wait_for_each_other(caller: Caller, client: httpx.Client) -> None:
    first, second = caller.ask("/gated?gate=order"), caller.ask("/deaf")
    caller.wait_for(StreamEnded, second)
    assert not any(getattr(event, "stream_id", None) == first for event in caller.events)
    client.get("/look?gate=order&open=1")
    caller.wait_for(StreamEnded, first)


def test_the_lines_of_a_request_body_are_answered_while_it_is_being_sent(caller: Caller) -> None:
    stream_id = caller.ask("/lines", "POST", is_all=False)
    for line in (b"one", b"two"):
        caller.body.clear()
        caller.h2.send_data(stream_id, line)
        caller.send()
        while caller.body != b"heard " + line:
            caller.events = [one for one in caller.events if not isinstance(one, DataReceived)]
            caller.wait_for(DataReceived, stream_id)
    caller.h2.end_stream(stream_id)
    caller.send()
    caller.wait_for(StreamEnded, stream_id)


@pytest.mark.usefixtures("quick")
def test_a_response_before_the_end_of_its_request_tells_the_client_to_stop_sending() -> None:
    with serving() as server:
        caller = Caller(server.port)
        stream_id = caller.ask("/deaf", "POST", is_all=False)
        caller.wait_for(ResponseReceived, stream_id)
        reset = caller.wait_for(StreamReset, stream_id)
        assert isinstance(reset, StreamReset)
        assert reset.error_code == ErrorCodes.NO_ERROR
        caller.wait_for(StreamEnded, caller.ask("/deaf"))
        caller.socket.close()


def test_a_response_that_fails_midway_resets_its_stream_and_no_other(caller: Caller) -> None:
    reset = caller.wait_for(StreamReset, caller.ask("/broken"))
    assert isinstance(reset, StreamReset)
    assert reset.error_code == ErrorCodes.INTERNAL_ERROR
    caller.wait_for(StreamEnded, caller.ask("/deaf"))


def test_a_handler_is_notified_when_its_stream_is_reset(caller: Caller, client: httpx.Client) -> None:
    stream_id = caller.ask("/watching?gate=reset", "POST")
    while not client.get("/look?gate=reset").json()["asked"]:
        pass
    caller.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
    caller.send()
    while not client.get("/look?gate=reset").json()["gone"]:
        pass
    caller.wait_for(StreamEnded, caller.ask("/deaf"))


def test_unread_request_bodies_do_not_exhaust_the_connection_window(caller: Caller) -> None:
    """Each fills its own window and is reset; the connection's window would be used up by a sixteenth of them."""
    for _ in range(MAX_RESETS - 1):
        stream_id = caller.ask("/gated?gate=shut", "POST", is_all=False)
        for _ in range(3):
            caller.h2.send_data(stream_id, b"z" * 16_000)
        caller.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        caller.send()
        caller.wait_for(StreamEnded, caller.ask("/deaf"))
        caller.events.clear()
    last = caller.ask("/echo", "POST", is_all=False)
    caller.h2.send_data(last, b"z" * 16_000, end_stream=True)
    caller.send()
    caller.wait_for(StreamEnded, last)


def test_a_client_that_opens_and_resets_streams_repeatedly_is_disconnected(server: ThreadedServer) -> None:
    caller = Caller(server.port)
    with contextlib.suppress(OSError):
        for _ in range(MAX_RESETS + 1):
            stream_id = caller.ask("/gated?gate=flood")
            caller.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        caller.send()
    ended = caller.wait_for(ConnectionTerminated)
    assert isinstance(ended, ConnectionTerminated)
    assert ended.error_code == ErrorCodes.ENHANCE_YOUR_CALM
    caller.socket.close()


def test_more_streams_than_allowed_close_the_connection(server: ThreadedServer) -> None:
    caller = Caller(server.port)
    caller.wait_for(StreamEnded, caller.ask("/deaf"))
    assert caller.h2.remote_settings.max_concurrent_streams == MAX_STREAMS
    # The library would not send them.
    caller.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 10 * MAX_STREAMS
    caller.h2.remote_settings.acknowledge()
    with contextlib.suppress(OSError):
        for _ in range(MAX_STREAMS + 1):
            caller.ask("/gated?gate=many")
    caller.wait_for(ConnectionTerminated)
    caller.socket.close()


@pytest.mark.parametrize("head", [{"x-long": "a" * 20_000}, {f"x-{number}": "a" * 100 for number in range(200)}])
def test_a_header_block_that_is_too_long_closes_the_connection(server: ThreadedServer, head: dict[str, str]) -> None:
    caller = Caller(server.port)
    stream_id = caller.h2.get_next_available_stream_id()
    pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", "here"), (":path", "/deaf")]
    caller.h2.send_headers(stream_id, [*pseudo, *head.items()], end_stream=True)
    caller.send()
    caller.wait_for(ConnectionTerminated)
    caller.socket.close()


@pytest.mark.parametrize("garbage", [b"\xff" * 100, b"\x00\x00\x00\x04\x01\x00\x00\x00\x00" * 2 + b"\x00" * 64])
def test_invalid_http2_frames_close_the_connection(server: ThreadedServer, garbage: bytes) -> None:
    caller = Caller(server.port)
    with contextlib.suppress(OSError):
        caller.socket.sendall(garbage)
        caller.socket.shutdown(socket.SHUT_WR)
    caller.wait_for_end()
    caller.socket.close()
    assert httpx.get(f"{server.url}/deaf").status_code == 200


@pytest.mark.usefixtures("quick")
def test_a_stream_whose_window_stays_closed_is_reset_and_others_are_not() -> None:
    with serving(head_timeout_s=0.3) as server:
        caller = Caller(server.port, window_bytes=0)
        reset = caller.wait_for(StreamReset, caller.ask("/large"))
        assert isinstance(reset, StreamReset)
        assert reset.error_code == ErrorCodes.CANCEL
        stream_id = caller.ask("/deaf")
        caller.h2.increment_flow_control_window(1_000, stream_id)
        caller.send()
        caller.wait_for(StreamEnded, stream_id)
        caller.socket.close()


@pytest.mark.usefixtures("quick")
def test_an_http2_connection_without_requests_is_closed() -> None:
    with serving(head_timeout_s=0.1, keep_alive_s=0.1) as server:
        caller = Caller(server.port)
        caller.wait_for(ConnectionTerminated)
        caller.wait_for_end()
        caller.socket.close()


def test_a_stopping_server_completes_its_responses_and_then_closes_its_connections() -> None:
    with serving() as server:
        caller = Caller(server.port)
        caller.wait_for(StreamEnded, caller.ask("/deaf"))
    caller.wait_for(ConnectionTerminated)
    caller.wait_for_end()
    caller.socket.close()

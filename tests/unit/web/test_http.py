"""One HTTP connection with clients that are slow, silent or invalid, send without end, or pipeline."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Self

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pessoa.web import http
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import App, json_response, make_app
from pessoa.web.bodies import read_body
from pessoa.web.http import Limits
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer

# What a test waits for comes at once; after this time the test fails.
PATIENCE_S = 60.0
LARGE = 30_000_000


async def echo(request: Request) -> Response:
    return json_response(request, {"size": len(await read_body(request))})


async def deaf(request: Request) -> Response:
    return json_response(request, {"path": request.url.path})


async def large(_: Request) -> Response:
    return Answer(b"x" * LARGE, content_type="text/plain")


async def parts(_: Request) -> Response:
    return StreamingResponse(iter(["one ", "two"]), media_type="text/plain")


async def rude(_: Request) -> Response:
    return Answer(b"", headers={"X-Name": "a\r\nSet-Cookie: b"})


ENDPOINTS = [
    Endpoint("POST", "/echo", echo),
    Endpoint("GET", "/deaf", deaf),
    Endpoint("POST", "/deaf", deaf),
    Endpoint("GET", "/large", large, produces=()),
    Endpoint("GET", "/parts", parts, produces=()),
    Endpoint("GET", "/rude", rude, produces=()),
]


@contextlib.contextmanager
def serving(body_timeout_s: float = PATIENCE_S, **limits: float) -> Iterator[int]:
    async def make() -> App:
        return make_app("small", ENDPOINTS, body_limit=1000, body_timeout_s=body_timeout_s)

    with ThreadedServer(make, limits=Limits(**limits)) as server:  # type: ignore[arg-type]
        yield server.port


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as port:
        yield port


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server check deadlines more often than once a second."""
    monkeypatch.setattr(http, "SWEEP_S", 0.02)
    monkeypatch.setattr(http, "LINGER_S", 0.05)


class Caller:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *data: bytes) -> Caller:
        # The server may have refused the request, and closed, before all of it is sent.
        with contextlib.suppress(ConnectionError):
            for each in data:
                self.socket.sendall(each)
        return self

    def everything(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(1 << 16):
                found += data
        return found

    def answer(self) -> tuple[int, bytes]:
        """Return status and body of a response with Content-Length."""
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.socket.recv(1)
            assert data, f"the connection ended after {head!r}"
            head += data
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body = b""
        while len(body) < length:
            body += self.socket.recv(length - len(body))
        return int(head.split()[1]), body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


POST = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_request_may_arrive_byte_by_byte(port: int) -> None:
    request = POST + b"Content-Length: 3\r\n\r\nabc"
    with Caller(port) as caller:
        for _ in range(2):
            caller.send(*(bytes([each]) for each in request))
            assert caller.answer() == (200, b'{"size":3}')


def test_a_body_may_arrive_in_chunks_with_trailers(port: int) -> None:
    chunks = b"3\r\nabc\r\n2;name=value\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
    with Caller(port) as caller:
        caller.send(POST, b"Transfer-Encoding: chunked\r\n\r\n", chunks, get("/deaf"))
        assert caller.answer() == (200, b'{"size":5}')
        assert caller.answer() == (200, b'{"path":"/deaf"}')


def test_a_client_that_expects_100_continue_gets_it_before_it_sends_the_body(port: int) -> None:
    with Caller(port) as caller:
        caller.send(POST, b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        invitation = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert caller.socket.recv(len(invitation), socket.MSG_WAITALL) == invitation
        caller.send(b"ab")
        assert caller.answer() == (200, b'{"size":2}')


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    bodies = [b"x" * size for size in range(1, 200)]
    with Caller(port) as caller:
        caller.send(b"".join(POST + b"Content-Length: %d\r\n\r\n%b" % (len(each), each) for each in bodies))
        assert [caller.answer()[1] for _ in bodies] == [b'{"size":%d}' % len(each) for each in bodies]


def test_a_client_that_has_closed_its_sending_side_is_still_answered(port: int) -> None:
    with Caller(port) as caller:
        caller.send(get("/deaf"), get("/deaf")).socket.shutdown(socket.SHUT_WR)
        assert caller.everything().count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_a_connection_ends_when_the_caller_says_so(port: int, version: str) -> None:
    with Caller(port) as caller:
        caller.send(get("/deaf", "Connection: close").replace(b"HTTP/1.1", version.encode()))
        assert b"connection: close" in caller.everything()


def test_a_streamed_response_is_sent_in_chunks(port: int) -> None:
    with Caller(port) as caller:
        caller.send(get("/parts", "Connection: close"))
        answer = caller.everything()
        assert b"transfer-encoding: chunked" in answer
        assert answer.endswith(b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")


def test_a_streamed_response_to_an_http_1_0_client_ends_with_the_connection(port: int) -> None:
    with Caller(port) as caller:
        head, _, body = (
            caller.send(b"GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").everything().partition(b"\r\n\r\n")
        )
        assert b"chunked" not in head
        assert b"connection: close" in head
        assert body == b"one two"


def test_an_http_1_0_client_gets_no_100_continue(port: int) -> None:
    with Caller(port) as caller:
        caller.send(POST.replace(b"HTTP/1.1", b"HTTP/1.0"), b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        response_to(port, get("/deaf", "Connection: close"))
        caller.send(b"ab")
        assert caller.everything().startswith(b"HTTP/1.1 200 ")


def test_a_head_request_is_answered_without_a_body(port: int) -> None:
    with Caller(port) as caller:
        caller.send(get("/large", "Connection: close").replace(b"GET", b"HEAD"))
        answer = caller.everything()
        assert answer.endswith(b"\r\n\r\n")
        assert b"content-length: %d" % LARGE in answer


def test_an_upgrade_request_is_answered_without_an_upgrade(port: int) -> None:
    with Caller(port) as caller:
        caller.send(get("/deaf", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"))
        assert caller.answer() == (200, b'{"path":"/deaf"}')


def test_a_connection_stays_after_a_request_that_offers_http2(port: int) -> None:
    offer = "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"
    head = "\r\n".join(
        ["POST /echo HTTP/1.1", "Host: x", "Content-Type: application/json", *offer, "Content-Length: 5"]
    )
    with Caller(port) as caller:
        caller.send(get("/deaf", *offer))
        assert caller.answer() == (200, b'{"path":"/deaf"}')
        for pieces in ([f"{head}\r\n\r\n".encode(), b"[1", b",2]"], [f"{head}\r\n\r\n[1,2]".encode()]):
            for piece in pieces:
                # The server has read one piece before the next one comes.
                caller.send(piece)
                time.sleep(0.05)
            assert caller.answer() == (200, b'{"size":5}')
        caller.send(f"{head}\r\n\r\n[1,2]".encode() + get("/deaf"))
        assert caller.answer() == (200, b'{"size":5}')
        assert caller.answer() == (200, b'{"path":"/deaf"}')
        # As many in one piece as fit.
        caller.send(get("/deaf", *offer) * 400)
        assert [caller.answer() for _ in range(400)] == [(200, b'{"path":"/deaf"}')] * 400


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
        (b"GET\r\n\r\n", 400),
        (get("/" + "x" * 20_000), 431),
        (get("/deaf", "X: " + "x" * 20_000), 431),
        (get("/deaf", *(f"X{number}: y" for number in range(300))), 431),
        (get("/deaf")[:-2] + b"X: " + b"x" * 20_000, 431),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\n", 400),
        (POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 600_000, 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 600_000, 400),
    ],
    ids=["TLS", "no request", "long path", "long header", "many headers", "endless header", "huge length",
         "two lengths", "no chunk", "endless trailer", "endless extension"],
)  # fmt: skip
def test_bytes_that_are_no_request_are_refused_and_the_connection_is_closed(
    port: int, quick: None, data: bytes, status: int
) -> None:
    with Caller(port) as caller:
        assert caller.send(data).everything().startswith(b"HTTP/1.1 %d " % status)


def test_invalid_bytes_after_a_request_do_not_prevent_its_response(port: int, quick: None) -> None:
    with Caller(port) as caller:
        answer = caller.send(get("/deaf") + b"\x00\x01nonsense\r\n\r\n").everything()
        assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_body_beyond_the_limit_is_refused_and_not_read_to_its_end(port: int, quick: None) -> None:
    with Caller(port) as caller:
        caller.send(POST, b"Transfer-Encoding: chunked\r\n\r\n", *[b"400\r\n" + b"x" * 1024 + b"\r\n"] * 50)
        assert b" 413 " in caller.everything()


def test_a_response_before_the_request_body_has_arrived_closes_the_connection(port: int, quick: None) -> None:
    with Caller(port) as caller:
        caller.send(POST.replace(b"/echo", b"/deaf"), b"Content-Length: 1000\r\n\r\n")
        answer = caller.everything()
        assert b" 200 " in answer
        assert b"connection: close" in answer


def test_text_of_a_client_cannot_inject_a_response_header(port: int) -> None:
    with Caller(port) as caller:
        assert b"set-cookie" not in caller.send(get("/rude")).everything().lower()


def test_a_silent_connection_is_closed(quick: None) -> None:
    with serving(head_timeout_s=0.1) as port, Caller(port) as caller:
        assert caller.everything() == b""


def response_to(port: int, data: bytes) -> bytes:
    """Return the response to a request that arrives before its deadline; retry if a busy machine lets the deadline
    pass."""
    deadline = time.monotonic() + PATIENCE_S
    found = b""
    while not found:
        assert time.monotonic() < deadline, "nothing is ever heard"
        with Caller(port) as caller:
            found = caller.send(data).everything()
    return found


def test_an_incomplete_request_head_is_refused_at_its_timeout(quick: None) -> None:
    with serving(head_timeout_s=0.1) as port:
        assert response_to(port, b"GET / HTTP/1.1\r\nHost").startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_is_idle_after_an_answer_is_closed(quick: None) -> None:
    with serving(keep_alive_s=0.1) as port, Caller(port) as caller:
        assert caller.send(get("/deaf")).everything().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("head", [b"Content-Length: 10\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n"])
def test_an_incomplete_body_is_refused_at_its_timeout(quick: None, head: bytes) -> None:
    with serving(body_timeout_s=0.1) as port, Caller(port) as caller:
        assert caller.send(POST, head, b"abc").everything().startswith(b"HTTP/1.1 408 ")


def test_a_client_that_does_not_read_its_response_is_disconnected(quick: None) -> None:
    with serving(head_timeout_s=0.1, keep_alive_s=0.5) as port, Caller(port) as caller:
        caller.send(get("/large"))
        # The answer does not fit into the buffers; none of it is read until a later connection has been closed.
        response_to(port, get("/deaf"))
        assert len(caller.everything()) < LARGE


def test_connections_beyond_the_limit_are_answered_503(quick: None) -> None:
    with serving(max_connections=2) as port, Caller(port) as first, Caller(port) as second:
        for caller in (first, second):
            assert caller.send(get("/deaf")).answer()[0] == 200
        with Caller(port) as third:
            assert third.everything().startswith(b"HTTP/1.1 503 ")
        first.socket.close()
        for _ in range(1000):
            with Caller(port) as again:
                if again.send(get("/deaf", "Connection: close")).everything().startswith(b"HTTP/1.1 200 "):
                    return
        pytest.fail("the place of a connection that has gone stays taken")

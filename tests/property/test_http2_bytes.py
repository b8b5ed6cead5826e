"""Any bytes after the preface of HTTP/2 result only in responses and the end of the connection."""

from __future__ import annotations

import asyncio
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from pessoa.web.answers import Answer
from pessoa.web.asgi_app import make_app
from pessoa.web.bodies import read_body
from pessoa.web.http import Connection, Limits, Watch
from pessoa.web.routing import Endpoint

METHODS = [b"GET", b"POST", b"HEAD", b"CONNECT", b"", b"\xff\xfe"]
PATHS = [b"/echo", b"*", b"", b"/%ff?x", b"/\xff"]
EXTRAS = [(b"content-length", b"-1"), (b"expect", b"100-continue"), (b"transfer-encoding", b"chunked"), (b"x", b"\r\n")]
PREFACE_BYTES = 24


class Pipe(asyncio.Transport):
    """A transport that accepts all bytes and sends none."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        assert not self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Do nothing: no bytes arrive by themselves."""

    resume_reading = pause_reading


class State:
    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()


async def echo(request: Request) -> Response:
    return Answer(await read_body(request))


@st.composite
def sessions(draw: st.DrawFn) -> bytes:
    """Return frames of a client, of which some bytes are changed, removed or inserted."""
    client = H2Connection(H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False))
    client.initiate_connection()
    for _ in range(draw(st.integers(1, 4))):
        stream_id = client.get_next_available_stream_id()
        head = [(b":method", draw(st.sampled_from(METHODS))), (b":scheme", b"http"), (b":authority", b"here")]
        head += [(b":path", draw(st.sampled_from(PATHS))), *draw(st.lists(st.sampled_from(EXTRAS), max_size=1))]
        client.send_headers(stream_id, head[draw(st.integers(0, 1)) :])
        client.send_data(stream_id, draw(st.binary(max_size=100)), pad_length=draw(st.sampled_from([None, 9])))
        draw(st.sampled_from([client.end_stream, client.reset_stream]))(stream_id)
    data = bytearray(client.data_to_send())
    for at, cut, more in draw(
        st.lists(st.tuples(st.integers(PREFACE_BYTES, len(data)), st.integers(0, 9), st.binary(max_size=9)), max_size=4)
    ):
        data[at : at + cut] = more
    return bytes(data)


@given(sessions(), st.integers(1, 500))
def test_any_http2_bytes_at_worst_end_the_connection(data: bytes, piece: int) -> None:
    asyncio.run(feed(data, piece))


async def feed(data: bytes, piece: int) -> None:
    watch, state, pipe = Watch(Limits(), takes_http2=True), State(), Pipe()
    app = make_app("echo", [Endpoint("POST", "/echo", echo)], takes_http2=True)
    pipe.protocol = Connection(watch, app, state)
    pipe.protocol.connection_made(pipe)
    for start in range(0, len(data), piece):
        pipe.protocol.data_received(data[start : start + piece])
        await asyncio.sleep(0)
    watch.now_s += Limits().keep_alive_s + Limits().head_timeout_s
    pipe.protocol.time_is_up()
    pipe.protocol.connection_lost(None)
    if state.tasks:
        await asyncio.wait(state.tasks)
    assert not state.connections
    assert not watch.connections

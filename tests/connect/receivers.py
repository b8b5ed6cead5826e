"""An HTTP server that sinks send to: it keeps the bodies of POST requests, and of PUT requests as objects of S3."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        # The bodies of PUT requests by path.
        self.objects: dict[str, bytes] = {}
        # A POST whose body contains this is answered with 422.
        self.refuses = b"\0never"
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(chunks)
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            return _without_chunks(data)
        return data

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self._body()
        if self.server.refuses in body:
            self._answer(422)
            return
        with self.server.lock:
            self.server.bodies.append(body)
        self._answer(200)

    def do_PUT(self) -> None:
        body = self._body()
        with self.server.lock:
            self.server.objects[unquote(urlsplit(self.path).path)] = body
        self._answer(200)

    def log_message(self, *_: object) -> None:
        pass


def _without_chunks(data: bytes) -> bytes:
    """Return the content of a body in aws-chunked encoding.

    A chunk is a size in hexadecimal, perhaps a signature, and the data; the last one is empty.
    """
    found, position = b"", 0
    while True:
        end = data.index(b"\r\n", position)
        size = int(data[position:end].split(b";")[0], 16)
        if not size:
            return found
        found += data[end + 2 : end + 2 + size]
        position = end + 2 + size + 2


@contextmanager
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

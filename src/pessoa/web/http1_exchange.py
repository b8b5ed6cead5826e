"""One request and its answer on a connection of HTTP/1.1 (http.py): how the answer is written.

A whole answer leaves in one write. One that is made in parts, and says no length, is chunked; for a caller of HTTP/1.0,
which knows no chunks, the end of the connection is its end. Such a caller is not told to continue either.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.types import Message

from pessoa.web.answers import Answer
from pessoa.web.http_exchange import NO_BODY, Exchange, Header, checked_value

if TYPE_CHECKING:
    from pessoa.web.http import Connection

SWITCHING = 101


@lru_cache(maxsize=600)
def status_line(status: int) -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


@lru_cache(maxsize=512)
def plain_head(status: int, media_type: str | None) -> bytes:
    """Return an answer's head up to the value of Content-Length, which the caller appends."""
    named = f"content-type: {media_type}\r\n".encode("latin-1") if media_type else b""
    return status_line(status) + named + (b"" if status in NO_BODY else b"content-length: ")


class Http1Exchange(Exchange):
    """One request and its answer on an HTTP/1.1 connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.keep_alive = True
        # Set by `end_with_caller`.
        self.ends_with_caller = False
        self._is_chunked = False

    def end_with_caller(self) -> None:
        self.ends_with_caller = True
        self._connection.end_with_caller()

    def _hold_back(self) -> None:
        self._connection.pause()

    def _note_taken(self, size: int) -> None:
        if size and self.is_complete:
            self._connection.body_taken()

    def _invite(self) -> None:
        if self._expects_invitation() and not self._is_old():
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._connection.resume()

    def _break_off(self) -> None:
        self._connection.transport.abort()

    def respond(self, answer: Answer) -> None:
        """Write head and body of the answer to the transport in one call."""
        if self._is_lost:
            return
        body = answer.body
        length = b"" if answer.status_code in NO_BODY else b"%d\r\n" % len(body)
        head = plain_head(answer.status_code, answer.content_type) + length
        if not self.keep_alive or not self.is_complete:
            head += b"connection: close\r\n"
        for name, value in answer.extra_headers.items():
            head += _line(name.encode("latin-1"), value.encode("latin-1"))
        is_bare = self.scope["method"] == "HEAD" or answer.status_code in NO_BODY
        self._connection.transport.write(head + b"\r\n" + (b"" if is_bare else body))
        self._end_answer()

    async def send(self, message: Message) -> None:
        if self._is_lost:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        elif not self.is_answered:
            self._write_part(message.get("body", b""), is_last=not message.get("more_body", False))
        await self._connection.drain()

    def _start(self, status: int, headers: Iterable[Header]) -> None:
        assert not self.is_started, "an answer has one head"
        self.is_started = True
        lines = [status_line(status)]
        named = set()
        for name, value in headers:
            named.add(name.lower())
            lines.append(_line(name, value))
        if b"content-length" not in named and status not in (*NO_BODY, SWITCHING):
            if self._is_old():
                self.keep_alive = False
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive and status != SWITCHING:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._connection.transport.write(b"".join(lines))

    def _write_part(self, body: bytes, *, is_last: bool) -> None:
        parts = []
        if self.scope["method"] != "HEAD":
            if body:
                parts = [b"%x\r\n" % len(body), body, b"\r\n"] if self._is_chunked else [body]
            if is_last and self._is_chunked:
                parts.append(b"0\r\n\r\n")
        if parts:
            self._connection.transport.write(b"".join(parts))
        if is_last:
            self._end_answer()

    def _is_old(self) -> bool:
        version: str = self.scope["http_version"]
        return version < "1.1"

    def _end_answer(self) -> None:
        self._mark_answered()
        self._connection.answered(self)


def _line(name: bytes, value: bytes) -> bytes:
    return b"%b: %b\r\n" % (name.lower(), checked_value(value))

"""The door through which key sets and tokens come in: files are read at once, URLs in a thread beside the loop.

A URL is asked for with one GET. Redirects are not followed (they would leave the list of allowed URLs), proxies of the
environment are not asked, and neither the answer nor the time that it takes can grow past a bound. `MemoryReader` is
the same for tests and the simulation.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
_CHUNK_BYTES = 64 * 1024


class Unreadable(Exception):
    """A file or a URL could not be read; the message says why."""


class FileVersion(NamedTuple):
    """The attributes of a file that change when it is written or replaced."""

    modified_ns: int
    size: int
    inode: int


class KeyReader(Protocol):
    def version_of(self, path: str) -> FileVersion:
        """Return the version of a file. Raises `Unreadable`."""

    def read_file(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a file. Raises `Unreadable`, also if it has more than `max_bytes`."""

    async def fetch(self, url: str, max_bytes: int) -> bytes:
        """Return the body of the response to a GET. Raises `Unreadable`, also if it has more than `max_bytes`."""


class SystemReader:
    """Reads real files and URLs. `tls` makes the context for https; by default it trusts the system's authorities."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self._tls = tls

    def version_of(self, path: str) -> FileVersion:
        try:
            found = Path(path).stat()
        except OSError as failure:
            raise Unreadable(failure.strerror or str(failure)) from None
        return FileVersion(found.st_mtime_ns, found.st_size, found.st_ino)

    def read_file(self, path: str, max_bytes: int) -> bytes:
        try:
            with Path(path).open("rb") as file:
                data = file.read(max_bytes + 1)
        except OSError as failure:
            raise Unreadable(failure.strerror or str(failure)) from None
        return _check_size(data, max_bytes)

    async def fetch(self, url: str, max_bytes: int) -> bytes:
        return await asyncio.to_thread(get, url, max_bytes, self._tls)


class MemoryReader:
    """An in-memory reader: files and URLs are entries of `contents`; the version of a file counts its changes."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self._changes = 0

    def write(self, place: str, data: bytes) -> None:
        self.contents[place] = data
        self._changes += 1

    def version_of(self, path: str) -> FileVersion:
        return FileVersion(self._changes, len(self._content_of(path)), 0)

    def read_file(self, path: str, max_bytes: int) -> bytes:
        return _check_size(self._content_of(path), max_bytes)

    async def fetch(self, url: str, max_bytes: int) -> bytes:
        self.fetched.append(url)
        return _check_size(self._content_of(url), max_bytes)

    def _content_of(self, place: str) -> bytes:
        try:
            return self.contents[place]
        except KeyError:
            raise Unreadable("there is nothing") from None


def get(url: str, max_bytes: int, tls: Callable[[], ssl.SSLContext]) -> bytes:
    """Return the body of the response to a GET. Blocks for at most `TIMEOUT_S` and one read. Raises `Unreadable`."""
    return request(url, max_bytes, tls, "GET")


def request(
    url: str,
    max_bytes: int,
    tls: Callable[[], ssl.SSLContext],
    method: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> bytes:
    """Return the body of the response, if its status is 200. Blocks for at most `TIMEOUT_S` and one read. Raises
    `Unreadable`, whose text contains no part of the request or the response."""
    parts = urlsplit(url)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=tls()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        with closing(connection):
            target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request(method, target, body, {"Accept": "application/json", **(headers or {})})
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise Unreadable(f"the answer has status {answer.status}")
            return _check_size(_read(answer, max_bytes, deadline), max_bytes)
    except OSError as failure:
        raise Unreadable(failure.strerror or type(failure).__name__) from None
    except (http.client.HTTPException, ValueError) as failure:
        raise Unreadable(f"the answer is no HTTP ({type(failure).__name__})") from None


def _read(answer: http.client.HTTPResponse, max_bytes: int, deadline: float) -> bytes:
    found = bytearray()
    while len(found) <= max_bytes and (chunk := answer.read1(_CHUNK_BYTES)):
        found += chunk
        if time.monotonic() > deadline:
            raise Unreadable(f"the answer has not ended after {TIMEOUT_S:g} s")
    return bytes(found)


def _check_size(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise Unreadable(f"it has more than {max_bytes} bytes")
    return data

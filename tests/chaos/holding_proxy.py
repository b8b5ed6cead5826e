"""A proxy that holds a request back and delivers it after its client has given it up.

    with HoldingProxy() as proxy:
        proxy.target = ("127.0.0.1", 9092)
        proxy.hold(client_id="zombie", api_key=0)      the next request of that kind
        …
        assert proxy.is_holding
        answer = proxy.release()                       deliver it, and return the broker's response

The proxy is between clients and one broker, which advertises the address of the proxy, and forwards frames in both
directions. It delivers the held request on a new connection: the client has given the request up by then, and closed
its connection.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from struct import unpack_from
from threading import Event, Lock, Thread
from typing import NamedTuple, Self

from tests.chaos.processes import TIMEOUT_S

HOST = "127.0.0.1"


class _Wanted(NamedTuple):
    client_id: str
    api_key: int


class HoldingProxy:
    def __init__(self) -> None:
        self.target = (HOST, 0)
        self._wanted: _Wanted | None = None
        self._held: bytes | None = None
        self._is_held = Event()
        self._lock = Lock()
        self._listener = socket.create_server((HOST, 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[Thread] = []

    def __repr__(self) -> str:
        return f"<HoldingProxy on {self.port}, wants {self._wanted}, holds {'one' if self._held else 'nothing'}>"

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # close() does not wake a thread that waits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            _close(one)
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def hold(self, client_id: str, api_key: int) -> None:
        with self._lock:
            self._wanted, self._held = _Wanted(client_id, api_key), None
            self._is_held.clear()

    def pass_everything(self) -> None:
        with self._lock:
            self._wanted = None

    @property
    def is_holding(self) -> bool:
        return self._is_held.is_set()

    def release(self) -> bytes:
        """Deliver the held request, and return the frame of its response without the size."""
        assert self._held is not None, "nothing is held"
        with socket.create_connection(self.target, timeout=TIMEOUT_S) as broker:
            broker.sendall(self._held)
            return _read_frame(broker)[4:]

    def _start(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = Thread(target=target, args=arguments, daemon=True, name="holding-proxy")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.target, timeout=TIMEOUT_S)
            except OSError:
                # The broker is down: close the client's connection too.
                _close(client)
                continue
            broker.settimeout(None)
            with self._lock:
                self._sockets += [client, broker]
            self._start(self._pass, client, broker, True)
            self._start(self._pass, broker, client, False)

    def _pass(self, source: socket.socket, destination: socket.socket, is_request: bool) -> None:
        with suppress(OSError):
            while frame := _read_frame(source):
                if not (is_request and self._takes(frame)):
                    destination.sendall(frame)
        _close(source)
        _close(destination)

    def _takes(self, frame: bytes) -> bool:
        api_key, _, _, size = unpack_from(">hhih", frame, 4)
        with self._lock:
            if self._wanted != _Wanted(frame[14 : 14 + max(size, 0)].decode(), api_key):
                return False
            self._held, self._wanted = frame, None
            self._is_held.set()
            return True


def _read_frame(source: socket.socket) -> bytes:
    """Return the next frame with its size; empty at the end of the stream."""
    size = _read_exactly(source, 4)
    return size + _read_exactly(source, int.from_bytes(size, "big")) if size else b""


def _read_exactly(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = source.recv(min(count - len(found), 1 << 20))
        if not part:
            return b""
        found += part
    return bytes(found)


def _close(one: socket.socket) -> None:
    # shutdown() wakes the thread that reads from the socket, close() does not.
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()

"""A proxy that does the worst to a producer: it delivers the Produce request and loses the response.

The proxy stands between clients and one broker, which advertises the proxy's address as its own. It forwards frames in
both directions. After `lose_answers(count)`, the responses to the next `count` Produce requests are dropped and the
connection is closed, so that the client has to send batches again that the broker has already appended.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Self

HOST = "127.0.0.1"
PRODUCE = 0


class LossyProxy:
    def __init__(self) -> None:
        self.target_port = 0
        self.lost_count = 0
        self._to_lose = 0
        self._mutex = threading.Lock()
        self._listener = socket.create_server((HOST, 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __repr__(self) -> str:
        return f"<LossyProxy on {self.port} lost {self.lost_count}, loses {self._to_lose} more>"

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def as_listener(self) -> str:
        """Return the listener that the broker advertises for this proxy."""
        return f"PLAINTEXT://{self.bootstrap_servers}"

    def lose_answers(self, count: int) -> None:
        with self._mutex:
            self._to_lose += count

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # Closing does not wake a thread that waits in accept(); a shutdown does.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)

    def hang_up(self) -> None:
        """Close all connections."""
        with self._mutex:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            _close(one)

    def _start(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, daemon=True, name="lossy-proxy")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection((HOST, self.target_port))
            except OSError:
                return
            with self._mutex:
                self._sockets += [client, broker]
            doomed: set[int] = set()
            self._start(self._pass_requests, client, broker, doomed)
            self._start(self._pass_answers, broker, client, doomed)

    def _pass_requests(self, client: socket.socket, broker: socket.socket, doomed: set[int]) -> None:
        with suppress(OSError):
            while frame := _read_frame(client):
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                with self._mutex:
                    if api_key == PRODUCE and self._to_lose:
                        self._to_lose -= 1
                        doomed.add(correlation_id)
                broker.sendall(frame)
        _close(broker)

    def _pass_answers(self, broker: socket.socket, client: socket.socket, doomed: set[int]) -> None:
        with suppress(OSError):
            while frame := _read_frame(broker):
                [correlation_id] = struct.unpack_from(">i", frame, 4)
                if correlation_id in doomed:
                    with self._mutex:
                        self.lost_count += 1
                    break
                client.sendall(frame)
        _close(client)
        _close(broker)


def _read_frame(source: socket.socket) -> bytes:
    """Return a frame with its size prefix; empty at the end of the stream."""
    size = _read_exactly(source, 4)
    return size + _read_exactly(source, int.from_bytes(size, "big")) if size else b""


def _read_exactly(source: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = source.recv(min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _close(one: socket.socket) -> None:
    # This wakes the thread that reads from it, which closing does not do.
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()

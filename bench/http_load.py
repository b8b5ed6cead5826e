"""An HTTP client that needs little CPU time: requests are encoded beforehand, responses are read by their length.

The service shares the machine with its load. So a request is bytes that are sent again and again on a number of
connections, and of a response only the status and Content-Length are parsed. Every connection has one request in
flight, like an ordinary client.
"""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.apache import HOST, Process, stopped_at_the_end
from tests.support.logged_process import LoggedProcess, pessoa

START_TIMEOUT_S = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Outcome:
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return len(self.latencies_ms) / self.seconds

    def percentile_ms(self, percent: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def load(port: int, data: bytes, connections: int, count: int) -> Outcome:
    """Send a request `count` times over so many connections; return the latencies and the time."""
    return asyncio.run(_load(port, data, connections, count))


async def _load(port: int, data: bytes, connections: int, count: int) -> Outcome:
    outcome = Outcome()
    left = iter(range(count))
    opened = [await asyncio.open_connection(HOST, port) for _ in range(connections)]
    started = time.perf_counter()
    await asyncio.gather(*(_client(reader, writer, data, left, outcome) for reader, writer in opened))
    outcome.seconds = time.perf_counter() - started
    for _, writer in opened:
        writer.close()
    return outcome


async def _client(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, left: Iterator[int], outcome: Outcome
) -> None:
    for _ in left:
        sent = time.perf_counter()
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        if not head.startswith(b"HTTP/1.1 2"):
            raise SystemExit(f"the service refused: {head!r} {body[:200]!r}")
        outcome.latencies_ms.append((time.perf_counter() - sent) * 1000)


@contextmanager
def running_service(*arguments: str, port: int) -> Iterator[Process]:
    """Start `pessoa …` in a process of its own, yield it when it accepts connections, and stop it."""
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-service-") as folder:
        service = LoggedProcess(pessoa(*arguments), Path(folder) / "output", name=arguments[0])
        with stopped_at_the_end(service):
            deadline = time.monotonic() + START_TIMEOUT_S
            while not _accepts(port):
                if not service.is_running or time.monotonic() > deadline:
                    raise SystemExit(f"{' '.join(service.command)} did not start:\n{service.said}")
                time.sleep(0.02)
            yield Process(service.pid)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True

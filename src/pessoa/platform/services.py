"""The table of what `pessoa up` runs: one row per process.

A row says everything that the supervisor needs: a name (also the name of the log file), the command, the port, and how
to ask whether it is ready. Rows are started from the top and stopped from the bottom, so a service stands below what
it depends on. Adding a service to the platform is adding a row.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Probe = Callable[[str, int], Awaitable[bool]]

# A probe that hangs must not hold up the next attempt; on the loopback an answer takes microseconds.
PROBE_TIMEOUT_S = 1.0


async def accepts_connections(host: str, port: int) -> bool:
    """A listener is up: the weakest probe, enough for a process that listens only once it can serve."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), PROBE_TIMEOUT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    command: tuple[str, ...]
    port: int
    host: str = "127.0.0.1"
    is_ready: Probe = accepts_connections

    @property
    def address(self) -> str:
        return f"localhost:{self.port}" if self.host == "127.0.0.1" else f"{self.host}:{self.port}"


def default_services() -> tuple[Service, ...]:
    return (Service("broker", (sys.executable, "-m", "pessoa", "broker"), port=9092),)

"""One row of what `pessoa up` runs, and the ways to ask whether it is ready.

A row says everything that the supervisor needs: a name (also the name of the log file), the command, the port, and how
to ask. Rows are started from the top and stopped from the bottom, so a service stands below what it depends on; rows
of one tier are stopped together. `process_plan.py` makes the rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

Probe = Callable[[str, int], Awaitable[bool]]

# A probe that hangs must not hold up the next attempt; on the loopback an answer takes microseconds.
PROBE_TIMEOUT_S = 1.0
# A version that every broker of recent years answers; no field of later versions is needed here.
METADATA_VERSION = 9


async def accepts_connections(host: str, port: int) -> bool:
    """Whether the port accepts connections: enough for a process that listens only once it can serve."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), PROBE_TIMEOUT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def answers_as_broker(node_id: int) -> Probe:
    """Return a probe: whether the broker answers Metadata and lists itself, so that clients may be sent to it."""

    async def probe(host: str, port: int) -> bool:
        # The wire is imported while the brokers are starting, not before.
        from pessoa.net.channel import Channel, ChannelFailed
        from pessoa.net.network import SystemNetwork
        from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse

        channel = Channel(SystemNetwork(), host, port, "pessoa-up")
        try:
            answer = await channel.send(MetadataRequest(topics=[]), METADATA_VERSION, int(PROBE_TIMEOUT_S * 1000))
        except ChannelFailed:
            return False
        finally:
            channel.close()
        assert isinstance(answer, MetadataResponse)
        return any(broker.node_id == node_id for broker in answer.brokers)

    return probe


def answers_as_secured_broker(node_id: int, client: Path) -> Probe:
    """Return a probe as `answers_as_broker` does, with the login and trust store of a client's properties file."""

    def ask(host: str, port: int) -> bool:
        from pessoa.base.properties import read_properties
        from pessoa.client.blocking_connection import Connection, ConnectionFailed
        from pessoa.client.client_errors import KafkaFailure
        from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse

        deadline = time.monotonic() + PROBE_TIMEOUT_S
        try:
            connection = Connection(host, port, "pessoa-up", read_properties(client), deadline)
        except (ConnectionFailed, KafkaFailure, OSError):
            return False
        try:
            answer = connection.send(MetadataRequest(topics=[]), MetadataResponse, deadline, METADATA_VERSION)
        except ConnectionFailed:
            return False
        finally:
            connection.close()
        return any(broker.node_id == node_id for broker in answer.brokers)

    return lambda host, port: asyncio.to_thread(ask, host, port)


def answers_health(authority: Path | None = None) -> Probe:
    """Return a probe: whether the service reports no problem at /health; over HTTPS if an authority is given."""
    context: ssl.SSLContext | None = None

    async def probe(host: str, port: int) -> bool:
        nonlocal context
        if authority is not None and context is None:
            from pessoa.web.trust import tls_context

            context = tls_context(str(authority))
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                try:
                    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    status = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
        return status.split()[1:2] == [b"200"]

    return probe


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    command: tuple[str, ...]
    port: int
    host: str = "127.0.0.1"
    is_ready: Probe = accepts_connections
    # Other ports that the process will take.
    more_ports: tuple[int, ...] = ()
    # Neighbouring rows of one tier stop together; a row without a tier stops alone.
    tier: str = ""

    @property
    def address(self) -> str:
        return f"localhost:{self.port}" if self.host == "127.0.0.1" else f"{self.host}:{self.port}"

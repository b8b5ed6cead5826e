"""Schema registries in the test's process, over real sockets, on a broker that the test has started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx

from pessoa.schema_registry.registry_config import Config
from pessoa.schema_registry.registry_service import make_registry_app
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer, Tls, bind


@contextmanager
def registry(bootstrap_servers: str, config: Config | None = None, tls: Tls | None = None) -> Iterator[ThreadedServer]:
    """Serve a registry; before its first write it is the leader or knows the leader."""
    listening = bind("127.0.0.1", 0)
    settings = replace(
        config or Config(), bootstrap_servers=bootstrap_servers, host_name="127.0.0.1", session_timeout_ms=6000
    )

    async def make() -> App:
        return await make_registry_app(settings, listening.getsockname()[1])

    with ThreadedServer(make, tls=tls, listening=listening) as server:
        yield server


@contextmanager
def registry_client(bootstrap_servers: str, config: Config | None = None) -> Iterator[httpx.Client]:
    with registry(bootstrap_servers, config) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield client

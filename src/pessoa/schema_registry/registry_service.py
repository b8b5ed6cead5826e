"""All of it put together: settings in, an ASGI app out, with everything behind it started and stopped by its lifespan.

Every path also exists below `/contexts/{context}`, where subjects without a context of their own mean those of that
context; the document at /docs lists them once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import Gauge

from pessoa.client.cluster_id import wait_for_cluster_id
from pessoa.client.librdkafka import to_librdkafka
from pessoa.schema_registry.api import (
    association_endpoints,
    compatibility_endpoints,
    deletion_endpoints,
    exporter_endpoints,
    root_endpoints,
    schema_endpoints,
    setting_endpoints,
    subject_endpoints,
)
from pessoa.schema_registry.api.requests import RegistryGate
from pessoa.schema_registry.election import Identity
from pessoa.schema_registry.exporting import Exporting
from pessoa.schema_registry.leader_forwarding import WriteForwarder
from pessoa.schema_registry.registry import Registry
from pessoa.schema_registry.registry_config import Config
from pessoa.web.asgi_app import App, make_app
from pessoa.web.http_settings import serve_service
from pessoa.web.routing import Endpoint

log = logging.getLogger("pessoa.schema_registry")

PRODUCES = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
CONSUMES = (*PRODUCES, "application/octet-stream")


async def make_registry_app(config: Config, port: int | None = None) -> App:
    """Return the app. `port` is the port that the system chose, if the settings left the choice to it."""
    client_settings = to_librdkafka(config.client_settings, log.warning)
    listener = config.http.listener
    identity = Identity(config.host_name, port or listener.port, listener.scheme, config.is_eligible)
    registry = Registry(config, identity, client_settings)
    forwarder = WriteForwarder(registry, config.http.trust)
    gate = RegistryGate(registry, forwarder)
    cluster_id = await wait_for_cluster_id(
        config.bootstrap_servers, config.client_settings, config.init_timeout_ms / 1000
    )
    exporting = Exporting(registry, cluster_id)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            await registry.start()
            if not await registry.wait_until_writable(config.init_timeout_ms / 1000):
                log.warning("%s serves reads alone: no instance of group %s can write", identity.url, config.group_id)
            exporting.start()
            yield
        finally:
            await exporting.stop()
            await registry.stop()
            await forwarder.close()

    async def health() -> str | None:
        return None if registry.is_writable else "no leader is known"

    app = make_app(
        "Schema Registry",
        endpoints(gate, cluster_id),
        consumes=CONSUMES,
        produces=PRODUCES,
        auth=config.http.authenticator(config.bootstrap_servers, config.client_settings),
        body_limit=config.http.request_max_bytes,
        lifespan=lifespan,
        health=health,
    )
    _measure(app, registry)
    return app


def endpoints(gate: RegistryGate, cluster_id: str) -> list[Endpoint]:
    rows = [
        *root_endpoints.endpoints(gate, cluster_id),
        *schema_endpoints.endpoints(gate),
        *subject_endpoints.endpoints(gate),
        *deletion_endpoints.endpoints(gate),
        *compatibility_endpoints.endpoints(gate),
        *setting_endpoints.endpoints(gate),
        *association_endpoints.endpoints(gate),
        *exporter_endpoints.endpoints(gate),
    ]
    within = [
        replace(row, path=f"/contexts/{{context}}{row.path}", is_listed=False)
        for row in rows
        if not row.path.startswith(("/contexts/", "/v1")) and row.path != "/"
    ]
    return rows + within


def _measure(app: App, registry: Registry) -> None:
    numbers = {
        "registry_subjects": ("Subjects, softly deleted ones too.", lambda: len(registry.state.subjects)),
        "registry_schemas": (
            "Schemas, by id.",
            lambda: sum(len(context.uses) for context in registry.state.contexts.values()),
        ),
        "registry_is_leader": ("1 where writes are decided.", lambda: int(registry.is_leader)),
        "registry_applied_offset": (
            "How far _schemas was read.",
            lambda: registry.store.applied_offset,
        ),
        "registry_unreadable_records": (
            "Records of _schemas that mean nothing to us.",
            lambda: registry.store.unreadable_count,
        ),
    }
    for name, (text, look) in numbers.items():
        Gauge(name, text, registry=app.metrics.registry).set_function(look)


def run(config: Config, tell: Callable[[str], object]) -> int:
    """Run the registry until the process is signalled to stop; return the exit status."""
    return serve_service(lambda port: make_registry_app(config, port), config.http, tell)

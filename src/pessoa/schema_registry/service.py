"""All of it put together: settings in, an ASGI app out, with everything behind it started and stopped by its lifespan.

Every path also exists below `/contexts/{context}`, where subjects without a context of their own mean those of that
context; the document at /docs lists them once.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import Gauge

from pessoa.client.cluster import Cluster
from pessoa.client.errors import KafkaFailure
from pessoa.client.librdkafka import translated
from pessoa.schema_registry.api import compatibility, deletion, schemas, service, settings, subjects
from pessoa.schema_registry.api.requests import Desk
from pessoa.schema_registry.config import Config
from pessoa.schema_registry.election import Identity
from pessoa.schema_registry.forwarding import Forwarder
from pessoa.schema_registry.registry import Registry
from pessoa.schema_registry.store import StoreFailed
from pessoa.web.app import App, make_app
from pessoa.web.auth import BasicAuth, read_users
from pessoa.web.routing import Endpoint
from pessoa.web.serving import Tls, bind, serve_until_signalled
from pessoa.web.trust import trusting

log = logging.getLogger("pessoa.schema_registry")

PRODUCES = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
# How long one question to a cluster that may not be there takes at most.
_ATTEMPT_MS = 1000
CONSUMES = (*PRODUCES, "application/octet-stream")


async def make_registry_app(config: Config, port: int | None = None) -> App:
    """The app; `port` is where it can be reached if the settings left the choice to the system."""
    client_settings = translated(config.client_settings, log.warning)
    if "ssl.certificate.location" in client_settings:
        # A PEM store holds the key as well.
        client_settings.setdefault("ssl.key.location", client_settings["ssl.certificate.location"])
    identity = Identity(config.host_name, port or config.listen_port, config.scheme, config.is_eligible)
    registry = Registry(config, identity, client_settings)
    forwarder = Forwarder(registry, _trust(config))
    desk = Desk(registry, forwarder)
    cluster_id = await _cluster_id(config)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            await registry.start()
            yield
        finally:
            await registry.stop()
            await forwarder.close()

    async def health() -> str | None:
        if registry.is_leader or registry.leader is not None:
            return None
        return "no leader is known"

    auth = None
    if config.users_file is not None:
        auth = BasicAuth(read_users(config.users_file), realm=config.realm, roles=config.roles)
    app = make_app(
        "Schema Registry",
        endpoints(desk, cluster_id),
        consumes=CONSUMES,
        produces=PRODUCES,
        auth=auth,
        body_limit=config.body_limit,
        lifespan=lifespan,
        health=health,
    )
    _measure(app, registry)
    return app


def endpoints(desk: Desk, cluster_id: str) -> list[Endpoint]:
    rows = [
        *service.endpoints(desk, cluster_id),
        *schemas.endpoints(desk),
        *subjects.endpoints(desk),
        *deletion.endpoints(desk),
        *compatibility.endpoints(desk),
        *settings.endpoints(desk),
    ]
    within = [
        replace(row, path=f"/contexts/{{context}}{row.path}", is_listed=False)
        for row in rows
        if not row.path.startswith(("/contexts", "/v1")) and row.path != "/"
    ]
    return rows + within


async def _cluster_id(config: Config) -> str:
    """Wait for Kafka, in steps that are short enough to be interrupted between."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.init_timeout_ms / 1000
    while True:
        try:
            return await asyncio.to_thread(_ask_cluster_id, config)
        except KafkaFailure as failure:
            if loop.time() > deadline:
                sentence = f"Kafka at {config.bootstrap_servers} does not answer: {failure}"
                raise StoreFailed(sentence) from None
            log.info("waiting for Kafka at %s", config.bootstrap_servers)


def _ask_cluster_id(config: Config) -> str:
    settings = {**config.client_settings, "default.api.timeout.ms": str(_ATTEMPT_MS)}
    with Cluster(config.bootstrap_servers, settings) as cluster:
        return cluster.describe().cluster_id


def _trust(config: Config) -> ssl.SSLContext | bool:
    """What this instance shows and believes when it asks the leader."""
    if config.scheme != "https":
        return True
    return trusting(config.authority, config.certificate, config.key_password)


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
    """As a process, until it is told to stop; the exit status."""
    try:
        listening = bind(config.listen_host, config.listen_port)
    except OSError as failure:
        tell(str(failure.strerror))
        return 1
    tls = None
    if config.certificate is not None:
        demanded = config.authority if config.wants_certificates else None
        tls = Tls(config.certificate, config.certificate, config.key_password, demanded)

    async def make() -> App:
        return await make_registry_app(config, listening.getsockname()[1])

    return serve_until_signalled(make, config.listen_host, 0, tls=tls, listening=listening, tell=tell)

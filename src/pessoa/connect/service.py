"""All of it put together: settings in, an ASGI app out; its lifespan starts and stops everything behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from prometheus_client import Gauge

from pessoa.client.cluster import Cluster
from pessoa.client.errors import KafkaFailure
from pessoa.connect.api.connectors import Connectors
from pessoa.connect.api.desk import Desk
from pessoa.connect.api.plugins import PluginsApi
from pessoa.connect.api.worker import WorkerApi
from pessoa.connect.herder import Herder
from pessoa.connect.leadership import Leadership
from pessoa.connect.plugins import Plugins
from pessoa.connect.runner import Runner
from pessoa.connect.state import LEADER
from pessoa.connect.store import STATUS, MemoryStore, Store, StoreFailed, TopicStore
from pessoa.connect.worker_config import WorkerConfig
from pessoa.web.app import App, make_app
from pessoa.web.serving import bind, serve_until_signalled

log = logging.getLogger("pessoa.connect")

# How long one question to a cluster that may not be there takes at most.
_ATTEMPT_MS = 1000
_START_S = 120.0


async def make_connect_app(
    config: WorkerConfig,
    port: int | None = None,
    *,
    runner: Runner | None = None,
    connectors: Mapping[str, Mapping[str, str]] | None = None,
) -> App:
    """The app; `port` is where it can be reached if the settings left the choice to the system.

    `connectors` are those that a standalone worker is given on its command line.
    """
    if runner is None:
        from pessoa.connect.running import SparkRunner

        runner = SparkRunner(config)
    cluster_id = await _cluster_id(config)
    store: Store = TopicStore(config)
    if config.is_standalone:
        store = MemoryStore(config.settings.get("offset.storage.file.filename"))
    herder = Herder(config, store, runner, Plugins(config.settings.get("plugin.path", "")))
    desk = Desk(herder)
    worker_api = WorkerApi(desk, cluster_id)
    worker_id = f"{config.advertised_host}:{config.advertised_port or port or config.listen_port}"
    desk.url = f"http://{worker_id}"

    def lead(leads: bool) -> None:
        herder.lead(leads)
        if leads:
            store.write(STATUS, LEADER, {"url": desk.url})

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        leadership = None if config.is_standalone else Leadership(config, lead)
        try:
            await asyncio.to_thread(store.start)
            herder.start(worker_id)
            for name, level in store.state.levels.items():
                worker_api.apply(name, level)
            for name, settings in (connectors or {}).items():
                herder.put(name, {**settings, "name": name})
            if leadership is None:
                herder.lead(True)
            else:
                leadership.start()
            yield
        finally:
            if leadership is not None:
                await asyncio.to_thread(leadership.stop)
            await asyncio.to_thread(herder.close)
            await asyncio.to_thread(store.stop)

    async def health() -> str | None:
        if herder.leads:
            return None if herder.is_ready else "Worker is still starting up."
        return None if store.state.leader else "No worker is known that runs the connectors."

    rows = [*worker_api.endpoints(), *Connectors(desk).endpoints(), *PluginsApi(desk).endpoints()]
    app = make_app("Connect", rows, lifespan=lifespan, health=health, health_body=health_body)
    _measure(app, herder)
    return app


def health_body(trouble: str | None) -> dict[str, str]:
    """How a worker is, in Kafka's words (KIP-1017)."""
    if trouble is not None:
        return {"status": "starting", "message": trouble}
    return {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}


async def _cluster_id(config: WorkerConfig) -> str:
    """Wait for Kafka, in steps that are short enough to be interrupted between."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_S
    while True:
        try:
            return await asyncio.to_thread(_ask_cluster_id, config)
        except KafkaFailure as failure:
            if loop.time() > deadline:
                raise StoreFailed(f"Kafka at {config.bootstrap_servers} does not answer: {failure}") from None
            log.info("waiting for Kafka at %s", config.bootstrap_servers)


def _ask_cluster_id(config: WorkerConfig) -> str:
    shared = {name: text for name, text in config.settings.items() if name.startswith(("security.", "sasl.", "ssl."))}
    with Cluster(config.bootstrap_servers, {**shared, "default.api.timeout.ms": str(_ATTEMPT_MS)}) as cluster:
        return cluster.describe().cluster_id


def _measure(app: App, herder: Herder) -> None:
    state = herder.store.state

    def tasks(wanted: str) -> Callable[[], float]:
        return lambda: sum(1 for status in list(state.task_status.values()) if status.state == wanted)

    numbers: dict[str, tuple[str, Callable[[], float]]] = {
        "connect_connectors": ("Connectors that there are.", lambda: len(state.configs)),
        "connect_tasks_running": ("Tasks that run.", tasks("RUNNING")),
        "connect_tasks_failed": ("Tasks that have failed.", tasks("FAILED")),
        "connect_tasks_paused": ("Tasks that rest.", tasks("PAUSED")),
        "connect_is_leader": ("1 where the connectors run.", lambda: int(herder.leads)),
    }
    for name, (text, look) in numbers.items():
        Gauge(name, text, registry=app.metrics.registry).set_function(look)


def run(
    config: WorkerConfig, tell: Callable[[str], object], connectors: Mapping[str, Mapping[str, str]] | None = None
) -> int:
    """As a process, until it is told to stop; the exit status."""
    try:
        listening = bind(config.listen_host, config.listen_port)
    except OSError as failure:
        tell(str(failure.strerror))
        return 1

    async def make() -> App:
        return await make_connect_app(config, listening.getsockname()[1], connectors=connectors)

    return serve_until_signalled(make, config.listen_host, config.listen_port, listening=listening, tell=tell)

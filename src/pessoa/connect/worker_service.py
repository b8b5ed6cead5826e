"""The process of a worker: settings in, an ASGI app out, whose lifespan starts and stops the worker's parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from prometheus_client import Gauge

from pessoa.client.cluster_id import wait_for_cluster_id
from pessoa.client.librdkafka import security_settings
from pessoa.connect.api.connector_plugins import PluginsApi
from pessoa.connect.api.connectors import Connectors
from pessoa.connect.api.leader_gate import LeaderGate
from pessoa.connect.api.worker import WorkerApi
from pessoa.connect.cluster_state import LEADER
from pessoa.connect.herder import Herder
from pessoa.connect.leadership import make_leadership
from pessoa.connect.plugins import Plugins
from pessoa.connect.runner import Runner
from pessoa.connect.worker_config import WorkerConfig
from pessoa.connect.worker_store import STATUS, MemoryStore, Store, TopicStore
from pessoa.web.asgi_app import App, make_app
from pessoa.web.http_settings import serve_service
from pessoa.web.routing import Endpoint

log = logging.getLogger("pessoa.connect")

_START_S = 120.0


class Worker:
    """The parts of a worker, and the order in which they start and stop.

    `connectors` are those that a standalone worker is given on its command line.
    """

    def __init__(
        self,
        config: WorkerConfig,
        worker_id: str,
        runner: Runner,
        cluster_id: str,
        connectors: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._id = worker_id
        self._store: Store = MemoryStore(config.offsets_file) if config.is_standalone else TopicStore(config)
        self.herder = Herder(config, self._store, runner, Plugins(config.plugin_path))
        self._gate = LeaderGate(self.herder, f"{config.http.listener.scheme}://{worker_id}", config.http.trust)
        self._leadership = None if config.is_standalone else make_leadership(config, self._lead)
        self._worker_api = WorkerApi(self.herder, cluster_id)
        self._connectors = connectors

    def endpoints(self) -> list[Endpoint]:
        apis = (self._worker_api, Connectors(self._gate), PluginsApi(self.herder))
        return [endpoint for api in apis for endpoint in api.endpoints()]

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        try:
            await self._start()
            yield
        finally:
            if self._leadership is not None:
                await asyncio.to_thread(self._leadership.stop)
            await asyncio.to_thread(self.herder.close)
            await asyncio.to_thread(self._store.stop)
            await self._gate.close()

    async def _start(self) -> None:
        await asyncio.to_thread(self._store.start)
        state = self._store.state
        self._gate.old_leader_count = state.leader_count
        self.herder.start(self._id)
        for name, level in state.levels.items():
            self._worker_api.apply(name, level)
        for name, settings in self._connectors.items():
            self.herder.put(name, {**settings, "name": name})
        if self._leadership is None:
            self.herder.lead(True)
        else:
            self._leadership.start()
        if not await self._gate.wait_until_leader_known(_START_S):
            log.warning("no worker is known that runs the connectors; this one only answers requests that read")

    def _lead(self, leads: bool) -> None:
        self.herder.lead(leads)
        if leads:
            self._store.write(STATUS, LEADER, {"url": self._gate.url})

    async def health(self) -> str | None:
        """Return why the worker is not ready; None if it is."""
        if not self._gate.knows_leader:
            return "No worker is known that runs the connectors."
        return None if self.herder.is_ready or not self.herder.leads else "Worker is still starting up."


async def make_connect_app(
    config: WorkerConfig,
    port: int | None = None,
    *,
    runner: Runner | None = None,
    connectors: Mapping[str, Mapping[str, str]] | None = None,
) -> App:
    """Return the app of a worker; `port` is the one that the system has chosen if the settings name none."""
    if runner is None:
        from pessoa.connect.spark_runner import SparkRunner

        runner = SparkRunner(config)
    clients = security_settings(config.settings)
    cluster_id = await wait_for_cluster_id(config.bootstrap_servers, clients, _START_S)
    worker_id = f"{config.advertised_host}:{config.advertised_port or port or config.http.listener.port}"
    worker = Worker(config, worker_id, runner, cluster_id, connectors or {})
    app = make_app(
        "Connect",
        worker.endpoints(),
        auth=config.http.authenticator(config.bootstrap_servers, clients),
        body_limit=config.http.request_max_bytes,
        lifespan=worker.lifespan,
        health=worker.health,
        health_body=health_body,
    )
    _measure(app, worker.herder)
    return app


def health_body(trouble: str | None) -> dict[str, str]:
    """Return the body of /health, as Kafka's workers answer it (KIP-1017)."""
    if trouble is not None:
        return {"status": "starting", "message": trouble}
    return {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}


def _measure(app: App, herder: Herder) -> None:
    state = herder.store.state

    def tasks(wanted: str) -> Callable[[], float]:
        return lambda: sum(1 for status in list(state.task_status.values()) if status.state == wanted)

    numbers: dict[str, tuple[str, Callable[[], float]]] = {
        "connect_connectors": ("Connectors of the cluster.", lambda: len(state.configs)),
        "connect_tasks_running": ("Tasks that run.", tasks("RUNNING")),
        "connect_tasks_failed": ("Tasks that have failed.", tasks("FAILED")),
        "connect_tasks_paused": ("Tasks that are paused.", tasks("PAUSED")),
        "connect_is_leader": ("1 in the worker that runs the connectors.", lambda: int(herder.leads)),
    }
    for name, (text, look) in numbers.items():
        Gauge(name, text, registry=app.metrics.registry).set_function(look)


def run(
    config: WorkerConfig, tell: Callable[[str], object], connectors: Mapping[str, Mapping[str, str]] | None = None
) -> int:
    """Serve as a process until a signal stops it, and return the exit status."""
    return serve_service(lambda port: make_connect_app(config, port, connectors=connectors), config.http, tell)

"""The process of a ksql server: settings in, an ASGI app out, whose lifespan starts and stops the server's parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import Gauge

from pessoa.client.cluster_id import wait_for_cluster_id
from pessoa.client.group_leadership import GroupLeadership
from pessoa.ksql.analysis.analyser import Defaults
from pessoa.ksql.query_runner import QueryRunner
from pessoa.ksql.server.api.insert_endpoints import Inserts
from pessoa.ksql.server.api.query_endpoints import JSON, TAKEN, V1_JSON, Queries
from pessoa.ksql.server.api.statement_endpoints import Statements
from pessoa.ksql.server.command_log import CommandLog
from pessoa.ksql.server.connector_statements import Connectors
from pessoa.ksql.server.insert_values import Inserter
from pessoa.ksql.server.kafka_clients import KafkaClients
from pessoa.ksql.server.ksql_problems import KsqlProblem, error_body
from pessoa.ksql.server.ksql_state import KsqlState
from pessoa.ksql.server.materialised_tables import MaterialisedTables
from pessoa.ksql.server.pull_queries import PullQueries
from pessoa.ksql.server.push_queries import PushQueries
from pessoa.ksql.server.query_supervisor import QuerySupervisor
from pessoa.ksql.server.registry_access import ServerSchemas
from pessoa.ksql.server.server_config import CONNECT, KsqlConfig
from pessoa.ksql.server.source_codecs import SourceCodecs
from pessoa.ksql.server.statement_execution import Engine, StatementExecution
from pessoa.ksql.server.statement_session import Session
from pessoa.web.asgi_app import App, make_app
from pessoa.web.http_settings import serve_service
from pessoa.web.routing import Endpoint

log = logging.getLogger("pessoa.ksql")

_START_S = 120.0
MakeRunner = Callable[[KsqlConfig], QueryRunner]


class KsqlServer:
    """The components of a server, and the order in which they start and stop."""

    def __init__(self, config: KsqlConfig, cluster_id: str, address: str, make_runner: MakeRunner) -> None:
        self.config = config
        clients = KafkaClients(config)
        schemas = ServerSchemas(config.registry_settings)
        self._supervisor = QuerySupervisor(lambda: make_runner(config))
        # Of this server alone, also where another one of the same id has the same home.
        folder = f"{config.service_id}{address.rpartition(':')[2]}"
        self.tables = MaterialisedTables(clients.settings, config.home / "tables" / folder)
        defaults = Defaults(config.value_format, config.topic_prefix)
        self.commands = CommandLog(
            config.command_topic, clients.settings, config.internal_replicas, defaults, self._apply_state
        )
        self._leadership = GroupLeadership(
            clients.settings, f"{config.internal_prefix}_leader", config.command_topic, self._supervisor.lead, log
        )
        push = PushQueries(clients, schemas, config.max_push_queries, config.offset_reset)
        connectors = Connectors(config.connect_url, config.below(CONNECT))
        self.engine = Engine(
            config, clients, self.commands, self._supervisor, schemas, connectors, Inserter(clients, schemas), push
        )
        self._execution = StatementExecution(self.engine)
        pull = PullQueries(self.tables, SourceCodecs(schemas), may_scan=config.scans_tables)
        self._queries = Queries(self.engine, self._execution, pull)
        self._statements = Statements(self.engine, self._execution, cluster_id, address)

    def endpoints(self) -> list[Endpoint]:
        apis = (self._statements, self._queries, Inserts(self.engine))
        return [endpoint for api in apis for endpoint in api.endpoints()]

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        try:
            await asyncio.to_thread(self._start)
            yield
        finally:
            await asyncio.to_thread(self._stop)

    def _start(self) -> None:
        load_user_functions(self.config)
        self.commands.start(_START_S)
        self._supervisor.start()
        self._leadership.start()
        if self.config.queries_file is not None:
            self._run_file(Path(self.config.queries_file))

    def _run_file(self, path: Path) -> None:
        """Run the statements of a headless server's file, unless they were run before."""
        if self.commands.next_offset == 0:
            try:
                self._execution.execute(path.read_text(encoding="utf-8"), Session())
            except KsqlProblem as problem:
                raise RuntimeError(f"{path}: {problem.message}") from None

    def _stop(self) -> None:
        self.engine.push.close_all()
        self._leadership.stop()
        self._supervisor.stop()
        self.commands.stop()
        self.tables.close()
        self.engine.clients.close()
        self.engine.schemas.close()

    def _apply_state(self, state: KsqlState) -> None:
        self._supervisor.want(state)
        self.tables.follow(state)

    async def health(self) -> str | None:
        return None


def load_user_functions(config: KsqlConfig) -> None:
    """Add the functions of ksql.extension.dir to the tables."""
    from pessoa.ksql.server.function_loading import load_directory

    load_directory(Path(config.extension_dir))


def spark_runner(config: KsqlConfig) -> QueryRunner:
    """Return the runner of persistent queries on Spark."""
    from pessoa.ksql.spark.spark_query_runner import make_runner

    return make_runner(config)


async def make_ksql_app(config: KsqlConfig, port: int | None = None, *, make_runner: MakeRunner = spark_runner) -> App:
    """Return the app of a server; `port` is the one that the system has chosen if the settings name none."""
    clients = config.kafka_security
    cluster_id = await wait_for_cluster_id(config.bootstrap_servers, clients, _START_S)
    listener = config.http.listener
    server = KsqlServer(config, cluster_id, f"{listener.host}:{port or listener.port}", make_runner)
    app = make_app(
        "ksqlDB",
        server.endpoints(),
        consumes=TAKEN,
        produces=(V1_JSON, JSON),
        error_body=error_body,
        auth=config.http.authenticator(config.bootstrap_servers, clients),
        body_limit=config.http.request_max_bytes,
        lifespan=server.lifespan,
        health=server.health,
        takes_http2=True,
    )
    _measure(app, server)
    return app


def _measure(app: App, server: KsqlServer) -> None:
    registry = app.metrics.registry
    queries = Gauge("ksql_persistent_queries", "Persistent queries that there are.", registry=registry)
    queries.set_function(lambda: float(len(server.commands.state.queries)))
    push = Gauge("ksql_push_queries", "Push queries that run here.", registry=registry)
    push.set_function(lambda: float(len(server.engine.push.listed())))
    sources = Gauge("ksql_sources", "Streams and tables.", registry=registry)
    sources.set_function(lambda: float(len(server.commands.state.catalogue.sources)))


def run(config: KsqlConfig, tell: Callable[[str], object]) -> int:
    """Run a server until it is stopped by a signal, and return the exit status."""
    return serve_service(lambda port: make_ksql_app(config, port), config.http, tell)

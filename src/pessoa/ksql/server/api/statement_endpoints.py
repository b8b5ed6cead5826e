"""POST /ksql, and the endpoints about the server itself."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa import __version__
from pessoa.client.topic_creation import TopicUnavailable
from pessoa.ksql.server import entities, ksql_problems
from pessoa.ksql.server.api.query_endpoints import JSON, TAKEN, V1_JSON
from pessoa.ksql.server.commands import CommandId
from pessoa.ksql.server.entities import Entity, Json
from pessoa.ksql.server.kafka_clients import KafkaRefused
from pessoa.ksql.server.ksql_problems import BAD_REQUEST, KsqlProblem
from pessoa.ksql.server.server_config import check_query_property, query_property_name
from pessoa.ksql.server.statement_execution import Engine, StatementExecution
from pessoa.ksql.server.statement_session import Session, make_session
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import media_type
from pessoa.web.bodies import read_json
from pessoa.web.routing import UNDESCRIBED, Endpoint

_SEQUENCE_S = 5.0


class KsqlRequest(msgspec.Struct, rename="camel"):
    ksql: str
    streams_properties: dict[str, Any] | None = None
    session_variables: dict[str, Any] | None = None
    command_sequence_number: int | None = None
    request_properties: dict[str, Any] | None = None


class TerminateRequest(msgspec.Struct, rename="camel"):
    delete_topic_list: list[str] = []


class Statements:
    def __init__(self, engine: Engine, execution: StatementExecution, cluster_id: str, address: str) -> None:
        self._engine = engine
        self._execution = execution
        self._cluster_id = cluster_id
        self._address = address

    def endpoints(self) -> list[Endpoint]:
        both = (V1_JSON, JSON)

        def row(method: str, path: str, handle: Any, summary: str, **more: Any) -> Endpoint:
            return Endpoint(method, path, handle, summary, consumes=TAKEN, produces=both, answer=UNDESCRIBED, **more)

        return [
            row("GET", "/", self.root, "To /info.", is_listed=False),
            row("GET", "/info", self.info, "Version and ids."),
            row("GET", "/healthcheck", self.health, "Whether the server is well."),
            row("POST", "/ksql", self.ksql, "Run statements.", body=KsqlRequest),
            row("POST", "/ksql/terminate", self.terminate, "End all queries, drop all sources.", body=TerminateRequest),
            row("GET", "/status", self.statuses, "What became of commands."),
            row("GET", "/status/{type}/{entity}/{action}", self.status, "What became of a command."),
            row("GET", "/clusterStatus", self.cluster_status, "The servers of this service id that are known."),
            row("POST", "/heartbeat", self.nothing, "For other servers.", is_listed=False),
            row("POST", "/lag", self.nothing, "For other servers.", is_listed=False),
            row("GET", "/is_valid_property/{property}", self.is_valid_property, "Whether SET knows a property."),
            row("GET", "/v1/metadata", self.metadata, "Ids of the clusters."),
            row("GET", "/v1/metadata/id", self.metadata_id, "Ids of the clusters."),
            row("GET", "/chc/ready", self.nothing, "For load balancers.", is_public=True),
            row("GET", "/chc/live", self.nothing, "For load balancers.", is_public=True),
        ]

    async def root(self, _: Request) -> Response:
        return Answer(b"", 307, JSON, {"Location": "/info"})

    async def info(self, request: Request) -> Response:
        return _json(request, {"KsqlServerInfo": {
            "version": __version__, "kafkaClusterId": self._cluster_id, "ksqlServiceId": self._engine.config.service_id,
            "serverStatus": "RUNNING",
        }})  # fmt: skip

    async def health(self, request: Request) -> Response:
        try:
            await asyncio.to_thread(self._engine.clients.topic, self._engine.config.command_topic)
        except KafkaRefused:
            kafka = False
        else:
            kafka = True
        details: Json = {
            "metastore": {"isHealthy": True},
            "kafka": {"isHealthy": kafka},
            "commandRunner": {"isHealthy": True},
        }
        return _json(request, {"isHealthy": kafka, "details": details, "serverState": "READY"})

    async def ksql(self, request: Request) -> Response:
        body = await read_json(request, KsqlRequest)
        session = make_session(body.streams_properties, body.session_variables)
        session.authorization = request.headers.get("authorization")
        return _json(request, await asyncio.to_thread(self._run, body, session))

    def _run(self, body: KsqlRequest, session: Session) -> list[Entity]:
        wanted = body.command_sequence_number
        if wanted is not None and wanted >= 0:
            try:
                self._engine.commands.wait_for(wanted, _SEQUENCE_S)
            except TopicUnavailable:
                raise KsqlProblem(
                    ksql_problems.COMMAND_TIMEOUT,
                    f"Timed out while waiting for a previous command to execute. command sequence number: {wanted}",
                ) from None
        if self._engine.config.queries_file is not None:
            raise KsqlProblem(ksql_problems.FORBIDDEN, "This server runs the statements of ksql.queries.file only.")
        return self._execution.execute(body.ksql, session)

    async def terminate(self, request: Request) -> Response:
        body = await read_json(request, TerminateRequest)
        if not self._engine.config.terminate_enabled:
            raise KsqlProblem(ksql_problems.FORBIDDEN, "ksql.terminate.enabled is false")
        return _json(request, [await asyncio.to_thread(self._terminate, body.delete_topic_list)])

    def _terminate(self, patterns: list[str]) -> Entity:
        """Terminate all queries, drop all sources, and delete the topics whose names match."""
        try:
            matches = [re.compile(one) for one in patterns]
        except re.error as wrong:
            raise KsqlProblem(BAD_REQUEST, f"Invalid pattern: {wrong}") from None
        state = self._engine.commands.state
        session = Session()
        found: list[Entity] = []
        if state.queries:
            found = self._execution.execute("TERMINATE ALL;", session)
        left = dict(state.catalogue.sources)
        while left:
            derived = self._engine.commands.state.catalogue.derived
            free = [one for one in left.values() if not derived.get(one.name)] or list(left.values())
            for source in free:
                delete = " DELETE TOPIC" if any(one.fullmatch(source.topic) for one in matches) else ""
                self._execution.execute(f"DROP {source.kind.value} `{source.name}`{delete};", session)
                del left[source.name]
        return found[0] if found else entities.entity("warning_entity", "TERMINATE CLUSTER;", message="Nothing ran.")

    # What became of commands.

    async def statuses(self, request: Request) -> Response:
        return _json(request, {"commandStatuses": dict(self._engine.commands.statuses())})

    async def status(self, request: Request) -> Response:
        named = request.path_params
        key = CommandId(named["type"].lower(), named["entity"].strip("`"), named["action"].lower())
        found = self._engine.commands.status(key)
        if found is None:
            raise KsqlProblem(ksql_problems.NOT_FOUND, "Command not found")
        query_id = found.applied.query_id if found.applied is not None else None
        return _json(request, {"status": found.status, "message": found.message, "queryId": query_id})

    # The cluster.

    async def cluster_status(self, request: Request) -> Response:
        own: Json = {
            "hostAlive": True, "lastStatusUpdateMs": time.time_ns() // 1_000_000, "activeStandbyPerQuery": {},
            "hostStoreLags": {"stateStoreLags": {}, "updateTimeMs": 0}, "leads": self._engine.supervisor.leads,
        }  # fmt: skip
        return _json(request, {"clusterStatus": {self._address: own}})

    async def nothing(self, request: Request) -> Response:
        return _json(request, {})

    async def is_valid_property(self, request: Request) -> Response:
        name = request.path_params["property"]
        if query_property_name(name) is None:
            raise KsqlProblem(BAD_REQUEST, check_query_property(name, ""))
        return _json(request, True)

    async def metadata(self, request: Request) -> Response:
        clusters: Json = {"kafka-cluster": self._cluster_id, "ksql-cluster": self._engine.config.service_id}
        return _json(request, {"scope": {"path": [], "clusters": clusters}, "id": ""})

    async def metadata_id(self, request: Request) -> Response:
        return await self.metadata(request)


def _json(request: Request, value: Json) -> Answer:
    return Answer(msgspec.json.encode(value), 200, media_type(request))

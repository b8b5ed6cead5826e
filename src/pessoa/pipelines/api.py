"""The engine over HTTP: what `pessoa pipelines` and the control centre ask.

    GET    /queries                  all of them, with their state and progress
    POST   /queries                  start one: {"id": …, "start_function": "flows.py:copy", "topic": …} or a "plan"
    GET    /queries/{id}             one
    PUT    /queries/{id}/{action}    pause, resume, stop or restart it
    DELETE /queries/{id}             stop it and forget it, with its checkpoint
    GET    /tables/{topic}/rows      what a table is now, by key and range; /tables/{topic}/windows (table_api.py)
    GET    /task-slots               Spark's places for tasks: all of them, those that are held, those that are free

A caller that reaches this API can run code, as with any Spark; so it listens on the loopback unless it is told
otherwise, can ask for certificates and logins like every service (engine_config.py), and takes JSON only, which no page
in a browser can send here by itself. /metrics has a gauge for each number
of a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.pipelines.engine import Engine, EngineRefused
from pessoa.pipelines.jars import JarsUnavailable
from pessoa.pipelines.java import NoJava
from pessoa.pipelines.launching import client_settings
from pessoa.pipelines.plan import PlanRefused
from pessoa.pipelines.queries import QueryStatus, SpecRefused, State, from_value
from pessoa.pipelines.registry_values import registry_values
from pessoa.pipelines.spark_server import SparkUnavailable
from pessoa.pipelines.table_api import table_endpoints
from pessoa.pipelines.table_shelf import TableShelf
from pessoa.web.asgi_app import DEFAULT_BODY_LIMIT, App, json_response, make_app
from pessoa.web.auth import Authenticator
from pessoa.web.bodies import read_json
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint

ACTIONS = ("pause", "resume", "stop", "restart")
STATES = State.__args__  # type: ignore[attr-defined]


class TaskSlotsAnswer(msgspec.Struct, frozen=True):
    total: int
    used: int
    free: int


class NewQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of POST /queries; the fields are those of QuerySpec."""

    id: str
    start_function: str | None = None
    plan: dict[str, Any] | None = None
    topic: str | None = None
    delivery: str = "at-least-once"
    speed: str | None = None
    output_mode: str | None = None
    trigger_ms: int | None = None
    keep_timestamps: bool = False
    slots: int = 4
    max_restarts: int = 10
    group_id: str | None = None


def pipelines_app(
    engine: Engine,
    tables: TableShelf | None = None,
    *,
    auth: Authenticator | None = None,
    body_limit: int = DEFAULT_BODY_LIMIT,
) -> App:
    """Return the app. `tables` are the materialised tables of this process, if any; they are closed with the engine.
    `auth` says who may call it, None: everyone."""
    api = Api(engine)
    shelf = tables or TableShelf(client_settings(engine.kafka), engine.home / "tables")

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(shelf.close)
            await asyncio.to_thread(engine.close)

    rows = [
        Endpoint("GET", "/queries", api.list, "All queries.", answer=list[QueryStatus]),
        Endpoint("POST", "/queries", api.start, "Start a query.", body=NewQuery, answer=QueryStatus, status=201),
        Endpoint("GET", "/queries/{id}", api.show, "One query.", answer=QueryStatus),
        Endpoint("DELETE", "/queries/{id}", api.delete, "Forget a query.", status=204),
        *(
            Endpoint("PUT", f"/queries/{{id}}/{action}", api.act(action), f"{action} a query.", answer=QueryStatus)
            for action in ACTIONS
        ),
        Endpoint("GET", "/task-slots", api.task_slots, "Spark's task slots.", answer=TaskSlotsAnswer),
        *table_endpoints(shelf, registry_values(engine.kafka)),
    ]
    app = make_app("pipelines", rows, lifespan=running, auth=auth, body_limit=body_limit)
    app.metrics.registry.register(QueryMetrics(engine))
    return app


class Api:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(self, request: Request) -> Response:
        return json_response(request, self._engine.queries())

    async def show(self, request: Request) -> Response:
        return json_response(request, await self._status(request.path_params["id"]))

    async def start(self, request: Request) -> Response:
        wanted = await read_json(request, NewQuery)
        value = msgspec.to_builtins(wanted)
        await ask_engine(lambda: self._engine.start(from_value(wanted.id, value)))
        return json_response(request, await self._status(wanted.id), 201)

    async def task_slots(self, request: Request) -> Response:
        slots = self._engine.task_slots()
        return json_response(request, TaskSlotsAnswer(slots.total, slots.used, slots.free))

    async def delete(self, request: Request) -> Response:
        await ask_engine(lambda: self._engine.delete(request.path_params["id"]))
        return Response(status_code=204)

    def act(self, action: str) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            query_id = request.path_params["id"]
            await self._status(query_id)
            await ask_engine(lambda: getattr(self._engine, action)(query_id))
            return json_response(request, await self._status(query_id))

        return handle

    async def _status(self, query_id: str) -> QueryStatus:
        try:
            return self._engine.query(query_id).status()
        except EngineRefused as unknown:
            raise HttpProblem(404, str(unknown)) from None


async def ask_engine(act: Callable[[], object]) -> None:
    """Call the engine in a thread, and turn its exceptions into HTTP problems."""
    from pyspark.errors import PySparkException

    from pessoa.pipelines.failures import failure_reason

    try:
        await asyncio.to_thread(act)
    except (PlanRefused, SpecRefused) as refused:
        raise HttpProblem(422, str(refused)) from None
    except EngineRefused as refused:
        raise HttpProblem(404 if "there is no query" in str(refused) else 409, str(refused)) from None
    except (NoJava, JarsUnavailable, SparkUnavailable, TopicUnavailable) as missing:
        raise HttpProblem(503, str(missing)) from None
    except PySparkException as refused:
        raise HttpProblem(422, failure_reason(str(refused))) from None


class QueryMetrics(Collector):
    """Collects a gauge with the label `query` for each number in the statuses of an engine's queries."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        statuses = self._engine.queries()
        state = GaugeMetricFamily("pessoa_query_state", "1 for the state that it is in.", labels=["query", "state"])
        for status in statuses:
            for each in STATES:
                state.add_metric([status.id, each], float(status.state == each))
        yield state
        slots = self._engine.task_slots()
        places = GaugeMetricFamily("pessoa_task_slots", "Spark's places for tasks.", labels=["state"])
        places.add_metric(["used"], float(slots.used))
        places.add_metric(["free"], float(slots.free))
        yield places
        numbers: dict[str, tuple[str, Callable[[QueryStatus], float | None]]] = {
            "pessoa_query_restarts": ("How often it was started again.", lambda s: s.restarts),
            "pessoa_query_batch_id": ("The number of its last batch.", lambda s: s.progress.batch_id),
            "pessoa_query_batch_seconds": ("How long its last batch took.", lambda s: s.progress.batch_ms / 1000),
            "pessoa_query_rows_per_second": ("Of its last batch.", lambda s: s.progress.rows_per_second),
            "pessoa_query_lag_records": ("Records that wait to be read.", lambda s: s.progress.lag),
            "pessoa_query_state_rows": ("Rows that it remembers.", lambda s: s.progress.state_rows),
            "pessoa_query_task_slots": ("Task slots that it holds.", lambda s: s.task_slots),
            "pessoa_query_state_bytes": ("Memory for what it remembers.", lambda s: s.progress.state_bytes),
        }
        for name, (about, number) in numbers.items():
            gauge = GaugeMetricFamily(name, about, labels=["query"])
            for status in statuses:
                if (value := number(status)) is not None:
                    gauge.add_metric([status.id], float(value))
            yield gauge

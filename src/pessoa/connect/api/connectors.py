"""/connectors: create, read, change, pause, restart and delete connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.connect.api.json_messages import answer, as_texts, flag, in_thread, json_body, nothing, settings_body
from pessoa.connect.api.leader_gate import LeaderGate
from pessoa.connect.cluster_state import PAUSED, STARTED, STATUS_TOPIC, STOPPED, Status
from pessoa.connect.config_validation import validate
from pessoa.connect.connector_offsets import alter_offsets, read_offsets, reset_offsets
from pessoa.connect.plugins import UnknownPlugin
from pessoa.connect.worker_store import STATUS
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint, Query

# The states in which a request may create a connector.
INITIAL = {"RUNNING": STARTED, "PAUSED": PAUSED, "STOPPED": STOPPED}


# The answers, under Kafka's names. What is not known of a task or a connector is left out.


class TaskId(TypedDict):
    connector: str
    task: int


class ConnectorInfo(TypedDict):
    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: str


class ShownStatus(TypedDict):
    state: str
    worker_id: str
    trace: NotRequired[str]
    version: NotRequired[str]


class TaskStatus(ShownStatus):
    id: int


class ConnectorStatus(TypedDict):
    name: str
    connector: ShownStatus
    tasks: list[TaskStatus]
    type: str


class ExpandedConnector(TypedDict):
    status: NotRequired[ConnectorStatus]
    info: NotRequired[ConnectorInfo]


# The requests. Any is a value of JSON: msgspec takes no recursive type.


class NewConnector(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    config: dict[str, Any] | None = None
    initial_state: str | None = None


class OffsetChanges(msgspec.Struct):
    offsets: list[dict[str, Any]] | None = None


class Connectors:
    def __init__(self, gate: LeaderGate) -> None:
        self._gate = gate
        self._herder = gate.herder
        self._store = gate.herder.store

    def endpoints(self) -> list[Endpoint]:
        of, on_leader = "/connectors/{connector}", self._gate.on_leader
        expand = (Query("expand", help="status or info, or both", many=True),)
        tasks = (Query("includeTasks", "boolean"), Query("onlyFailed", "boolean"))
        return [
            Endpoint(
                "GET",
                "/connectors",
                self.list_connectors,
                "The names of all connectors, or what is known of them.",
                expand,
            ),
            Endpoint("POST", "/connectors", on_leader(self.create), "A new connector.", body=NewConnector, status=201),
            Endpoint("GET", of, self.info, "A connector's configuration and tasks."),
            Endpoint("DELETE", of, on_leader(self.delete), "Stop a connector and forget it.", status=204),
            Endpoint("GET", f"{of}/config", self.config, "A connector's configuration."),
            Endpoint("PUT", f"{of}/config", on_leader(self.put_config), "Another configuration, or a new connector."),
            Endpoint("PATCH", f"{of}/config", on_leader(self.patch_config), "Some keys of the configuration."),
            Endpoint("GET", f"{of}/status", self.status, "What a connector and its tasks do."),
            Endpoint("GET", f"{of}/tasks", self.tasks, "The tasks and their configurations."),
            Endpoint("GET", f"{of}/tasks/{{task}}/status", self.task_status, "What one task does."),
            Endpoint(
                "POST", f"{of}/tasks/{{task}}/restart", on_leader(self.restart_task), "Start a task again.", status=204
            ),
            Endpoint("GET", f"{of}/topics", self.topics, "The topics that it has used."),
            Endpoint("PUT", f"{of}/topics/reset", on_leader(self.reset_topics), "Forget them.", status=202),
            Endpoint("POST", f"{of}/restart", on_leader(self.restart), "Start it again.", tasks, status=204),
            Endpoint("PUT", f"{of}/pause", on_leader(self.pause), "Let it rest.", status=202),
            Endpoint("PUT", f"{of}/resume", on_leader(self.resume), "Let it go on.", status=202),
            Endpoint("PUT", f"{of}/stop", on_leader(self.stop), "End its tasks, and keep it.", status=204),
            Endpoint("GET", f"{of}/offsets", self.offsets, "How far it is."),
            Endpoint(
                "PATCH", f"{of}/offsets", on_leader(self.alter_offsets), "Where it is to go on.", body=OffsetChanges
            ),
            Endpoint("DELETE", f"{of}/offsets", on_leader(self.reset_offsets), "Let it begin anew."),
        ]

    # Answers.

    def _config(self, name: str) -> dict[str, str]:
        config = self._store.state.configs.get(name)
        if config is None:
            raise HttpProblem(404, f"Connector {name} not found")
        return config

    def _type(self, config: Mapping[str, str]) -> str:
        try:
            return self._herder.plugins.connector(config.get("connector.class", "")).TYPE
        except UnknownPlugin:
            return "unknown"

    def _info(self, name: str) -> ConnectorInfo:
        with self._store.lock:
            config = self._config(name)
            count = len(self._store.state.tasks.get(name, []))
            return {
                "name": name,
                "config": {**config},
                "tasks": [{"connector": name, "task": number} for number in range(count)],
                "type": self._type(config),
            }

    def _status(self, name: str) -> ConnectorStatus:
        with self._store.lock:
            state = self._store.state
            status = state.connector_status.get(name)
            if status is None:
                raise HttpProblem(404, f"No status found for connector {name}")
            tasks = sorted((number, one) for (connector, number), one in state.task_status.items() if connector == name)
            return {
                "name": name,
                "connector": _shown_status(status),
                "tasks": [_task_status(number, one) for number, one in tasks],
                "type": self._type(state.configs.get(name, {})),
            }

    # Requests that read.

    async def list_connectors(self, request: Request) -> Response:
        wanted = request.query_params.getlist("expand")
        with self._store.lock:
            names = list(self._store.state.configs)
        if not wanted:
            return answer(names)
        found: dict[str, ExpandedConnector] = {}
        for name in names:
            parts: ExpandedConnector = {}
            for each in wanted:
                # A connector that is created or deleted this moment is left out.
                try:
                    if each == "status":
                        parts["status"] = self._status(name)
                    elif each == "info":
                        parts["info"] = self._info(name)
                except HttpProblem:
                    continue
            found[name] = parts
        return answer(found)

    async def info(self, request: Request) -> Response:
        return answer(self._info(request.path_params["connector"]))

    async def config(self, request: Request) -> Response:
        with self._store.lock:
            return answer(self._config(request.path_params["connector"]))

    async def status(self, request: Request) -> Response:
        return answer(self._status(request.path_params["connector"]))

    async def tasks(self, request: Request) -> Response:
        name = request.path_params["connector"]
        with self._store.lock:
            self._config(name)
            known = self._store.state.tasks.get(name, [])
            return answer(
                [{"id": {"connector": name, "task": number}, "config": config} for number, config in enumerate(known)]
            )

    async def task_status(self, request: Request) -> Response:
        name, number = request.path_params["connector"], _number(request)
        with self._store.lock:
            status = self._store.state.task_status.get((name, number))
        if status is None:
            raise HttpProblem(404, f"No status found for task {name}-{number}")
        return answer(_task_status(number, status))

    async def topics(self, request: Request) -> Response:
        self._check_tracking()
        name = request.path_params["connector"]
        with self._store.lock:
            return answer({name: {"topics": list(self._store.state.topics.get(name, {}))}})

    def _check_tracking(self) -> None:
        if not self._herder.config.tracks_topics:
            raise HttpProblem(403, "Topic tracking is disabled.")

    async def offsets(self, request: Request) -> Response:
        found = await in_thread(read_offsets, self._herder, request.path_params["connector"])
        return answer({"offsets": found})

    # Requests that change.

    async def create(self, request: Request) -> Response:
        wanted = await json_body(request, NewConnector)
        name = (wanted.name or "").strip()
        settings = as_texts(wanted.config or {})
        if not name:
            raise HttpProblem(400, "A connector needs a name")
        target = None
        if wanted.initial_state is not None:
            target = INITIAL.get(wanted.initial_state.upper())
            if target is None:
                raise HttpProblem(400, f"initial_state is one of {', '.join(INITIAL)}, and not {wanted.initial_state}")
        _check_name(name, settings)
        if name in self._store.state.configs:
            raise HttpProblem(409, f"Connector {name} already exists")
        return await self._put(request, name, settings, target, 201)

    async def put_config(self, request: Request) -> Response:
        name = request.path_params["connector"]
        settings = await settings_body(request)
        _check_name(name, settings)
        status = 200 if name in self._store.state.configs else 201
        return await self._put(request, name, settings, None, status)

    async def patch_config(self, request: Request) -> Response:
        name = request.path_params["connector"]
        changes = await settings_body(request)
        _check_name(name, changes)
        with self._store.lock:
            config = dict(self._config(name))
        merged: dict[str, str | None] = {**config, **changes}
        kept = {key: text for key, text in merged.items() if text is not None or key not in changes}
        return await self._put(request, name, kept, None, 200)

    async def _put(
        self, request: Request, name: str, settings: Mapping[str, str | None], target: str | None, status: int
    ) -> Response:
        texts = {key: text for key, text in settings.items() if text is not None}
        texts["name"] = name
        verdict = await in_thread(validate, self._herder.plugins, self._herder.config.settings, texts)
        verdict.refuse_if_wrong()
        await in_thread(self._herder.put, name, texts, target)
        headers, info = {}, self._info(name)
        if status == 201:
            # As Kafka's answer, it shows no tasks of a new connector, also if the herder was quick to make them.
            info["tasks"] = []
            headers["Location"] = f"{request.url.scheme}://{request.url.netloc}/connectors/{quote(name, safe='')}"
        return answer(info, status, headers)

    async def delete(self, request: Request) -> Response:
        name = request.path_params["connector"]
        self._config(name)
        await in_thread(self._herder.delete, name)
        return nothing(204)

    async def _target(self, request: Request, target: str, status: int) -> Response:
        name = request.path_params["connector"]
        if name not in self._store.state.configs:
            raise HttpProblem(404, f"Unknown connector {name}")
        await in_thread(self._herder.set_target, name, target)
        return nothing(status)

    async def pause(self, request: Request) -> Response:
        return await self._target(request, PAUSED, 202)

    async def resume(self, request: Request) -> Response:
        return await self._target(request, STARTED, 202)

    async def stop(self, request: Request) -> Response:
        return await self._target(request, STOPPED, 204)

    async def restart(self, request: Request) -> Response:
        name = request.path_params["connector"]
        if name not in self._store.state.configs:
            raise HttpProblem(404, f"Unknown connector: {name}")
        with_tasks, only_failed = flag(request, "includeTasks"), flag(request, "onlyFailed")

        def work() -> None:
            self._herder.restart(name, tasks=with_tasks, only_failed=only_failed)

        if not with_tasks and not only_failed:
            await in_thread(work)
            return nothing(204)
        before = self._status(name)
        for part in (before["connector"], *before["tasks"]):
            if not only_failed or part["state"] == "FAILED":
                part["state"] = "RESTARTING"
                part.pop("trace", None)
        await in_thread(work)
        return answer(before, 202)

    async def restart_task(self, request: Request) -> Response:
        name, number = request.path_params["connector"], _number(request)
        if name not in self._store.state.configs:
            raise HttpProblem(404, f"Unknown connector: {name}")
        if number >= len(self._store.state.tasks.get(name, [])):
            raise HttpProblem(404, f"Unknown task: {name}-{number}")
        await in_thread(self._herder.restart_task, name, number)
        return nothing(204)

    async def reset_topics(self, request: Request) -> Response:
        self._check_tracking()
        if not self._herder.config.forgets_topics:
            raise HttpProblem(403, "Topic tracking reset is disabled.")
        name = request.path_params["connector"]
        for topic in list(self._store.state.topics.get(name, {})):
            await in_thread(self._store.write, STATUS, f"{STATUS_TOPIC}{topic}:connector-{name}", None)
        return nothing(202)

    async def alter_offsets(self, request: Request) -> Response:
        name = request.path_params["connector"]
        wanted = await json_body(request, OffsetChanges)
        return answer({"message": await in_thread(alter_offsets, self._herder, name, wanted.offsets or [])})

    async def reset_offsets(self, request: Request) -> Response:
        name = request.path_params["connector"]
        return answer({"message": await in_thread(reset_offsets, self._herder, name)})


def _shown_status(status: Status) -> ShownStatus:
    shown: ShownStatus = {"state": status.state, "worker_id": status.worker_id}
    if status.trace:
        shown["trace"] = status.trace
    if status.version:
        shown["version"] = status.version
    return shown


def _task_status(number: int, status: Status) -> TaskStatus:
    return {"id": number, **_shown_status(status)}


def _number(request: Request) -> int:
    text = request.path_params["task"]
    if not text.isdigit():
        raise HttpProblem(404, "HTTP 404 Not Found")
    return int(text)


def _check_name(name: str, settings: Mapping[str, str | None]) -> None:
    inside = settings.get("name")
    if inside is not None and inside.strip() != name:
        raise HttpProblem(
            400, f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})"
        )

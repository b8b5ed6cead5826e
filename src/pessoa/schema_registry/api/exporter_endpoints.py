"""/exporters: what copies schemas to other registries."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry.api.requests import RegistryGate
from pessoa.schema_registry.exporters import (
    Change,
    ExporterRequest,
    all_exporters,
    decide_create,
    decide_delete,
    decide_pause,
    decide_reset,
    decide_resume,
    decide_update,
    find_exporter,
    status_of,
)
from pessoa.schema_registry.state import State
from pessoa.web.asgi_app import json_response
from pessoa.web.bodies import decode_json, read_body
from pessoa.web.routing import UNDESCRIBED, Endpoint

Decide = Callable[[State, str], Change]


def endpoints(gate: RegistryGate) -> list[Endpoint]:
    handlers = _Exporters(gate)
    one = "/exporters/{name}"
    return [
        Endpoint("GET", "/exporters", handlers.names, "The exporters", answer=list[str]),
        Endpoint("POST", "/exporters", handlers.create, "Create an exporter", body=ExporterRequest, answer=UNDESCRIBED),
        Endpoint("GET", one, handlers.describe, "What an exporter does", answer=UNDESCRIBED),
        Endpoint("PUT", one, handlers.update, "Change one that is paused", body=ExporterRequest, answer=UNDESCRIBED),
        Endpoint("DELETE", one, handlers.delete, "Delete one that is paused", status=204),
        Endpoint("GET", f"{one}/status", handlers.status, "Where it has got", answer=UNDESCRIBED),
        Endpoint("GET", f"{one}/config", handlers.config, "Its configuration, secrets hidden", answer=UNDESCRIBED),
        Endpoint("PUT", f"{one}/config", handlers.update, "Change the configuration", body=ExporterRequest,
                 answer=UNDESCRIBED),
        Endpoint("PUT", f"{one}/pause", handlers.pause, "Pause it", answer=UNDESCRIBED),
        Endpoint("PUT", f"{one}/resume", handlers.resume, "Let it go on", answer=UNDESCRIBED),
        Endpoint("PUT", f"{one}/reset", handlers.reset, "Let it begin from the start", answer=UNDESCRIBED),
    ]  # fmt: skip


class _Exporters:
    def __init__(self, gate: RegistryGate) -> None:
        self._gate = gate

    async def names(self, request: Request) -> Response:
        return json_response(request, [each.name for each in all_exporters(self._gate.state)])

    async def describe(self, request: Request) -> Response:
        exporter = find_exporter(self._gate.state, request.path_params["name"])
        return json_response(request, msgspec.to_builtins(exporter) | {"config": exporter.shown_config()})

    async def config(self, request: Request) -> Response:
        exporter = find_exporter(self._gate.state, request.path_params["name"])
        return json_response(request, exporter.shown_config())

    async def status(self, request: Request) -> Response:
        name = request.path_params["name"]
        find_exporter(self._gate.state, name)
        status = status_of(self._gate.state, name)
        shown = {"name": name, "state": status.state, "offset": max(status.offset, 0), "ts": status.ts}
        return json_response(request, shown | {"trace": status.trace} if status.trace else shown)

    async def create(self, request: Request) -> Response:
        body = await read_body(request)
        wanted = decode_json(body, ExporterRequest)
        return await self._gate.write(request, body, lambda state: decide_create(state, wanted), _name_part)

    async def update(self, request: Request) -> Response:
        name = request.path_params["name"]
        body = await read_body(request)
        wanted = decode_json(body, ExporterRequest)
        return await self._gate.write(request, body, lambda state: decide_update(state, name, wanted), _name_part)

    async def _change(self, request: Request, decide: Decide) -> Response:
        name = request.path_params["name"]
        # PUT, and nothing is to be said; a body is let be.
        return await self._gate.write(request, b"", lambda state: decide(state, name), _name_part)

    async def pause(self, request: Request) -> Response:
        return await self._change(request, decide_pause)

    async def resume(self, request: Request) -> Response:
        return await self._change(request, decide_resume)

    async def reset(self, request: Request) -> Response:
        return await self._change(request, decide_reset)

    async def delete(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._gate.write(request, b"", lambda state: decide_delete(state, name), None)


def _name_part(change: Change) -> dict[str, str]:
    return {"name": change.name}

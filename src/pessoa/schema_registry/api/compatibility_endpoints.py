"""/compatibility: would this schema be taken?"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.json_value import JsonObject
from pessoa.schema_registry.api.requests import NORMALIZE, RegistryGate, flag, version_of
from pessoa.schema_registry.candidates import Request as SchemaRequest
from pessoa.schema_registry.registering import decide_compatible, prepare_in_thread
from pessoa.schema_registry.registry_problems import INVALID_SCHEMA
from pessoa.schema_registry.schemas import LATEST
from pessoa.web.asgi_app import json_response
from pessoa.web.bodies import read_json
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint, Query


class Verdict(msgspec.Struct, omit_defaults=True):
    is_compatible: bool
    messages: list[str] | None = None


def endpoints(gate: RegistryGate) -> list[Endpoint]:
    handlers = _Compatibility(gate)
    query = (NORMALIZE, Query("verbose", "boolean", "say why not"))
    path = "/compatibility/subjects/{subject}/versions"
    return [
        Endpoint("POST", path, handlers.all_versions, "As a registration would be checked", query,
                 body=SchemaRequest, answer=Verdict),
        Endpoint("POST", f"{path}/{{version}}", handlers.one_version, "Against one version", query,
                 body=SchemaRequest, answer=Verdict),
    ]  # fmt: skip


class _Compatibility:
    def __init__(self, gate: RegistryGate) -> None:
        self._gate = gate

    async def all_versions(self, request: Request) -> Response:
        return await self._check(request, None)

    async def one_version(self, request: Request) -> Response:
        return await self._check(request, version_of(request))

    async def _check(self, request: Request, version: int | None) -> Response:
        wanted = await read_json(request, SchemaRequest)
        is_verbose = flag(request, "verbose")
        try:
            findings = await self._findings(request, wanted, version)
        except HttpProblem as problem:
            if not is_verbose or problem.code != INVALID_SCHEMA:
                raise
            findings = (problem.message,)
        answer: JsonObject = {"is_compatible": not findings}
        if is_verbose:
            answer["messages"] = [*findings]
        return json_response(request, answer)

    async def _findings(self, request: Request, wanted: SchemaRequest, version: int | None) -> tuple[str, ...]:
        state, subject = self._gate.state, self._gate.subject_of(request)
        level = self._gate.registry.config.default_level
        if version is None:
            await prepare_in_thread(state, subject, wanted, level)
        else:
            entry = state.latest(subject) if version == LATEST else state.entry(subject, version)
            if entry is not None:
                await prepare_in_thread(state, subject, wanted, level, against=[entry])
        return decide_compatible(
            state, subject, wanted, version, default_level=level, normalize=flag(request, "normalize")
        )

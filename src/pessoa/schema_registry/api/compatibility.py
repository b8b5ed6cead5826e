"""/compatibility: would this schema be taken?"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry.api.requests import NORMALIZE, Desk, flag, subject_of, version_of
from pessoa.schema_registry.registering import Request as SchemaRequest
from pessoa.schema_registry.registering import decide_compatible, think_ahead
from pessoa.schema_registry.schemas import LATEST
from pessoa.web.app import json_response
from pessoa.web.bodies import read_json
from pessoa.web.routing import Endpoint, Query


class Verdict(msgspec.Struct, omit_defaults=True):
    is_compatible: bool
    messages: list[str] | None = None


def endpoints(desk: Desk) -> list[Endpoint]:
    handlers = _Compatibility(desk)
    query = (NORMALIZE, Query("verbose", "boolean", "say why not"))
    path = "/compatibility/subjects/{subject}/versions"
    return [
        Endpoint("POST", path, handlers.all_versions, "As a registration would be checked", query,
                 body=SchemaRequest, answer=Verdict),
        Endpoint("POST", f"{path}/{{version}}", handlers.one_version, "Against one version", query,
                 body=SchemaRequest, answer=Verdict),
    ]  # fmt: skip


class _Compatibility:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def all_versions(self, request: Request) -> Response:
        return await self._checked(request, None)

    async def one_version(self, request: Request) -> Response:
        return await self._checked(request, version_of(request))

    async def _checked(self, request: Request, version: int | None) -> Response:
        wanted = await read_json(request, SchemaRequest)
        state, subject = self._desk.state, subject_of(request)
        level = self._desk.registry.config.default_level
        if version is None:
            await think_ahead(state, subject, wanted, level)
        else:
            entry = state.latest(subject) if version == LATEST else state.entry(subject, version)
            if entry is not None:
                await think_ahead(state, subject, wanted, level, against=[entry])
        findings = decide_compatible(
            state,
            subject,
            wanted,
            version,
            default_level=level,
            normalize=flag(request, "normalize"),
        )
        answer: dict[str, Any] = {"is_compatible": not findings}
        if flag(request, "verbose"):
            answer["messages"] = findings
        return json_response(request, answer)

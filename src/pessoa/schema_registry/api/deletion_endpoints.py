"""Deleting versions, subjects and contexts."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.api.requests import PAGES, RegistryGate, as_context, flag, page, version_of
from pessoa.schema_registry.deleting import Deletion, decide_delete_subject, decide_delete_version
from pessoa.schema_registry.registry_records import ContextKey, Record
from pessoa.schema_registry.state import State
from pessoa.serde.subjects import parse_subject
from pessoa.web.asgi_app import json_response
from pessoa.web.routing import Endpoint, Query

_PERMANENT = Query("permanent", "boolean", "for good; it must be deleted softly before")


class Records(NamedTuple):
    records: tuple[Record, ...]


def endpoints(gate: RegistryGate) -> list[Endpoint]:
    handlers = _Deletion(gate)
    return [
        Endpoint("DELETE", "/subjects/{subject}", handlers.subject, "Delete a subject", (_PERMANENT,),
                 answer=list[int]),
        Endpoint("DELETE", "/subjects/{subject}/versions/{version}", handlers.version, "Delete a version",
                 (_PERMANENT,), answer=int),
        Endpoint("GET", "/contexts", handlers.contexts, "The contexts",
                 (Query("contextPrefix", help="those that start so"), *PAGES), answer=list[str]),
        Endpoint("DELETE", "/contexts/{context}", handlers.context, "Forget a context that is empty", answer=str),
    ]  # fmt: skip


class _Deletion:
    def __init__(self, gate: RegistryGate) -> None:
        self._gate = gate

    async def version(self, request: Request) -> Response:
        subject, version, permanent = self._gate.subject_of(request), version_of(request), flag(request, "permanent")

        def decide(state: State) -> Deletion:
            return decide_delete_version(state, subject, version, permanent=permanent)

        return await self._gate.write(request, b"", decide, lambda deletion: deletion.versions[0])

    async def subject(self, request: Request) -> Response:
        subject, permanent = self._gate.subject_of(request), flag(request, "permanent")

        def decide(state: State) -> Deletion:
            return decide_delete_subject(state, subject, permanent=permanent)

        return await self._gate.write(request, b"", decide, lambda deletion: deletion.versions)

    async def contexts(self, request: Request) -> Response:
        prefix = request.query_params.get("contextPrefix", "")
        found = [context for context in self._gate.state.all_contexts() if context.startswith(prefix)]
        return json_response(request, page(request, found))

    async def context(self, request: Request) -> Response:
        name = as_context(request.path_params["context"])

        def decide(state: State) -> Records:
            if any(parse_subject(subject).context == name for subject in state.subjects):
                raise registry_problems.context_not_empty(name)
            return Records((Record(ContextKey(name), None),) if name in state.declared_contexts else ())

        return await self._gate.write(request, b"", decide, lambda _: name)

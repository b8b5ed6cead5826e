"""/associations: of resources with subjects."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.json_value import JsonObject
from pessoa.schema_registry.api.requests import PAGES, RegistryGate, flag, named_subject, page
from pessoa.schema_registry.associations import (
    ANY_NAMESPACE,
    Associated,
    Association,
    AssociationRequest,
    all_associations,
    decide_associate,
    decide_dissociate,
)
from pessoa.schema_registry.state import State
from pessoa.web.asgi_app import json_response
from pessoa.web.bodies import decode_json, read_body
from pessoa.web.routing import UNDESCRIBED, Endpoint, Query

_DRY_RUN = Query("dryRun", "boolean", "only say whether it would be done")
_FILTER = (
    Query("resourceType", help="of resources of this type"),
    Query("associationType", help="of these types", many=True),
    Query("lifecycle", help="WEAK or STRONG"),
)


def endpoints(gate: RegistryGate) -> list[Endpoint]:
    handlers = _Associations(gate)
    listed = list[UNDESCRIBED]
    resource = "/associations/resources/{resource}"
    return [
        Endpoint("POST", "/associations", handlers.create, "Associate a resource with subjects", (_DRY_RUN,),
                 body=AssociationRequest, answer=UNDESCRIBED),
        Endpoint("PUT", "/associations", handlers.update, "The same, or change it", (_DRY_RUN,),
                 body=AssociationRequest, answer=UNDESCRIBED),
        Endpoint("GET", "/associations/subjects/{subject}", handlers.by_subject, "The associations of a subject",
                 (*_FILTER, *PAGES), answer=listed),
        Endpoint("GET", resource, handlers.by_id, "The associations of a resource", (*_FILTER, *PAGES), answer=listed),
        Endpoint("GET", "/associations/resources/{resource}/{name}", handlers.by_name,
                 "The associations of a resource by its name; - is any namespace", (*_FILTER, *PAGES), answer=listed),
        Endpoint("DELETE", resource, handlers.delete, "Forget associations of a resource",
                 (*_FILTER, Query("cascadeLifecycle", "boolean", "delete the subjects of strong ones"), _DRY_RUN),
                 status=204),
    ]  # fmt: skip


class _Associations:
    def __init__(self, gate: RegistryGate) -> None:
        self._gate = gate

    async def create(self, request: Request) -> Response:
        return await self._associate(request, may_update=False)

    async def update(self, request: Request) -> Response:
        return await self._associate(request, may_update=True)

    async def _associate(self, request: Request, *, may_update: bool) -> Response:
        body = await read_body(request)
        wanted = decode_json(body, AssociationRequest)
        level = self._gate.registry.config.default_level
        now_ms = int(time.time() * 1000)
        is_dry_run = flag(request, "dryRun")

        def decide(state: State) -> Associated:
            return decide_associate(
                state, wanted, may_update=may_update, is_dry_run=is_dry_run, now_ms=now_ms, default_level=level
            )

        def answer(outcome: Associated) -> JsonObject:
            names = ("resourceName", "resourceNamespace", "resourceId", "resourceType")
            shown = {name: getattr(wanted, name) for name in names if getattr(wanted, name) is not None}
            if outcome.associations:
                keys = ("subject", "associationType", "lifecycle", "frozen")
                associations = [_association_json(each) for each in outcome.associations]
                shown["associations"] = [{key: each[key] for key in keys} for each in associations]
            return shown

        return await self._gate.write(request, body, decide, answer)

    async def by_subject(self, request: Request) -> Response:
        subject = named_subject(request, request.path_params["subject"])
        return self._list(request, lambda each: each.subject == subject)

    async def by_id(self, request: Request) -> Response:
        resource_id = request.path_params["resource"]
        return self._list(request, lambda each: each.resourceId == resource_id)

    async def by_name(self, request: Request) -> Response:
        namespace, name = request.path_params["resource"], request.path_params["name"]
        return self._list(
            request, lambda each: each.resourceName == name and namespace in (ANY_NAMESPACE, each.resourceNamespace)
        )

    def _list(self, request: Request, is_wanted: Callable[[Association], bool]) -> Response:
        found = _filter(request, self._gate.state, is_wanted)
        return json_response(request, [_association_json(each) for each in page(request, found)])

    async def delete(self, request: Request) -> Response:
        resource_id = request.path_params["resource"]
        cascade, is_dry_run = flag(request, "cascadeLifecycle"), flag(request, "dryRun")

        def decide(state: State) -> Associated:
            associations = _filter(request, state, lambda each: each.resourceId == resource_id)
            return decide_dissociate(state, associations, cascade=cascade, is_dry_run=is_dry_run)

        return await self._gate.write(request, b"", decide, None)


def _filter(request: Request, state: State, is_wanted: Callable[[Association], bool]) -> list[Association]:
    query = request.query_params
    types = query.getlist("associationType")
    return [
        each
        for each in all_associations(state)
        if is_wanted(each)
        and query.get("resourceType", each.resourceType) == each.resourceType
        and (not types or each.associationType in types)
        and query.get("lifecycle", each.lifecycle).upper() == each.lifecycle
    ]


def _association_json(association: Association) -> JsonObject:
    built: JsonObject = msgspec.to_builtins(association)
    return {**built, "frozen": association.isFrozen}

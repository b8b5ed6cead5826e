"""/ and /v1/metadata: that it is there, and what it is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pessoa import __version__
from pessoa.schema_registry.api.requests import RegistryGate
from pessoa.web.asgi_app import json_response
from pessoa.web.routing import UNDESCRIBED, Endpoint


def endpoints(gate: RegistryGate, cluster_id: str) -> list[Endpoint]:
    async def nothing(request: Request) -> Response:
        return json_response(request, {})

    async def identity(request: Request) -> Response:
        clusters = {"kafka-cluster": cluster_id, "schema-registry-cluster": gate.registry.config.group_id}
        return json_response(request, {"scope": {"path": [], "clusters": clusters}, "id": ""})

    async def version(request: Request) -> Response:
        return json_response(request, {"version": __version__, "commitId": "pessoa"})

    async def deployment(request: Request) -> Response:
        return json_response(request, {"attributes": {}})

    return [
        Endpoint("GET", "/", nothing, "It is there", answer=UNDESCRIBED),
        Endpoint("POST", "/", nothing, "It is there", answer=UNDESCRIBED),
        Endpoint("GET", "/v1/metadata/id", identity, "Which clusters", answer=UNDESCRIBED),
        Endpoint("GET", "/v1/metadata/version", version, "Which version", answer=UNDESCRIBED),
        Endpoint("GET", "/v1/metadata/deployment", deployment, "How it is deployed", answer=UNDESCRIBED),
    ]

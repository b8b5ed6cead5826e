"""A schema registry in memory, with the HTTP endpoints that the REST proxy uses.

It accepts every schema; a test that needs a refusal sets it in `refuse`. The real registry is tested in
tests/services/schema_registry, and together with the proxy in test_rest_with_registry.py.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pessoa.web.asgi_app import App, json_response, make_app
from pessoa.web.bodies import read_json
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class SmallRegistry:
    def __init__(self) -> None:
        self.subjects: dict[str, list[int]] = {}
        self.schemas: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.refuse: HttpProblem | None = None

    async def make(self) -> App:
        rows = [
            Endpoint("GET", "/schemas/ids/{id}", self._by_id),
            Endpoint("GET", "/subjects/{subject}/versions/{version}", self._by_version),
            Endpoint("POST", "/subjects/{subject}", self._look_up),
            Endpoint("POST", "/subjects/{subject}/versions", self._register),
        ]
        return make_app("registry", rows, consumes=(MEDIA_TYPE,), produces=(MEDIA_TYPE,))

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        schema_id = next((number for number, known in self.schemas.items() if known == schema), len(self.schemas) + 1)
        self.schemas[schema_id] = schema
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    async def _by_id(self, request: Request) -> Response:
        self.requests.append(f"GET id {request.path_params['id']}")
        schema = self.schemas.get(int(request.path_params["id"]))
        if schema is None:
            raise HttpProblem(404, "Schema not found", 40403)
        return json_response(request, schema)

    async def _by_version(self, request: Request) -> Response:
        subject, version = request.path_params["subject"], request.path_params["version"]
        self.requests.append(f"GET {subject} {version}")
        versions = self.subjects.get(subject)
        if versions is None:
            raise HttpProblem(404, f"Subject '{subject}' not found.", 40401)
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            raise HttpProblem(404, f"Version {version} not found.", 40402)
        return json_response(request, self._described(subject, number))

    async def _look_up(self, request: Request) -> Response:
        subject = request.path_params["subject"]
        self.requests.append(f"POST {subject}")
        sent = await self._sent(request)
        for number, schema_id in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[schema_id] == sent:
                return json_response(request, self._described(subject, number))
        raise HttpProblem(404, "Schema not found", 40403)

    async def _register(self, request: Request) -> Response:
        subject = request.path_params["subject"]
        self.requests.append(f"POST {subject} versions")
        sent = await self._sent(request)
        if self.refuse is not None:
            raise self.refuse
        return json_response(request, {"id": self.register(subject, sent)})

    async def _sent(self, request: Request) -> dict[str, Any]:
        return await read_json(request, dict[str, Any])

    def _described(self, subject: str, number: int) -> dict[str, Any]:
        schema_id = self.subjects[subject][number - 1]
        return {"subject": subject, "version": number, "id": schema_id, **self.schemas[schema_id]}

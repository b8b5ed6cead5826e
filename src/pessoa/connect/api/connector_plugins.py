"""/connector-plugins: the plugins, their keys, and the validation of a configuration."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pessoa.connect.api.json_messages import answer, flag, in_thread, settings_body
from pessoa.connect.common_keys import connector_keys
from pessoa.connect.config_validation import validate
from pessoa.connect.connector import Connector
from pessoa.connect.herder import Herder
from pessoa.connect.plugins import UnknownPlugin
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint, Query


class PluginsApi:
    def __init__(self, herder: Herder) -> None:
        self._herder = herder
        self._plugins = herder.plugins

    def endpoints(self) -> list[Endpoint]:
        only = (Query("connectorsOnly", "boolean"),)
        of = "/connector-plugins/{plugin}/config"
        return [
            Endpoint("GET", "/connector-plugins", self.list_plugins, "What connectors, or plugins, there are.", only),
            Endpoint("GET", of, self.keys, "The keys of a plugin.", (Query("version"),)),
            Endpoint("PUT", f"{of}/validate", self.validate, "Every key of a configuration, looked at."),
        ]

    async def list_plugins(self, request: Request) -> Response:
        found = self._plugins.list_plugins(connectors_only=flag(request, "connectorsOnly", True))
        return answer([{"class": each.name, "type": each.type, "version": each.version} for each in found])

    async def keys(self, request: Request) -> Response:
        try:
            kind, found = self._plugins.table(request.path_params["plugin"])
        except UnknownPlugin as unknown:
            raise HttpProblem(404, str(unknown)) from None
        rows = list(found.CONFIG)
        if issubclass(found, Connector):
            rows += connector_keys(self._plugins, {}, kind, found.VERSION)
        return answer([row.definition() for row in rows])

    async def validate(self, request: Request) -> Response:
        plugin = request.path_params["plugin"]
        settings = await settings_body(request)
        named = settings.get("connector.class")
        try:
            if named and self._plugins.connector(named) is not self._plugins.connector(plugin):
                raise HttpProblem(400, f"Included connector type {named} does not match request type {plugin}")
        except UnknownPlugin as unknown:
            raise HttpProblem(400, str(unknown)) from None
        verdict = await in_thread(validate, self._plugins, self._herder.config.settings, settings)
        return answer(verdict.answer())

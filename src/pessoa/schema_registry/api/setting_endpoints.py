"""/config and /mode: of everything, of a context, of a subject."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry.api.requests import RegistryGate, flag, place_of
from pessoa.schema_registry.model import ConfigValue, as_json
from pessoa.schema_registry.scopes import (
    Change,
    ConfigRequest,
    ModeRequest,
    decide_delete_config,
    decide_delete_mode,
    decide_set_config,
    decide_set_mode,
    find_config,
    find_mode,
)
from pessoa.schema_registry.state import State
from pessoa.web.asgi_app import json_response
from pessoa.web.bodies import decode_json, read_body
from pessoa.web.routing import Endpoint, Query

_DEFAULT = Query("defaultToGlobal", "boolean", "what holds there, wherever it is set")
_FORCE = Query("force", "boolean", "even if there are schemas already")
_RECURSIVE = Query("recursive", "boolean", "the subjects of the context too")


def endpoints(gate: RegistryGate) -> list[Endpoint]:
    handlers = _Settings(gate)
    rows = []
    for place in ("", "/{subject}"):
        rows += [
            Endpoint("GET", f"/config{place}", handlers.config, "The configuration", (_DEFAULT,),
                     answer=dict[str, Any]),
            Endpoint("PUT", f"/config{place}", handlers.set_config, "Change it", body=ConfigRequest,
                     answer=dict[str, Any]),
            Endpoint("DELETE", f"/config{place}", handlers.delete_config, "Back to the default",
                     answer=dict[str, Any]),
            Endpoint("GET", f"/mode{place}", handlers.mode, "The mode", (_DEFAULT,), answer=dict[str, str]),
            Endpoint("PUT", f"/mode{place}", handlers.set_mode, "Change it", (_FORCE,), body=ModeRequest,
                     answer=dict[str, str | None]),
            Endpoint("DELETE", f"/mode{place}", handlers.delete_mode, "Back to the default", (_RECURSIVE,),
                     answer=dict[str, str | None]),
        ]  # fmt: skip
    return rows


class _Settings:
    def __init__(self, gate: RegistryGate) -> None:
        self._gate = gate
        self._level = gate.registry.config.default_level
        self._mutable = gate.registry.config.mode_mutability

    async def config(self, request: Request) -> Response:
        default = flag(request, "defaultToGlobal")
        found = find_config(self._gate.state, place_of(request), self._level, default_to_global=default)
        return json_response(request, _config_json(found))

    async def set_config(self, request: Request) -> Response:
        body = await read_body(request)
        wanted, place = decode_json(body, ConfigRequest), place_of(request)

        def decide(state: State) -> Change:
            return decide_set_config(state, place, wanted)

        def answer(change: Change) -> dict[str, Any]:
            # All that is set there, with the level under the name that a request has for it.
            shown = _config_json(change.config or ConfigValue())
            level = shown.pop("compatibilityLevel", None)
            return shown if level is None else {"compatibility": level, **shown}

        return await self._gate.write(request, body, decide, answer)

    async def delete_config(self, request: Request) -> Response:
        place = place_of(request)

        def decide(state: State) -> Change:
            return decide_delete_config(state, place, self._level)

        return await self._gate.write(request, b"", decide, lambda change: _config_json(change.config or ConfigValue()))

    async def mode(self, request: Request) -> Response:
        default = flag(request, "defaultToGlobal")
        return json_response(
            request, {"mode": find_mode(self._gate.state, place_of(request), default_to_global=default)}
        )

    async def set_mode(self, request: Request) -> Response:
        body = await read_body(request)
        wanted, place, force = decode_json(body, ModeRequest), place_of(request), flag(request, "force")

        def decide(state: State) -> Change:
            return decide_set_mode(state, place, wanted, force=force, mutable=self._mutable)

        return await self._gate.write(request, body, decide, lambda change: {"mode": change.mode})

    async def delete_mode(self, request: Request) -> Response:
        place, recursive = place_of(request), flag(request, "recursive")

        def decide(state: State) -> Change:
            return decide_delete_mode(state, place, recursive=recursive, mutable=self._mutable)

        return await self._gate.write(request, b"", decide, lambda change: {"mode": change.mode})


def _config_json(config: ConfigValue) -> dict[str, Any]:
    return {name: value for name, value in as_json(config).items() if name != "subject"}

"""The API for assistants: `POST /api/mcp` speaks the Model Context Protocol (JSON-RPC 2.0 over HTTP, without sessions).

    initialize, ping, notifications/…     the handshake
    tools/list                            a tool for each GET of the API, with its parameters
    tools/call                            asks that endpoint as the caller: logins, limits and masks count as ever

Tools only read. A tool is named after its path: `/topics/{topic}/messages` is `topic_messages`. What an endpoint
refuses comes back as the tool's answer with `isError`, so that an assistant can read the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa import __version__
from pessoa.base.json_value import JsonValue
from pessoa.web.asgi_app import json_response
from pessoa.web.bodies import read_json
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint

PATH = "/api/mcp"
VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
_PREFIX = "/api/v1/"
_NO_METHOD, _BAD_PARAMETERS = -32601, -32602
_PARAMETER = re.compile(r"\{(\w+)\}")


class Call(msgspec.Struct):
    method: str
    jsonrpc: str = "2.0"
    # Absent in a notification.
    id: int | str | None = None
    params: dict[str, Any] = {}


class BadCall(ValueError):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def tool_name(path: str) -> str:
    """Return a tool's name for a path: `/api/v1/topics/{topic}/messages` → topic_messages. A parameter replaces the
    word before it."""
    words: list[str] = []
    for segment in path.removeprefix(_PREFIX).split("/"):
        parameter = _PARAMETER.fullmatch(segment)
        if parameter is None:
            words.append(segment)
        else:
            words[-1:] = [parameter[1]]
    return "_".join(words)


def tools_of(rows: Sequence[Endpoint]) -> dict[str, Endpoint]:
    return {tool_name(row.path): row for row in rows if row.method == "GET" and row.path.startswith(_PREFIX)}


def described(name: str, row: Endpoint) -> dict[str, JsonValue]:
    in_path: list[JsonValue] = list(_PARAMETER.findall(row.path))
    fields: dict[str, JsonValue] = {str(one): {"type": "string"} for one in in_path}
    for one in row.query:
        about: dict[str, JsonValue] = {"type": one.kind, "description": one.help} if one.help else {"type": one.kind}
        fields[one.name] = {"type": "array", "items": about} if one.many else about
    schema: dict[str, JsonValue] = {"type": "object", "properties": fields, "required": in_path}
    hints: dict[str, JsonValue] = {"readOnlyHint": True}
    return {"name": name, "description": row.summary, "inputSchema": schema, "annotations": hints}


def request_for(row: Endpoint, arguments: Mapping[str, object], outer: Request) -> Request:
    """Return the request to an endpoint for the call of a tool, with the same caller. Raises `BadCall`."""
    in_path = _PARAMETER.findall(row.path)
    known = {*in_path, *(one.name for one in row.query)}
    unknown = sorted(set(arguments) - known)
    missing = [name for name in in_path if not arguments.get(name)]
    if unknown or missing:
        words = [f"there is no {name}" for name in unknown] + [f"{name} is missing" for name in missing]
        raise BadCall(_BAD_PARAMETERS, "; ".join(words))
    pairs = [
        (name, str(one).lower() if isinstance(one, bool) else str(one))
        for name, value in arguments.items() if name not in in_path
        for one in (value if isinstance(value, list) else [value])
    ]  # fmt: skip
    scope = {
        **outer.scope, "method": "GET", "query_string": urlencode(pairs).encode(),
        "path_params": {name: str(arguments[name]) for name in in_path},
    }  # fmt: skip
    return Request(scope, outer.receive)


def tool_endpoint(rows: Sequence[Endpoint]) -> Endpoint:
    tools = tools_of(rows)

    async def answer(request: Request) -> Response:
        call = await read_json(request, Call)
        if call.id is None:
            # A notification wants no answer.
            return Response(status_code=202)
        try:
            result = await respond(call, tools, request)
        except BadCall as wrong:
            error = {"code": wrong.code, "message": str(wrong)}
            return json_response(request, {"jsonrpc": "2.0", "id": call.id, "error": error})
        return json_response(request, {"jsonrpc": "2.0", "id": call.id, "result": result})

    return Endpoint("POST", PATH, answer, "Tools for assistants (Model Context Protocol).", body=Call, is_listed=False)


async def respond(call: Call, tools: Mapping[str, Endpoint], request: Request) -> dict[str, JsonValue]:
    """Return the JSON-RPC result of a call. Raises `BadCall`."""
    match call.method:
        case "initialize":
            version = call.params.get("protocolVersion")
            about: dict[str, JsonValue] = {"name": "pessoa-control-center", "version": __version__}
            return {"protocolVersion": version if version in VERSIONS else VERSIONS[0], "capabilities": {"tools": {}},
                    "serverInfo": about}  # fmt: skip
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [described(name, row) for name, row in sorted(tools.items())]}
        case "tools/call":
            return await _call(call.params, tools, request)
    raise BadCall(_NO_METHOD, f"there is no method {call.method}")


async def _call(params: Mapping[str, Any], tools: Mapping[str, Endpoint], request: Request) -> dict[str, JsonValue]:
    row, arguments = tools.get(str(params.get("name"))), params.get("arguments") or {}
    if row is None or not isinstance(arguments, dict):
        raise BadCall(_BAD_PARAMETERS, f"there is no tool {params.get('name')}; tools/list names them")
    try:
        found = await row.handle(request_for(row, arguments, request))
        text, is_error = bytes(found.body).decode(), False
    except HttpProblem as problem:
        if problem.status == 401:
            raise
        text, is_error = problem.message, True
    return {"content": [{"type": "text", "text": text}], "isError": is_error}

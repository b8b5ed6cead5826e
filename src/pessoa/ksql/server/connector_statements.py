"""Statements about connectors: requests to Connect's REST API (`ksql.connect.url`).

Connect is asked with the login of the server (`ksql.connect.basic.auth.user.info`); without one, with that of the
caller, as ksqlDB does: the caller must be allowed at Connect what the statement does.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pessoa.ksql.server import entities
from pessoa.ksql.server.entities import Entity, Json
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, SERVER_ERROR, KsqlProblem
from pessoa.ksql.syntax import statement_nodes as nodes
from pessoa.ksql.syntax.statement_nodes import Statement

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 30.0


class Connectors:
    def __init__(self, url: str, settings: Mapping[str, str], authorization: str | None = None) -> None:
        """`settings` are those below `ksql.connect.`: basic.auth.user.info and ssl.truststore.location are used."""
        self._url = url.rstrip("/")
        self._settings = settings
        # The header of the caller.
        self._authorization = authorization

    def for_caller(self, authorization: str | None) -> Connectors:
        return Connectors(self._url, self._settings, authorization)

    def __repr__(self) -> str:
        return f"<Connectors of {self._url}>"

    def execute(self, statement: Statement, text: str) -> Entity:
        match statement:
            case nodes.CreateConnector():
                return self._create(statement, text)
            case nodes.DropConnector(name, if_exists):
                response = self._send_request("DELETE", f"/connectors/{quote(name, safe='')}", text=text, may_miss=True)
                if response.status_code == 404:
                    message = f"Connector {name} does not exist."
                    if if_exists:
                        return entities.entity("warning_entity", text, message=message)
                    raise KsqlProblem(BAD_STATEMENT, message, text)
                return entities.entity("drop_connector", text, connectorName=name)
            case nodes.DescribeConnector(name):
                return self._describe(name, text)
            case nodes.ShowConnectors(kind):
                return self._list(None if kind is None else kind.value.lower(), text)
        raise KsqlProblem(BAD_STATEMENT, "There is nothing here that can do this statement.", text)

    def plugins(self, text: str) -> Entity:
        found: Json = self._send_request("GET", "/connector-plugins", text=text).json()
        return entities.entity("connector_plugins_list", text, connectorsPlugins=found)

    def _create(self, statement: nodes.CreateConnector, text: str) -> Entity:
        config = {one.name: _setting(one.value.value) for one in statement.properties}
        config.setdefault("name", statement.name)
        path = f"/connectors/{quote(statement.name, safe='')}"
        if self._send_request("GET", path, text=text, may_miss=True).status_code == 200:
            message = f"Connector {statement.name} already exists"
            if statement.if_not_exists:
                return entities.entity("warning_entity", text, message=message)
            raise KsqlProblem(BAD_STATEMENT, message, text)
        info = self._send_request("POST", "/connectors", {"name": statement.name, "config": config}, text=text).json()
        return entities.entity("connector_info", text, info=info)

    def _describe(self, name: str, text: str) -> Entity:
        path = f"/connectors/{quote(name, safe='')}"
        info = self._send_request("GET", path, text=text).json()
        status = self._send_request("GET", f"{path}/status", text=text).json()
        topics = self._send_request("GET", f"{path}/topics", text=text, may_miss=True)
        named: Json = topics.json().get(name, {}).get("topics", []) if topics.status_code == 200 else []
        return entities.entity(
            "connector_description", text, connectorClass=info.get("config", {}).get("connector.class", ""),
            status=status, sources=[], topics=named,
        )  # fmt: skip

    def _list(self, kind: str | None, text: str) -> Entity:
        found: dict[str, Any] = self._send_request("GET", "/connectors?expand=status&expand=info", text=text).json()
        rows: list[Json] = []
        for name, one in sorted(found.items()):
            status, info = one.get("status", {}), one.get("info", {})
            own = str(status.get("type") or info.get("type") or "unknown").lower()
            tasks = status.get("tasks", [])
            running = sum(task.get("state") == "RUNNING" for task in tasks)
            state = status.get("connector", {}).get("state", "UNKNOWN")
            if state == "RUNNING" and running < len(tasks):
                state = "WARNING" if running else "FAILED"
            if kind is None or own == kind:
                rows.append({
                    "name": name, "type": own, "className": info.get("config", {}).get("connector.class", ""),
                    "state": f"{state} ({running}/{len(tasks)} tasks RUNNING)",
                })  # fmt: skip
        return entities.entity("connector_list", text, connectors=rows)

    def _send_request(
        self, method: str, path: str, body: object = None, *, text: str, may_miss: bool = False
    ) -> httpx.Response:
        import httpx

        try:
            response = httpx.request(
                method, self._url + path, json=body, timeout=_TIMEOUT_S, verify=self._trust(), headers=self._login()
            )
        except httpx.HTTPError as failure:
            raise KsqlProblem(
                SERVER_ERROR, f"Connect at {self._url} does not answer: {failure}. ksql.connect.url says where it is.",
                text,
            ) from None  # fmt: skip
        if response.status_code >= 400 and not (may_miss and response.status_code == 404):
            raise KsqlProblem(BAD_STATEMENT, f"Connect refused: {_message(response)}", text)
        return response

    def _login(self) -> dict[str, str]:
        own = self._settings.get("basic.auth.user.info")
        if own:
            return {"Authorization": f"Basic {base64.b64encode(own.encode()).decode()}"}
        return {} if self._authorization is None else {"Authorization": self._authorization}

    def _trust(self) -> Any:
        authority = self._settings.get("ssl.truststore.location")
        if authority is None:
            return True
        from pessoa.web.trust import tls_context

        return tls_context(authority)


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json().get("message", response.text[:500]))
    except ValueError:
        return response.text[:500]


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

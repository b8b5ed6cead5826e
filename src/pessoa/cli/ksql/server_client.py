"""A ksql server over HTTP, from the standard library alone: the command starts in a tenth of a second."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

V1 = "application/vnd.ksql.v1+json"
LINES = "application/vnd.ksqlapi.delimited.v1"
_CONNECT_S = 10.0


class ServerRefused(Exception):
    """An error response of the server: its message, its code, and the entities of the statements before it that were
    run."""

    def __init__(self, message: str, code: int = 0, entities: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.entities = entities or []


class ServerUnreachable(Exception):
    """No ksql server answers at this address."""


class Rows:
    """A streamed response: its lines, until `close`."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        try:
            while line := self._response.readline():
                yield line
        except (OSError, http.client.HTTPException) as failure:
            raise ServerUnreachable(f"The connection to the server ended: {failure}") from None

    def close(self) -> None:
        self._connection.close()


class KsqlClient:
    def __init__(
        self, url: str, user: str | None = None, password: str | None = None, *, token: str | None = None,
        authority: str | None = None,
    ) -> None:  # fmt: skip
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerUnreachable(f"{url} is no address of a server: write http://host:port")
        self._parts = parts
        self._authority = authority
        self._headers: dict[str, str] = {}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user:
            login = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = self._json("GET", "/info")["KsqlServerInfo"]
        return found

    def statements(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        body = {"ksql": text, "streamsProperties": dict(properties), "sessionVariables": dict(variables)}
        found: list[dict[str, Any]] = self._json("POST", "/ksql", body)
        return found

    def rows(self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]) -> Rows:
        body = {"sql": text, "properties": dict(properties), "sessionVariables": dict(variables)}
        connection, response = self._send("POST", "/query-stream", body, LINES, timeout=None)
        if response.status != http.client.OK:
            raise _refusal(response.status, response.read())
        return Rows(connection, response)

    def _json(self, method: str, path: str, body: object = None) -> Any:
        connection, response = self._send(method, path, body, V1, timeout=300.0)
        try:
            data = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise _refusal(response.status, data)
        return json.loads(data)

    def _send(
        self, method: str, path: str, body: object, accept: str, *, timeout: float | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        host, port = self._parts.hostname or "", self._parts.port
        connection: http.client.HTTPConnection
        if self._parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._authority)
            connection = http.client.HTTPSConnection(host, port, timeout=_CONNECT_S, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        headers = {**self._headers, "Accept": accept, "Content-Type": V1}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.connect()
            connection.sock.settimeout(timeout)
            connection.request(method, self._parts.path.rstrip("/") + path, data, headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as failure:
            connection.close()
            raise ServerUnreachable(f"No ksql server answers at {self.url}: {failure}") from None
        except KeyboardInterrupt:
            # The server ends a query whose client has disconnected.
            connection.close()
            raise


def _refusal(status: int, data: bytes) -> ServerRefused:
    try:
        body = json.loads(data)
        return ServerRefused(str(body.get("message", body)), int(body.get("error_code", 0)), body.get("entities"))
    except (ValueError, AttributeError):
        return ServerRefused(f"HTTP {status}: {data[:300].decode(errors='replace')}")

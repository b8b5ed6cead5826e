"""The services beside the cluster, by their REST interfaces: schema registry, Connect, ksql, pipelines.

A service that is not configured, or does not answer, is no error of a page: `state` says what is wrong, and the page
shows its parts greyed out with that sentence. A service's own refusal (`{"error_code", "message"}`) is passed on as it
is.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from urllib.parse import quote, unquote, urlsplit

import httpx
import msgspec

from pessoa.base.json_value import JsonValue
from pessoa.control_center.views import ServiceState
from pessoa.web.problems import HttpProblem

STATE_S = 3.0
TIMEOUT_S = 10.0
_MAX_BYTES = 32 << 20


@functools.cache
def _public_trust() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def trust_for(urls: Iterable[str], trust: ssl.SSLContext | bool = True) -> ssl.SSLContext | bool:
    """What a client of these URLs verifies certificates by. Reading all authorities of the machine takes a tenth of a
    second: not at all without TLS, and once for all services."""
    if not any(url.lower().startswith("https:") for url in urls):
        return False
    return _public_trust() if trust is True else trust


class ServiceLink:
    """One service. `probe` is the path that says whether it is there."""

    def __init__(
        self, name: str, url: str, probe: str, *, trust: ssl.SSLContext | bool = True,
        login: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        parts = urlsplit(url.rstrip("/"))
        userinfo, _, host = parts.netloc.rpartition("@")
        # Pages and sentences show the URL: a login in it is taken out here, and sent as if it were given apart.
        self.url = parts._replace(netloc=host).geturl()
        self._login = login or (_login_of(userinfo) if userinfo else None)
        self._probe = probe
        self._trust = trust
        self._http: httpx.AsyncClient | None = None
        self._state: ServiceState | None = None
        self._state_at_s = float("-inf")

    def __repr__(self) -> str:
        return f"<ServiceLink {self.name} at {self.url or 'nowhere'}>"

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            # A proxy of the environment is for the world outside.
            self._http = httpx.AsyncClient(
                timeout=httpx.Timeout(TIMEOUT_S, connect=2.0), trust_env=False, auth=self._login,
                verify=trust_for([self.url], self._trust),
            )  # fmt: skip
        return self._http

    async def state(self) -> ServiceState:
        if self._state is None or time.monotonic() - self._state_at_s > STATE_S:
            self._state = await self._ask_state()
            self._state_at_s = time.monotonic()
        return self._state

    async def _ask_state(self) -> ServiceState:
        if not self.url:
            return ServiceState(self.name, "", False, f"{self.name} is not configured here.")
        try:
            answer = await self._client().get(self.url + self._probe, timeout=2.0)
        except httpx.HTTPError as failure:
            reason = str(failure) or type(failure).__name__
            return ServiceState(self.name, self.url, False, f"{self.name} at {self.url} does not answer: {reason}")
        if answer.is_server_error:
            return ServiceState(self.name, self.url, False, f"{self.name} answers {answer.status_code}.")
        return ServiceState(self.name, self.url, True)

    async def ask(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> JsonValue:  # fmt: skip
        """The decoded answer. Raises an `HttpProblem`: 503 where the service is away, or its own refusal."""
        if not self.url:
            raise HttpProblem(503, f"{self.name} is not configured here.", 50301)
        try:
            answer = await self._client().request(
                method, self.url + path, params=query,
                content=None if body is None else msgspec.json.encode(body),
                headers={"Content-Type": content_type, "Accept": "application/json, */*"},
            )  # fmt: skip
        except httpx.HTTPError as failure:
            self._state_at_s = float("-inf")
            reason = str(failure) or type(failure).__name__
            raise HttpProblem(503, f"{self.name} at {self.url} does not answer: {reason}", 50302) from None
        if not answer.is_success:
            raise _refusal(self.name, answer)
        if not answer.content.strip() or len(answer.content) > _MAX_BYTES:
            return None
        try:
            found: JsonValue = msgspec.json.decode(answer.content)
        except msgspec.DecodeError:
            return answer.text[:10_000]
        return found

    async def stream_lines(self, path: str, body: object) -> AsyncIterator[str]:
        """The lines of a streamed answer, as they come."""
        if not self.url:
            raise HttpProblem(503, f"{self.name} is not configured here.", 50301)
        try:
            async with self._client().stream(
                "POST", self.url + path, content=msgspec.json.encode(body),
                headers={"Content-Type": "application/vnd.ksql.v1+json", "Accept": "application/vnd.ksql.v1+json"},
                timeout=httpx.Timeout(None, connect=2.0),
            ) as answer:  # fmt: skip
                if not answer.is_success:
                    await answer.aread()
                    raise _refusal(self.name, answer)
                async for line in answer.aiter_lines():
                    yield line
        except httpx.HTTPError as failure:
            raise HttpProblem(503, f"{self.name} ended the answer: {failure}", 50302) from None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()


def _login_of(userinfo: str) -> tuple[str, str]:
    name, _, password = userinfo.partition(":")
    return unquote(name), unquote(password)


def _refusal(name: str, answer: httpx.Response) -> HttpProblem:
    message = f"{name} answered {answer.status_code}."
    code = answer.status_code
    try:
        body = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        body = answer.text[:300]
    if isinstance(body, dict):
        message = str(body.get("message") or message)
        code = body["error_code"] if isinstance(body.get("error_code"), int) else code
    return HttpProblem(answer.status_code if answer.status_code < 500 else 502, message, code)


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


class Services:
    """The four services, by their names."""

    def __init__(self, registry: ServiceLink, connect: ServiceLink, ksql: ServiceLink, pipelines: ServiceLink) -> None:
        self.registry = registry
        self.connect = connect
        self.ksql = ksql
        self.pipelines = pipelines

    async def states(self) -> list[ServiceState]:
        return list(await asyncio.gather(*(one.state() for one in self.all)))

    @property
    def all(self) -> tuple[ServiceLink, ...]:
        return (self.registry, self.connect, self.ksql, self.pipelines)

    async def close(self) -> None:
        for one in self.all:
            await one.close()

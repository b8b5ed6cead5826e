"""The services beside the cluster, by their REST interfaces: schema registry, Connect, ksql, pipelines.

A service that is not configured, or does not answer, is no error of a page: `state` says what is wrong, and the page
shows its parts greyed out with that sentence. A service's own refusal (`{"error_code", "message"}`) is passed on as it
is.

The schema registry is asked by its one client (`client/registry_client.py`); here stand what pages need beside it: the
state of the registry as that of any service, and its failures as `HttpProblem`s in the words of all services.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

import httpx
import msgspec

from pessoa.base.json_value import JsonValue
from pessoa.client.registry_client import AsyncRegistryClient, Question, RegistryRefused, RegistryUnreachable
from pessoa.control_center.views import ServiceState
from pessoa.web.problems import HttpProblem
from pessoa.web.trust import trust_for

T = TypeVar("T")

STATE_S = 3.0
CONNECT_TIMEOUT_S = 2.0
TIMEOUT_S = 10.0
_MAX_BYTES = 32 << 20


class Service:
    """A service with its URL; its `probe` path answers if the service is up."""

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
        return f"<{type(self).__name__} {self.name} at {self.url or 'nowhere'}>"

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            # A proxy of the environment is for the world outside.
            self._http = httpx.AsyncClient(
                timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S), trust_env=False, auth=self._login,
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

    def _demand_url(self) -> None:
        if not self.url:
            raise HttpProblem(503, f"{self.name} is not configured here.", 50301)

    def _unreachable_problem(self, reason: str) -> HttpProblem:
        self._state_at_s = float("-inf")
        return HttpProblem(503, f"{self.name} at {self.url} does not answer: {reason}", 50302)

    def _refusal(self, status: int, message: str = "", code: int = 0) -> HttpProblem:
        text = message or f"{self.name} answered {status}."
        return HttpProblem(status if status < 500 else 502, text, code or status)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()


class ServiceLink(Service):
    """A service that is requested by method and path."""

    async def ask(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> JsonValue:
        """Return the decoded response. Raises an `HttpProblem`: 503 if the service does not answer, or its own
        error."""
        self._demand_url()
        try:
            answer = await self._client().request(
                method, self.url + path,
                content=None if body is None else msgspec.json.encode(body),
                headers={"Content-Type": content_type, "Accept": "application/json, */*"},
            )  # fmt: skip
        except httpx.HTTPError as failure:
            raise self._unreachable_problem(str(failure) or type(failure).__name__) from None
        if not answer.is_success:
            raise self._refusal(answer.status_code, *_error_of(answer))
        if not answer.content.strip() or len(answer.content) > _MAX_BYTES:
            return None
        try:
            found: JsonValue = msgspec.json.decode(answer.content)
        except msgspec.DecodeError:
            return answer.text[:10_000]
        return found

    async def stream_lines(self, path: str, body: object) -> AsyncIterator[str]:
        """Yield the lines of a streamed response as they arrive."""
        self._demand_url()
        try:
            async with self._client().stream(
                "POST", self.url + path, content=msgspec.json.encode(body),
                headers={"Content-Type": "application/vnd.ksql.v1+json", "Accept": "application/vnd.ksql.v1+json"},
                timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            ) as answer:  # fmt: skip
                if not answer.is_success:
                    await answer.aread()
                    raise self._refusal(answer.status_code, *_error_of(answer))
                async for line in answer.aiter_lines():
                    yield line
        except httpx.HTTPError as failure:
            raise HttpProblem(503, f"{self.name} ended the answer: {failure}", 50302) from None


class RegistryLink(Service):
    """The schema registry; its requests are those of `client/registry_client.py`."""

    def __init__(
        self, url: str, settings: Mapping[str, str], *, trust: ssl.SSLContext | bool = True,
        login: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__("Schema Registry", url, "/subjects", trust=trust, login=login)
        # A page waits no longer for the registry than for any service, unless the settings say otherwise.
        timeouts = {
            "http.connect.timeout.ms": f"{CONNECT_TIMEOUT_S * 1000:.0f}",
            "http.read.timeout.ms": f"{TIMEOUT_S * 1000:.0f}",
        }
        self._registry = AsyncRegistryClient({**timeouts, **settings, "schema.registry.url": url})

    async def ask(self, question: Question[T]) -> T:
        """Return the registry's response. Raises an `HttpProblem`: 503 if the registry does not answer, or its own
        error."""
        self._demand_url()
        try:
            return await self._registry.ask(question)
        except RegistryRefused as refused:
            raise self._refusal(refused.status, str(refused), refused.code) from None
        except RegistryUnreachable as failure:
            if failure.status:
                raise self._refusal(failure.status) from None
            raise self._unreachable_problem(failure.reason) from None

    async def close(self) -> None:
        await super().close()
        await self._registry.aclose()


def _login_of(userinfo: str) -> tuple[str, str]:
    name, _, password = userinfo.partition(":")
    return unquote(name), unquote(password)


def _error_of(refusal: httpx.Response) -> tuple[str, int]:
    """Return the message and code of a service's error response, "" and 0 if it has none."""
    try:
        body = msgspec.json.decode(refusal.content)
    except msgspec.DecodeError:
        return "", 0
    if not isinstance(body, dict):
        return "", 0
    code = body.get("error_code")
    return str(body.get("message") or ""), code if isinstance(code, int) else 0


def segment(text: str) -> str:
    """Return a name quoted as one segment of a path."""
    return quote(text, safe="")


class Services:
    """The four services, by their names."""

    def __init__(self, registry: RegistryLink, connect: ServiceLink, ksql: ServiceLink, pipelines: ServiceLink) -> None:
        self.registry = registry
        self.connect = connect
        self.ksql = ksql
        self.pipelines = pipelines

    async def states(self) -> list[ServiceState]:
        return list(await asyncio.gather(*(one.state() for one in self.all)))

    @property
    def all(self) -> tuple[Service, ...]:
        return (self.registry, self.connect, self.ksql, self.pipelines)

    async def close(self) -> None:
        for one in self.all:
            await one.close()

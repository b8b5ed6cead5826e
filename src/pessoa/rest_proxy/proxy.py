"""What the handlers of one proxy share: its settings, its Kafka clients, its consumer instances, its schemas.

It is opened when the service starts to serve and closed when it stops; closing lets every consumer leave its group and
gives records under way a last chance. Addresses in answers (`base_uri`, the links of v3) are made here as well.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Gauge
from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.clock import Clock, SystemClock
from pessoa.rest_proxy.caller_clients import CLIENTS_KEY, CallerClients, Clients, StreamedResponse, own_identity
from pessoa.rest_proxy.consumer_instances import Consumers
from pessoa.rest_proxy.producing import ProducerMetrics
from pessoa.rest_proxy.proxy_config import Config
from pessoa.rest_proxy.record_schemas import Schemas
from pessoa.web.asgi_app import caller
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Handler

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
HEALTH_TIMEOUT_S = 5.0
# Ports that a URL does not name.
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Proxy:
    # Of the proxy itself.
    own: Clients
    callers: CallerClients
    consumers: Consumers
    schemas: Schemas

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        # `rest_proxy_app` puts the app's registry here, before anything runs.
        self.metrics = CollectorRegistry()
        self.clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"<Proxy to {self.config.bootstrap_servers}>"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        config = self.config
        written = ProducerMetrics(self.metrics)
        self.own = Clients(config, own_identity(config), written)
        self.callers = CallerClients(config, written, self.clock)
        self.consumers = Consumers(config, self.clock)
        self.schemas = Schemas(config.registry_settings)
        instances = Gauge("rest_proxy_consumer_instances", "Consumer instances that are alive.", registry=self.metrics)
        instances.set_function(lambda: len(self.consumers))
        callers = Gauge("rest_proxy_callers", "Callers that have Kafka clients of their own.", registry=self.metrics)
        callers.set_function(lambda: len(self.callers))
        expiries = [asyncio.create_task(each.expire_forever()) for each in (self.consumers, self.callers)]
        try:
            yield
        finally:
            for expiry in expiries:
                expiry.cancel()
            await asyncio.gather(*expiries, return_exceptions=True)
            await self.consumers.close()
            await self.callers.close()
            await self.own.close()
            await self.schemas.close()

    def with_clients(self, handle: Handler) -> Handler:
        """Return a handler that puts the clients which are to serve its request into the request's scope
        (`clients_of`)."""

        async def with_own(request: Request) -> Response:
            request.scope[CLIENTS_KEY] = self.own
            return await handle(request)

        async def with_callers(request: Request) -> Response:
            found = caller(request)
            assert found is not None, "a proxy that acts as its callers demands a login"
            clients = request.scope[CLIENTS_KEY] = self.callers.take(found)
            try:
                await clients.start()
                response = await handle(request)
            except BaseException:
                self.callers.release(found)
                raise
            if isinstance(response, StreamedResponse):
                response.on_end = lambda: self.callers.release(found)
            else:
                self.callers.release(found)
            return response

        return with_callers if self.config.acts_as_callers else with_own

    async def trouble(self) -> str | None:
        """Return why the proxy cannot reach the cluster, for the health page; None if it can."""
        try:
            await asyncio.wait_for(self.own.admin.describe_cluster(), HEALTH_TIMEOUT_S)
        except TimeoutError:
            return f"no answer from {self.config.bootstrap_servers}"
        except HttpProblem as problem:
            return problem.message
        return None

    @staticmethod
    def is_topic_name(text: str) -> bool:
        return _TOPIC_NAME.fullmatch(text) is not None and text not in (".", "..")

    def base_url(self, request: Request) -> str:
        """Return the `http://host:port` at which callers reach this proxy."""
        scheme = request.url.scheme
        for listener in self.config.advertised:
            if listener.scheme == scheme:
                return f"{scheme}://{_authority(listener.host, listener.port, scheme)}"
        if self.config.host_name is not None:
            return f"{scheme}://{_authority(self.config.host_name, self.config.http.listener.port, scheme)}"
        return f"{scheme}://{request.headers.get('host') or request.url.netloc}"


def _authority(host: str, port: int, scheme: str) -> str:
    return host if port == _DEFAULT_PORTS[scheme] else f"{host}:{port}"

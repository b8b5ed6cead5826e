"""The table of endpoints, and the application made of it.

Names in the first column are those of `api.endpoints.blocklist` and `allowlist`: an endpoint, or a family by its
beginning (`api.v3.acls`). An endpoint that is blocked is not in the table, and is answered like any unknown path.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from pessoa.base.clock import Clock
from pessoa.rest_proxy.media import GENERAL, JSON, MEDIA_TYPES
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_config import Config
from pessoa.rest_proxy.v2.v2_endpoints import v2_endpoints
from pessoa.rest_proxy.v3.v3_endpoints import v3_endpoints
from pessoa.web.asgi_app import App, make_app
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint

NamedEndpoint = tuple[str, Endpoint]
_EMBEDDED = frozenset(MEDIA_TYPES.values())


def error_body(problem: HttpProblem, media_type: str) -> tuple[bytes, str]:
    """Return the JSON of a problem and its media type: errors are not records, so the general type takes the place
    of an embedded one."""
    body = msgspec.json.encode({"error_code": problem.code, "message": problem.message})
    return body, GENERAL if media_type in _EMBEDDED else media_type


def rest_proxy_app(config: Config, clock: Clock | None = None) -> App:
    proxy = Proxy(config, clock)
    named: list[NamedEndpoint] = []
    if config.v2_enabled:
        named += v2_endpoints(proxy)
    if config.v3_enabled:
        named += v3_endpoints(proxy)
    app = make_app(
        "kafka-rest",
        (
            replace(endpoint, handle=proxy.with_clients(endpoint.handle))
            for name, endpoint in named
            if is_offered(name, config.allowed, config.blocked)
        ),
        consumes=(JSON,),
        produces=(JSON,),
        error_body=error_body,
        auth=config.http.authenticator(config.bootstrap_servers, config.java_admin),
        body_limit=config.http.request_max_bytes,
        lifespan=proxy.running,
        health=proxy.trouble,
    )
    proxy.metrics = app.metrics.registry
    return app


def is_offered(name: str, allowed: Iterable[str], blocked: Iterable[str]) -> bool:
    """Whether an endpoint is offered: it is in the allow list, or that is empty, and it is not in the block list."""

    def is_in(names: Iterable[str]) -> bool:
        return any(name == each or name.startswith(f"{each}.") for each in names)

    return (not allowed or is_in(allowed)) and not is_in(blocked)

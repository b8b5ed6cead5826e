"""The table of API v3."""

from __future__ import annotations

from pessoa.rest_proxy.proxy import Proxy
from pessoa.web.routing import Endpoint


def v3_endpoints(proxy: Proxy) -> list[tuple[str, Endpoint]]:
    assert proxy.config.v3_enabled
    return []

"""/metrics of brokers: bytes in and out, and how long requests take, where brokers have such a page.

Apache Kafka serves none by itself. Ours say with `pessoa.metrics.port`, which is asked of each broker's configuration
once; `pessoa.control.center.metrics.urls` names pages that cannot be found so (a JMX exporter).
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import httpx

from pessoa.client.cluster_client import Node
from pessoa.control_center.sample_history import RateMeter
from pessoa.web.trust import trust_for

PAGE_S = 2.0
_BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
_BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
_TIME = re.compile(r'kafka_network_requestmetrics_totaltimems\{request="([^"]+)",quantile="([0-9.]+)"\} (\S+)')
_COUNT = re.compile(r'kafka_network_requestmetrics_requests_total\{[^}]*request="([^"]+)"[^}]*\} (\S+)')


class RequestRow(NamedTuple):
    api: str
    requests: int
    median_ms: float | None
    p99_ms: float | None


class MetricsPages:
    def __init__(self, urls: Sequence[str], find_port: Callable[[int], Awaitable[int | None]]) -> None:
        """`find_port` returns the port of a broker's metrics page."""
        self._urls: dict[int, str | None] = dict(_parse_urls(urls))
        self._given = [one for one in self._urls.values() if one]
        self._find_port = find_port
        self._http: httpx.AsyncClient | None = None
        self._rates = RateMeter()
        self._pages: dict[int, tuple[float, str | None]] = {}
        self.is_ours = False

    def __repr__(self) -> str:
        return f"<MetricsPages of {len(self._pages)} brokers>"

    async def traffic(self, nodes: Iterable[Node]) -> dict[int, tuple[float, float]]:
        """Return the bytes in and out per second of each broker that has a metrics page."""
        found = {}
        for node in nodes:
            page = await self.page(node)
            if page is None:
                continue
            now_ms = int(time.time() * 1000)
            rates = [
                self._rates.read(f"{node.node_id}:{name}", now_ms, _total(page, name))
                for name in (_BYTES_IN, _BYTES_OUT)
            ]
            found[node.node_id] = (rates[0] or 0.0, rates[1] or 0.0)
        return found

    async def page(self, node: Node) -> str | None:
        """Return the text of a broker's metrics page; None if it has none or does not answer."""
        at_s, page = self._pages.get(node.node_id, (float("-inf"), None))
        if time.monotonic() - at_s < (PAGE_S if page is not None else 15.0):
            return page
        if node.node_id not in self._urls:
            port = await self._find_port(node.node_id)
            self._urls[node.node_id] = None if port is None else f"http://{node.host}:{port}"
        url = self._urls[node.node_id]
        if url is None:
            return None
        if self._http is None:
            # Pages that brokers name are http://, those of the settings may be others.
            self._http = httpx.AsyncClient(timeout=1.5, trust_env=False, verify=trust_for(self._given))
        try:
            answer = await self._http.get(f"{url}/metrics")
            page = answer.text if answer.is_success and "kafka_server" in answer.text else None
        except (httpx.HTTPError, httpx.InvalidURL):
            page = None
        self._pages[node.node_id] = (time.monotonic(), page)
        self.is_ours = self.is_ours or (page is not None and "pessoa_" in page)
        return page

    async def requests(self, node: Node) -> list[RequestRow]:
        page = await self.page(node)
        if page is None:
            return []
        counts: dict[str, int] = {}
        for api, count in _COUNT.findall(page):
            counts[api] = counts.get(api, 0) + int(float(count))
        times: dict[str, dict[str, float]] = {}
        for api, quantile, value in _TIME.findall(page):
            times.setdefault(api, {})[quantile] = float(value)
        rows = [
            RequestRow(api, counts.get(api, 0), at.get("0.5", at.get("0.50")), at.get("0.99"))
            for api, at in times.items()
        ]
        return sorted(rows, key=lambda row: -row.requests)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()


def _parse_urls(urls: Sequence[str]) -> Iterable[tuple[int, str]]:
    for text in urls:
        broker, equals, url = text.partition("=")
        if equals and broker.strip().isdigit():
            yield int(broker), url.strip().rstrip("/")


def _total(page: str, name: str) -> float:
    """Return the sample without labels, or the sum of all samples."""
    found = 0.0
    for line in page.splitlines():
        if line.startswith(name):
            head, _, number = line.rpartition(" ")
            if head == name:
                return float(number)
            found += float(number)
    return found

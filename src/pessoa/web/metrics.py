"""Metrics of a service for Prometheus: requests by endpoint and status, their latency, and what the service adds.

Each app has a registry of its own, so that several services in one process (tests, `pessoa up` in one piece) do not
count for each other. The endpoint label is the path of the table, never the path of the request: subjects and topics
are data, and data does not belong into labels. A method that no endpoint has is counted as `other`.

Requests are counted in plain numbers, on the event loop alone, and become Prometheus's metrics when the page is asked
for: its own counters take a lock for each addition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

# From a cached read to a produce that waits for replicas.
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# Requests with other methods are counted together: a label stays as long as the process.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class _Times:
    """A histogram of the times that the requests of one endpoint took."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        # One more than there are bounds: requests that took longer than the last bound.
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0


class RequestMetrics(Collector):
    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._service = service
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, _Times] = {}
        self.registry.register(self)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        key = (method if method in METHODS else "other", path, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get(path)
        if times is None:
            times = self._times[path] = _Times()
        times.counts[bisect_left(BUCKETS_S, seconds)] += 1
        times.sum_s += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "http_requests", f"Requests that {self._service} answered.", labels=["method", "path", "status"]
        )
        for (method, path, status), count in self._counts.items():
            requests.add_metric([method, path, str(status)], count)
        yield requests
        seconds = HistogramMetricFamily(
            "http_request_seconds", "Time from the request's head to the answer's.", labels=["path"]
        )
        for path, times in self._times.items():
            total = 0
            buckets = []
            for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], times.counts, strict=True):
                total += count
                buckets.append((bound, total))
            seconds.add_metric([path], buckets, times.sum_s)
        yield seconds

    def page(self) -> tuple[bytes, str]:
        """Return the page for Prometheus, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

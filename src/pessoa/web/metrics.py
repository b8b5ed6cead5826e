"""What Prometheus sees of a service: requests by endpoint and status, their latency, and whatever the service adds.

Each app has a registry of its own, so that several services in one process (tests, `pessoa up` in one piece) do not
count for each other. The endpoint label is the path of the table, never the path of the request: subjects and topics
are data, and data does not belong into labels.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

# From a cached read to a produce that waits for replicas.
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RequestMetrics:
    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "http_requests", f"Requests that {service} answered.", ["method", "path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "http_request_seconds",
            "Time from the request's head to the answer's.",
            ["path"],
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        # Finding a child by its labels costs more than counting on it.
        self._counted: dict[tuple[str, str, int], Counter] = {}
        self._timed: dict[str, Histogram] = {}

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        key = (method, path, status)
        counter = self._counted.get(key)
        if counter is None:
            counter = self._counted[key] = self._requests.labels(method, path, str(status))
        counter.inc()
        timer = self._timed.get(path)
        if timer is None:
            timer = self._timed[path] = self._seconds.labels(path)
        timer.observe(seconds)

    def page(self) -> tuple[bytes, str]:
        """The page for Prometheus, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

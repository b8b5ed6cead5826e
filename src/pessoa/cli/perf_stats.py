"""Numbers of the performance tools: latencies in windows and in total, in the words of Apache's tools."""

from __future__ import annotations

import time
from collections.abc import Callable

_MEGABYTE = 1024 * 1024
# As many latencies as Apache's tool keeps for its percentiles.
_SAMPLES = 500_000


class Stats:
    """The counts of records, bytes and latencies of a run; it prints a line for every window and one at the end."""

    def __init__(self, expected: int, interval_ms: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._start = self._window_start = now()
        self._interval_s = interval_ms / 1000
        self._every = max(1, -(-expected // _SAMPLES))
        self._latencies: list[int] = []
        self._count = self._bytes = self._total_ms = self._max_ms = 0
        self._window_count = self._window_bytes = self._window_total_ms = self._window_max_ms = 0

    def record(self, latency_ms: int, size: int) -> None:
        if self._count % self._every == 0:
            self._latencies.append(latency_ms)
        self._count += 1
        self._bytes += size
        self._total_ms += latency_ms
        self._max_ms = max(self._max_ms, latency_ms)
        self._window_count += 1
        self._window_bytes += size
        self._window_total_ms += latency_ms
        self._window_max_ms = max(self._window_max_ms, latency_ms)
        now = self._now()
        if now - self._window_start >= self._interval_s:
            self._print_window(now)

    def _print_window(self, now: float) -> None:
        elapsed = now - self._window_start
        print(
            f"{self._window_count} records sent, {self._window_count / elapsed:.1f} records/sec "
            f"({self._window_bytes / elapsed / _MEGABYTE:.2f} MB/sec), "
            f"{self._window_total_ms / self._window_count:.1f} ms avg latency, "
            f"{float(self._window_max_ms):.1f} ms max latency."
        )
        self._window_start = now
        self._window_count = self._window_bytes = self._window_total_ms = self._window_max_ms = 0

    def print_total(self, what: str = "records") -> None:
        elapsed = max(self._now() - self._start, 1e-9)
        p50, p95, p99, p999 = percentiles(self._latencies, 0.5, 0.95, 0.99, 0.999)
        average = self._total_ms / self._count if self._count else 0.0
        print(
            f"{self._count} {what} sent, {self._count / elapsed:f} records/sec "
            f"({self._bytes / elapsed / _MEGABYTE:.2f} MB/sec), {average:.2f} ms avg latency, "
            f"{float(self._max_ms):.2f} ms max latency, {p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
        )


def percentiles(values: list[int], *fractions: float) -> list[int]:
    if not values:
        return [0] * len(fractions)
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] for fraction in fractions]

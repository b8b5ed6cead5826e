"""Latency through Spark in micro-batches: our engine, at-least-once and exactly-once, and plain PySpark; both
brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.pipelines_latency import measure_speed

if TYPE_CHECKING:
    from bench.report import Report


def run(report: Report) -> None:
    measure_speed(report, "micro-batch", ("engine", "exactly-once", "plain"))

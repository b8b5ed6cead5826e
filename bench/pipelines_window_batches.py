"""Latency through a windowed count in micro-batches, by our engine and by plain PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.pipelines_windows import measure_speed

if TYPE_CHECKING:
    from bench.report import Report


def run(report: Report) -> None:
    measure_speed(report, "micro-batch", ("engine", "plain"))

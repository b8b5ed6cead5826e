"""Identical Produce requests to both sides in turn, in many short bursts: the most precise measure of a change's cost.

The size of a producer's batches depends on how fast the broker answers, so its requests, and the CPU time per GB, vary
from run to run. Here both sides run at the same time and get the same bytes (`bench/bursts.py`). Processes also differ
by some percent (by their memory layout), so each round starts new ones, and the median counts.

Meant for PESSOA_BENCH_BEFORE; for a comparison with Apache Kafka `broker_produce` is better.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import ROUNDS, sides
from bench.bursts import ONE_RECORD, PRODUCE_100, PRODUCE_1000, Variant, alternate

if TYPE_CHECKING:
    from bench.report import Report

# None with one request in flight: what that costs depends on whether both processes happen to run on the same core.
SHAPES = (PRODUCE_100, PRODUCE_1000, ONE_RECORD)


def run(report: Report) -> None:
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        with ExitStack() as running:
            folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="pessoa-bench-")))
            variants = {
                name: Variant(running.enter_context(start(folder / name / "data")), {})
                for name, start in sides().items()
            }
            for number, shape in enumerate(SHAPES):
                for name, measured in alternate(variants, shape, f"bench-{number}").items():
                    cpu_us = measured.cpu_of_burst_s / shape.burst * 1e6
                    found.setdefault((shape.name, name), []).append(cpu_us)
    for (case, name), values in found.items():
        report.add(case, name, statistics.median(values), "CPU µs a request")

"""The start of three brokers, compared with three of Apache's: until the Metadata of each names all; their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.apache import print_verdicts
from bench.clusters import compare
from bench.report import OURS

if TYPE_CHECKING:
    from bench.apache import Figures
    from bench.clusters import Cluster
    from bench.report import Report

START, MEMORY = "start of 3 to all registered", "memory of 3, idle"
WANTED_S = 1.5


def run(report: Report) -> None:
    compare(report, measure)
    found_s = report.measured[START, "s"][OURS]
    print(f"  {'met' if found_s <= WANTED_S else 'MISSED':<6}  {START}: {found_s:.2f} s, wanted {WANTED_S} s")
    print_verdicts(report, {MEMORY: 10.0})


def measure(cluster: Cluster) -> Figures:
    return {(START, "s"): cluster.started_in_s, (MEMORY, "MB"): cluster.memory_mb()}

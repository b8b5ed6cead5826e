"""Many seeds, on several processes: each comes back as a `Result`, whether it passed or not."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.cluster import run
from tests.simulation.history import Violation
from tests.simulation.plan import Plan

# A worker begins anew after so many, so that what one run leaves behind cannot pile up.
_SEEDS_PER_WORKER = 500


class Result(NamedTuple):
    seed: int
    steps: int
    seconds: float
    acknowledged: int
    failure: str | None


def run_seed(seed: int) -> Result:
    try:
        report = run(Plan.of(seed))
    except Violation as violation:
        return Result(seed, 0, 0.0, 0, str(violation))
    except Exception:  # noqa: BLE001 (told with its traceback, and the seed)
        return Result(seed, 0, 0.0, 0, traceback.format_exc())
    return Result(seed, report.steps, report.seconds, report.acknowledged, None)


def run_seeds(seeds: range, workers: int) -> Iterator[Result]:
    """Results as they come."""
    if workers == 1:
        yield from map(run_seed, seeds)
        return
    with get_context("spawn").Pool(workers, maxtasksperchild=_SEEDS_PER_WORKER) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=4)

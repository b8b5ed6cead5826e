"""`make sim`: run many seeds, or look at one.

make sim SEEDS=1-2000          all of them, on two processes; failing seeds come with the command to see them again
make sim SEED=123 TRACE=1      one of them, with everything that happens
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from contextlib import suppress

from tests.simulation.cluster import run
from tests.simulation.history import Violation
from tests.simulation.plan import Plan
from tests.simulation.seeds import Result, run_seeds


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings come out in another order otherwise, and a seed would not be one run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if options.seed is not None:
        return _show(options.seed, options.trace)
    first, _, last = options.seeds.partition("-")
    return _run_all(range(int(first), int(last or first) + 1), options.workers)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make sim", description="Run clusters from seeds.")
    parser.add_argument("--seeds", default="1-2000", help="a range: 1-2000")
    parser.add_argument("--seed", type=int, help="one seed, with its plan")
    parser.add_argument("--trace", action="store_true", help="with --seed: say what happens, and let the brokers log")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


def _show(seed: int, is_traced: bool) -> int:
    plan = Plan.of(seed)
    print(plan)
    if is_traced:
        logging.basicConfig(level=logging.INFO, format="            %(name)s: %(message)s", stream=sys.stdout)
    try:
        print(run(plan, print if is_traced else None))
    except Violation as violation:
        print(f"seed {seed}: {violation}")
        return 1
    return 0


def _run_all(seeds: range, workers: int) -> int:
    from rich.progress import Progress

    failures: list[Result] = []
    count = steps = acknowledged = 0
    simulated_s = 0.0
    started = time.monotonic()
    # A long run may be ended when somebody needs the machine; what it has found until then counts.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Progress(disable=not sys.stdout.isatty()) as progress, suppress(KeyboardInterrupt):
        bar = progress.add_task("seeds", total=len(seeds))
        for result in run_seeds(seeds, workers):
            progress.advance(bar)
            count += 1
            steps += result.steps
            acknowledged += result.acknowledged
            simulated_s += result.seconds
            if result.failure is not None:
                failures.append(result)
                print(f"seed {result.seed}: {result.failure}\n    make sim SEED={result.seed} TRACE=1", flush=True)
    took_s = time.monotonic() - started
    print(
        f"{count} seeds, {len(failures)} failed; {steps} steps, {simulated_s / 3600:.1f} simulated hours, "
        f"{acknowledged} acknowledged records, {took_s:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make sim`: run many seeds of the cluster simulation, or show one.

make sim SEEDS=1-2000          all of them, on two processes; for a failing seed the command that replays it is printed
make sim ARGS="--faults moving,power"   those of them that have both faults
make sim ARGS=--secured        those of them whose clusters demand logins and rights
make sim ARGS=--shares         those of them with members of a share group
make sim ARGS=--streams        those of them with members of a streams group
make sim SEED=123 TRACE=1      one of them, with every event
make sim SEED=123 ARGS=--plain the same plan on a cluster without logins and ACLs

A seed fails if it uses more CPU time than its limit (`cpu_limit`).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.simulation.cluster import run
from tests.simulation.cpu_limit import CPU_LIMIT_S, OutOfTime, cpu_limit
from tests.simulation.history import Violation
from tests.simulation.plan import Plan
from tests.simulation.seeds import Result, run_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Otherwise sets of strings are iterated in another order in each process, and a seed would not always give the
        # same run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if options.seed is not None:
        plan = Plan.of(options.seed, may_be_secured=not options.plain)
        return _show(plan, options.trace, options.cpu_limit_s)
    first, _, last = options.seeds.partition("-")
    wanted = set(filter(None, options.faults.split(",")))
    plans = [Plan.of(seed) for seed in range(int(first), int(last or first) + 1)]
    seeds = [
        one.seed
        for one in plans
        if wanted <= {*one.faults}
        and (one.is_secured or not options.secured)
        and (one.share_members or not options.shares)
        and (one.streams_members or not options.streams)
    ]
    return _run_all(seeds, options.workers, options.cpu_limit_s)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make sim", description="Run clusters from seeds.")
    parser.add_argument("--seeds", default="1-2000", help="a range: 1-2000")
    parser.add_argument("--seed", type=int, help="one seed, with its plan")
    parser.add_argument("--trace", action="store_true", help="with --seed: say what happens, and let the brokers log")
    parser.add_argument("--faults", default="", help="only seeds with all of these faults: moving,power")
    parser.add_argument("--secured", action="store_true", help="only seeds of secured clusters")
    parser.add_argument("--shares", action="store_true", help="only seeds with members of a share group")
    parser.add_argument("--streams", action="store_true", help="only seeds with members of a streams group")
    parser.add_argument("--plain", action="store_true", help="with --seed: as a cluster that demands no login")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--cpu-limit-s", type=float, default=CPU_LIMIT_S, help="a seed that uses more CPU time than this has failed"
    )
    return parser.parse_args()


def _show(plan: Plan, is_traced: bool, cpu_limit_s: float) -> int:
    print(plan)
    if is_traced:
        logging.basicConfig(level=logging.INFO, format="            %(name)s: %(message)s", stream=sys.stdout)
    try:
        with cpu_limit(cpu_limit_s):
            print(run(plan, print if is_traced else None))
    except (Violation, OutOfTime) as failure:
        print(f"seed {plan.seed}: {failure}")
        return 1
    return 0


def _run_all(seeds: Sequence[int], workers: int, cpu_limit_s: float) -> int:
    from rich.progress import Progress

    failures: list[Result] = []
    count = steps = acknowledged = 0
    simulated_s = 0.0
    started = time.monotonic()
    # A long run may be ended with SIGTERM; the results until then are reported.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Progress(disable=not sys.stdout.isatty()) as progress, suppress(KeyboardInterrupt):
        bar = progress.add_task("seeds", total=len(seeds))
        for result in run_seeds(seeds, workers, cpu_limit_s):
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

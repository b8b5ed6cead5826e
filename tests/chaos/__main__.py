"""`make chaos MINUTES=30`: faults by chance, from a seed, for as long as it is told; then everything is checked.

    python -m tests.chaos --minutes 30 --seed 7 [--only "kill all"]

A run is a row of rounds. Every round is a cluster of three processes on empty directories, under load, that is hurt six
times, healed and checked, so that a failure stands near its cause. The table at the end has a line for each fault: how
often it was done, and how long producing stood still at worst. The data of a round that fails is kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.chaos.checks import check_everything
from tests.chaos.faults import FAULTS, Stage, play
from tests.chaos.load import IN, OUT, PARTITIONS, Load
from tests.chaos.processes import BrokerProcesses
from tests.simulation.history import Violation

FAULTS_PER_ROUND = 6


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(FAULTS), action="append")
    options = parser.parse_args(arguments)
    names = options.only or list(FAULTS)
    deadline = time.monotonic() + 60 * options.minutes
    pauses: dict[str, list[float]] = {}
    seed, failures = options.seed, 0
    while seed == options.seed or time.monotonic() < deadline:
        folder = Path(tempfile.mkdtemp(prefix="pessoa-chaos-"))
        print(f"seed {seed}", flush=True)
        try:
            play_round(folder, seed, names, pauses)
        except (AssertionError, Violation) as problem:
            failures += 1
            print(f"  FAILED, data in {folder}; again with --seed {seed}: {problem}", flush=True)
        else:
            shutil.rmtree(folder)
        seed += 1
    print_table(pauses)
    print(f"{seed - options.seed} rounds, {failures} failed")
    return 1 if failures else 0


def play_round(folder: Path, seed: int, names: list[str], pauses: dict[str, list[float]]) -> None:
    rng = Random(seed)
    with BrokerProcesses(folder) as brokers:
        for topic in (IN, OUT):
            brokers.create_topic(topic, PARTITIONS)
        load = Load(brokers.bootstrap_servers, seed)
        load.start()
        try:
            load.wait_for(20)
            for _ in range(FAULTS_PER_ROUND):
                played = play(Stage(brokers, load, rng), rng.choice(names))
                pauses.setdefault(played.name, []).append(played.longest_pause_s)
                print(f"  {played.name}: stood still for {played.longest_pause_s:.1f} s", flush=True)
            load.finish()
            print(f"  {check_everything(brokers, load)}", flush=True)
        finally:
            load.abandon()


def print_table(pauses: dict[str, list[float]]) -> None:
    print(f"\n{'fault':<24}{'times':>6}{'worst s':>9}{'mean s':>8}")
    for name, found in sorted(pauses.items()):
        print(f"{name:<24}{len(found):>6}{max(found):>9.1f}{sum(found) / len(found):>8.1f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

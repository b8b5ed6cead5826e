"""`make chaos MINUTES=30`: random faults from a seed for the given time; after every round everything is checked.

    python -m tests.chaos --minutes 30 --seed 7 [--only "kill all"] [--set broker.session.timeout.ms=9000]

A run is a sequence of rounds. Every round is a cluster of processes on empty directories under load, which gets six
faults, is healed and checked, so that a failure is detected soon after its cause. In two rounds of three the three
brokers are the controllers as well; in the third there are three controllers beside three brokers (`--apart`: in all).
Every fifth round is secured: SASL_SSL on all listeners, users and access control lists (`--secure`: all are).
Where the system allows it, three rounds of four give every node a network, a disk and a clock of its own, with faults
of those too; some of them sync each record before it is acknowledged, so that a loss of power of all nodes at once
loses no record. One of eight has proxies between all nodes, which delay everything. The table at the end has a line for
each fault: how often it was played, and how long producing paused, at worst and in the median. When a leader or the
active controller dies, that should be less than three seconds, and the last lines count when it was not. The data of a
failed round is kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import KafkaException

from tests.chaos.client_faults import CLIENT_FAULTS
from tests.chaos.faults import FAULTS, Fault, play
from tests.chaos.guard import SECURITY_FAULTS
from tests.chaos.stage import Wanted, under_load
from tests.chaos.surroundings import SURROUNDINGS
from tests.simulation.history import Violation

FAULTS_PER_ROUND = 6
# The seeds of secured rounds, one in five: so they come in all combinations with the other choices.
_SECURED_EVERY, _SECURED = 5, 2
# A broker that is cut off only from its leader leaves the ISR after this time instead of after ten seconds.
_OWN_MACHINES = {"replica.lag.time.max.ms": "3000"}
_FLUSHES = {"log.flush.interval.messages": "1"}
# Faults that need nothing but processes.
_PLAIN_FAULTS = {**FAULTS, **CLIENT_FAULTS}
# How long producing may pause when one of these has died.
_GOAL_S = 3.0
_DEATHS = ("kill a leader", "kill the controller")


class Round(NamedTuple):
    wanted: Wanted
    settings: dict[str, str]
    faults: dict[str, Fault]
    # Whether the controllers are separate nodes.
    apart: bool = False
    # Whether nodes and clients log in, over TLS, and have rights.
    secured: bool = False


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted({*_PLAIN_FAULTS, *SURROUNDINGS, *SECURITY_FAULTS}), action="append")
    parser.add_argument("--apart", action="store_true", help="controllers that are no brokers, in every round")
    parser.add_argument("--secure", action="store_true", help="SASL_SSL and access control lists in every round")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of all brokers")
    options = parser.parse_args(arguments)
    settings = dict(one.split("=", 1) for one in options.set)
    available = available_machines()
    deadline = time.monotonic() + 60 * options.minutes
    pauses: dict[str, list[float]] = {}
    seed, failures = options.seed, 0
    while seed == options.seed or time.monotonic() < deadline:
        folder = Path(tempfile.mkdtemp(prefix="pessoa-chaos-"))
        chosen = choose_round(seed, available, options.only, is_secured=options.secure)
        chosen = chosen._replace(settings=chosen.settings | settings, apart=chosen.apart or options.apart)
        shape = "controllers apart" if chosen.apart else "combined nodes"
        print(f"seed {seed}: {shape}{', secured' if chosen.secured else ''}", flush=True)
        try:
            play_round(folder, seed, chosen, pauses)
        except (AssertionError, KafkaException, Violation) as problem:
            failures += 1
            traceback.print_exc()
            print(f"  FAILED, data in {folder}; again with --seed {seed}: {problem}", flush=True)
        else:
            shutil.rmtree(folder)
        seed += 1
    print_table(pauses)
    print(f"{seed - options.seed} rounds, {failures} failed")
    return 1 if failures else 0


def available_machines() -> Wanted:
    """Return what this system supports of network, disks, clocks and system calls; print a sentence for what it does
    not."""
    found = []
    for wanted in (Wanted(network=True), Wanted(disks=True), Wanted(clocks=True), Wanted(syscalls=True)):
        reason = wanted.why_not()
        found.append(reason is None)
        if reason is not None:
            print(f"left out: {reason}")
    return Wanted(*found)


def choose_round(seed: int, available: Wanted, only: list[str] | None, *, is_secured: bool = False) -> Round:
    """Return the round of a seed, always the same for one seed; `only` overrides the seed's choice of faults."""
    named = [SURROUNDINGS[name] for name in only or () if name in SURROUNDINGS]
    wanted = available
    if any(one.wanted.links for one in named) or (not only and seed % 8 == 4):
        wanted = Wanted(links=True)
    elif (only and not named) or (not only and seed % 8 == 0):
        wanted = Wanted()
    is_flushed = any(one.wants_flushes for one in named) if only else seed % 2 == 0
    possible = {
        name: one.fault
        for name, one in SURROUNDINGS.items()
        if all(has or not wants for has, wants in zip(wanted, one.wanted, strict=True))
        and (is_flushed or not one.wants_flushes)
    }
    is_secured = is_secured or seed % _SECURED_EVERY == _SECURED or any(name in SECURITY_FAULTS for name in only or ())
    all_faults = {**_PLAIN_FAULTS, **possible, **(SECURITY_FAULTS if is_secured else {})}
    chosen = {name: fault for name, fault in all_faults.items() if not only or name in only}
    assert chosen, f"none of {only} can be done here"
    settings = {} if wanted == Wanted() else {**_OWN_MACHINES, **(_FLUSHES if is_flushed else {})}
    return Round(wanted, settings, chosen, apart=seed % 3 == 2, secured=is_secured)


def play_round(folder: Path, seed: int, chosen: Round, pauses: dict[str, list[float]]) -> None:
    with under_load(folder, seed, chosen.wanted, chosen.settings, apart=chosen.apart, secured=chosen.secured) as stage:
        for _ in range(FAULTS_PER_ROUND):
            name = stage.rng.choice(list(chosen.faults))
            print(f"  {name}: ", end="", flush=True)
            played = play(stage, name, chosen.faults[name])
            pauses.setdefault(name, []).append(played.longest_pause_s)
            print(f"stood still for {played.longest_pause_s:.1f} s", flush=True)
        print(f"  {stage.finish()}", flush=True)


def print_table(pauses: dict[str, list[float]]) -> None:
    print(f"\nhow long producing stood still\n{'fault':<28}{'times':>6}{'largest s':>11}{'median s':>10}")
    for name, found in sorted(pauses.items()):
        print(f"{name:<28}{len(found):>6}{max(found):>11.1f}{median(found):>10.1f}")
    for name in _DEATHS:
        found = pauses.get(name, [])
        late = sum(one > _GOAL_S for one in found)
        print(f"{name}: {len(found)} times, {late} of them for more than {_GOAL_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The setting of faults: three brokers with their networks, disks and clocks, clients under load and observers.

`under_load` makes it, and `Wanted` says which parts of a machine each node gets for itself. The brokers are the
controllers too, or, with `apart`, three more processes are, as recommended for production. Plain processes share the
network, the disk and the clock of the test. Nodes and clients use PLAINTEXT, or, `secured`, SASL_SSL with access
control lists. A broker can have a network, a disk and a clock of its own, and system calls that fail on request, if the
system allows it; `why_not` returns a sentence about what is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.chaos.checks import check_everything
from tests.chaos.clocks import JumpingClock, why_no_jumps
from tests.chaos.disks import Disks, why_no_disks
from tests.chaos.guard import ADMIN, CLIENT, Guard
from tests.chaos.links import Links
from tests.chaos.load import IN, OUT, PARTITIONS, Load
from tests.chaos.namespaces import Network, why_no_namespaces
from tests.chaos.processes import BROKERS, COMBINED, CONTROLLERS, PESSOA, BrokerProcesses, Home
from tests.chaos.syscalls import Syscalls, why_no_syscalls
from tests.chaos.watch import Watch


class Wanted(NamedTuple):
    network: bool = False
    disks: bool = False
    clocks: bool = False
    syscalls: bool = False
    # Proxies, all on one host: not together with a network.
    links: bool = False

    def why_not(self) -> str | None:
        reasons = (
            why_no_namespaces() if self.network else None,
            why_no_disks() if self.disks else None,
            why_no_jumps() if self.clocks else None,
            why_no_syscalls() if self.syscalls else None,
        )
        return next(filter(None, reasons), None)


PLAIN = Wanted()


class Stage(NamedTuple):
    brokers: BrokerProcesses
    load: Load
    watch: Watch
    rng: Random
    network: Network | None
    disks: Disks | None
    clocks: dict[int, JumpingClock]
    syscalls: dict[int, Syscalls]
    links: Links | None
    # Only in a secured round.
    guard: Guard | None = None

    def finish(self) -> str:
        """End the load, read everything back and compare it; return a sentence about that."""
        self.load.finish()
        self.watch.finish()
        return f"{check_everything(self.brokers, self.load)}; {self.watch!r}"


@contextmanager
def under_load(
    directory: Path,
    seed: int,
    wanted: Wanted = PLAIN,
    settings: Mapping[str, str] | None = None,
    *,
    apart: bool = False,
    secured: bool = False,
) -> Iterator[Stage]:
    roles = dict.fromkeys(BROKERS, "broker" if apart else COMBINED)
    if apart:
        roles |= dict.fromkeys(CONTROLLERS, "controller")
    with ExitStack() as stack:
        network = stack.enter_context(Network(roles)) if wanted.network else None
        clocks = {one: JumpingClock(directory / f"clock-{one}") for one in roles} if wanted.clocks else {}
        syscalls = {one: Syscalls(directory / f"syscalls-{one}") for one in roles} if wanted.syscalls else {}
        links = stack.enter_context(Links(roles, seed=seed)) if wanted.links else None
        disks = stack.enter_context(Disks(directory, roles)) if wanted.disks else None
        if disks is not None:
            stack.push(partial(_keep_data, disks, directory))
        if network is not None:
            stack.enter_context(network.entered())
        homes = {
            number: Home(
                # Not the disk itself, which cannot be taken away while it is mounted.
                data=disks.path(number) / "data" if disks else directory / f"data-{number}",
                roles=roles[number],
                host=network.host(number) if network else "127.0.0.1",
                command=(network.command(number) if network else ())
                + (clocks[number].command if number in clocks else ()),
                program=syscalls[number].program if number in syscalls else PESSOA,
                seen_at=links.ports(number) if links else None,
            )
            for number in roles
        }
        guard = Guard(directory, {number: home.host for number, home in homes.items()}) if secured else None
        brokers = BrokerProcesses(directory, settings, homes, guard)
        if links is not None:
            links.lead_to(brokers)
        stack.enter_context(brokers)
        if guard is not None:
            guard.grant(brokers)
        for topic in (IN, OUT):
            brokers.create_topic(topic, PARTITIONS)
        load = Load(brokers.bootstrap_servers, seed, security=guard.client(CLIENT) if guard is not None else None)
        stack.callback(load.abandon)
        watch = Watch(map(brokers.address, brokers), load, guard.tool(ADMIN) if guard is not None else None)
        stack.callback(watch.abandon)
        load.start()
        watch.start()
        load.wait_for(20)
        yield Stage(brokers, load, watch, Random(seed), network, disks, clocks, syscalls, links, guard)


def _keep_data(disks: Disks, directory: Path, kind: type[BaseException] | None, *_: object) -> None:
    """Copy the data of the disks after a failure, when all brokers have ended: it is deleted with the disks."""
    for number in disks:
        data = disks.path(number) / "data"
        if kind is not None and data.exists():
            shutil.copytree(data, directory / f"data-{number}")

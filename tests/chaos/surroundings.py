"""Faults of the machines: networks that drop packets, disks that lose power or fail, clocks that jump.

The same kind of function as in `faults`: it causes the fault, waits while the load continues, and heals it. Each needs
a stage with what it changes, as listed in `SURROUNDINGS`.

If a broker is cut off in one direction only, or from one other broker only, elections must not replace a leader without
need; a broker that clients reach while it reaches no other broker must acknowledge nothing. After a power loss a disk
has only synced data: a follower fetches the rest, and a leader that restarts at once must not lead with too few
records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.chaos.faults import MORE, Fault, a_leader, the_controller
from tests.chaos.load import IN
from tests.chaos.namespaces import Network
from tests.chaos.stage import Stage, Wanted

_HOUR_S = 3600
Choose = Callable[[Stage], int]


class Surrounding(NamedTuple):
    fault: Fault
    wanted: Wanted
    # Whether no record is lost only if every record is synced before it is acknowledged.
    wants_flushes: bool = False


# Networks.


def _network(hurt: Callable[[Network, Stage], None], more: int = MORE) -> Surrounding:
    """Return a network fault during which producing continues."""

    def fault(stage: Stage) -> None:
        assert stage.network is not None
        hurt(stage.network, stage)
        # A client may repeatedly ask the isolated broker for its coordinator, and use its outdated answer.
        stage.load.wait_for(more, with_copies=False)
        stage.network.heal()

    return Surrounding(fault, Wanted(network=True))


def _network_of(choose: Choose, hurt: Callable[[Network, int], None]) -> Surrounding:
    return _network(lambda network, stage: hurt(network, choose(stage)))


def _others(network: Network, number: int) -> list[int]:
    return [one for one in network if one != number]


def _drop_what_it_sends(network: Network, mute: int) -> None:
    for other in _others(network, mute):
        network.drop(mute, other)


def _drop_what_it_receives(network: Network, deaf: int) -> None:
    for other in _others(network, deaf):
        network.drop(other, deaf)


def _cut_two(network: Network, stage: Stage) -> None:
    """Cut the link between two brokers that are not the controller, which reaches both."""
    controller = the_controller(stage)
    network.cut(*stage.rng.sample([one for one in stage.brokers if one != controller], 2))


def _lose(network: Network, stage: Stage) -> None:
    for number in stage.brokers.nodes:
        network.lose(number, 10)


def _narrow(network: Network, stage: Stage) -> None:
    network.narrow(a_leader(stage), "1mbit")


def delay_everything(stage: Stage) -> None:
    """Delay every round trip by a fifth of a second, between brokers too."""
    assert stage.links is not None
    stage.links.delay_s = 0.1
    stage.load.wait_for(2 * MORE)
    stage.links.delay_s = 0.0


# Power.


def _cut_the_power(choose: Callable[[Stage], list[int]], *, for_long: bool, wants_flushes: bool = False) -> Surrounding:
    def fault(stage: Stage) -> None:
        assert stage.disks is not None
        victims = choose(stage)
        for number in victims:
            stage.brokers.pause(number)
        stage.disks.remember(*victims)
        stage.brokers.kill(*victims)
        if for_long:
            stage.load.wait_for(MORE)
        stage.disks.go_back(*victims)
        for number in victims:
            stage.brokers.start(number)

    return Surrounding(fault, Wanted(disks=True), wants_flushes)


def fail_the_disk(stage: Stage) -> None:
    """Fail the only disk of a broker: the broker ends, and the others continue."""
    assert stage.disks is not None
    victim = a_leader(stage)
    stage.disks.fail(victim)
    assert stage.brokers.wait_for_end(victim) != 0
    stage.load.wait_for(MORE)
    stage.disks.repair(victim)
    stage.brokers.start(victim)


def fill_the_disk(stage: Stage) -> None:
    assert stage.disks is not None
    victim = a_leader(stage)
    stage.disks.fill(victim)
    assert stage.brokers.wait_for_end(victim) != 0
    stage.load.wait_for(MORE)
    stage.disks.make_room(victim)
    stage.brokers.start(victim)


# System calls.


def _end_by(what: str, *, wants_flushes: bool = False) -> Surrounding:
    """Return a fault of system calls that ends a broker; it must not acknowledge the records whose sync failed."""

    def fault(stage: Stage) -> None:
        victim = a_leader(stage)
        stage.syscalls[victim].do(what, f"/{IN}-")
        assert stage.brokers.wait_for_end(victim) != 0
        stage.syscalls[victim].do("")
        stage.load.wait_for(MORE)
        stage.brokers.start(victim)

    return Surrounding(fault, Wanted(syscalls=True), wants_flushes)


def slow_the_disk(stage: Stage) -> None:
    """Slow the disk of a broker that leads some partitions and follows others."""
    victim = a_leader(stage)
    stage.syscalls[victim].do("slow", f"/{IN}-")
    stage.load.wait_for(2 * MORE, with_copies=False)
    stage.syscalls[victim].do("")


# Clocks.


def _jump(choose: Choose, seconds: int) -> Surrounding:
    """Return a fault in which the wall clock jumps and jumps back; no session, transaction or record may expire."""

    def fault(stage: Stage) -> None:
        clock = stage.clocks[choose(stage)]
        for jump in (seconds, 0):
            clock.jump(jump)
            stage.load.wait_for(2 * MORE)

    return Surrounding(fault, Wanted(clocks=True))


SURROUNDINGS: dict[str, Surrounding] = {
    "cut off a leader": _network_of(a_leader, Network.cut_off),
    "cut off the controller": _network_of(the_controller, Network.cut_off),
    "cut off a leader from all": _network_of(a_leader, Network.cut_off_from_brokers_and_clients),
    "no broker hears a leader": _network_of(a_leader, _drop_what_it_sends),
    "a leader hears no broker": _network_of(a_leader, _drop_what_it_receives),
    "cut two brokers": _network(_cut_two),
    "lose packets": _network(_lose, 2 * MORE),
    "narrow a link": _network(_narrow, 2 * MORE),
    "delay everything": Surrounding(delay_everything, Wanted(links=True)),
    "cut a leader's power": _cut_the_power(lambda stage: [a_leader(stage)], for_long=True),
    "flicker a leader's power": _cut_the_power(lambda stage: [a_leader(stage)], for_long=False),
    "flicker two's power": _cut_the_power(
        lambda stage: stage.rng.sample(stage.brokers.nodes, 2), for_long=False, wants_flushes=True
    ),
    "cut all power": _cut_the_power(lambda stage: stage.brokers.nodes, for_long=False, wants_flushes=True),
    "fail the disk": Surrounding(fail_the_disk, Wanted(disks=True)),
    "fill the disk": Surrounding(fill_the_disk, Wanted(disks=True)),
    "fail a sync": _end_by("sync fails", wants_flushes=True),
    "tear a write": _end_by("tear"),
    "slow the disk": Surrounding(slow_the_disk, Wanted(syscalls=True)),
    "a clock an hour on": _jump(a_leader, _HOUR_S),
    "a clock an hour back": _jump(the_controller, -_HOUR_S),
}

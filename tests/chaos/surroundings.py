"""What is done to the machines around the brokers: networks that drop, disks that lose power or fail, clocks that jump.

The same kind of function as in `faults`: it hurts, lets the load feel it, and heals. Each needs a stage that has what
it hurts, and `SURROUNDINGS` says which.

A broker that is cut off in one direction only, or from one other broker only, is the case that an election by majority
has to survive without a leader being replaced for nothing; one that the clients still reach while it reaches no other
broker is the one that must acknowledge nothing. Power comes back to a disk with what was synced: a follower fetches the
rest, and a leader that comes back at once must not lead with the little that it has.
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
    # Whether it is survived only where every record is synced before it is acknowledged.
    wants_flushes: bool = False


# Networks.


def _network(hurt: Callable[[Network, Stage], None], more: int = MORE) -> Surrounding:
    """Producing goes on."""

    def fault(stage: Stage) -> None:
        assert stage.network is not None
        hurt(stage.network, stage)
        # A client may ask the broker that was cut off for its coordinator, time and again, and follow its answer.
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
    """Two that are not the controller, which reaches both."""
    controller = the_controller(stage)
    network.cut(*stage.rng.sample([one for one in stage.brokers if one != controller], 2))


def _lose(network: Network, stage: Stage) -> None:
    for number in stage.brokers.nodes:
        network.lose(number, 10)


def _narrow(network: Network, stage: Stage) -> None:
    network.narrow(a_leader(stage), "1mbit")


def delay_everything(stage: Stage) -> None:
    """A fifth of a second from a question to its answer, between brokers too."""
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
    """A broker whose only disk fails ends; the others go on."""
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


# What the operating system says.


def _end_by(what: str, *, wants_flushes: bool = False) -> Surrounding:
    """A broker to which this is done ends. What it was about to acknowledge it has not acknowledged."""

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
    """The wall clock jumps away, and back again. No session, transaction or record may end because of it."""

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

"""Which brokers get the replicas of new partitions, so that leaders, brokers and racks share the load.

Racks and the brokers within each rack are rings. A partition takes its first replica, the preferred leader, from the
rack whose turn it is, and the others from the racks that follow; the next partition starts one rack further, and within
a rack one broker further. So replicas of a partition are in as many racks as possible, and all brokers take turns to
lead.
When every live broker has had its turn the rings are shuffled, or the same neighbours would share the same partitions
again and again and a broker that fails would burden one neighbour alone.

Fenced brokers come last within their rack, and never first of a partition: they are used only where the replication
factor cannot be reached without them. Brokers whose log directories are all cordoned get nothing, nor do those that
are shutting down; one that has shut down is fenced and like any other fenced one, or no topic with a replica on every
broker could be created while one of them is away. This is how Kafka's StripedReplicaPlacer spreads replicas; the turns
themselves come from chance.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.metadata.image import BrokerImage

RandomBelow = Callable[[int], int]
Item = TypeVar("Item")


class _Ring:
    """Brokers in a ring. In one round each broker is returned once; the next round starts one further."""

    def __init__(self, brokers: list[int], random_below: RandomBelow) -> None:
        self._brokers = sorted(brokers)
        self._start = random_below(len(brokers)) if brokers else 0
        self._taken_in_round = 0
        self._round = 0

    def next(self, round_number: int) -> int | None:
        if not self._brokers:
            return None
        if round_number != self._round:
            self._round, self._taken_in_round = round_number, 0
            self._start = (self._start + 1) % len(self._brokers)
        if self._taken_in_round == len(self._brokers):
            return None
        found = self._brokers[(self._start + self._taken_in_round) % len(self._brokers)]
        self._taken_in_round += 1
        return found

    def shuffle(self, random_below: RandomBelow) -> None:
        _shuffle(self._brokers, random_below)


class _Rack:
    def __init__(self, brokers: list[BrokerImage], random_below: RandomBelow) -> None:
        self.live = _Ring([broker.id for broker in brokers if not broker.fenced], random_below)
        self.fenced = _Ring([broker.id for broker in brokers if broker.fenced], random_below)

    def next(self, round_number: int) -> int | None:
        found = self.live.next(round_number)
        return found if found is not None else self.fenced.next(round_number)


def place(
    brokers: Iterable[BrokerImage], partition_count: int, replication_factor: int, random_below: RandomBelow
) -> list[tuple[int, ...]]:
    """Return the replicas of each new partition, the preferred leader first. Raises a Refusal."""
    usable = [broker for broker in brokers if not _is_shutting_down(broker) and _takes_replicas(broker)]
    live_count = sum(not broker.fenced for broker in usable)
    if not live_count:
        raise _refusal(replication_factor, "no broker is up")
    if replication_factor > len(usable):
        usable_brokers = "1 broker" if len(usable) == 1 else f"{len(usable)} brokers"
        raise _refusal(replication_factor, f"only {usable_brokers} can take new replicas")
    by_name: dict[str, list[BrokerImage]] = {}
    for broker in usable:
        by_name.setdefault(broker.rack or "", []).append(broker)
    racks = [_Rack(by_name[name], random_below) for name in sorted(by_name)]
    turn = random_below(len(racks))
    placed = []
    round_number = 0
    for _ in range(partition_count):
        if round_number == live_count and live_count > 1:
            _shuffle(racks, random_below)
            for rack in racks:
                rack.live.shuffle(random_below)
                rack.fenced.shuffle(random_below)
            round_number = 0
        placed.append(_place_one(racks, turn % len(racks), round_number, replication_factor))
        round_number += 1
        turn += 1
    return placed


def _place_one(racks: list[_Rack], turn: int, round_number: int, replication_factor: int) -> tuple[int, ...]:
    order = racks[turn:] + racks[:turn]
    found = ((position, rack.live.next(round_number)) for position, rack in enumerate(order))
    leader_rack, leader = next((position, broker) for position, broker in found if broker is not None)
    replicas = [leader]
    for position in count():
        if len(replicas) == replication_factor:
            break
        if position == leader_rack:
            # It has given its broker of this round of racks already.
            continue
        broker = order[position % len(order)].next(round_number)
        if broker is not None:
            replicas.append(broker)
    return tuple(replicas)


def _is_shutting_down(broker: BrokerImage) -> bool:
    """Return whether the broker shuts down. Its registration says so until it registers again; once it is fenced, it is
    down."""
    return broker.in_controlled_shutdown and not broker.fenced


def _takes_replicas(broker: BrokerImage) -> bool:
    """Return whether the broker has a log directory that is not cordoned (KIP-1066); one that has reported none counts
    as yes."""
    cordoned = broker.cordoned_directories
    return not broker.directories or cordoned is None or not set(broker.directories) <= set(cordoned)


def _shuffle(items: list[Item], random_below: RandomBelow) -> None:
    for last in range(len(items) - 1, 0, -1):
        chosen = random_below(last + 1)
        items[last], items[chosen] = items[chosen], items[last]


def _refusal(replication_factor: int, why: str) -> Refusal:
    times = "once" if replication_factor == 1 else f"{replication_factor} times"
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"The partitions cannot be replicated {times}: {why}.")

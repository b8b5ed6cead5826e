"""Which brokers a topic's replicas go to when their number changes. Pure.

A partition keeps the replicas that it has, in their order, so its leader stays; what is too many goes from the end.
New ones go where the fewest replicas of this topic are, the lowest broker first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class BadReplication(ValueError):
    """The replication factor is not possible; the sentence says why."""


def plan_replicas(current: Mapping[int, Sequence[int]], brokers: Sequence[int], factor: int) -> dict[int, list[int]]:
    """Return the new replicas of each partition that changes. Raises `BadReplication`."""
    if factor < 1:
        raise BadReplication("A partition has one replica at least.")
    if factor > len(brokers):
        raise BadReplication(f"{len(brokers)} brokers are up, so there cannot be {factor} replicas.")
    kept = {at: list(replicas[:factor]) for at, replicas in current.items()}
    held = dict.fromkeys(sorted(brokers), 0)
    for replicas in kept.values():
        for broker in replicas:
            held[broker] = held.get(broker, 0) + 1
    for at in sorted(kept):
        while len(kept[at]) < factor:
            chosen = min((broker for broker in sorted(brokers) if broker not in kept[at]), key=lambda one: held[one])
            kept[at].append(chosen)
            held[chosen] += 1
    return {at: replicas for at, replicas in kept.items() if replicas != list(current[at])}

"""Where a reset would put the offsets of a group: decided here, shown as a preview, then committed as it was shown.

    earliest, latest            the ends of each partition
    time (ms since 1970)        the first record at or after it; the end where there is none
    shift (n)                   n records onward, or back with a minus
    exact (offset)              the same offset everywhere

Whatever is asked for, the result lies between the ends of the partition, as with `kafka-consumer-groups`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TopicPartition = tuple[str, int]
WAYS = ("earliest", "latest", "time", "shift", "exact")
# A group with members commits over whatever is set from outside; Kafka refuses.
RESETTABLE = ("Empty", "Dead")


class BadReset(ValueError):
    """The reset cannot be done; the sentence says why."""


class Ends(NamedTuple):
    earliest: int
    latest: int


class ResetRow(NamedTuple):
    topic: str
    partition: int
    current: int | None
    target: int
    lag_after: int

    @property
    def moved(self) -> int | None:
        return None if self.current is None else self.target - self.current


def plan_reset(
    way: str,
    amount: int | None,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, Ends],
    at_time: Mapping[TopicPartition, int] | None = None,
) -> list[ResetRow]:
    """Return a row for each partition of `ends`, in order. Raises `BadReset`."""
    if way not in WAYS:
        raise BadReset(f"There is no way {way!r} to reset offsets: choose one of {', '.join(WAYS)}.")
    if way in ("time", "shift", "exact") and amount is None:
        raise BadReset(f"A reset by {way} needs a number.")
    rows = []
    for partition, end in sorted(ends.items()):
        current = committed.get(partition)
        target = _target(way, amount or 0, current, end, (at_time or {}).get(partition))
        target = min(max(target, end.earliest), end.latest)
        rows.append(ResetRow(*partition, current, target, end.latest - target))
    return rows


def _target(way: str, amount: int, current: int | None, end: Ends, found: int | None) -> int:
    match way:
        case "earliest":
            return end.earliest
        case "latest":
            return end.latest
        case "time":
            return end.latest if found is None or found < 0 else found
        case "shift":
            return (end.latest if current is None else current) + amount
    return amount


def why_not(state: str, kind: str) -> str | None:
    """Return why the offsets of a group cannot be reset now; None if they can."""
    if state not in RESETTABLE and kind == "share":
        return f"The share group is {state}: stop its members first, or the brokers refuse."
    if state not in RESETTABLE:
        return f"The group is {state}: stop its members first, since they would commit over the reset."
    return None

"""Variants of a broker that run at the same time and get the same load in turn, in many short bursts.

A machine is busier in one second than in the next, which hides a difference of five percent. Bursts of a twentieth of a
second that alternate between the variants have the same conditions, so the median of the ratios of neighbouring bursts,
and the lower quartile of CPU time, show even a small difference.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from bench.apache import Process, create_topic, scaled
from bench.wire_load import ProduceLoad, produce_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.apache import Side

BURSTS = 40
# With fewer bursts, a difference of some percent cannot be told from chance.
FEWEST_BURSTS = 24
PARTITIONS = 6


class Shape(NamedTuple):
    """The requests of a load: a batch of so many records for each partition, and so many requests in a burst."""

    name: str
    records: int
    record_bytes: int
    partitions: int
    in_flight: int
    burst: int

    @property
    def gigabytes(self) -> float:
        return self.burst * self.partitions * self.records * self.record_bytes / 1e9


# As Java's producer sends with its defaults to six partitions: batches of 16 KiB, up to five requests in flight.
PRODUCE_100 = Shape("produce 100 B, acks=all", 150, 100, PARTITIONS, 5, 160)
PRODUCE_1000 = Shape("produce 1000 B, acks=all", 16, 1000, PARTITIONS, 5, 160)
ONE_RECORD = Shape("one-record requests", 1, 100, 1, 64, 1500)


class Variant(NamedTuple):
    """A broker, and the settings of its clients under Java's names."""

    side: Side
    client: Mapping[str, str]


class Measured(NamedTuple):
    """The figures of one variant, for each burst in its order."""

    requests_per_s: list[float]
    # CPU time of the broker in each burst.
    cpu_s: list[float]

    @property
    def cpu_of_burst_s(self) -> float:
        return statistics.quantiles(self.cpu_s, n=4)[0]

    @property
    def rate(self) -> float:
        return statistics.median(self.requests_per_s)


def alternate(variants: Mapping[str, Variant], shape: Shape, topic: str) -> dict[str, Measured]:
    """Send bursts to all variants in turn, and return their figures. The first bursts do not count: Java compiles its
    code."""
    request = produce_request(topic, shape.partitions, shape.records, shape.record_bytes, acks=-1)
    loads = {}
    for name, (side, client) in variants.items():
        create_topic(side, topic, shape.partitions)
        loads[name] = ProduceLoad(side.port, request, client)
    measured = {name: Measured([], []) for name in variants}
    bursts = max(FEWEST_BURSTS, scaled(BURSTS))
    for number in range(-bursts // 8, bursts):
        for name in list(variants)[:: -1 if number % 2 else 1]:
            process: Process = variants[name].side.process
            before_s = process.cpu_seconds()
            rate = loads[name].requests_per_s(shape.in_flight, shape.burst)
            if number >= 0:
                measured[name].requests_per_s.append(rate)
                measured[name].cpu_s.append(process.cpu_seconds() - before_s)
    for load in loads.values():
        load.close()
    return measured


def kept_percent(of: Measured, by: Measured) -> float:
    """Return the throughput of `by` in percent of that of `of`: the median over neighbouring bursts."""
    pairs = zip(of.requests_per_s, by.requests_per_s, strict=True)
    return 100 * statistics.median(other / one for one, other in pairs)

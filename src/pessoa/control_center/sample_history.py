"""Numbers over time, in bounded memory: a ring of samples for each name, and a bound on the number of names.

A sample is a time and a number, sixteen bytes; where there are more names than the bound, the one whose last sample is
oldest goes. `RateMeter` makes rates of counters: messages per second out of log end offsets.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import NamedTuple

POINTS = 240
NAMES = 2000


class Sample(NamedTuple):
    at_ms: int
    value: float


class SampleHistory:
    """The last `points` samples of each name."""

    def __init__(self, points: int = POINTS, names: int = NAMES) -> None:
        self._points = points
        self._names = names
        self._rings: OrderedDict[str, array[float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<SampleHistory of {len(self._rings)} names>"

    def add(self, name: str, at_ms: int, value: float) -> None:
        ring = self._rings.setdefault(name, array("d"))
        ring.extend((at_ms, value))
        if len(ring) > 2 * self._points:
            del ring[: len(ring) - 2 * self._points]
        self._rings.move_to_end(name)
        if len(self._rings) > self._names:
            self._rings.popitem(last=False)

    def of(self, name: str) -> list[Sample]:
        ring = self._rings.get(name, ())
        return [Sample(int(ring[at]), ring[at + 1]) for at in range(0, len(ring), 2)]

    def last(self, name: str) -> float | None:
        ring = self._rings.get(name)
        return ring[-1] if ring else None


class RateMeter:
    """Rates of counters that only grow, by the two newest readings at least `least_ms` apart."""

    def __init__(self, least_ms: int = 900, names: int = 20_000) -> None:
        self._least_ms = least_ms
        self._names = names
        # name → reading to compare with, newest reading, rate
        self._readings: OrderedDict[str, tuple[Sample, float]] = OrderedDict()

    def read(self, name: str, at_ms: int, count: float) -> float | None:
        """Note a reading and return the rate per second; None for the first. A counter that fell starts again."""
        known = self._readings.get(name)
        if known is None or count < known[0].value:
            self._readings[name] = (Sample(at_ms, count), -1.0)
        else:
            before, rate = known
            passed_ms = at_ms - before.at_ms
            if passed_ms >= self._least_ms:
                rate = (count - before.value) * 1000 / passed_ms
                self._readings[name] = (Sample(at_ms, count), rate)
        self._readings.move_to_end(name)
        if len(self._readings) > self._names:
            self._readings.popitem(last=False)
        return self.rate(name)

    def rate(self, name: str) -> float | None:
        known = self._readings.get(name)
        return None if known is None or known[1] < 0 else known[1]

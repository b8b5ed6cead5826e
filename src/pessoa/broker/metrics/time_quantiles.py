"""How long things took: counts in buckets that are 25 % wide at most, whatever there is to count.

A bucket is found without a search: by the number of bits of the microseconds, and the two bits behind the first.
Quantiles are those of the minute that is being filled and of the one before, so that they follow what happens now.
"""

from __future__ import annotations

WINDOW_NS = 60_000_000_000
# Up to 2^60 µs: no clock shows more.
_BUCKETS = 4 * 60
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class TimeQuantiles:
    __slots__ = ("_began_ns", "_current", "_previous", "count")

    def __init__(self, now_ns: int) -> None:
        # Since the start.
        self.count = 0
        self._began_ns = now_ns
        self._current = [0] * _BUCKETS
        self._previous: list[int] | None = None

    def __repr__(self) -> str:
        return f"<TimeQuantiles of {self.count}>"

    def record(self, duration_ns: int, now_ns: int) -> None:
        if now_ns - self._began_ns > WINDOW_NS:
            self._turn(now_ns)
        self.count += 1
        # No function of its own, since this is on the path of every request; `_upper_end` is its inverse.
        microseconds = duration_ns // 1000
        bits = microseconds.bit_length()
        self._current[microseconds if bits < 3 else bits - 2 << 2 | microseconds >> bits - 3 & 3] += 1

    def _turn(self, now_ns: int) -> None:
        # After a long silence the last window says nothing about the last minute.
        self._previous = self._current if now_ns - self._began_ns <= 2 * WINDOW_NS else None
        self._current = [0] * _BUCKETS
        self._began_ns = now_ns

    def quantiles_ms(self, now_ns: int) -> list[tuple[float, float]]:
        """Return each of `QUANTILES` with its milliseconds; 0 if nothing was counted lately."""
        return quantiles_ms(now_ns, self)

    def recent(self, now_ns: int) -> list[int]:
        """Return the recent counts by bucket."""
        if now_ns - self._began_ns > WINDOW_NS:
            self._turn(now_ns)
        if self._previous is None:
            return self._current
        return [a + b for a, b in zip(self._current, self._previous, strict=True)]


def quantiles_ms(now_ns: int, *times: TimeQuantiles, without: TimeQuantiles | None = None) -> list[tuple[float, float]]:
    """Return the quantiles of all of these together, and of as many zeros as `without` has counted."""
    counts = [sum(bucket) for bucket in zip(*(one.recent(now_ns) for one in times), strict=True)]
    zeros = 0 if without is None else sum(without.recent(now_ns))
    total = sum(counts) + zeros
    return [
        (quantile, _value_at(counts, quantile * total - zeros) / 1000 if quantile * total > zeros else 0.0)
        for quantile in QUANTILES
    ]


def _upper_end(bucket: int) -> int:
    """Return the microseconds at which the next bucket begins."""
    if bucket < 4:
        return bucket + 1
    bits, part = (bucket >> 2) + 2, bucket & 3
    return (4 + part + 1) << (bits - 3)


def _value_at(counts: list[int], rank: float) -> float:
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= rank:
            return float(_upper_end(bucket))
    return 0.0

"""Throttled replication (KIP-73): replicas that are moved may be held to a rate, so that clients keep their share.

A broker has two rates, one for what it sends as leader and one for what it fetches as follower
(`leader.replication.throttled.rate`, `follower.replication.throttled.rate`). A topic names the replicas that they hold
for (`leader.replication.throttled.replicas`, and of followers): `*`, or partition:broker pairs. Only a follower that is
behind is throttled, never an in-sync one.

Bytes are taken from a store that fills at the rate, up to what comes in one second. It may be overdrawn by the last
response, whose size is not known before; then all throttled replicas wait until it is filled up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ALL = "*"


class Throttle:
    """Limits the bytes per second of replication; `bytes_per_second` None is no limit. Times are monotonic."""

    __slots__ = ("_bytes_left", "_filled_ms", "bytes_per_second")

    def __init__(self) -> None:
        self.bytes_per_second: int | None = None
        self._bytes_left = 0.0
        self._filled_ms = 0

    def __repr__(self) -> str:
        return f"<Throttle of {self.bytes_per_second} bytes/s, {self._bytes_left:.0f} left>"

    def limit(self, bytes_per_second: int | None, now_ms: int) -> None:
        if bytes_per_second != self.bytes_per_second:
            self.bytes_per_second = bytes_per_second
            self._bytes_left, self._filled_ms = float(bytes_per_second or 0), now_ms

    def take(self, size: int, now_ms: int) -> None:
        if self.bytes_per_second is not None:
            self._fill(self.bytes_per_second, now_ms)
            self._bytes_left -= size

    def wait_ms(self, now_ms: int) -> int:
        """Return how long to wait until more bytes may be replicated; 0 if they may be now."""
        rate = self.bytes_per_second
        if rate is None:
            return 0
        self._fill(rate, now_ms)
        if self._bytes_left > 0:
            return 0
        # A rate of nothing stops everything, until it is changed.
        return _LONGEST_MS if not rate else min(_LONGEST_MS, int(-self._bytes_left * 1000 / rate) + 1)

    def _fill(self, rate: int, now_ms: int) -> None:
        self._bytes_left = min(float(rate), self._bytes_left + rate * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms


# So that a changed rate is noticed.
_LONGEST_MS = 1000


def names_replica(throttled: Iterable[str], partition: int, broker_id: int) -> bool:
    """Return whether a topic's list of throttled replicas names the replica of this broker."""
    return any(one in (ALL, f"{partition}:{broker_id}") for one in throttled)

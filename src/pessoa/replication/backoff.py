"""How long to pause after failures: short at first, since most troubles pass, and twice as long each time."""

from __future__ import annotations

# The first pause is a sixteenth of the longest.
_DOUBLINGS = 4


class Backoff:
    """The growing pauses after failed attempts. Times are monotonic; `until_ms` is in the past unless a pause is on."""

    __slots__ = ("_failures", "until_ms")

    def __init__(self) -> None:
        self._failures = 0
        self.until_ms = 0

    def __repr__(self) -> str:
        return f"<Backoff until {self.until_ms} after {self._failures} failures>"

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def failed(self, now_ms: int, longest_ms: int) -> None:
        self.until_ms = now_ms + (longest_ms >> max(0, _DOUBLINGS - self._failures))
        self._failures += 1

    def succeeded(self) -> None:
        self._failures = 0
        self.until_ms = 0

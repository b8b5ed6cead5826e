"""The average and the largest of what was measured lately: in the window that is being filled, and the one before."""

from __future__ import annotations

WINDOW_MS = 30_000


class RecentAverage:
    """The average and the maximum over two samples of half a minute, as in Kafka's metrics."""

    def __init__(self) -> None:
        self._began_ms = 0
        # Count, sum and largest of each window.
        self._current = self._previous = (0, 0, 0)

    def __repr__(self) -> str:
        return f"<RecentAverage of {self._current[0] + self._previous[0]}>"

    def record(self, value: int, now_ms: int) -> None:
        self._turn(now_ms)
        count, total, most = self._current
        self._current = count + 1, total + value, max(most, value)

    def read(self, now_ms: int) -> tuple[float, int]:
        """Return the average and the maximum; zeros if nothing was measured."""
        self._turn(now_ms)
        (count, total, most), before = self._current, self._previous
        count, total = count + before[0], total + before[1]
        return (total / count if count else 0.0), max(most, before[2])

    def _turn(self, now_ms: int) -> None:
        passed = (now_ms - self._began_ms) // WINDOW_MS
        if passed > 0:
            self._previous = self._current if passed == 1 else (0, 0, 0)
            self._current = (0, 0, 0)
            self._began_ms += passed * WINDOW_MS

"""Refusals that are counted: failed logins and denied requests, which cost a client nothing and change nothing.

The first refusal of a host is written at once. Those that follow within a second are counted, and written as one line:
that of the last, with `count`. While there are more, each next line counts for twice as long, up to a minute. So a
flood adds some lines a minute, and does not rotate what has changed the cluster out of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.base.clock import Clock, Timer
    from pessoa.base.json_value import JsonValue
    from pessoa.broker.logs.log_writer import LogWriter

COUNTED_MS = 1_000
LONGEST_MS = 60_000
# Beyond these, refusals are counted together: addresses of IPv6 cost nothing either.
MAX_KEYS = 100
_OTHERS = ("",)


class RefusalCounts:
    def __init__(self, writer: LogWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        # The last refusal that is not written, and the number of such.
        self._counts: dict[tuple[str, ...], tuple[dict[str, JsonValue], int]] = {}
        self._timer: Timer | None = None
        self._interval_ms = COUNTED_MS

    def __repr__(self) -> str:
        return f"<RefusalCounts: {sum(count for _, count in self._counts.values())} to write>"

    def note(self, key: tuple[str, ...], entry: dict[str, JsonValue]) -> None:
        if key not in self._counts and len(self._counts) >= MAX_KEYS:
            key = _OTHERS
        _, count = self._counts.get(key, (entry, -1))
        self._counts[key] = (entry, count + 1)
        if count < 0:
            self._writer.write_names(entry)
        if self._timer is None:
            self._timer = self._clock.call_after_ms(COUNTED_MS, self._write_counts)

    def close(self) -> None:
        """Write the counts that were not written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._write()
        self._counts.clear()

    def _write_counts(self) -> None:
        self._write()
        self._counts = {key: (entry, 0) for key, (entry, count) in self._counts.items() if count}
        if self._counts:
            self._interval_ms = min(2 * self._interval_ms, LONGEST_MS)
            self._timer = self._clock.call_after_ms(self._interval_ms, self._write_counts)
        else:
            self._interval_ms, self._timer = COUNTED_MS, None

    def _write(self) -> None:
        for entry, count in self._counts.values():
            if count:
                self._writer.write_names({**entry, "count": count})

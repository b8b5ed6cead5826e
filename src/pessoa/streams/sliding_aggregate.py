"""Aggregates in sliding windows, as Kafka Streams has them since KIP-450: windows that begin and end where rows do.

A row at time t ends the window [t − size, t] and, if others follow within it, begins another, [t + 1, t + 1 + size];
both edges belong to a window. A new row changes every window that it lies in, so each of those comes out anew. Kafka's
rule for rows near the beginning of time holds as well: no window starts before 0.

The rows of a key are kept until the key's own time is size and grace past them, and windows are summed up from them; so
sliding windows are for keys with tens or hundreds of rows within a window, not millions. They run in micro-batches.

Aggregates are of numbers: count, sum, avg, min, max. Their arguments are expressions, which Spark computes before.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pessoa.pipelines.plan import Column, PlanRefused
from pessoa.pipelines.row_process import Context

_CALL = re.compile(r"(?is)\s*(count|sum|avg|min|max)\s*\((.+)\)\s*\Z")
Numbers = Sequence[float]
_FOLDS: dict[str, Callable[[Numbers], float | None]] = {
    "count": len,
    "sum": lambda found: sum(found) if found else None,
    "avg": lambda found: sum(found) / len(found) if found else None,
    "min": lambda found: min(found, default=None),
    "max": lambda found: max(found, default=None),
}


class SlidingAggregate:
    """A processor that computes the aggregates of sliding windows. Its input values are the arguments of the
    aggregates, in columns a0, a1, …"""

    def __init__(self, columns: Sequence[Column], size_ms: int, grace_ms: int) -> None:
        self.arguments: list[Column] = []
        self._folds: list[tuple[str, str]] = []
        for position, column in enumerate(columns):
            match = _CALL.match(column.expression)
            if match is None:
                raise PlanRefused(
                    f"{column.expression} cannot be had in sliding windows: there are count, sum, avg, min and max of"
                    " an expression"
                )
            argument = "1" if match[2].strip() == "*" else match[2]
            self.arguments.append(Column(f"a{position}", f"CAST(({argument}) AS DOUBLE)"))
            self._folds.append((column.name, match[1].lower()))
        self._size_ms = size_ms
        self._grace_ms = grace_ms

    @property
    def returns(self) -> str:
        """The columns of the results, in Spark's notation."""
        kinds = [f"`{name}` {'BIGINT' if fold == 'count' else 'DOUBLE'}" for name, fold in self._folds]
        return ", ".join(["window_start TIMESTAMP", "window_end TIMESTAMP", *kinds])

    def process(self, context: Context, key: object, value: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
        if value is None:
            return
        rows: list[tuple[int, list[float | None]]] = [(time, row) for time, row in context.state.get("rows", [])]
        now_ms = round(context.time.timestamp() * 1000)
        newest_ms = max(now_ms, context.state.get("newest", 0))
        closed_ms = newest_ms - self._grace_ms
        rows.append((now_ms, list(value.values())))
        rows.sort(key=lambda row: row[0])
        for start in window_starts(now_ms, [time for time, _ in rows], self._size_ms):
            # What lies in a window that closed before it came is late.
            if start + self._size_ms >= closed_ms:
                yield self._window(start, rows)
        horizon = closed_ms - self._size_ms
        context.state["rows"] = [row for row in rows if row[0] >= horizon]
        context.state["newest"] = newest_ms

    def _window(self, start: int, rows: Iterable[tuple[int, list[float | None]]]) -> dict[str, Any]:
        within = [row for time, row in rows if start <= time <= start + self._size_ms]
        found: dict[str, Any] = {
            "window_start": _moment(start),
            "window_end": _moment(start + self._size_ms),
        }
        for position, (name, fold) in enumerate(self._folds):
            numbers = [number for row in within if (number := row[position]) is not None]
            found[name] = _FOLDS[fold](numbers)
        return found


def window_starts(now_ms: int, times: Iterable[int], size_ms: int) -> list[int]:
    """Return the starts of the windows that a row at `now_ms` changes or creates; `times` includes the row's own."""
    starts = {max(0, now_ms - size_ms)}
    for time in times:
        # The window that a row before it begins, and the one that a row behind it ends.
        if time < now_ms <= time + 1 + size_ms:
            starts.add(time + 1)
        if now_ms <= time <= now_ms + size_ms:
            starts.add(max(0, time - size_ms))
        if now_ms < time <= now_ms + 1 + size_ms:
            starts.add(now_ms + 1)
    return sorted(starts)


def _moment(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)

"""Progress lines of queries that catch up: how many records are left, from time to time, until none are. Pure.

    vendas-app-caras ▕██████░░░░░░░░░░░░░░▏ 31 % · 310,000 of 1,000,000 records · 52,000 a second · 13 s to go

A query that starts on a topic with many records reads these first, and its progress is reported meanwhile. A query that
has caught up is not reported again: the group's offsets show a lag that comes and goes. Before its first batch nothing
is known of a query but that it runs, and that is reported too: in real-time mode a batch takes half a minute.
"""

from __future__ import annotations

from collections.abc import Iterable

from pessoa.pipelines.queries import QueryStatus

# A query reads fewer than this before a sentence about them could be read.
MANY = 1000
INTERVAL_S = 2.0
_SILENCE_S = 5.0
_WIDTH = 20


class Backlog:
    def __init__(self) -> None:
        self._caught_up: set[str] = set()
        # The batch and the time of the last sentence about a query.
        self._last_reports: dict[str, tuple[int, float]] = {}
        # The records that were before a query when it was first seen to catch up.
        self._totals: dict[str, int] = {}
        # Since when a query runs without a batch, and when that was last reported.
        self._before_first_batch: dict[str, tuple[float, float]] = {}

    def __repr__(self) -> str:
        return f"<Backlog of {sorted(self._last_reports.keys() - self._caught_up)}>"

    def sentences(self, statuses: Iterable[QueryStatus], now_s: float) -> list[str]:
        """Return the progress lines that are due now."""
        found = []
        for status in statuses:
            batch_id, lag = status.progress.batch_id, status.progress.lag
            if batch_id < 0 and status.state == "RUNNING":
                found += self._before_the_first_batch(status.id, now_s)
            if status.id in self._caught_up or batch_id < 0 or lag is None:
                continue
            last_batch, last_s = self._last_reports.get(status.id, (-1, now_s - INTERVAL_S))
            if lag < MANY:
                self._caught_up.add(status.id)
                if status.id in self._last_reports:
                    found.append(f"{status.id} has caught up")
            elif batch_id > last_batch and now_s >= last_s + INTERVAL_S:
                self._last_reports[status.id] = (batch_id, now_s)
                self._totals[status.id] = max(lag, self._totals.get(status.id, 0))
                found.append(bar(status.id, lag, self._totals[status.id], status.progress.rows_per_second))
        return found

    def _before_the_first_batch(self, query_id: str, now_s: float) -> list[str]:
        since_s, last_report_s = self._before_first_batch.setdefault(query_id, (now_s, now_s))
        if now_s < last_report_s + _SILENCE_S:
            return []
        self._before_first_batch[query_id] = (since_s, now_s)
        return [f"{query_id} runs, and Spark tells of it after its first batch: {now_s - since_s:.0f} s"]


def bar(query_id: str, lag: int, total: int, rows_per_second: float) -> str:
    """Return a progress bar for a query that began with `total` records of lag and has `lag` now."""
    done = total - lag
    filled = done * _WIDTH // total
    picture = "█" * filled + "░" * (_WIDTH - filled)
    rest = f" · {lag / rows_per_second:,.0f} s to go" if rows_per_second >= 1 else ""
    return (
        f"{query_id} ▕{picture}▏ {done * 100 // total} % · {done:,} of {total:,} records"
        f" · {rows_per_second:,.0f} a second{rest}"
    )

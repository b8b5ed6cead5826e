"""What is said of queries that catch up: how many records are before them, now and then, until they are there. Pure.

A query that starts on a topic with a long past reads it first, and says how far it is meanwhile. One that has caught up
is not spoken of again: a lag that comes and goes is what the group's offsets show.
"""

from __future__ import annotations

from collections.abc import Iterable

from pessoa.pipelines.queries import QueryStatus

# A query reads fewer than this before a sentence about them could be read.
MANY = 1000
INTERVAL_S = 2.0


class Backlog:
    def __init__(self) -> None:
        self._caught_up: set[str] = set()
        # The batch and the time of the last sentence about a query.
        self._said: dict[str, tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"<Backlog of {sorted(self._said.keys() - self._caught_up)}>"

    def sentences(self, statuses: Iterable[QueryStatus], now_s: float) -> list[str]:
        """What there is to say at this moment."""
        found = []
        for status in statuses:
            batch_id, lag = status.progress.batch_id, status.progress.lag
            if status.id in self._caught_up or batch_id < 0 or lag is None:
                continue
            last_batch, last_s = self._said.get(status.id, (-1, now_s - INTERVAL_S))
            if lag < MANY:
                self._caught_up.add(status.id)
                if status.id in self._said:
                    found.append(f"{status.id} has caught up")
            elif batch_id > last_batch and now_s >= last_s + INTERVAL_S:
                self._said[status.id] = (batch_id, now_s)
                rate = f"{status.progress.rows_per_second:,.0f}"
                found.append(f"{status.id} is catching up: {lag:,} records to go, {rate} a second")
        return found

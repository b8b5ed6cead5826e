"""What a query is doing, from the progress that Spark reports after each batch. Pure.

A source of topics reports its offsets as JSON, `{"vendas": {"0": 428, "1": 572}}`: how far the batch went, and how far
the topic goes. The difference is the lag; the first of them is what the query would have committed if it were a
consumer, and the engine commits it for a group, so that every tool which shows lag shows pipelines too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

# A query is always a little behind.
MOMENT_S = 2.0
Offsets = dict[tuple[str, int], int]


class Progress(msgspec.Struct, frozen=True):
    """The progress of a query in its last batch."""

    batch_id: int = -1
    batch_ms: int = 0
    input_rows: int = 0
    rows_per_second: float = 0.0
    # Records of topics that wait to be read; None for sources that cannot say.
    lag: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    # As Spark prints it, in UTC; empty without event time.
    watermark: str = ""
    offsets: tuple[tuple[str, int, int], ...] = ()
    # The lag of each partition.
    lags: tuple[tuple[str, int, int], ...] = ()

    def catching_up(self) -> str:
        """Return how far the query is behind and how long catching up will take; empty if only a moment."""
        if not self.lag or self.rows_per_second <= 0 or self.lag / self.rows_per_second < MOMENT_S:
            return ""
        left_s = self.lag / self.rows_per_second
        return f"catches up: {self.lag:,} records to read at {self.rows_per_second:,.0f} a second, {left_s:.0f} s to go"


def read_progress(report: Mapping[str, Any]) -> Progress:
    sources = report.get("sources") or []
    ends, latest = _offsets(sources, "endOffset"), _offsets(sources, "latestOffset")
    states = report.get("stateOperators") or []
    return Progress(
        batch_id=int(report.get("batchId", -1)),
        batch_ms=int(report.get("batchDuration", 0) or 0),
        input_rows=sum(int(source.get("numInputRows") or 0) for source in sources),
        rows_per_second=_sum_of_rates(sources),
        lag=sum(max(0, end - ends.get(place, 0)) for place, end in latest.items()) if latest else None,
        state_rows=sum(int(state.get("numRowsTotal") or 0) for state in states),
        state_bytes=sum(int(state.get("memoryUsedBytes") or 0) for state in states),
        watermark=str((report.get("eventTime") or {}).get("watermark", "")),
        offsets=tuple((topic, partition, end) for (topic, partition), end in sorted(ends.items())),
        lags=tuple(
            (topic, partition, max(0, end - ends.get((topic, partition), 0)))
            for (topic, partition), end in sorted(latest.items())
        ),
    )


def _sum_of_rates(sources: Iterable[Mapping[str, Any]]) -> float:
    # Spark writes NaN and Infinity as words where a batch took no time.
    rates = [source.get("processedRowsPerSecond") for source in sources]
    return sum(rate for rate in rates if isinstance(rate, int | float) and 0 <= rate < float("inf"))


def _offsets(sources: Iterable[Mapping[str, Any]], name: str) -> Offsets:
    found: Offsets = {}
    for source in sources:
        offsets = source.get(name)
        if isinstance(offsets, str):
            try:
                offsets = json.loads(offsets)
            except ValueError:
                continue
        if not isinstance(offsets, dict):
            continue
        for topic, partitions in offsets.items():
            # A source of another kind has offsets of another form.
            if isinstance(partitions, dict) and all(str(number).isdigit() for number in partitions):
                for number, end in partitions.items():
                    # A topic that is read twice is as far as the slower reading.
                    place = (topic, int(number))
                    found[place] = min(int(end), found.get(place, int(end)))
    return found

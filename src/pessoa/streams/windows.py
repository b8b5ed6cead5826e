"""Windows in time, and times as people write them: "1 min", "90 seconds", "1h 30m", a timedelta, or milliseconds.

    tumbling("1 min")                    one after the other
    hopping("5 min", every="1 min")      overlapping
    sliding("1 min")                     the minute before each row, and the one behind it: Kafka's sliding windows
    session("30 s", grace="10 s")        as long as the silence between two rows is shorter than this

A window takes rows until the stream is `grace` past its end, a day by default, so that late rows are not lost
unnoticed. Results of tumbling and hopping windows come out whenever they change. Those of sessions come out once, when
they are closed, and so do those of `final=True`; then the grace also delays the results, and must be given.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from pessoa.pipelines.plan import PlanRefused, Window

Duration: TypeAlias = str | int | timedelta

DAY_MS = 86_400_000
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*")
_UNITS = {
    "ms": 1, "milli": 1, "millisecond": 1,
    "s": 1000, "sec": 1000, "second": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000,
    "d": DAY_MS, "day": DAY_MS,
}  # fmt: skip


def milliseconds(duration: Duration) -> int:
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1000)
    if isinstance(duration, int):
        return duration
    text, total, position = duration.strip().lower(), 0.0, 0
    while match := _PART.match(text, position):
        unit = match[2] if match[2] in _UNITS else match[2].removesuffix("s")
        if unit not in _UNITS:
            break
        total += float(match[1]) * _UNITS[unit]
        position = match.end()
    if not text or position < len(text):
        raise PlanRefused(f'{duration!r} is no time: write "1 min", "90 seconds" or "1h 30m"')
    return round(total)


def tumbling(size: Duration, *, grace: Duration | None = None, final: bool = False) -> Window:
    return Window("tumbling", milliseconds(size), grace_ms=_grace(grace, final), final=final)


def hopping(size: Duration, *, every: Duration, grace: Duration | None = None, final: bool = False) -> Window:
    return Window("hopping", milliseconds(size), milliseconds(every), _grace(grace, final), final)


def sliding(size: Duration, *, grace: Duration | None = None) -> Window:
    return Window("sliding", milliseconds(size), grace_ms=_grace(grace, final=False))


def session(gap: Duration, *, grace: Duration) -> Window:
    return Window("session", milliseconds(gap), grace_ms=milliseconds(grace))


def _grace(grace: Duration | None, final: bool) -> int:
    if grace is not None:
        return milliseconds(grace)
    if final:
        raise PlanRefused("a window that says its final result only needs a grace: how long to wait for late rows")
    return DAY_MS

"""`process`: a user's Python object that sees the rows of a key in the order of their times, with state and timers.

For Spark's stateful operator each row is its key, its time, and its value as a struct. `Session` is one visit to a
key: it loads the state, calls the user's object, and knows what is to be kept. It is pure; `row_process_state.py` is
Spark's side of it. What comes out is JSON, and becomes columns of the declared type. Times are in UTC.

State is one JSON object for each key, so it survives the code that wrote it. A row for which the user's code fails
leaves the state as it was, and is a bad record like any other.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from pessoa.pipelines.python_functions import build, describe_failure


class InputRow(NamedTuple):
    time: datetime.datetime
    position: int
    # The columns of the value; None for a record without one.
    payload: dict[str, Any] | None


class Output(NamedTuple):
    time: datetime.datetime
    payload: str | None
    error: str | None


class Context:
    """The state and timers of the key for which a processor is called."""

    def __init__(self, state: dict[str, Any], time: datetime.datetime, watermark: datetime.datetime | None) -> None:
        # Kept for the key: anything that JSON can write, under names.
        self.state = state
        # The time of the row, or of the timer.
        self.time = time
        # How far the stream is; None before it is known, and without event-time timers.
        self.watermark = watermark
        # Timers that were asked for, and taken back, in milliseconds.
        self.wanted: set[int] = set()
        self.unwanted: set[int] = set()

    def __repr__(self) -> str:
        return f"<Context at {self.time}, {len(self.state)} things kept>"

    def set_timer(self, at: datetime.datetime | datetime.timedelta) -> datetime.datetime:
        """Have `timer` called at this time, or this long after the row's. The same time twice is one timer."""
        moment = self.time + at if isinstance(at, datetime.timedelta) else at
        self.wanted.add(_milliseconds(moment))
        self.unwanted.discard(_milliseconds(moment))
        return moment

    def cancel_timer(self, at: datetime.datetime) -> None:
        self.unwanted.add(_milliseconds(at))
        self.wanted.discard(_milliseconds(at))


class RowProcessor(Protocol):
    """The object that `process` takes; its method `timer` may be missing if it sets no timers."""

    def process(self, context: Any, key: Any, value: Any) -> Iterable[object]: ...


class Session:
    """One call of the user's processor for a key; `state` is the stored JSON."""

    def __init__(
        self, processor: RowProcessor, takes: Callable[..., object] | None, is_plain: bool, state: str | None,
        watermark: datetime.datetime | None,
    ) -> None:  # fmt: skip
        self._processor = processor
        self._takes = takes
        self._is_plain = is_plain
        self._state = state
        self._watermark = watermark
        self.wanted: set[int] = set()
        self.unwanted: set[int] = set()

    @property
    def state(self) -> str | None:
        return self._state

    def take(self, key: object, rows: Iterable[InputRow]) -> Iterator[Output]:
        for row in sorted(rows, key=lambda row: (row.time, row.position)):
            value = None if row.payload is None else self._value(row.payload)

            def call(context: Context, value: object = value) -> Iterable[object]:
                return self._processor.process(context, key, value)

            yield from self._call(row.time, call, row.payload)

    def expire(self, key: object, at: datetime.datetime) -> Iterator[Output]:
        timer: Callable[..., Iterable[object]] | None = getattr(self._processor, "timer", None)
        if timer is None:
            name = type(self._processor).__name__
            yield Output(at, None, f"{name} has set a timer, and has no method timer(context, key, time)")
            return
        yield from self._call(at, lambda context: timer(context, key, at), None)

    def _call(
        self, time: datetime.datetime, call: Callable[[Context], Iterable[object]], payload: dict[str, Any] | None
    ) -> Iterator[Output]:
        context = Context(json.loads(self._state) if self._state else {}, time, self._watermark)
        try:
            found = [json.dumps({"value": each}, default=_plain) for each in call(context) or ()]
            kept = json.dumps(context.state) if context.state else None
        except Exception as failure:  # noqa: BLE001  what a user's code raises is unknown
            given = f", for {json.dumps(payload, default=str)}" if payload else ""
            yield Output(time, None, describe_failure(failure) + given)
            return
        self._state = kept
        self.wanted = (self.wanted - context.unwanted) | context.wanted
        self.unwanted = (self.unwanted - context.wanted) | context.unwanted
        yield from (Output(time, each, None) for each in found)

    def _value(self, columns: dict[str, Any]) -> object:
        if self._is_plain:
            return next(iter(columns.values()))
        return columns if self._takes is None else build(self._takes, columns)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, datetime.datetime):
        # As `row_process_state.py` reads it.
        return value.astimezone(datetime.UTC).isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is nothing that JSON can write")


def _milliseconds(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1000)

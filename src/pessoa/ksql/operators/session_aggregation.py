"""GROUP BY in sessions: rows of a key that are no further apart than the gap.

A row joins every session that it comes near enough to, and makes one of them: for each of them a tombstone, then the
row of the new session, whose window is [first time, last time]. A session is closed when its end lies more than gap and
grace before stream time. A key has one entry with the bounds of its sessions, and one for the aggregates of each.
"""

from __future__ import annotations

from typing import cast

from pessoa.ksql.analysis.logical_plan import PlannedWindow
from pessoa.ksql.operators.flow_events import Emit, Event, StateKeys, TaskContext
from pessoa.ksql.operators.format_codecs import TimeWindow
from pessoa.ksql.operators.group_states import GroupAggregates, States
from pessoa.ksql.operators.row_operators import Operator
from pessoa.ksql.operators.row_packing import Keys, Row, pack, pack_any, unpack
from pessoa.ksql.operators.time_index import StreamTime, TimeIndex
from pessoa.ksql.operators.window_aggregation import window_row
from pessoa.ksql.types.sql_types import Value


def session_aggregate_operator(
    name: str, keys: StateKeys, groups: GroupAggregates, window: PlannedWindow, is_final: bool, needs_old: bool
) -> Operator:
    def bind(context: TaskContext, emit: Emit) -> Emit:
        return SessionAggregation(name, keys, groups, window, is_final, needs_old, context, emit).take

    return bind


class SessionAggregation:
    """The sessions of one task."""

    def __init__(
        self, name: str, keys: StateKeys, groups: GroupAggregates, window: PlannedWindow, is_final: bool,
        needs_old: bool, context: TaskContext, emit: Emit,
    ) -> None:  # fmt: skip
        self._name = name
        self._keys = keys
        self._groups = groups
        self._gap_ms = window.size_ms
        # How long behind its last row a session is open.
        self._open_ms = window.size_ms + window.grace_ms
        self._is_final = is_final
        self._needs_old = needs_old
        self._state = context.state
        self._place = context.place
        self._emit = emit
        self._clock = StreamTime(context.state, f"{name}-time")
        self._index = TimeIndex(context.state, f"{name}-index")

    def take(self, event: Event) -> None:
        now = self._clock.advance(event.timestamp_ms)
        assert event.key is not None
        time = event.timestamp_ms
        windows = self._windows(self._keys.of(event.key))
        near = [one for one in windows if one.end_ms >= time - self._gap_ms and one.start_ms <= time + self._gap_ms]
        merged = TimeWindow(min([time, *(one.start_ms for one in near)]), max([time, *(one.end_ms for one in near)]))
        if merged.end_ms < now - self._open_ms:
            self._place.log(
                f"Skipping record for expired window. timestamp=[{time}] window=[{merged.start_ms},{merged.end_ms}] "
                f"expiration=[{now - self._open_ms}] streamTime=[{now}]"
            )
        else:
            self._merge(event, windows, near, merged)
        self._close(now)

    def _windows(self, place: bytes) -> list[TimeWindow]:
        data = self._state.get(self._name, place)
        times = [] if data is None else cast("list[int]", unpack(data))
        return [TimeWindow(*pair) for pair in zip(times[::2], times[1::2], strict=True)]

    def _put_windows(self, place: bytes, windows: list[TimeWindow]) -> None:
        if windows:
            self._state.put(self._name, place, pack([time for window in sorted(windows) for time in window]))
        else:
            self._state.delete(self._name, place)

    def _states(self, key: Keys, window: TimeWindow) -> States:
        data = self._state.get(self._name, self._keys.of(key, window))
        assert data is not None
        return cast("States", unpack(data))

    def _merge(self, event: Event, windows: list[TimeWindow], near: list[TimeWindow], merged: TimeWindow) -> None:
        """Merge the row and the sessions near it into one session, and emit the changes."""
        key, row = event.key, event.row
        assert key is not None
        assert row is not None
        before: list[tuple[TimeWindow, Row | None]] = []
        states = self._groups.initial()
        for one in near:
            own = self._states(key, one)
            before.append((one, window_row(self._groups, key, one, own) if self._needs_old else None))
            states = self._groups.merge(states, own)
            self._state.delete(self._name, self._keys.of(key, one))
        states = self._groups.add(states, row)
        self._state.put(self._name, self._keys.of(key, merged), pack(self._groups.to_list(states)))
        if near != [merged]:
            self._put_windows(self._keys.of(key), [*(one for one in windows if one not in near), merged])
        if merged not in near:
            self._index.add(merged.end_ms, pack_any([key, merged.start_ms]))
        if not self._is_final:
            self._send(event, before, merged, window_row(self._groups, key, merged, states))

    def _send(self, event: Event, before: list[tuple[TimeWindow, Row | None]], merged: TimeWindow, row: Row) -> None:
        replaced: Row | None = None
        if merged == (event.timestamp_ms, event.timestamp_ms):
            # Rows of one moment: the session is what it was, and needs no tombstone.
            replaced = before[0][1] if before else None
        else:
            for old, old_row in before:
                self._emit(Event(event.key, None, old.end_ms, old, old_row, event.headers))
        self._emit(Event(event.key, row, merged.end_ms, merged, replaced, event.headers))

    def _close(self, now: int) -> None:
        """Remove the sessions that no further row can join; with EMIT FINAL, emit them."""
        for end, member in self._index.pop_before(now - self._open_ms):
            key_values, start = cast("tuple[list[Value], int]", unpack(member))
            key, due = tuple(key_values), TimeWindow(start, end)
            windows = self._windows(self._keys.of(key))
            if due not in windows:
                continue  # It became part of a longer one.
            if self._is_final:
                self._emit(Event(key, window_row(self._groups, key, due, self._states(key, due)), end, due))
            self._state.delete(self._name, self._keys.of(key, due))
            self._put_windows(self._keys.of(key), [one for one in windows if one != due])

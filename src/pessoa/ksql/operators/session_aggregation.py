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
from pessoa.ksql.operators.row_operators import Link
from pessoa.ksql.operators.row_packing import Keys, Row, pack, pack_any, unpack
from pessoa.ksql.operators.time_index import StreamTime, TimeIndex
from pessoa.ksql.operators.window_aggregation import window_row


def session_aggregate_link(
    name: str, keys: StateKeys, groups: GroupAggregates, window: PlannedWindow, is_final: bool, needs_old: bool
) -> Link:
    gap = window.size_ms

    def bind(context: TaskContext, emit: Emit) -> Emit:
        state = context.state
        clock = StreamTime(state, f"{name}-time")
        index = TimeIndex(state, f"{name}-index")

        def windows_of(place: bytes) -> list[TimeWindow]:
            data = state.get(name, place)
            times = [] if data is None else cast("list[int]", unpack(data))
            return [TimeWindow(*pair) for pair in zip(times[::2], times[1::2], strict=True)]

        def put_windows(place: bytes, windows: list[TimeWindow]) -> None:
            if windows:
                state.put(name, place, pack([time for window in sorted(windows) for time in window]))
            else:
                state.delete(name, place)

        def states_of(key: Keys, one: TimeWindow) -> States:
            data = state.get(name, keys.of(key, one))
            assert data is not None
            return cast("States", unpack(data))

        def take(event: Event) -> None:
            now = clock.advance(event.timestamp_ms)
            assert event.key is not None
            place = keys.of(event.key)
            windows = windows_of(place)
            timestamp = event.timestamp_ms
            near = [one for one in windows if one.end_ms >= timestamp - gap and one.start_ms <= timestamp + gap]
            merged = TimeWindow(
                min([timestamp, *(one.start_ms for one in near)]), max([timestamp, *(one.end_ms for one in near)])
            )
            if merged.end_ms < now - gap - window.grace_ms:
                context.place.log(
                    f"Skipping record for expired window. timestamp=[{timestamp}] window=[{merged.start_ms},"
                    f"{merged.end_ms}] expiration=[{now - gap - window.grace_ms}] streamTime=[{now}]"
                )
            else:
                merge(event, place, windows, near, merged)
            close(now)

        def merge(
            event: Event, place: bytes, windows: list[TimeWindow], near: list[TimeWindow], merged: TimeWindow
        ) -> None:
            assert event.key is not None
            assert event.row is not None
            alone = TimeWindow(event.timestamp_ms, event.timestamp_ms)
            before: list[tuple[TimeWindow, Row | None]] = []
            states = groups.initial()
            for one in near:
                own = states_of(event.key, one)
                before.append((one, window_row(groups, event.key, one, own) if needs_old else None))
                states = groups.merge(states, own)
                state.delete(name, keys.of(event.key, one))
            states = groups.add(states, event.row)
            state.put(name, keys.of(event.key, merged), pack(groups.to_list(states)))
            if near != [merged]:
                put_windows(place, [*(one for one in windows if one not in near), merged])
            if merged not in near:
                index.add(merged.end_ms, pack_any([event.key, merged.start_ms]))
            if is_final:
                return
            if merged != alone:
                for old, row in before:
                    emit(Event(event.key, None, old.end_ms, old, row, event.headers))
            replaced = before[0][1] if merged == alone and before else None
            row = window_row(groups, event.key, merged, states)
            emit(Event(event.key, row, merged.end_ms, merged, replaced, event.headers))

        def close(now: int) -> None:
            for end, member in index.pop_before(now - gap - window.grace_ms):
                key, start = cast("tuple[Keys, int]", unpack(member))
                key = tuple(key)
                place = keys.of(key)
                due = TimeWindow(start, end)
                windows = windows_of(place)
                if due not in windows:
                    continue  # It became part of a longer one.
                if is_final:
                    emit(Event(key, window_row(groups, key, due, states_of(key, due)), end, due))
                state.delete(name, keys.of(key, due))
                put_windows(place, [one for one in windows if one != due])

        return take

    return bind

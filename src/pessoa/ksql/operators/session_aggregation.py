"""GROUP BY in sessions: rows of a key that are no further apart than the gap.

A row joins every session that it comes near enough to, and makes one of them: for each of them a tombstone, then the
row of the new session, whose window is [first time, last time]. A session is closed when its end lies more than gap and
grace before stream time. A key's sessions are one entry of the state.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from pessoa.ksql.analysis.logical_plan import PlannedWindow
from pessoa.ksql.operators.flow_events import Emit, Event, StateKeys, TaskContext
from pessoa.ksql.operators.format_codecs import TimeWindow
from pessoa.ksql.operators.group_states import GroupAggregates, States
from pessoa.ksql.operators.row_operators import Link
from pessoa.ksql.operators.row_packing import Keys, pack, pack_any, unpack
from pessoa.ksql.operators.time_index import StreamTime, TimeIndex
from pessoa.ksql.operators.window_aggregation import window_row


class _Session(NamedTuple):
    window: TimeWindow
    states: States


def session_aggregate_link(
    name: str, keys: StateKeys, groups: GroupAggregates, window: PlannedWindow, is_final: bool, needs_old: bool
) -> Link:
    gap = window.size_ms

    def bind(context: TaskContext, emit: Emit) -> Emit:
        state = context.state
        clock = StreamTime(state, f"{name}-time")
        index = TimeIndex(state, f"{name}-index", max(1, gap // 16))

        def sessions_of(place: bytes) -> list[_Session]:
            data = state.get(name, place)
            if data is None:
                return []
            found = cast("list[tuple[int, int, States]]", unpack(data))
            return [_Session(TimeWindow(start, end), states) for start, end, states in found]

        def put(place: bytes, sessions: list[_Session]) -> None:
            if sessions:
                parts = [[*one.window, groups.to_list(one.states)] for one in sessions]
                state.put(name, place, pack(parts))
            else:
                state.delete(name, place)

        def take(event: Event) -> None:
            now = clock.advance(event.timestamp_ms)
            assert event.key is not None
            place = keys.of(event.key)
            sessions = sessions_of(place)
            timestamp = event.timestamp_ms
            near = [
                one
                for one in sessions
                if one.window.end_ms >= timestamp - gap and one.window.start_ms <= timestamp + gap
            ]
            merged = TimeWindow(
                min([timestamp, *(one.window.start_ms for one in near)]),
                max([timestamp, *(one.window.end_ms for one in near)]),
            )
            if merged.end_ms < now - gap - window.grace_ms:
                context.place.log(
                    f"Skipping record for expired window. timestamp=[{timestamp}] window=[{merged.start_ms},"
                    f"{merged.end_ms}] expiration=[{now - gap - window.grace_ms}] streamTime=[{now}]"
                )
            else:
                merge(event, place, sessions, near, merged)
            close(now)

        def merge(
            event: Event, place: bytes, sessions: list[_Session], near: list[_Session], merged: TimeWindow
        ) -> None:
            assert event.key is not None
            assert event.row is not None
            alone = TimeWindow(event.timestamp_ms, event.timestamp_ms)
            before = [(one.window, window_row(groups, event.key, *one) if needs_old else None) for one in near]
            states = groups.initial()
            for one in near:
                states = groups.merge(states, one.states)
            states = groups.add(states, event.row)
            gone = {one.window for one in near}
            others = [one for one in sessions if one.window not in gone]
            put(place, sorted([*others, _Session(merged, states)], key=lambda one: one.window))
            if merged not in gone:
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
                sessions = sessions_of(place)
                due = [one for one in sessions if one.window == (start, end)]
                if not due:
                    continue  # It became part of a longer one.
                if is_final:
                    emit(Event(key, window_row(groups, key, *due[0]), end, due[0].window))
                put(place, [one for one in sessions if one.window != (start, end)])

        return take

    return bind

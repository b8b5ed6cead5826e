"""GROUP BY in tumbling and hopping windows: an aggregate for each key and window.

A window [start, start + size) is closed when start + size + grace ≤ stream time, the highest timestamp that this task
has seen here; what comes later for it is left out. With EMIT FINAL a window's row is written when it closes, else with
every event. What is closed is forgotten.
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


def windows_of(timestamp_ms: int, window: PlannedWindow) -> list[TimeWindow]:
    """Return the windows that a time lies in, the earliest first; starts are multiples of the advance from 0 on."""
    start = max(0, timestamp_ms - window.size_ms + window.advance_ms) // window.advance_ms * window.advance_ms
    return [TimeWindow(at, at + window.size_ms) for at in range(start, timestamp_ms + 1, window.advance_ms)]


def window_row(groups: GroupAggregates, key: Keys, window: TimeWindow, states: States) -> Row:
    row = groups.row(key, states)
    row["WINDOWSTART"], row["WINDOWEND"] = window
    return row


def window_aggregate_operator(
    name: str, keys: StateKeys, groups: GroupAggregates, window: PlannedWindow, is_final: bool, needs_old: bool
) -> Operator:
    def bind(context: TaskContext, emit: Emit) -> Emit:
        state = context.state
        clock = StreamTime(state, f"{name}-time")
        index = TimeIndex(state, f"{name}-index")

        def take(event: Event) -> None:
            now = clock.advance(event.timestamp_ms)
            for one in windows_of(event.timestamp_ms, window):
                if one.end_ms + window.grace_ms > now:
                    update(event, one)
                else:
                    context.place.log(
                        f"Skipping record for expired window. timestamp=[{event.timestamp_ms}] window=[{one.start_ms},"
                        f"{one.end_ms}) expiration=[{now - window.grace_ms}] streamTime=[{now}]"
                    )
            close(now)

        def update(event: Event, one: TimeWindow) -> None:
            assert event.key is not None
            assert event.row is not None
            place = keys.of(event.key, one)
            data = state.get(name, place)
            timestamp = event.timestamp_ms
            before: Row | None = None
            if data is None:
                states = groups.initial()
                index.add(one.end_ms, pack_any(event.key))
            else:
                seen, states = cast("tuple[int, States]", unpack(data))
                timestamp = max(timestamp, seen)
                before = window_row(groups, event.key, one, states) if needs_old else None
            states = groups.add(states, event.row)
            state.put(name, place, pack([timestamp, groups.to_list(states)]))
            if not is_final:
                row = window_row(groups, event.key, one, states)
                emit(Event(event.key, row, timestamp, one, before, event.headers))

        def close(now: int) -> None:
            for end, member in index.pop_before(now - window.grace_ms + 1):
                key = tuple(cast("Keys", unpack(member)))
                one = TimeWindow(end - window.size_ms, end)
                place = keys.of(key, one)
                data = state.get(name, place)
                assert data is not None
                if is_final:
                    timestamp, states = cast("tuple[int, States]", unpack(data))
                    emit(Event(key, window_row(groups, key, one, states), timestamp, one))
                state.delete(name, place)

        return take

    return bind

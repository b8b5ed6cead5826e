"""Stream-stream joins: rows of both sides are kept for each other as long as WITHIN and grace require.

    a left row at l meets right rows in [l - before, l + after]; closed when l + after + grace < stream time
    a right row at r meets left rows in [r - after, r + before]; closed when r + before + grace < stream time

Rows wait in entries by key and a span of time, so that a row looks at two or three entries. What has no partner:

- without GRACE (grace_ms None) it goes out at once, padded with nulls, and later again with each partner (eager);
- with GRACE it goes out when its window closes, and only if there was no partner.

A row whose window is closed when it comes is padded at once, and waits for no partner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast

from pessoa.ksql.operators.flow_events import Emit, Event, FlowShape, StateKeys, TaskContext
from pessoa.ksql.operators.format_codecs import TimeWindow
from pessoa.ksql.operators.records import Headers
from pessoa.ksql.operators.row_operators import merged
from pessoa.ksql.operators.row_packing import Keys, Row, RowShape, pack, pack_any, unpack
from pessoa.ksql.operators.time_index import StreamTime, TimeIndex
from pessoa.ksql.types.sql_types import Value

LEFT, RIGHT = 0, 1
EAGER_GRACE_MS = 86_400_000
# A row that waits: its time, its columns as bytes, whether it had a partner.
Waiting: TypeAlias = "list[object]"


@dataclass(frozen=True)
class StreamStreamRule:
    name: str
    before_ms: int
    after_ms: int
    # None: eager.
    grace_ms: int | None
    # Whether rows of a side go out without a partner.
    keeps: tuple[bool, bool]
    shapes: tuple[FlowShape, FlowShape]
    # Columns of the result that are the key: a synthetic ROWKEY.
    synthetic: tuple[str, ...]


class StreamStreamJoin:
    """The join in one task: `take(side, event)` expects events whose key is the join key."""

    def __init__(self, rule: StreamStreamRule, context: TaskContext, emit: Emit) -> None:
        self._rule = rule
        self._state = context.state
        self._emit = emit
        self._shapes = [RowShape(shape.columns) for shape in rule.shapes]
        self._grace_ms = EAGER_GRACE_MS if rule.grace_ms is None else rule.grace_ms
        # How far a row of a side looks back and ahead.
        self._reach = ((rule.before_ms, rule.after_ms), (rule.after_ms, rule.before_ms))
        self._span_ms = rule.before_ms + rule.after_ms + 1
        self._clock = StreamTime(context.state, f"{rule.name}-time")
        self._index = TimeIndex(context.state, f"{rule.name}-index")
        kinds = rule.shapes[LEFT].key_types or rule.shapes[RIGHT].key_types
        self._keys = StateKeys(kinds)

    def take(self, side: int, event: Event, key: Value) -> None:
        if event.row is None:
            return
        if key is None:
            if self._rule.keeps[side]:
                self._pad(side, None, None, event.timestamp_ms, event.row, event.headers)
            return
        now = self._clock.advance(event.timestamp_ms)
        self._close(now)
        back, ahead = self._reach[side]
        keys = (key,)
        time = event.timestamp_ms
        if time + ahead + self._grace_ms < now:
            if self._rule.keeps[side]:
                self._pad(side, keys, event.window, time, event.row, event.headers)
            return
        found = self._match(side, keys, event, time - back, time + ahead)
        if not found and self._rule.keeps[side] and self._rule.grace_ms is None:
            self._pad(side, keys, event.window, time, event.row, event.headers)
        self._wait(side, keys, event, found)

    def _place(self, side: int, keys: Keys, window: TimeWindow | None, span: int) -> bytes:
        return pack([side, self._keys.of(keys, window), span])

    def _entry(self, place: bytes) -> list[Waiting]:
        data = self._state.get(self._rule.name, place)
        return [] if data is None else cast("list[Waiting]", unpack(data))

    def _match(self, side: int, keys: Keys, event: Event, start_ms: int, end_ms: int) -> bool:
        """Emit a row for every partner between the two times, in order of time. Return whether there was one."""
        other = 1 - side
        partners: list[tuple[int, Row]] = []
        for span in range(start_ms // self._span_ms, end_ms // self._span_ms + 1):
            place = self._place(other, keys, event.window, span)
            entry = self._entry(place)
            changed = False
            for waiting in entry:
                time = cast("int", waiting[0])
                if start_ms <= time <= end_ms:
                    partners.append((time, self._row(other, waiting)))
                    changed = changed or not waiting[2]
                    waiting[2] = True
            if changed and self._rule.keeps[other] and self._rule.grace_ms is not None:
                self._state.put(self._rule.name, place, pack(entry))
        partners.sort(key=lambda partner: partner[0])
        for time, row in partners:
            left, right = (event.row, row) if side == LEFT else (row, event.row)
            joined = merged(left, right, self._rule.synthetic, keys[0])
            self._emit(Event(keys, joined, max(time, event.timestamp_ms), event.window, None, event.headers))
        return bool(partners)

    def _row(self, side: int, waiting: Waiting) -> Row:
        row = self._shapes[side].to_row(unpack(cast("bytes", waiting[1])))
        assert row is not None
        return row

    def _wait(self, side: int, keys: Keys, event: Event, matched: bool) -> None:
        time = event.timestamp_ms
        span = time // self._span_ms
        place = self._place(side, keys, event.window, span)
        entry = self._entry(place)
        entry.append([time, pack(self._shapes[side].to_list(event.row)), matched])
        self._state.put(self._rule.name, place, pack(entry))
        window = None if event.window is None else list(event.window)
        self._index.add(time + self._reach[side][1], pack_any([side, keys, window, time]))

    def _close(self, now: int) -> None:
        """Remove the rows whose windows are closed; with GRACE, emit those that had no partner."""
        for _, member in self._index.pop_before(now - self._grace_ms):
            side, keys, window, time = cast("tuple[int, Keys, list[int] | None, int]", unpack(member))
            key = tuple(keys)
            own_window = None if window is None else TimeWindow(*window)
            place = self._place(side, key, own_window, time // self._span_ms)
            entry = self._entry(place)
            position = next(index for index, waiting in enumerate(entry) if waiting[0] == time)
            waiting = entry.pop(position)
            if entry:
                self._state.put(self._rule.name, place, pack(entry))
            else:
                self._state.delete(self._rule.name, place)
            if self._rule.keeps[side] and self._rule.grace_ms is not None and not waiting[2]:
                self._pad(side, key, own_window, time, self._row(side, waiting), ())

    def _pad(
        self, side: int, keys: Keys | None, window: TimeWindow | None, time: int, row: Row, headers: Headers
    ) -> None:
        left, right = (row, None) if side == LEFT else (None, row)
        joined = merged(left, right, self._rule.synthetic, None if keys is None else keys[0])
        self._emit(Event(keys, joined, time, window, None, headers))

"""The time index, compared with a sorted list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.ksql.operators.state_store import MemoryState
from pessoa.ksql.operators.time_index import TimeIndex

TIMES = st.integers(0, 600) | st.integers(0, 2**62)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), TIMES), max_size=40))
def test_members_of_a_time_index_are_popped_in_order_of_time_and_arrival(steps: list[tuple[bool, int]]) -> None:
    state = MemoryState()
    waiting: list[tuple[int, bytes]] = []
    for number, (adds, time) in enumerate(steps):
        if adds:
            TimeIndex(state, "x").add(time, str(number).encode())
            waiting.append((time, str(number).encode()))
        else:
            due = sorted((one for one in waiting if one[0] < time), key=lambda one: one[0])
            assert list(TimeIndex(state, "x").pop_before(time)) == due
            waiting = [one for one in waiting if one[0] >= time]
    list(TimeIndex(state, "x").pop_before(2**63))
    assert not state.entries


def test_a_member_may_be_added_while_others_are_popped() -> None:
    index = TimeIndex(MemoryState(), "x")
    index.add(5, b"a")
    found = []
    for time, member in index.pop_before(100):
        found.append((time, member))
        if time < 8:
            index.add(time + 1, b"again")
    assert found == [(5, b"a"), (6, b"again"), (7, b"again"), (8, b"again")]

"""Which sliding windows a row changes, compared with a second implementation that computes all windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pessoa.streams.sliding_aggregate import window_starts


def all_windows(times: list[int], size: int) -> dict[int, list[int]]:
    """Return Kafka's sliding windows of these rows by start: one ends at each row, one begins after each with
    successors."""
    starts = {max(0, time - size) for time in times} | {time + 1 for time in times}
    found = {start: sorted(time for time in times if start <= time <= start + size) for start in starts}
    return {start: within for start, within in found.items() if within}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 20))
def test_a_row_changes_exactly_the_sliding_windows_that_contain_it(times: list[int], size: int) -> None:
    for position in range(len(times)):
        before = all_windows(times[:position], size)
        after = all_windows(times[: position + 1], size)
        changed = {start for start, within in after.items() if before.get(start) != within}
        assert changed <= set(window_starts(times[position], times[: position + 1], size))
        assert set(window_starts(times[position], times[: position + 1], size)) <= set(after)

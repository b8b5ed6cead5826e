"""The rules of a join with a table, compared with a second implementation."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.pipelines.plan import How
from pessoa.pipelines.table_join import LEFT, RIGHT, Joined, Result, Row


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, second=second, tzinfo=UTC)


payloads = st.none() | st.sampled_from(["a", "b", "c"])
rows = st.lists(st.builds(Row, st.sampled_from([LEFT, RIGHT]), st.integers(0, 5).map(at), st.integers(0, 9), payloads))


def taken(how: How, left_is_table: bool, given_rows: list[Row]) -> list[Result]:
    return list(Joined(how, left_is_table, None, None).take(given_rows))


def test_a_stream_row_is_joined_with_the_table_row_of_its_time() -> None:
    given_rows = [
        Row(LEFT, at(1), 0, "v1"),
        Row(RIGHT, at(2), 0, "ana"),
        Row(LEFT, at(3), 1, "v2"),
        Row(RIGHT, at(4), 1, None),
    ]
    assert taken("inner", False, [*given_rows, Row(LEFT, at(5), 2, "v3")]) == [Result(at(3), False, "v2", "ana")]
    assert taken("left", False, [*given_rows, Row(LEFT, at(5), 2, "v3")]) == [
        Result(at(1), False, "v1", None),
        Result(at(3), False, "v2", "ana"),
        Result(at(5), False, "v3", None),
    ]


def test_at_equal_timestamps_the_table_row_is_applied_first() -> None:
    assert taken("inner", False, [Row(LEFT, at(1), 0, "v"), Row(RIGHT, at(1), 9, "ana")]) == [
        Result(at(1), False, "v", "ana")
    ]


def test_an_inner_table_join_deletes_its_result_once_when_one_side_is_deleted() -> None:
    given_rows = [
        Row(LEFT, at(1), 0, "a"),
        Row(RIGHT, at(2), 0, "b"),
        Row(RIGHT, at(3), 1, None),
        Row(LEFT, at(4), 1, None),
    ]
    assert taken("inner", True, given_rows) == [Result(at(2), False, "a", "b"), Result(at(3), True, None, None)]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@given(given_rows=rows)
def test_the_changes_of_a_table_join_sum_up_to_the_join_of_the_tables(how: How, given_rows: list[Row]) -> None:
    joined = Joined(how, True, None, None)
    latest: tuple[str | None, str | None] | None = None
    for result in joined.take(given_rows):
        latest = None if result.deleted else (result.left, result.right)
    sides: dict[int, str | None] = {LEFT: None, RIGHT: None}
    for row in sorted(given_rows, key=lambda row: (row.time, row.side, row.position)):
        sides[row.side] = row.payload
    left, right = sides[LEFT], sides[RIGHT]
    is_there = {
        "inner": left is not None and right is not None,
        "left": left is not None,
        "outer": left is not None or right is not None,
    }[how]
    assert latest == ((left, right) if is_there else None)


@given(given_rows=rows, cut=st.integers(0, 20), left_is_table=st.booleans())
def test_a_table_join_that_is_split_into_batches_has_the_same_result(
    given_rows: list[Row], cut: int, left_is_table: bool
) -> None:
    ordered = sorted(given_rows, key=lambda row: (row.time, row.side, row.position))
    first = Joined("left", left_is_table, None, None)
    results = list(first.take(ordered[:cut]))
    second = Joined("left", left_is_table, first.left, first.right)
    assert results + list(second.take(ordered[cut:])) == taken("left", left_is_table, ordered)

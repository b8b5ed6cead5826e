"""The transaction index: its bytes, its order, and the search that may stop early."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from pessoa.log.aborted_transactions import (
    ENTRY_SIZE,
    AbortedTransaction,
    CorruptTransactionIndex,
    count_below,
    decode_aborted_transactions,
    encode_aborted_transaction,
    overlapping,
    overlapping_in_segments,
)

# Producers 1 and 2 began at 0 and 5; 2 was aborted first, so nothing beyond offset 0 was decided then.
FIRST = AbortedTransaction(2, 5, 10, 0)
SECOND = AbortedTransaction(1, 0, 20, 21)
THIRD = AbortedTransaction(3, 25, 30, 31)
ALL = [FIRST, SECOND, THIRD]


def index_of(*transactions: AbortedTransaction) -> bytes:
    return b"".join(map(encode_aborted_transaction, transactions))


def test_every_byte_of_an_entry() -> None:
    assert encode_aborted_transaction(AbortedTransaction(1, 2, 3, 4)) == struct.pack(">hqqqq", 0, 1, 2, 3, 4)
    assert ENTRY_SIZE == 34


def test_an_encoded_aborted_transaction_index_decodes_to_the_same_entries() -> None:
    assert decode_aborted_transactions(index_of(*ALL)) == ALL
    assert decode_aborted_transactions(b"") == []


def test_entries_go_in_the_order_of_their_markers() -> None:
    assert encode_aborted_transaction(SECOND, FIRST) == index_of(SECOND)
    for earlier in (FIRST, SECOND):
        with pytest.raises(AssertionError):
            encode_aborted_transaction(earlier, SECOND)


def test_a_transaction_does_not_end_before_it_begins() -> None:
    with pytest.raises(AssertionError):
        encode_aborted_transaction(AbortedTransaction(1, 5, 4, 6))


@pytest.mark.parametrize(
    ("data", "base_offset", "problem"),
    [
        (index_of(FIRST)[:33], 0, "33 bytes are not a whole number of entries of 34"),
        (index_of(FIRST, SECOND) + b"\0", 0, "69 bytes are not a whole number of entries of 34"),
        (struct.pack(">hqqqq", 1, 1, 2, 3, 4), 0, "entry 0 has version 1, and only 0 is known"),
        (index_of(FIRST), 11, "entry 0 ends before the segment: "),
        (index_of(SECOND, FIRST), 0, "entry 1 ends before or with the one ahead of it: "),
        (index_of(FIRST, FIRST), 0, "entry 1 ends before or with the one ahead of it: "),
        (struct.pack(">hqqqq", 0, 1, 4, 3, 4), 0, "entry 0 begins behind its end, or nowhere: "),
        (struct.pack(">hqqqq", 0, 1, -4, 3, 4), 0, "entry 0 begins behind its end, or nowhere: "),
    ],
)
def test_a_damaged_index_says_what_is_wrong(data: bytes, base_offset: int, problem: str) -> None:
    with pytest.raises(CorruptTransactionIndex) as corrupt:
        decode_aborted_transactions(data, base_offset)
    assert str(corrupt.value).startswith(problem)


def test_a_marker_may_be_the_first_thing_in_its_segment() -> None:
    assert decode_aborted_transactions(index_of(FIRST), 10) == [FIRST]


@pytest.mark.parametrize(
    ("fetch_offset", "end_offset", "found", "is_complete"),
    [
        (0, 1, [SECOND], True),
        (0, 6, [FIRST, SECOND], True),
        (0, 5, [SECOND], True),
        (10, 11, [FIRST, SECOND], True),
        (11, 21, [SECOND], True),
        (20, 21, [SECOND], True),
        # The second leaves everything from 21 on undecided, so the search goes on to the third, and beyond the index.
        (21, 22, [], True),
        (21, 25, [], True),
        (21, 26, [THIRD], True),
        (31, 32, [], False),
        (0, 100, ALL, False),
    ],
)
def test_transactions_that_overlap_a_range(
    fetch_offset: int, end_offset: int, found: list[AbortedTransaction], is_complete: bool
) -> None:
    assert overlapping(ALL, fetch_offset, end_offset) == (found, is_complete)


def test_searching_aborted_transactions_stops_at_the_first_segment_that_covers_the_end_of_the_range() -> None:
    def indexes() -> list[list[AbortedTransaction]]:
        return [[FIRST], [], [SECOND], [THIRD]]

    assert overlapping_in_segments(indexes(), 0, 21) == [FIRST, SECOND]
    assert overlapping_in_segments(indexes(), 0, 22) == [FIRST, SECOND]
    assert overlapping_in_segments(indexes(), 0, 26) == ALL

    def read_one_by_one() -> Iterator[list[AbortedTransaction]]:
        yield [FIRST]
        yield [SECOND]
        raise AssertionError("the second had decided everything below 21")

    assert overlapping_in_segments(read_one_by_one(), 0, 21) == [FIRST, SECOND]


@pytest.mark.parametrize(("offset", "count"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (30, 2), (31, 3), (99, 3)])
def test_truncating_the_log_removes_the_aborted_transactions_whose_markers_it_drops(offset: int, count: int) -> None:
    assert count_below(ALL, offset) == count

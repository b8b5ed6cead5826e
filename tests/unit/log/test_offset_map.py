"""The offset map of a compaction pass: the last offset of every key."""

from __future__ import annotations

import tracemalloc

import pytest

from pessoa.log.compaction.offset_map import BYTES_PER_KEY, DEAD, LIVE, TOMBSTONE, OffsetMap

LARGE = 1 << 40


def test_a_key_that_comes_again_makes_its_earlier_record_dead() -> None:
    known = OffsetMap(LARGE)
    known.add([b"a", b"b", b"a"], bytes([LIVE, LIVE, LIVE]))
    known.add([b"b"], bytes([TOMBSTONE]))
    assert list(known.verdicts(0, 4)) == [DEAD, DEAD, LIVE, TOMBSTONE]
    assert known.key_count == 2


def test_a_record_without_key_counts_as_a_record_and_as_no_key() -> None:
    known = OffsetMap(LARGE)
    known.add([None, b"a", None], bytes([DEAD, LIVE, DEAD]))
    assert (known.record_count, known.key_count) == (3, 1)
    assert list(known.verdicts(0, 3)) == [DEAD, LIVE, DEAD]


def test_clean_records_are_dead_if_their_key_is_in_the_dirty_part() -> None:
    known = OffsetMap(LARGE)
    known.add([b"a", b"k" * 40], bytes([LIVE, LIVE]))
    verdicts = bytearray([LIVE, TOMBSTONE, LIVE, LIVE, DEAD])
    known.supersede([b"a", b"k" * 40, b"k" * 41, b"", None], verdicts)
    assert list(verdicts) == [DEAD, DEAD, LIVE, LIVE, DEAD]


def test_keys_of_every_length_are_told_apart() -> None:
    known = OffsetMap(LARGE)
    keys = [bytes([letter]) * length for letter in (0, 1, 255) for length in range(40)]
    distinct = list(dict.fromkeys(keys))
    known.add(distinct, bytes([LIVE]) * len(distinct))
    assert known.key_count == len(distinct)
    known.add(distinct, bytes([LIVE]) * len(distinct))
    assert set(known.verdicts(0, len(distinct))) == {DEAD}
    assert set(known.verdicts(len(distinct), len(distinct))) == {LIVE}


def test_the_offset_map_is_full_before_it_exceeds_its_memory_limit() -> None:
    known = OffsetMap(100 * BYTES_PER_KEY)
    taken = 0
    while known.has_room_for(10):
        known.add([b"key %d" % number for number in range(taken, taken + 10)], bytes([LIVE]) * 10)
        taken += 10
    assert taken == 90
    assert known.used_bytes <= known.max_bytes


def test_an_empty_offset_map_has_room_for_a_batch_of_any_size() -> None:
    known = OffsetMap(1)
    assert known.has_room_for(1000)
    known.add([b"a"], bytes([LIVE]))
    assert not known.has_room_for(1)


@pytest.mark.parametrize("key_size", [10, 36])
def test_a_key_of_the_offset_map_takes_at_most_bytes_per_key_of_memory(key_size: int) -> None:
    tracemalloc.start()
    try:
        known = OffsetMap(LARGE)
        # One more than fills the table of a dict of this size: it has just grown, which is the worst moment.
        for number in range(43_700):
            known.add([b"%0*d" % (key_size, number)], bytes([LIVE]))
        assert tracemalloc.get_traced_memory()[0] <= known.used_bytes
    finally:
        tracemalloc.stop()

"""One segment: its index entries, look-ups, when it is full, and how it is truncated and repaired.

The index entries are compared with a simple implementation of Kafka's rule, one by one, because Apache's tools and
brokers read these files too.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from pessoa.log.aborted_transactions import AbortedTransaction
from pessoa.log.log_config import LogConfig
from pessoa.log.segment import DELETED_SUFFIX, Segment
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.log.timestamp_search import find_by_timestamp
from pessoa.records.batch import RecordBatch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode
from tests.support.batches import NOW_MS, offsets, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTORY = "/t-0"
BASE = 100
LOG = f"{DIRECTORY}/{BASE:020d}.log"
INDEX = f"{DIRECTORY}/{BASE:020d}.index"
HUGE = 2**31


def empty_disk() -> SimulatedDisk:
    disk = SimulatedDisk(now_ms=lambda: NOW_MS)
    disk.make_directory(DIRECTORY)
    return disk


@pytest.fixture
def disk() -> SimulatedDisk:
    return empty_disk()


def new_segment(disk: SimulatedDisk, *, create: bool = True, **settings: int) -> Segment:
    config = LogConfig(index_interval_bytes=0).but(**settings)
    return Segment(disk, DIRECTORY, BASE, config, NOW_MS, create=create)


def append(segment: Segment, *batches: memoryview) -> None:
    for batch in batches:
        segment.append(RecordBatch(batch))


def filled(disk: SimulatedDisk, count: int = 10, *, records: int = 2, index_interval_bytes: int = 0) -> Segment:
    """Return a segment with `count` batches of `records` records, each a millisecond later."""
    segment = new_segment(disk, index_interval_bytes=index_interval_bytes)
    for number in range(count):
        append(segment, plain(records, at=BASE + records * number, timestamp=NOW_MS + number, epoch=3))
    return segment


def kafkas_entries(
    batches: Sequence[RecordBatch], interval: int, *, finished: bool
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the entries of both indexes by Kafka's rule: an entry before a batch once more than `interval` bytes
    follow the last entry, and with it the largest timestamp so far, if it has grown."""
    by_offset: list[tuple[int, int]] = []
    by_time: list[tuple[int, int]] = []
    position = since_entry = 0
    largest, largest_offset = -1, BASE
    for batch in batches:
        if batch.max_timestamp > largest:
            largest, largest_offset = batch.max_timestamp, batch.last_offset
        if since_entry > interval:
            by_offset.append((batch.last_offset - BASE, position))
            if largest > (by_time[-1][0] if by_time else -1):
                by_time.append((largest, largest_offset - BASE))
            since_entry = 0
        position += batch.size
        since_entry += batch.size
    if finished and largest > (by_time[-1][0] if by_time else -1):
        by_time.append((largest, largest_offset - BASE))
    return by_offset, by_time


def random_batches(seed: int, count: int) -> list[memoryview]:
    """Return batches with timestamps that mostly rise, sometimes fall and are sometimes missing, and sizes around the
    interval."""
    rng = Random(seed)
    found, at = [], BASE
    for number in range(count):
        records = rng.randrange(1, 5)
        time = -1 if rng.random() < 0.1 else NOW_MS + 10 * number - rng.choice((0, 0, 0, 500))
        found.append(plain(records, at=at, timestamp=time, size=rng.choice((120, 150, 400, 1500))))
        at += records + rng.choice((0, 0, 3))
    return found


# Growing.


@pytest.mark.parametrize("interval", [0, 300, 1000, 4096])
@pytest.mark.parametrize("seed", range(5))
def test_the_indexes_get_exactly_the_entries_that_kafka_would_write(
    disk: SimulatedDisk, seed: int, interval: int
) -> None:
    segment = new_segment(disk, index_interval_bytes=interval)
    batches = random_batches(seed, 60)
    append(segment, *batches)
    expected = kafkas_entries([RecordBatch(batch) for batch in batches], interval, finished=False)
    assert (segment.offset_index.entries(), segment.time_index.entries()) == expected
    segment.finish()
    expected = kafkas_entries([RecordBatch(batch) for batch in batches], interval, finished=True)
    assert (segment.offset_index.entries(), segment.time_index.entries()) == expected


@pytest.mark.parametrize("seed", range(5))
def test_recovery_and_rebuilding_make_the_same_entries_as_appending(disk: SimulatedDisk, seed: int) -> None:
    segment = new_segment(disk, index_interval_bytes=300)
    batches = random_batches(seed, 60)
    append(segment, *batches)
    segment.finish()
    written = segment.offset_index.entries(), segment.time_index.entries()
    assert [batch.base_offset for batch in segment.recover()] == [RecordBatch(batch).base_offset for batch in batches]
    assert (segment.offset_index.entries(), segment.time_index.entries()) == written
    segment.rebuild_indexes()
    assert (segment.offset_index.entries(), segment.time_index.entries()) == written


def test_a_segment_of_records_without_timestamps_has_an_empty_time_index(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    append(segment, plain(at=BASE, timestamp=-1), plain(at=BASE + 1, timestamp=-1))
    segment.finish()
    assert segment.time_index.entries() == []
    assert segment.max_timestamp == -1
    assert segment.largest_timestamp_or_modified() == NOW_MS


def test_max_timestamp_of_a_segment_is_that_of_the_first_batch_that_has_it(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    for number, time in enumerate((5, 9, 7, 9)):
        append(segment, plain(at=BASE + number, timestamp=time))
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (9, BASE + 1)
    segment.close()
    again = new_segment(disk, create=False)
    assert (again.max_timestamp, again.offset_of_max_timestamp, again.first_timestamp) == (9, BASE + 1, 5)


def test_a_reopened_segment_continues_as_if_it_had_never_been_closed(disk: SimulatedDisk) -> None:
    filled(disk, 5).close()
    again = new_segment(disk, create=False)
    append(again, plain(2, at=BASE + 10, timestamp=NOW_MS + 3), plain(2, at=BASE + 12, timestamp=NOW_MS + 50))
    assert (again.max_timestamp, again.offset_of_max_timestamp) == (NOW_MS + 50, BASE + 13)
    assert again.next_offset() == BASE + 14
    assert [place.base_offset for place in again.places()] == [BASE + 2 * number for number in range(7)]


# Being full.


def has_room(segment: Segment, *, size: int = 100, last_offset: int = BASE, time: int = NOW_MS, now: int = 0) -> bool:
    return segment.has_room_for(size, last_offset, time, now or NOW_MS)


def test_a_batch_fits_up_to_the_last_byte_of_segment_bytes(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_bytes=1000)
    append(segment, plain(at=BASE, size=600))
    assert has_room(segment, size=400)
    assert not has_room(segment, size=401)


def test_a_batch_fits_into_a_segment_if_its_last_offset_is_within_the_range_of_the_indexes(disk: SimulatedDisk) -> None:
    segment = filled(disk, 1)
    assert has_room(segment, last_offset=BASE + HUGE - 1)
    assert not has_room(segment, last_offset=BASE + HUGE)
    assert not has_room(new_segment(empty_disk()), last_offset=BASE + HUGE)


def test_segment_age_counts_from_the_first_batch_by_the_timestamps_of_the_records(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_ms=1000)
    append(segment, plain(2, at=BASE, timestamps=(NOW_MS, NOW_MS + 7)))
    assert has_room(segment, time=NOW_MS + 1007, now=NOW_MS + 10**9)
    assert not has_room(segment, time=NOW_MS + 1008)
    assert has_room(segment, time=NOW_MS - 10**9)


def test_a_later_batch_with_an_older_timestamp_does_not_change_the_age_of_a_segment(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_ms=1000)
    append(segment, plain(at=BASE, timestamp=NOW_MS), plain(at=BASE + 1, timestamp=NOW_MS - 5000))
    assert has_room(segment, time=NOW_MS + 1000)
    assert not has_room(segment, time=NOW_MS + 1001)


def test_the_age_of_a_segment_without_timestamps_goes_by_the_wall_clock(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_ms=1000)
    append(segment, plain(at=BASE, timestamp=-1))
    assert has_room(segment, time=NOW_MS + 10**9, now=NOW_MS + 1000)
    assert not has_room(segment, time=-1, now=NOW_MS + 1001)


def test_jitter_makes_a_segment_old_earlier(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_ms=1000, segment_jitter_ms=300)
    append(segment, plain(at=BASE))
    assert has_room(segment, time=NOW_MS + 700)
    assert not has_room(segment, time=NOW_MS + 701)


def test_an_empty_segment_is_never_too_old(disk: SimulatedDisk) -> None:
    assert has_room(new_segment(disk, segment_ms=1), time=NOW_MS + 10**9, now=NOW_MS + 10**9)


def test_a_full_index_makes_the_segment_full(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_index_bytes=8 * 6 + 7)
    # Times that do not rise leave the time index at one entry, so that the offset index is what fills up.
    append(segment, *(plain(at=BASE + number, timestamp=NOW_MS) for number in range(6)))
    assert (segment.offset_index.entry_count, has_room(segment)) == (5, True)
    append(segment, plain(at=BASE + 6, timestamp=NOW_MS))
    assert (segment.offset_index.entry_count, has_room(segment)) == (6, False)


def test_a_time_index_keeps_room_for_the_entry_that_is_added_when_its_segment_ends(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_index_bytes=12 * 3)
    number = 0
    while has_room(segment, time=NOW_MS + number):
        append(segment, plain(at=BASE + number, timestamp=NOW_MS + number))
        number += 1
    append(segment, plain(at=BASE + number, timestamp=NOW_MS + number - 1))
    segment.finish()
    assert segment.time_index.file.size <= 12 * 3
    assert segment.time_index.entry_count == 2


def test_a_reopened_segment_knows_how_full_its_indexes_are(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_index_bytes=24)
    append(segment, *(plain(at=BASE + number, timestamp=NOW_MS) for number in range(4)))
    assert not has_room(segment)
    segment.close()
    assert not has_room(new_segment(disk, create=False, segment_index_bytes=24))
    assert has_room(new_segment(disk, create=False, segment_index_bytes=240))


# Finding.


@pytest.mark.parametrize("interval", [0, 200, 10**6])
def test_every_offset_is_found_in_the_batch_that_holds_it(disk: SimulatedDisk, interval: int) -> None:
    segment = filled(disk, 10, records=3, index_interval_bytes=interval)
    for offset in range(BASE, BASE + 30):
        place = segment.find(offset)
        assert place is not None
        assert place.base_offset <= offset <= place.last_offset
        assert segment.batch_at(place).is_valid()
    assert segment.find(BASE + 30) is None
    assert segment.position_of(BASE + 30) == segment.size


def test_an_offset_in_a_gap_is_found_as_the_batch_behind_the_gap(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    append(segment, plain(2, at=BASE), plain(2, at=BASE + 10), plain(2, at=BASE + 20))
    for offset, expected in ((BASE + 2, BASE + 10), (BASE + 9, BASE + 10), (BASE + 12, BASE + 20)):
        place = segment.find(offset)
        assert place is not None
        assert place.base_offset == expected


def test_a_scan_reads_batches_larger_than_its_buffer(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    sizes = (100, 3_000_000, 90, 1_048_576, 70_000, 100)
    for number, size in enumerate(sizes):
        append(segment, plain(at=BASE + number, size=size))
    assert [batch.size for _, batch in segment.batches()] == list(sizes)
    assert [place.size for place in segment.places()] == list(sizes)
    assert segment.next_offset() == BASE + len(sizes)


def test_a_read_ends_at_max_bytes_unless_the_first_batch_is_requested_whole(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    append(segment, *(plain(at=BASE + number, size=200) for number in range(5)))
    data = segment.read(BASE + 1, 450, segment.size, at_least_one_batch=False)
    assert data is not None
    assert (data.position, data.size) == (200, 450)
    data = segment.read(BASE + 1, 10, segment.size, at_least_one_batch=True)
    assert data is not None
    assert (data.position, data.size, offsets(data.read())) == (200, 200, [(BASE + 1, BASE + 1)])
    data = segment.read(BASE + 1, 10**6, 600, at_least_one_batch=True)
    assert data is not None
    assert (data.position, len(data)) == (200, 400)


@pytest.mark.parametrize("interval", [0, 300, 10**6])
def test_find_by_timestamp_of_a_segment_finds_the_same_record_as_a_linear_search(
    disk: SimulatedDisk, interval: int
) -> None:
    rng = Random(7)
    segment = new_segment(disk, index_interval_bytes=interval)
    times: dict[int, int] = {}
    for number in range(40):
        stamps = [rng.randrange(1, 200) for _ in range(3)]
        times.update({BASE + 3 * number + index: stamp for index, stamp in enumerate(stamps)})
        append(segment, plain(at=BASE + 3 * number, timestamps=stamps, epoch=6))
    for wanted in range(0, 203, 3):
        for start in (BASE, BASE + 1, BASE + 61):
            expected = next(((t, o) for o, t in times.items() if t >= wanted and o >= start), None)
            found = find_by_timestamp(segment, wanted, start)
            assert (found and (found.timestamp, found.offset)) == expected
            assert found is None or found.leader_epoch == 6


def test_a_wrong_index_entry_is_detected_and_the_index_is_rebuilt(disk: SimulatedDisk) -> None:
    for bit, byte in ((0, 3), (2, 2), (5, 7), (6, 6), (0, 5)):
        fresh = empty_disk()
        segment = filled(fresh, 50, records=2)
        right = segment.offset_index.entries()
        segment.close()
        fresh.flip_bit(INDEX, 8 * 20 + byte, bit)
        segment = new_segment(fresh, create=False)
        for offset in range(BASE, BASE + 100):
            place = segment.find(offset)
            assert place is not None
            assert place.base_offset <= offset <= place.last_offset, f"bit {bit} of byte {byte}"
        # A segment whose look-ups did not meet the damaged entry still has it.
        entries = segment.offset_index.entries()
        assert [*entries[:20], *entries[21:]] == [*right[:20], *right[21:]]


def test_a_damaged_batch_header_in_the_middle_of_a_segment_raises_an_error(disk: SimulatedDisk) -> None:
    segment = filled(disk, 10)
    place = segment.find(BASE + 8)
    assert place is not None
    segment.close()
    # The magic byte.
    disk.flip_bit(LOG, place.position + 16, 4)
    segment = new_segment(disk, create=False, index_interval_bytes=10**6)
    segment.rebuild_indexes()
    with pytest.raises(InvalidBatch) as refused:
        segment.find(BASE + 8)
    assert refused.value.error is ErrorCode.CORRUPT_MESSAGE
    assert segment.find(BASE + 7) is not None


# Shrinking.


@pytest.mark.parametrize(("offset", "kept"), [(BASE, 0), (BASE + 1, 0), (BASE + 2, 1), (BASE + 7, 3), (BASE + 20, 10)])
def test_truncating_a_segment_keeps_whole_batches_below_the_offset_and_their_index_entries(
    disk: SimulatedDisk, offset: int, kept: int
) -> None:
    segment = filled(disk, 10)
    segment.truncate_to(offset, segment.position_of(offset))
    batches = [plain(2, at=BASE + 2 * number, timestamp=NOW_MS + number, epoch=3) for number in range(kept)]
    assert segment.file.read(0, segment.size) == b"".join(batches)
    by_offset, by_time = kafkas_entries([RecordBatch(batch) for batch in batches], 0, finished=False)
    assert segment.offset_index.entries() == by_offset
    assert segment.time_index.entries() == by_time
    assert segment.max_timestamp == (NOW_MS + kept - 1 if kept else -1)
    assert segment.next_offset() == BASE + 2 * kept


def test_a_segment_that_was_truncated_to_zero_bytes_ages_from_its_next_batch(disk: SimulatedDisk) -> None:
    segment = new_segment(disk, segment_ms=1000)
    append(segment, plain(at=BASE, timestamp=NOW_MS))
    segment.truncate_to(BASE, segment.position_of(BASE))
    append(segment, plain(at=BASE, timestamp=NOW_MS + 5000))
    assert has_room(segment, time=NOW_MS + 6000)
    assert not has_room(segment, time=NOW_MS + 6001)


def test_truncating_a_segment_removes_the_aborted_transactions_whose_markers_it_drops(disk: SimulatedDisk) -> None:
    segment = filled(disk, 10)
    first, second = (
        AbortedTransaction(1, BASE, BASE + 5, BASE + 6),
        AbortedTransaction(2, BASE + 2, BASE + 9, BASE + 10),
    )
    segment.append_aborted(first)
    segment.append_aborted(second)
    segment.truncate_to(BASE + 9, segment.position_of(BASE + 9))
    assert segment.aborted_transactions() == [first]
    segment.close()
    assert new_segment(disk, create=False).aborted_transactions() == [first]


# Being put right.


def test_recovery_truncates_at_a_torn_batch(disk: SimulatedDisk) -> None:
    size = filled(disk, 3).size
    for torn in (1, 16, 17, 60, 61, 62, len(plain(2)) - 1):
        fresh = empty_disk()
        segment = filled(fresh, 4)
        segment.close()
        fresh.cut(LOG, size + torn)
        segment = new_segment(fresh, create=False)
        assert [batch.last_offset for batch in segment.recover()] == [BASE + 1, BASE + 3, BASE + 5]
        assert segment.size == size


@pytest.mark.parametrize("position", [3, 9, 11, 16, 18, 22, 30, 70])
def test_recovery_truncates_at_a_flipped_bit_wherever_it_is(disk: SimulatedDisk, position: int) -> None:
    segment = filled(disk, 4)
    place = segment.find(BASE + 4)
    assert place is not None
    segment.close()
    disk.flip_bit(LOG, place.position + position, 6)
    segment = new_segment(disk, create=False)
    recovered = [batch.base_offset for batch in segment.recover()]
    # The base offset lies outside the CRC: one that is larger looks like a gap, and is what the disk has.
    assert recovered[:2] == [BASE, BASE + 2]
    assert position <= 7 or recovered == [BASE, BASE + 2]
    assert segment.size == sum(batch.size for _, batch in segment.batches())


@pytest.mark.parametrize("zeros", [1, 17, 61, 4096, 3_000_000])
def test_recovery_truncates_zeros_behind_the_last_batch(disk: SimulatedDisk, zeros: int) -> None:
    segment = filled(disk, 4)
    size = segment.size
    segment.file.append(bytes(zeros))
    assert len(list(segment.recover())) == 4
    assert segment.size == size


def test_recovery_truncates_where_offsets_go_back(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    append(segment, plain(2, at=BASE), plain(2, at=BASE + 2))
    segment.file.append(plain(2, at=BASE + 3))
    assert [batch.base_offset for batch in segment.recover()] == [BASE, BASE + 2]


def test_recovery_truncates_offsets_that_the_indexes_cannot_hold(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    append(segment, plain(2, at=BASE))
    segment.file.append(plain(2, at=BASE + HUGE - 1))
    assert [batch.base_offset for batch in segment.recover()] == [BASE]


@pytest.mark.parametrize(
    "damage",
    [b"\0" * 8, b"\0" * 24, b"\xff" * 8, b"\0\0\0\x09\x7f\xff\xff\xff", b"\0\0\0"],
    ids=["one zero entry", "zeros", "negative", "a position behind the end", "a piece of an entry"],
)
def test_an_offset_index_with_impossible_entries_is_not_plausible(disk: SimulatedDisk, damage: bytes) -> None:
    segment = filled(disk, 5)
    segment.close()
    disk.open(INDEX).append(damage)
    assert not new_segment(disk, create=False).indexes_are_plausible()


@pytest.mark.parametrize("damage", [b"\0" * 12, b"\xff" * 12, b"\0\0\0", b"\x7f" + b"\0" * 7 + b"\xff" * 4])
def test_a_time_index_with_impossible_entries_is_not_plausible(disk: SimulatedDisk, damage: bytes) -> None:
    segment = filled(disk, 5)
    assert segment.indexes_are_plausible()
    segment.close()
    disk.open(INDEX.replace(".index", ".timeindex")).append(damage)
    assert not new_segment(disk, create=False).indexes_are_plausible()


# Its files.


def test_segment_files_renamed_to_deleted_stay_readable_until_they_are_removed(disk: SimulatedDisk) -> None:
    segment = filled(disk, 5)
    segment.append_aborted(AbortedTransaction(1, BASE, BASE + 5, BASE + 6))
    data = segment.read(BASE, 10**6, segment.size, at_least_one_batch=True)
    assert data is not None
    before = data.read()
    segment.change_suffix(DELETED_SUFFIX)
    assert disk.list(DIRECTORY) == [
        f"{BASE:020d}{kind}.deleted" for kind in (".index", ".log", ".timeindex", ".txnindex")
    ]
    assert data.read() == before
    segment.remove_files()
    assert disk.list(DIRECTORY) == []


def test_a_segment_without_aborted_transactions_has_no_transaction_index_file(disk: SimulatedDisk) -> None:
    segment = filled(disk, 2)
    assert segment.aborted_transactions() == []
    segment.sync()
    assert disk.list(DIRECTORY) == [f"{BASE:020d}{kind}" for kind in (".index", ".log", ".timeindex")]

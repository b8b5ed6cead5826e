"""The sparse indexes: their bytes, look-ups across blocks in file and memory, and truncation.

Look-ups are compared with a search in a plain list of the same entries.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from pessoa.log.index import OffsetIndex, TimeIndex
from pessoa.log.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from pessoa.log.files import File

BASE = 1000
# 512 entries make a block: these end within memory, at the edge of a block, behind it, and behind several.
COUNTS = (0, 1, 511, 512, 513, 1024, 1700)


@pytest.fixture
def file() -> File:
    disk = SimulatedDisk()
    disk.make_directory("/t-0")
    return disk.open("/t-0/index", create=True)


def filled_offset_index(file: File, count: int) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index = OffsetIndex(file, BASE)
    entries = [(10 * number + 9, 300 * number) for number in range(1, count + 1)]
    for relative_offset, position in entries:
        index.append(BASE + relative_offset, position)
    return index, entries


def filled_time_index(file: File, count: int) -> tuple[TimeIndex, list[tuple[int, int]]]:
    index = TimeIndex(file, BASE)
    entries = [(5_000 + 7 * number, 10 * number + 9) for number in range(1, count + 1)]
    for timestamp, relative_offset in entries:
        index.maybe_append(timestamp, BASE + relative_offset)
    return index, entries


def probes(numbers: list[int]) -> list[int]:
    """Return some of the numbers, each with its neighbours: the first and last ones, and those around block limits."""
    chosen = numbers[:3] + numbers[509:515] + numbers[1022:1026] + numbers[-3:]
    return [number + change for number in chosen for change in (-1, 0, 1)] or [0]


def test_the_bytes_of_both_files(file: File) -> None:
    index = OffsetIndex(file, BASE)
    index.append(BASE + 258, 4096)
    index.write()
    assert file.read(0, 100) == struct.pack(">ii", 258, 4096)
    file.truncate(0)
    times = TimeIndex(file, BASE)
    times.maybe_append(1_700_000_000_000, BASE + 258)
    times.write()
    assert file.read(0, 100) == struct.pack(">qi", 1_700_000_000_000, 258)


@pytest.mark.parametrize("count", COUNTS)
def test_a_position_is_that_of_the_last_entry_at_or_before_the_offset(file: File, count: int) -> None:
    index, entries = filled_offset_index(file, count)
    for relative_offset in probes([offset for offset, _ in entries]):
        expected = max((position for offset, position in entries if offset <= relative_offset), default=0)
        assert index.position_before(BASE + relative_offset) == expected
    assert index.entry_count == count
    assert index.last == (entries[-1] if entries else None)
    assert index.entries() == entries


@pytest.mark.parametrize("count", COUNTS)
def test_offset_after_returns_the_offset_of_the_first_index_entry_at_or_after_a_position(
    file: File, count: int
) -> None:
    index, entries = filled_offset_index(file, count)
    for probe in probes([position for _, position in entries]):
        expected = min((BASE + offset for offset, position in entries if position >= probe), default=None)
        assert index.offset_after(probe) == expected


@pytest.mark.parametrize("count", COUNTS)
def test_offset_before_returns_the_offset_of_the_last_time_index_entry_before_a_timestamp(
    file: File, count: int
) -> None:
    index, entries = filled_time_index(file, count)
    for probe in probes([timestamp for timestamp, _ in entries]):
        expected = max((BASE + offset for timestamp, offset in entries if timestamp < probe), default=BASE)
        assert index.offset_before(probe) == expected


@pytest.mark.parametrize("kept", [0, 1, 300, 511, 512, 513, 1200, 1700])
def test_truncating_an_index_keeps_the_entries_below_the_offset(file: File, kept: int) -> None:
    index, entries = filled_offset_index(file, 1700)
    end = entries[kept][0] if kept < len(entries) else entries[-1][0] + 1
    index.truncate_to(BASE + end)
    assert index.entries() == entries[:kept]
    assert index.last == (entries[kept - 1] if kept else None)
    index.append(BASE + 100_000, 900_000)
    assert index.entries() == [*entries[:kept], (100_000, 900_000)]
    assert index.position_before(BASE + 100_000) == 900_000


@pytest.mark.parametrize("kept", [0, 1, 512, 600, 700])
def test_a_time_index_is_truncated_by_offset(file: File, kept: int) -> None:
    index, entries = filled_time_index(file, 700)
    end = entries[kept][1] if kept < len(entries) else entries[-1][1] + 1
    index.truncate_to(BASE + end)
    assert index.entries() == entries[:kept]


@pytest.mark.parametrize("count", [0, 1, 600])
def test_an_index_that_was_written_is_the_same_when_it_is_opened_again(file: File, count: int) -> None:
    index, entries = filled_offset_index(file, count)
    index.write()
    again = OffsetIndex(file, BASE)
    assert (again.entry_count, again.last, again.entries()) == (index.entry_count, index.last, entries)


def test_what_is_in_memory_is_found_before_it_is_in_the_file(file: File) -> None:
    index, _ = filled_offset_index(file, 3)
    assert file.size == 0
    assert index.position_before(BASE + 25) == 300
    index.write()
    index.append(BASE + 50, 2000)
    assert (index.position_before(BASE + 25), index.position_before(BASE + 50)) == (300, 2000)
    assert index.entry(3) == (50, 2000)


def test_index_entries_are_read_again_after_a_truncation(file: File) -> None:
    index, _ = filled_offset_index(file, 600)
    index.write()
    assert index.position_before(BASE + 29) == 600
    index.truncate_to(BASE + 20)
    index.append(BASE + 25, 77)
    index.write()
    assert index.position_before(BASE + 29) == 77


def test_a_time_entry_is_added_only_for_a_later_time(file: File) -> None:
    index = TimeIndex(file, BASE)
    index.maybe_append(50, BASE + 3)
    index.maybe_append(50, BASE + 5)
    index.maybe_append(40, BASE + 7)
    index.maybe_append(51, BASE + 9)
    assert index.entries() == [(50, 3), (51, 9)]


def test_records_without_a_timestamp_get_no_time_entry(file: File) -> None:
    index = TimeIndex(file, BASE)
    index.maybe_append(-1, BASE + 3)
    assert index.entry_count == 0


def test_an_index_detects_a_partial_entry_at_its_end_and_can_truncate_it(file: File) -> None:
    index, entries = filled_offset_index(file, 2)
    index.write()
    file.append(b"\x00\x00\x01")
    again = OffsetIndex(file, BASE)
    was_whole = again.is_whole
    again.truncate_entries(again.entry_count)
    assert (was_whole, again.is_whole) == (False, True)
    assert again.entries() == entries


def test_the_last_offset_of_an_empty_index_is_the_base(file: File) -> None:
    assert OffsetIndex(file, BASE).last_offset == BASE

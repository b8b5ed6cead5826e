"""When a log is cleaned, and which records a pass keeps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pessoa.log.compaction.cleaning_pass import CleaningPass, group_segments
from pessoa.log.compaction.cleaning_plan import CleaningPlan, Pause, SourceSegment, SwapReady
from pessoa.log.compaction.log_to_clean import CleanerSettings, assess, make_plan
from pessoa.log.compaction.offset_map import BYTES_PER_KEY
from pessoa.log.compaction.segment_swap import Cleaning, Swap, unfinished_swaps
from pessoa.log.index import MAX_RELATIVE_OFFSET
from pessoa.log.log_config import COMPACT, DELETE
from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.compression import Codec
from pessoa.records.invalid_batch import InvalidBatch
from tests.support.cleaning import (
    CONFIG,
    DIRECTORY,
    NOW_MS,
    ManualSeconds,
    all_batches,
    all_records,
    append,
    clean,
    consumed,
    end_transaction,
    open_log,
)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk: SimulatedDisk) -> PartitionLog:
    return open_log(disk)


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in all_records(log)]


# When.


def test_the_active_segment_is_never_cleaned(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    assert assess(log, None, NOW_MS).cleanable_bytes == 0
    log.roll(NOW_MS)
    found = assess(log, None, NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 1)
    assert found.cleanable_bytes == log.segments[0].size
    assert found.ratio == 1.0


def test_the_dirty_ratio_is_dirty_bytes_of_all_cleanable_bytes(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"a", b"1" * 1000)])
    found = assess(log, 1, NOW_MS)
    assert found.ratio == 0.5
    assert not found.is_due(0.5)
    assert found.is_due(0.49)


def fill_with_a_transaction_in_the_second_segment(log: PartitionLog) -> None:
    """Fill three segments with a record each; the record of the second is in an open transaction of producer 1."""
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"a", b"2")], producer=(1, 0, 0), transactional=True)
    log.roll(NOW_MS)
    append(log, [(b"a", b"3")])
    log.roll(NOW_MS)


def test_compaction_stops_at_the_last_stable_offset_and_at_the_high_watermark(log: PartitionLog) -> None:
    fill_with_a_transaction_in_the_second_segment(log)
    assert assess(log, None, NOW_MS).first_uncleanable_offset == 1
    end_transaction(log, 1, 0, commit=True)
    log.roll(NOW_MS)
    assert assess(log, None, NOW_MS).first_uncleanable_offset == 4
    log.high_watermark = 2
    assert assess(log, None, NOW_MS).first_uncleanable_offset == 2


def test_compaction_stops_at_a_transaction_whose_abort_is_uncommitted_also_after_a_restart(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    fill_with_a_transaction_in_the_second_segment(log)
    end_transaction(log, 1, 0, commit=False)
    log.close()
    again = open_log(disk, high_watermark=3)
    again.roll(NOW_MS)
    assert assess(again, None, NOW_MS).first_uncleanable_offset == 1
    again.update_high_watermark(4)
    assert assess(again, None, NOW_MS).first_uncleanable_offset == 4


def test_records_wait_for_min_compaction_lag_and_are_forced_by_max_compaction_lag(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG.but(min_compaction_lag_ms=100, max_compaction_lag_ms=1000))
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"a", b"2")], now_ms=NOW_MS + 50)
    log.roll(NOW_MS)
    assert assess(log, None, NOW_MS + 99).cleanable_bytes == 0
    assert assess(log, None, NOW_MS + 100).first_uncleanable_offset == 1
    assert assess(log, None, NOW_MS + 150).first_uncleanable_offset == 2
    assert not assess(log, None, NOW_MS + 1000).is_due(1.0)
    assert assess(log, None, NOW_MS + 1001).is_due(1.0)


def test_a_checkpoint_outside_the_log_is_not_used(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    found = assess(log, 17, NOW_MS)
    assert (found.first_dirty_offset, found.has_bad_checkpoint) == (0, True)
    assert assess(log, 1, NOW_MS).has_bad_checkpoint is False


# What is left.


def test_the_last_record_of_every_key_stays_with_its_offset(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    append(log, [(b"c", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"b", b"2"), (b"d", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"a", b"3")])
    result = clean(disk, log)
    assert contents(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"d", b"1"), (6, b"a", b"3")]
    assert result.end_offset == 6
    assert (result.stats.records_read, result.stats.records_kept) == (6, 4)
    assert [segment.base_offset for segment in log.segments] == [0, 6]


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1")], codec=Codec.ZSTD)
    before = bytes(all_batches(log)[0].view)
    append(log, [(b"c", b"1")])
    append(log, [(b"c", b"2")])
    log.roll(NOW_MS)
    result = clean(disk, log)
    assert bytes(all_batches(log)[0].view) == before
    assert (result.stats.batches_copied, result.stats.batches_rewritten) == (2, 0)


def test_compaction_removes_records_without_a_key(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(None, b"1"), (b"a", b"1"), (None, None)])
    log.roll(NOW_MS)
    assert clean(disk, log).stats.records_without_key == 2
    assert contents(log) == [(1, b"a", b"1")]


def test_a_tombstone_removes_older_values_at_once_and_stays_until_its_delete_horizon(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", None)])
    append(log, [(b"z", b"1")])
    log.roll(NOW_MS)
    end = clean(disk, log, now_ms=NOW_MS + 5).end_offset
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"z", b"1")]
    assert [batch.delete_horizon_ms for batch in all_batches(log)] == [None, NOW_MS + 1005, None]
    clean(disk, log, end, now_ms=NOW_MS + 1004)
    assert (2, b"a", None) in contents(log)
    clean(disk, log, end, now_ms=NOW_MS + 1005)
    assert contents(log) == [(1, b"b", b"1"), (3, b"z", b"1")]


def test_clean_records_are_superseded_by_dirty_ones(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1")])
    log.roll(NOW_MS)
    end = clean(disk, log).end_offset
    append(log, [(b"a", b"2")])
    log.roll(NOW_MS)
    result = clean(disk, log, end)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert result.stats.map_keys == 1


def test_a_pass_whose_offset_map_is_full_cleans_a_part_and_the_next_pass_continues_there(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    for number in range(12):
        append(log, [(b"%d" % (number % 4), b"%d" % number), (b"own %d" % number, b"")])
    log.roll(NOW_MS)
    small = CleanerSettings(dedupe_buffer_size=5 * BYTES_PER_KEY, io_buffer_load_factor=1.0)
    ends = [0]
    while ends[-1] < log.log_end_offset:
        ends.append(clean(disk, log, ends[-1], settings=small).end_offset)
    assert ends == sorted(set(ends))
    assert len(ends) > 3
    assert [record.value for record in all_records(log) if record.value] == [b"8", b"9", b"10", b"11"]
    assert len([record for record in all_records(log) if not record.value]) == 12


def test_compaction_removes_aborted_data_and_its_marker_only_after_it(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"a", b"aborted")], producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, 0, commit=False)
    append(log, [(b"b", b"2")], producer=(1, 0, 1), transactional=True)
    end_transaction(log, 1, 0, commit=True)
    append(log, [(b"z", b"1")])
    log.roll(NOW_MS)
    clean(disk, log)
    assert contents(log) == [(0, b"a", b"1"), (3, b"b", b"2"), (5, b"z", b"1")]
    # The first pass met the data, so the marker stays as it is, and the index tells of it.
    assert [batch.base_offset for batch in all_batches(log) if batch.is_control] == [2, 4]
    assert [one.last_offset for one in log.segments[0].aborted_transactions()] == [2]
    clean(disk, log, now_ms=NOW_MS + 10)
    marker = next(batch for batch in all_batches(log) if batch.base_offset == 2)
    assert marker.delete_horizon_ms == NOW_MS + 1010
    assert log.segments[0].aborted_transactions() == []
    clean(disk, log, now_ms=NOW_MS + 1010)
    # The commit marker's data is still there.
    assert [batch.base_offset for batch in all_batches(log) if batch.is_control] == [4]


def test_compaction_removes_a_commit_marker_when_all_records_of_its_transaction_are_superseded(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, 0, commit=True)
    append(log, [(b"a", b"2")])
    log.producers.remove_expired(NOW_MS + 10**12, 0)
    log.roll(NOW_MS)
    clean(disk, log)
    assert [batch.base_offset for batch in all_batches(log)] == [1, 2]
    clean(disk, log, now_ms=NOW_MS + 1)
    clean(disk, log, now_ms=NOW_MS + 1001)
    assert [batch.base_offset for batch in all_batches(log)] == [2]


def test_compaction_keeps_the_last_batch_of_an_active_producer_without_its_records(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0))
    append(log, [(b"a", b"2"), (b"b", b"2")], producer=(1, 0, 1))
    append(log, [(b"a", b"3"), (b"b", b"3")])
    log.roll(NOW_MS)
    clean(disk, log)
    assert [(batch.base_offset, batch.records_count) for batch in all_batches(log)] == [(1, 0), (3, 2)]
    log.close()
    for name in [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]:
        disk.remove(f"{DIRECTORY}/{name}")
    again = open_log(disk, high_watermark=log.high_watermark)
    entry = again.producers.entry(1)
    assert entry is not None
    assert (entry.last_sequence, entry.last_data_offset) == (2, 2)
    assert append(again, [(b"c", b"1")], producer=(1, 0, 3)) == 5


@pytest.mark.parametrize("uncommitted", [1, 5])
def test_compaction_keeps_the_last_committed_batch_of_a_producer_while_later_ones_are_uncommitted(
    disk: SimulatedDisk, log: PartitionLog, uncommitted: int
) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0))
    append(log, [(b"a", b"2")], producer=(1, 0, 1))
    append(log, [(b"a", b"3")])
    log.roll(NOW_MS)
    for number in range(uncommitted):
        append(log, [(b"b", b"1")], producer=(1, 0, 2 + number))
    log.high_watermark = 3
    clean(disk, log)
    # More than one where the log remembers no committed batch of the producer.
    assert (1, 0) in [(batch.base_offset, batch.records_count) for batch in all_batches(log)]
    log.truncate_to(3, NOW_MS)
    log.close()
    for name in [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]:
        disk.remove(f"{DIRECTORY}/{name}")
    again = open_log(disk, high_watermark=3)
    entry = again.producers.entry(1)
    assert entry is not None
    assert entry.last_sequence == 1


def test_compaction_keeps_an_empty_batch_at_the_last_offset_of_the_cleaned_range(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(None, b"2")])
    log.roll(NOW_MS)
    clean(disk, log)
    assert [(batch.base_offset, batch.records_count) for batch in all_batches(log)] == [(0, 1), (1, 0)]


def test_a_second_pass_over_the_same_log_changes_no_byte(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1")], producer=(1, 0, 0))
    append(log, [(b"a", b"2")], producer=(2, 0, 0), transactional=True)
    end_transaction(log, 2, 0, commit=True)
    append(log, [(b"b", None), (b"c", b"1")])
    log.roll(NOW_MS)
    clean(disk, log)
    once = disk.contents()
    clean(disk, log)
    assert disk.contents() == once


def test_after_compaction_committed_and_uncommitted_readers_read_the_same_latest_values(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", b"aborted")], producer=(1, 0, 0), transactional=True)
    log.roll(NOW_MS)
    append(log, [(b"b", b"2")], producer=(2, 0, 0), transactional=True)
    end_transaction(log, 2, 0, commit=True)
    log.roll(NOW_MS)
    end_transaction(log, 1, 0, commit=False)
    append(log, [(b"c", b"1")], producer=(1, 0, 1), transactional=True)
    end_transaction(log, 1, 0, commit=True)
    clean(disk, log)
    for up_to in (ReadUpTo.HIGH_WATERMARK, ReadUpTo.LAST_STABLE_OFFSET):
        assert [(record.key, record.value) for record in consumed(log, up_to)] == [
            (b"a", b"1"),
            (b"b", b"2"),
            (b"c", b"1"),
        ]


def test_after_compaction_a_lookup_by_timestamp_finds_the_remaining_records(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], timestamps=[NOW_MS, NOW_MS + 5, NOW_MS + 3])
    append(log, [(b"b", b"2")], timestamps=[NOW_MS + 4])
    log.roll(NOW_MS)
    clean(disk, log)
    found = log.find_by_timestamp(NOW_MS + 1)
    assert found is not None
    assert (found.offset, found.timestamp) == (2, NOW_MS + 3)
    assert log.find_by_timestamp(NOW_MS + 5) is None


# How.


def source(base_offset: int, size: int = 10, index_size: int = 0) -> SourceSegment:
    return SourceSegment(base_offset, size, index_size, 0, 0)


def plan_for(log: PartitionLog, **changes: int) -> CleaningPlan:
    log.configure(log.config.but(**changes))
    return make_plan(log, assess(log, None, NOW_MS), CleanerSettings(), NOW_MS)


def test_adjacent_segments_are_grouped_within_segment_bytes_index_bytes_and_the_offset_range(log: PartitionLog) -> None:
    plan = plan_for(log, segment_bytes=25, segment_index_bytes=100)
    starts = [[one.base_offset for one in group] for group in group_segments([source(n) for n in range(5)], plan)]
    assert starts == [[0, 1], [2, 3], [4]]
    by_index = group_segments([source(0, index_size=60), source(1, index_size=60), source(2, index_size=40)], plan)
    assert [len(group) for group in by_index] == [1, 2]
    far = [source(0), source(5), source(MAX_RELATIVE_OFFSET + 1), source(MAX_RELATIVE_OFFSET + 2, size=0)]
    assert [len(group) for group in group_segments(far, plan_for(log, segment_bytes=100))] == [2, 2]


def test_a_cleaned_segment_keeps_the_modification_time_of_its_last_source_segment(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"b", b"1")])
    log.roll(NOW_MS)
    for segment, modified_ms in zip(log.segments, (111, 222, 333), strict=True):
        disk.set_modified_ms(segment.file.path, modified_ms)
    clean(disk, log)
    assert log.segments[0].last_modified_ms == 222


def test_a_damaged_batch_stops_the_cleaning_pass_which_removes_its_files(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    disk.flip_bit(log.segments[0].file.path, 65)
    with pytest.raises(InvalidBatch, match="position 0: the CRC"):
        clean(disk, log)
    assert not [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]


def test_a_pass_that_is_stopped_removes_its_files(disk: SimulatedDisk, log: PartitionLog) -> None:
    for number in range(200):
        append(log, [(b"%d" % number, b"1")])
    log.roll(NOW_MS)
    names = disk.list(DIRECTORY)
    steps = CleaningPass(disk, plan_for(log), ManualSeconds()).steps()
    while not any(name.endswith(".cleaned") for name in disk.list(DIRECTORY)):
        next(steps)
    steps.close()
    assert disk.list(DIRECTORY) == names


def test_a_cleaning_pass_yields_a_pause_after_about_half_a_millisecond_of_work(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    for number in range(50):
        append(log, [(b"%d" % number, b"1")])
    log.roll(NOW_MS)
    clock = ManualSeconds(tick=0.0002)
    looks = [clock.now for step in CleaningPass(disk, plan_for(log), clock).steps() if isinstance(step, Pause)]
    assert len(looks) > 20
    assert all(later - earlier < 0.0015 for earlier, later in pairwise(looks))


def test_the_cleaner_throttle_pauses_long_enough_to_keep_to_the_configured_rate(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    for number in range(100):
        append(log, [(b"%d" % number, b"x" * 1000)])
    log.roll(NOW_MS)
    result = clean(disk, log, settings=CleanerSettings(io_max_bytes_per_second=100_000.0))
    moved = result.stats.bytes_read + result.stats.bytes_written
    # The clock of this test does not wait, so every pause asks for all the time that is missing.
    assert max(result.pauses) == pytest.approx(moved / 100_000, rel=0.1)


def test_files_left_by_a_killed_cleaning_pass_are_removed(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1"), (b"a", b"2")])
    log.roll(NOW_MS)
    for name in ("00000000000000000000.log.cleaned", "00000000000000000001.log.swap"):
        disk.write_file(f"{DIRECTORY}/{name}", b"of an earlier pass")
    clean(disk, log)
    assert not [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
    assert contents(log) == [(1, b"a", b"2")]


def test_a_swap_that_was_stopped_in_the_middle_can_be_finished_later(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1"), (b"a", b"2")])
    log.roll(NOW_MS)
    plan = plan_for(log)
    ready = next(step for step in CleaningPass(disk, plan, ManualSeconds()).steps() if isinstance(step, SwapReady))
    swap = Cleaning(disk, log, plan).begin_swap(ready, NOW_MS)
    assert swap is not None
    swap.advance()
    (unfinished,) = unfinished_swaps(log)
    assert contents(log) == [(1, b"a", b"2")]
    Swap(disk, log, (), unfinished).finish()
    assert not unfinished_swaps(log)
    assert contents(log) == contents(open_log(disk)) == [(1, b"a", b"2")]


# When the log changes meanwhile.


def test_a_cleaning_pass_is_discarded_if_retention_has_dropped_its_source_segments(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    log.configure(CONFIG.but(cleanup_policy=frozenset({COMPACT, DELETE})))
    append(log, [(b"a", b"1"), (b"b", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"a", b"2")])
    log.roll(NOW_MS)
    plan = plan_for(log)
    cleaning = Cleaning(disk, log, plan)
    ready = [step for step in CleaningPass(disk, plan, ManualSeconds()).steps() if isinstance(step, SwapReady)]
    log.drop_segments(1, NOW_MS)
    assert not cleaning.is_still_valid
    assert cleaning.begin_swap(ready[0], NOW_MS) is None
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".swap")]
    assert contents(log) == [(2, b"a", b"2")]
    clean(disk, log)
    assert contents(log) == [(2, b"a", b"2")]


def test_a_cleaning_pass_is_discarded_after_a_truncation_even_if_the_log_has_grown_again(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"a", b"2")])
    log.roll(NOW_MS)
    append(log, [(b"b", b"1")])
    plan = plan_for(log)
    cleaning = Cleaning(disk, log, plan)
    ready = [step for step in CleaningPass(disk, plan, ManualSeconds()).steps() if isinstance(step, SwapReady)]
    log.truncate_to(1, NOW_MS)
    append(log, [(b"c", b"2")])
    log.roll(NOW_MS)
    append(log, [(b"b", b"1")])
    assert cleaning.begin_swap(ready[0], NOW_MS) is None
    assert contents(log) == [(0, b"a", b"1"), (1, b"c", b"2"), (2, b"b", b"1")]


def test_a_swapped_segment_that_is_dropped_before_its_final_rename_stays_dropped(
    disk: SimulatedDisk, log: PartitionLog
) -> None:
    append(log, [(b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"a", b"2")])
    plan = plan_for(log)
    cleaning = Cleaning(disk, log, plan)
    ready = next(step for step in CleaningPass(disk, plan, ManualSeconds()).steps() if isinstance(step, SwapReady))
    swap = cleaning.begin_swap(ready, NOW_MS)
    assert swap is not None
    assert swap.advance() is not None
    log.drop_segments(1, NOW_MS)
    assert swap.advance() is not None
    assert swap.advance() is None
    assert contents(log) == [(1, b"a", b"2")]
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == ["00000000000000000001.log"]


def test_slices_read_before_a_segment_swap_stay_readable(disk: SimulatedDisk, log: PartitionLog) -> None:
    append(log, [(b"a", b"1"), (b"a", b"2")])
    log.roll(NOW_MS)
    log.on_segments_dropped = lambda _log, _segments: None
    before = log.read(0, 1000, ReadUpTo.HIGH_WATERMARK).data
    assert before is not None
    expected = before.read()
    clean(disk, log)
    assert before.read() == expected
    after = log.read(0, 1000, ReadUpTo.HIGH_WATERMARK).data
    assert after is not None
    assert len(after.read()) < len(expected)

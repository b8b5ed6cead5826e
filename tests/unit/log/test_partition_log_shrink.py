"""Truncation, deleted records, dropped segments, and the recovery point after a flush during one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pessoa.log.files import DiskError
from pessoa.log.log_config import LogConfig
from pessoa.log.partition_log import OffsetOutOfRange, ReadUpTo
from pessoa.records.batch import MAGIC_POSITION, batches
from pessoa.records.invalid_batch import InvalidBatch
from tests.support.batches import NOW_MS, abort, commit, idempotent, plain, transactional
from tests.support.partition_logs import EVERY_BATCH, base_offsets, fill, produce, read_bytes, read_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.log.partition_log import PartitionLog
    from pessoa.log.segment import Segment
    from pessoa.log.simulated_disk import SimulatedDisk
    from tests.support.partition_logs import Home

# Five batches of 200 bytes.
SMALL = EVERY_BATCH.but(segment_bytes=1000)


def filled(home: Home, count: int = 18) -> PartitionLog:
    """Return a log with batches of two records in segments at 0, 10, 20 and 30."""
    log = home.open(SMALL)
    fill(log, count, records=2, size=200)
    return log


def follower(log: PartitionLog, *sent: memoryview) -> None:
    log.append_as_follower(b"".join(sent), NOW_MS)


# Truncation.


@pytest.mark.parametrize(
    ("offset", "end", "segments"),
    [
        (36, 36, [0, 10, 20, 30]),
        (34, 34, [0, 10, 20, 30]),
        (33, 32, [0, 10, 20, 30]),
        (30, 30, [0, 10, 20, 30]),
        (29, 28, [0, 10, 20]),
        (20, 20, [0, 10, 20]),
        (11, 10, [0, 10]),
        (4, 4, [0]),
        (1, 0, [0]),
        (0, 0, [0]),
    ],
)
def test_truncation_leaves_the_whole_batches_below_the_offset(
    home: Home, offset: int, end: int, segments: list[int]
) -> None:
    log = filled(home)
    data = read_bytes(log)
    assert log.truncate_to(offset, NOW_MS) == (offset < 36)
    assert (log.log_end_offset, base_offsets(log)) == (end, segments)
    assert read_bytes(log) == data[: end // 2 * 200]
    assert log.high_watermark == end
    produce(log, plain(2, size=200))
    for reopened in (home.reopen_clean(log), home.reopen_after_crash(log)):
        assert read_bytes(reopened)[:-200] == data[: end // 2 * 200]
        assert read_offsets(reopened)[-1] == (end, end + 1)
        assert reopened.log_end_offset == end + 2


def test_truncation_keeps_what_is_below_the_high_watermark_and_lowers_it_only_as_far_as_needed(home: Home) -> None:
    log = filled(home)
    log.high_watermark = 8
    log.truncate_to(12, NOW_MS)
    assert log.high_watermark == 8
    log.truncate_to(6, NOW_MS)
    assert log.high_watermark == 6


def test_truncation_below_the_first_segment_restarts_the_log_at_that_offset(home: Home) -> None:
    log = filled(home)
    log.drop_segments(2, NOW_MS)
    assert log.truncate_to(7, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.size) == (7, 7, 7, 0)
    assert log.epochs.entries() == []
    produce(log, plain(2), epoch=3)
    assert read_offsets(home.reopen_after_crash(log)) == [(7, 8)]


def test_a_log_can_restart_at_an_offset_far_above_its_end(home: Home) -> None:
    log = filled(home)
    produce(log, idempotent(9, 0))
    log.flush()
    log.restart_at(1000, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1000, 1000, 1000)
    assert (log.last_stable_offset, len(list(log.producers.entries())), log.snapshots.offsets) == (1000, 0, [])
    with pytest.raises(OffsetOutOfRange):
        log.read(10, 100, ReadUpTo.LOG_END)
    follower(log, plain(2, at=1000, epoch=8))
    for reopened in (home.reopen_clean(log), home.reopen_after_crash(log)):
        assert (reopened.log_start_offset, reopened.log_end_offset) == (1000, 1002)
        assert reopened.epochs.entries() == [(8, 1000)]


def test_truncation_removes_the_epochs_that_begin_above_the_new_log_end(home: Home) -> None:
    log = home.open(SMALL)
    for epoch in (1, 4, 5):
        fill(log, 2, records=2, epoch=epoch)
    log.truncate_to(8, NOW_MS)
    assert log.epochs.entries() == [(1, 0), (4, 4)]
    log.truncate_to(5, NOW_MS)
    assert log.epochs.entries() == [(1, 0)]
    assert home.reopen_after_crash(log).epochs.entries() == [(1, 0)]


def test_truncation_to_the_log_end_removes_an_epoch_without_batches(home: Home) -> None:
    log = filled(home)
    log.epochs.assign(9, 36)
    assert not log.truncate_to(36, NOW_MS)
    assert log.epochs.latest_epoch == 0


def test_truncation_rebuilds_producer_state_from_the_remaining_batches(home: Home) -> None:
    log = home.open(SMALL)
    for sequence in range(12):
        produce(log, idempotent(9, sequence))
        produce(log, idempotent(8, sequence))
    log.roll(NOW_MS)
    produce(log, idempotent(7, 0))
    assert log.snapshots.offsets == [9, 18, 24] or log.snapshots.offsets
    log.truncate_to(15, NOW_MS)
    assert all(offset <= 15 for offset in log.snapshots.offsets)
    nine, eight = log.producers.entry(9), log.producers.entry(8)
    assert nine is not None
    assert eight is not None
    assert (nine.next_sequence, eight.next_sequence, log.producers.entry(7)) == (8, 7, None)
    assert produce(log, idempotent(9, 8)).base_offset == 15
    assert produce(log, idempotent(8, 6)).is_duplicate


def test_truncation_within_a_transaction_leaves_it_open(home: Home) -> None:
    log = home.open()
    follower(log, plain(2, epoch=0), transactional(9, 0, 2, at=2, epoch=0), plain(2, at=4, epoch=0))
    follower(log, abort(9, at=6, epoch=0), plain(1, at=7, epoch=0))
    log.update_high_watermark(6)
    log.truncate_to(6, NOW_MS)
    assert log.last_stable_offset == 2
    assert log.active.aborted_transactions() == []
    follower(log, commit(9, at=6, epoch=0))
    log.update_high_watermark(7)
    assert log.last_stable_offset == 7
    log.truncate_to(2, NOW_MS)
    assert log.last_stable_offset == 2
    assert log.producers.first_unstable_offset is None


def test_truncation_removes_aborted_transactions_whose_markers_it_drops_across_segments(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_bytes=100))
    follower(log, transactional(1, 0, at=0, epoch=0), transactional(2, 0, at=1, epoch=0))
    follower(log, abort(1, at=2, epoch=0), abort(2, at=3, epoch=0), plain(at=4, epoch=0))
    log.update_high_watermark(5)
    assert len(log.read(0, 1000, ReadUpTo.LAST_STABLE_OFFSET).aborted) == 1
    log.truncate_to(3, NOW_MS)
    assert log.last_stable_offset == 1
    follower(log, commit(2, at=3, epoch=0))
    log.update_high_watermark(4)
    found = [one.producer_id for segment in log.segments for one in segment.aborted_transactions()]
    assert found == [1]


def test_truncation_below_the_recovery_point_is_durable_before_anything_follows(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    for seed in range(30):
        disk = type(simulated)(seed)
        shaky = shaky._replace(disk=disk)
        log = filled(shaky)
        log.flush()
        told: list[int] = []
        log.on_recovery_point_lowered = lambda log=log, told=told: told.append(log.recovery_point)  # type: ignore[misc]
        log.truncate_to(13, NOW_MS)
        assert told == [12]
        disk.lose_power()
        assert read_offsets(shaky.reopen_after_crash(log))[-1] == (10, 11)


@pytest.mark.parametrize("is_killed", [False, True])
def test_after_a_power_loss_truncated_batches_never_stand_before_batches_appended_later(
    simulated: SimulatedDisk, shaky: Home, is_killed: bool
) -> None:
    for seed in range(200):
        disk = type(simulated)(seed)
        shaky = shaky._replace(disk=disk)
        log = shaky.open()
        follower(log, plain(epoch=0))
        log.truncate_to(0, NOW_MS)
        if is_killed:
            disk.crash_process()
            log = shaky.reopen_after_crash(log)
        follower(log, plain(epoch=1))
        log.roll(NOW_MS)
        follower(log, plain(at=1, epoch=1))
        disk.lose_power()
        epochs = [batch.partition_leader_epoch for batch in batches(read_bytes(shaky.reopen_after_crash(log)))]
        assert epochs in ([], [0], [1], [1, 1]), f"seed {seed}"


def test_recovery_truncates_old_batches_that_came_back_behind_a_newer_epoch(shaky: Home) -> None:
    log = shaky.open()
    follower(log, plain(2, epoch=3), plain(2, at=2, epoch=5))
    # As a power loss may leave it: the page of the new batch was written, the truncation of the old one was not.
    log.active.file.append(plain(2, at=4, epoch=4))
    log.active.file.append(plain(2, at=6, epoch=5))
    log = shaky.reopen_after_crash(log)
    assert read_offsets(log) == [(0, 1), (2, 3)]


# Deleted records.


def test_deleted_records_are_unreadable_at_once_and_their_segments_are_dropped_later(home: Home) -> None:
    log = filled(home)
    log.high_watermark = 33
    assert log.delete_records_before(25) == 25
    assert log.delete_records_before(7) == 25
    assert (log.log_start_offset, base_offsets(log)) == (25, [0, 10, 20, 30])
    assert read_offsets(log)[0] == (24, 25)
    with pytest.raises(OffsetOutOfRange):
        log.read(24, 100, ReadUpTo.LOG_END)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(34)
    assert log.delete_records_before(33) == 33


def test_the_log_start_survives_with_its_checkpoint_above_the_first_segment(home: Home) -> None:
    log = filled(home)
    log.delete_records_before(25)
    for reopened in (home.reopen_clean(log), home.reopen_after_crash(log)):
        assert (reopened.log_start_offset, reopened.high_watermark) == (25, 36)
        assert reopened.epochs.entries() == [(0, 25)]
        with pytest.raises(OffsetOutOfRange):
            reopened.read(24, 100, ReadUpTo.LOG_END)


def test_on_log_start_moved_is_called_when_the_log_start_moves(home: Home) -> None:
    log = filled(home)
    told: list[int] = []
    log.on_log_start_moved = lambda: told.append(log.log_start_offset)
    log.delete_records_before(25)
    log.delete_records_before(20)
    log.truncate_to(24, NOW_MS)
    log.restart_at(50, NOW_MS)
    assert told == [25, 24, 50]


def test_epochs_before_the_log_start_are_forgotten(home: Home) -> None:
    log = home.open(SMALL)
    for epoch in (1, 4, 5):
        fill(log, 2, records=2, epoch=epoch)
    log.delete_records_before(6)
    assert log.epochs.entries() == [(4, 6), (5, 8)]


# Dropped segments.


def test_the_log_starts_with_the_first_segment_that_is_left(home: Home) -> None:
    log = filled(home)
    produce(log, idempotent(9, 0))
    dropped: list[Segment] = []
    log.on_segments_dropped = lambda _, segments: dropped.extend(segments)
    log.drop_segments(2, NOW_MS)
    assert (log.log_start_offset, base_offsets(log), log.epochs.entries()) == (20, [20, 30], [(0, 20)])
    assert [segment.base_offset for segment in dropped] == [0, 10]
    assert log.snapshots.offsets == [20, 30]
    assert len(list(log.producers.entries())) == 1
    assert [name for name in home.names(".deleted") if ".log" in name] == [
        "00000000000000000000.log.deleted",
        "00000000000000000010.log.deleted",
    ]
    reopened = home.reopen_after_crash(log)
    assert (reopened.log_start_offset, home.names(".deleted")) == (20, [])


def test_dropped_segments_are_removed_at_once_without_an_upkeep(home: Home) -> None:
    log = filled(home)
    log.drop_segments(3, NOW_MS)
    assert home.names(".log") == ["00000000000000000030.log"]
    assert home.names(".deleted") == []


def test_a_log_whose_segments_are_all_dropped_goes_on_at_its_log_end(home: Home) -> None:
    log = filled(home)
    log.drop_segments(4, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.size, base_offsets(log)) == (36, 36, 0, [36])
    assert produce(log, plain()).base_offset == 36


def test_a_log_whose_segments_were_all_dropped_keeps_its_end_offset_after_a_power_loss(
    simulated: SimulatedDisk, shaky: Home
) -> None:
    for seed in range(40):
        disk = type(simulated)(seed)
        shaky = shaky._replace(disk=disk)
        log = filled(shaky)
        log.flush()
        log.drop_segments(4, NOW_MS)
        disk.lose_power()
        assert shaky.reopen_after_crash(log).log_end_offset == 36


# Flushes.


def test_a_flush_moves_the_recovery_point_to_the_log_end_at_which_it_began(home: Home) -> None:
    log = filled(home)
    assert (log.recovery_point, log.unflushed_count) == (0, 36)
    flush = log.begin_flush()
    assert flush is not None
    fill(log, 1)
    flush.run()
    log.finish_flush(flush)
    assert (log.recovery_point, log.unflushed_count) == (36, 1)
    log.flush()
    assert log.recovery_point == 37
    assert log.begin_flush() is None


def test_flushed_records_survive_a_power_loss(simulated: SimulatedDisk, shaky: Home) -> None:
    for seed in range(40):
        disk = type(simulated)(seed)
        shaky = shaky._replace(disk=disk)
        log = filled(shaky)
        produce(log, idempotent(9, 0), epoch=2)
        log.flush()
        data, entries = read_bytes(log), log.epochs.entries()
        fill(log, 5, epoch=3)
        disk.lose_power()
        reopened = shaky.reopen_after_crash(log)
        assert read_bytes(reopened)[: len(data)] == data
        assert reopened.epochs.entries()[: len(entries)] == entries
        assert reopened.producers.entry(9) is not None


def test_a_flush_during_which_the_log_is_truncated_does_not_move_the_recovery_point(home: Home) -> None:
    log = filled(home)
    flush = log.begin_flush()
    assert flush is not None
    log.truncate_to(12, NOW_MS)
    fill(log, 20)
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_a_flush_completes_if_its_segments_are_dropped_or_the_log_is_closed_during_it(home: Home) -> None:
    log = filled(home)
    flush = log.begin_flush()
    assert flush is not None
    log.drop_segments(2, NOW_MS)
    log.close()
    flush.run()
    log.finish_flush(flush)


def test_a_flush_of_one_segment_costs_one_sync(shaky: Home, simulated: SimulatedDisk) -> None:
    log = shaky.open()
    fill(log, 5)
    log.flush()
    simulated.record()
    for _ in range(3):
        fill(log, 5)
        log.flush()
    assert [call.path for call in simulated.calls("sync")] == [shaky.path("00000000000000000000.log")] * 3
    assert simulated.calls("sync_directory") == []


def test_a_full_segment_is_synced_with_its_indexes_before_the_recovery_point_leaves_it(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    log = filled(shaky, 5)
    log.flush()
    # The log has rolled with everything synced: only the indexes of the old segment are new.
    log.roll(NOW_MS)
    simulated.record()
    log.flush()
    synced = {call.path.rpartition("/")[2] for call in simulated.calls("sync")}
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} <= synced
    assert simulated.calls("sync_directory")


def test_a_failed_sync_does_not_move_the_recovery_point(shaky: Home, simulated: SimulatedDisk) -> None:
    log = filled(shaky)
    simulated.fail("sync", "*.log")
    with pytest.raises(DiskError):
        log.flush()
    assert log.recovery_point == 0


def test_a_flush_of_a_deleted_partition_does_nothing_and_does_not_fail(home: Home) -> None:
    log = filled(home)
    flush = log.begin_flush()
    assert flush is not None
    log.release()
    home.disk.rename(home.directory, home.directory + ".deleted")
    flush.run()
    assert log.begin_flush() is None


# A stop in order.


def calls_after_a_second_stop(home: Home, disk: SimulatedDisk, log: PartitionLog) -> Sequence[object]:
    reopened = home.reopen_clean(log)
    disk.record()
    reopened.close()
    return disk.calls("sync")


def test_closing_an_unchanged_log_costs_no_sync(shaky: Home, simulated: SimulatedDisk) -> None:
    assert calls_after_a_second_stop(shaky, simulated, filled(shaky)) == []


@pytest.mark.parametrize("end_offset", [36, 13, 1])
def test_after_a_clean_shutdown_a_power_loss_neither_removes_nor_restores_records(
    simulated: SimulatedDisk, shaky: Home, end_offset: int
) -> None:
    for seed in range(30):
        disk = type(simulated)(seed)
        shaky = shaky._replace(disk=disk)
        log = filled(shaky)
        log.flush()
        log.truncate_to(end_offset, NOW_MS)
        data = read_bytes(log)
        log.close()
        disk.lose_power()
        reopened = shaky.open(SMALL, was_clean=True, high_watermark=end_offset)
        assert read_bytes(reopened) == data
        for segment in reopened.segments:
            before = segment.offset_index.entries(), segment.time_index.entries()
            segment.rebuild_indexes()
            assert (segment.offset_index.entries(), segment.time_index.entries()) == before


# Damage on the way.


def damaged(simulated: SimulatedDisk, home: Home) -> PartitionLog:
    """Return a log of three segments of four batches; the magic byte of the second batch of the second one is
    damaged."""
    config = LogConfig(segment_bytes=4 * len(plain()))
    log = home.open(config)
    fill(log, 12)
    assert base_offsets(log) == [0, 4, 8]
    simulated.flip_bit(home.path(f"{4:020d}.log"), len(plain()) + MAGIC_POSITION, 3)
    return log


def test_a_truncation_that_finds_a_damaged_batch_header_changes_nothing(simulated: SimulatedDisk, shaky: Home) -> None:
    log = damaged(simulated, shaky)
    files = simulated.contents()
    with pytest.raises(InvalidBatch):
        log.truncate_to(7, NOW_MS)
    assert (log.log_end_offset, base_offsets(log), log.truncations) == (12, [0, 4, 8], 0)
    assert simulated.contents() == files
    fill(log, 1)
    assert log.log_end_offset == 13


def test_a_truncation_that_may_drop_damaged_batches_ends_the_log_before_them(
    simulated: SimulatedDisk, shaky: Home
) -> None:
    log = damaged(simulated, shaky)
    assert log.truncate_to(7, NOW_MS, drops_damaged=True)
    assert (log.log_end_offset, base_offsets(log)) == (5, [0, 4])
    fill(log, 2, epoch=1)
    assert [first for first, _ in read_offsets(log)] == list(range(7))
    assert read_offsets(shaky.reopen_after_crash(log)) == read_offsets(log)

"""A disk flips a bit that no CRC covers while the log is closed: synced records are kept."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.checkpoints import RECOVERY_POINT_FILE, parse_offsets
from pessoa.log.directory import LogDirectory
from pessoa.log.leader_epoch_cache import LeaderEpochCache
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.batch import HEADER_SIZE
from tests.support.batches import NOW_MS, plain
from tests.support.partition_logs import EVERY_BATCH, Home, fill, read_bytes, read_offsets

LOG = "00000000000000000000.log"
EPOCH_POSITION = 12
# Two records each, in these epochs.
BATCHES = (1, 1, 3, 3, 5, 5)
OFFSETS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
SIZE = len(plain(2, at=0, epoch=1))


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    return disk


@pytest.fixture
def home(disk: SimulatedDisk) -> Home:
    return Home(disk, "/data/orders-0")


def written(home: Home) -> bytes:
    log = home.open()
    for epoch in BATCHES:
        fill(log, 1, records=2, epoch=epoch)
    log.flush()
    return read_bytes(log)


@pytest.mark.parametrize("bit", [0, 1, 4, 7])
@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_recovery_keeps_every_record_when_the_epoch_of_a_synced_batch_has_changed(
    home: Home, disk: SimulatedDisk, number: int, byte: int, bit: int
) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), number * SIZE + EPOCH_POSITION + byte, bit)
    log = home.open(recovery_point=12)
    assert read_offsets(log) == OFFSETS
    # What is appended from now on is not lost with the next crash either.
    fill(log, 1, records=2, epoch=6)
    assert read_offsets(home.reopen_after_crash(log)) == [*OFFSETS, (12, 13)]


def test_a_corrupted_epoch_is_found_and_the_epoch_behind_it_is_kept(home: Home, disk: SimulatedDisk) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), SIZE + EPOCH_POSITION + 3, 6)
    log = home.open(recovery_point=12)
    assert log.epochs.start_offset_above(5) == 2
    assert log.epochs == LeaderEpochCache([(1, 0), (65, 2)])


def test_an_impossible_epoch_is_remembered_until_it_is_truncated_and_the_true_epochs_are_kept(
    home: Home, disk: SimulatedDisk
) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), 4 * SIZE + EPOCH_POSITION + 3, 6)
    log = home.open(recovery_point=10)
    assert log.epochs == LeaderEpochCache([(1, 0), (3, 4), (5, 10)])
    # And yet it is known of, until it has gone.
    assert log.impossible_from == 8
    log.truncate_to(10, NOW_MS)
    assert log.impossible_from == 8
    log.truncate_to(8, NOW_MS)
    assert log.impossible_from is None


def test_a_corrupted_epoch_that_no_later_epoch_contradicts_is_in_the_epoch_cache(
    home: Home, disk: SimulatedDisk
) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), 4 * SIZE + EPOCH_POSITION + 3, 6)
    assert home.open(recovery_point=12).epochs.start_offset_above(5) == 8


def test_a_log_directory_that_lost_bytes_after_a_clean_shutdown_reports_no_previous_broker_epoch(
    home: Home, disk: SimulatedDisk
) -> None:
    written(home)
    for is_lost, expected in ((False, 7), (True, -1)):
        if is_lost:
            disk.cut(home.path(LOG), disk.size(home.path(LOG)) - 1)
        directory = LogDirectory(disk, "/data")
        disk.write_file("/data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":7}')
        directory.open(lambda _: EVERY_BATCH, NOW_MS)
        assert directory.was_clean
        assert directory.previous_broker_epoch == expected
        directory.close(7)


def test_recovery_drops_unsynced_batches_whose_epoch_goes_back(home: Home, disk: SimulatedDisk) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), 3 * SIZE + EPOCH_POSITION + 3, 1)
    assert read_offsets(home.open(recovery_point=2)) == OFFSETS[:3]


def test_a_checkpointed_log_start_above_the_log_end_is_ignored_after_a_clean_shutdown(home: Home) -> None:
    whole = written(home)
    log = home.open(was_clean=True, recovery_point=12, log_start_offset=92, high_watermark=12)
    assert (log.log_start_offset, log.log_end_offset) == (0, 12)
    assert read_bytes(log) == whole


def in_directory(disk: SimulatedDisk) -> LogDirectory:
    directory = LogDirectory(disk, "/data")
    directory.open(lambda _: EVERY_BATCH.but(segment_bytes=4 * SIZE), NOW_MS)
    return directory


def rotten(seed: int) -> SimulatedDisk:
    """Return a disk with a log of three segments, synced according to its checkpoint, whose second batch is damaged."""
    disk = SimulatedDisk(seed)
    disk.make_directory("/data")
    directory = in_directory(disk)
    log = directory.create("orders", 0, Uuid.of(1), EVERY_BATCH.but(segment_bytes=4 * SIZE), NOW_MS)
    fill(log, 12, records=2)
    log.flush()
    directory.write_checkpoints()
    disk.crash_process()
    disk.flip_bit(f"/data/orders-0/{LOG}", SIZE + HEADER_SIZE, 0)
    # So that recovery reads the first segment.
    disk.write_file("/data/recovery-point-offset-checkpoint", b"0\n1\norders 0 8\n")
    return disk


def test_a_recovery_that_ends_below_its_checkpoint_lowers_it_before_anything_is_appended() -> None:
    disk = rotten(0)
    assert in_directory(disk).partitions["orders", 0].log_end_offset == 2
    checkpoint = disk.read_file(f"/data/{RECOVERY_POINT_FILE}").decode()
    assert parse_offsets(checkpoint, RECOVERY_POINT_FILE) == {("orders", 0): 2}


@pytest.mark.parametrize("seed", range(40))
def test_a_power_loss_after_a_recovery_that_ended_below_its_checkpoint_leaves_no_hole(seed: int) -> None:
    disk = rotten(seed)
    log = in_directory(disk).partitions["orders", 0]
    fill(log, 2 + seed % 9, records=2, epoch=1)
    disk.lose_power()
    found = read_offsets(in_directory(disk).partitions["orders", 0])
    assert found == [(2 * number, 2 * number + 1) for number in range(len(found))]

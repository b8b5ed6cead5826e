"""A disk changes what no CRC covers, while nobody has the log open: what was synced stays all the same."""

from __future__ import annotations

import pytest

from pessoa.log.directory import LogDirectory
from pessoa.log.leader_epochs import LeaderEpochs
from pessoa.log.simulated_disk import SimulatedDisk
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
def test_another_epoch_in_what_was_synced_costs_no_record(
    home: Home, disk: SimulatedDisk, number: int, byte: int, bit: int
) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), number * SIZE + EPOCH_POSITION + byte, bit)
    log = home.open(recovery_point=12)
    assert read_offsets(log) == OFFSETS
    # What is appended from now on is not lost with the next crash either.
    fill(log, 1, records=2, epoch=6)
    assert read_offsets(home.reopen_after_crash(log)) == [*OFFSETS, (12, 13)]


def test_epochs_that_are_made_up_are_seen_and_those_behind_them_are_not_forgotten(
    home: Home, disk: SimulatedDisk
) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), SIZE + EPOCH_POSITION + 3, 6)
    log = home.open(recovery_point=12)
    assert log.epochs.start_offset_above(5) == 2
    assert log.epochs == LeaderEpochs([(1, 0), (65, 2)])


def test_a_made_up_epoch_takes_no_true_one_along(home: Home, disk: SimulatedDisk) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), 4 * SIZE + EPOCH_POSITION + 3, 6)
    assert home.open(recovery_point=10).epochs == LeaderEpochs([(1, 0), (3, 4), (5, 10)])
    assert home.open(recovery_point=12).epochs.start_offset_above(5) == 8


def test_a_directory_that_has_lost_an_end_was_not_left_as_its_broker_says(home: Home, disk: SimulatedDisk) -> None:
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


def test_what_falls_behind_its_epoch_in_what_was_not_synced_goes(home: Home, disk: SimulatedDisk) -> None:
    written(home)
    disk.flip_bit(home.path(LOG), 3 * SIZE + EPOCH_POSITION + 3, 1)
    assert read_offsets(home.open(recovery_point=2)) == OFFSETS[:3]


def test_a_log_start_behind_the_end_is_not_believed_after_a_stop_in_order(home: Home) -> None:
    whole = written(home)
    log = home.open(was_clean=True, recovery_point=12, log_start_offset=92, high_watermark=12)
    assert (log.log_start_offset, log.log_end_offset) == (0, 12)
    assert read_bytes(log) == whole

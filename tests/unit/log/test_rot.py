"""A bit turns over in the header of a batch, where no CRC looks or where one does, while nobody has the log open.

A log that is opened cannot always tell who is wrong. But what it keeps without a doubt is what was written: a replica
that follows cuts the rest, and gets it from its leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pessoa.log.directory import LogDirectory
from pessoa.log.leader_epochs import LeaderEpochs
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.batch import CRC_POSITION, HEADER_SIZE
from pessoa.records.errors import InvalidBatch
from tests.support.batches import NOW_MS, plain
from tests.support.partition_logs import EVERY_BATCH, Home, fill, read_bytes, read_offsets

if TYPE_CHECKING:
    from pessoa.log.config import LogConfig
    from pessoa.log.partition_log import PartitionLog

LOG = "00000000000000000000.log"
EPOCHS = "leader-epoch-checkpoint"
EPOCH_POSITION = 12
RARELY = EVERY_BATCH.but(index_interval_bytes=4096)
# Two records each, in these epochs.
BATCHES = (1, 1, 3, 3, 5, 5)
SIZE = len(plain(2, at=0, epoch=1))


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    return disk


@pytest.fixture
def home(disk: SimulatedDisk) -> Home:
    return Home(disk, "/data/orders-0")


def written(home: Home, config: LogConfig = RARELY) -> bytes:
    log = home.open(config)
    for epoch in BATCHES:
        fill(log, 1, records=2, epoch=epoch)
    log.flush()
    log.close()
    return read_bytes(home.open(config, was_clean=True, recovery_point=12, high_watermark=12))


def opened(home: Home, how: str, config: LogConfig = RARELY) -> PartitionLog:
    return home.open(config, was_clean=how == "stopped", recovery_point=12, high_watermark=12)


@pytest.mark.parametrize("config", [RARELY, EVERY_BATCH], ids=["without index", "with index"])
@pytest.mark.parametrize("number", [0, 3, 5])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_a_log_keeps_without_a_doubt_is_what_was_written(
    home: Home, disk: SimulatedDisk, how: str, number: int, config: LogConfig
) -> None:
    whole = written(home, config)
    assert opened(home, how, config).doubtful_from is None
    files = {home.path(name): disk.read_file(home.path(name)) for name in home.names()}
    # After a stop in order only the end of a log is looked at, and no CRC.
    if how == "stopped" and config is EVERY_BATCH and number < len(BATCHES) - 1:
        return
    for byte in range(CRC_POSITION if how == "stopped" else HEADER_SIZE + 1):
        for bit in range(8) if byte in (7, EPOCH_POSITION + 3) else (byte % 7, 7):
            for name in home.names():
                disk.remove(home.path(name))
            for path, content in files.items():
                disk.write_file(path, content)
            disk.flip_bit(home.path(LOG), number * SIZE + byte, bit)
            log = opened(home, how, config)
            if log.doubtful_from is not None:
                log.truncate_to(log.doubtful_from, NOW_MS)
            assert whole.startswith(read_bytes(log)), (byte, bit)
            assert log.log_end_offset <= number * 2, (byte, bit)


def test_a_log_that_was_compacted_may_have_gaps(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(cleanup_policy=frozenset({"compact"})))
    for at in (0, 4, 9):
        log.append_as_follower(plain(2, at=at, epoch=1), NOW_MS)
    log.flush()
    for was_clean in (True, False):
        again = home.open(log.config, was_clean=was_clean, recovery_point=11)
        assert again.doubtful_from is None
        assert read_offsets(again) == [(0, 1), (4, 5), (9, 10)]


def test_a_gap_is_doubtful_and_kept(home: Home) -> None:
    """It may be that the topic was compacted once, and that nobody else has these records."""
    log = home.open()
    for at in (0, 4, 9):
        log.append_as_follower(plain(2, at=at, epoch=1), NOW_MS)
    log.flush()
    again = home.open(recovery_point=11)
    assert again.doubtful_from == 2
    assert read_offsets(again) == [(0, 1), (4, 5), (9, 10)]
    again.truncate_to(2, NOW_MS)
    assert again.doubtful_from is None


def test_an_epoch_that_the_checkpoint_could_not_know_raises_no_doubt(home: Home, disk: SimulatedDisk) -> None:
    """It is synced with the batches: above the recovery point it may be older than they are."""
    written(home)
    disk.write_file(home.path(EPOCHS), b"0\n1\n1 0\n")
    assert home.open(recovery_point=4).doubtful_from is None
    disk.write_file(home.path(EPOCHS), b"0\n1\n1 0\n")
    assert home.open(recovery_point=5).doubtful_from == 4


def test_what_another_replica_sends_of_an_epoch_that_is_over_is_damaged(home: Home) -> None:
    log = home.open()
    log.append_as_follower(plain(at=0, epoch=5), NOW_MS)
    with pytest.raises(InvalidBatch, match="behind epoch 5"):
        log.append_as_follower(plain(at=1, epoch=4), NOW_MS, 7)
    log.append_as_follower(plain(at=1, epoch=-1), NOW_MS, 7)
    assert log.epochs == LeaderEpochs([(5, 0)])


def test_a_directory_with_a_doubtful_log_was_not_left_as_its_broker_says(disk: SimulatedDisk) -> None:
    home = Home(disk, "/data/orders-0")
    written(home)
    for damage, expected in ((False, 7), (True, -1)):
        if damage:
            disk.flip_bit(home.path(LOG), 5 * SIZE + EPOCH_POSITION + 3, 3)
        one = LogDirectory(disk, "/data")
        disk.write_file("/data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":7}')
        one.open(lambda _: RARELY, NOW_MS)
        assert one.was_clean
        assert one.previous_broker_epoch == expected
        one.close(7)


def test_two_histories_of_epochs_differ_where_both_know_an_offset_and_name_different_epochs() -> None:
    ours = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    assert ours.first_difference(LeaderEpochs([(1, 0), (3, 10), (5, 20)]), 0, 30) is None
    assert ours.first_difference(LeaderEpochs([(1, 0), (4, 10), (5, 20)]), 0, 30) == 10
    assert ours.first_difference(LeaderEpochs([(1, 0), (3, 12)]), 0, 30) == 10
    assert ours.first_difference(LeaderEpochs([(1, 0), (3, 10)]), 0, 30) == 20
    assert ours.first_difference(LeaderEpochs([(1, 0), (3, 10)]), 0, 20) is None
    assert ours.first_difference(LeaderEpochs([(5, 20)]), 0, 30) is None
    assert ours.first_difference(LeaderEpochs([(2, 0)]), 12, 12) is None


def test_a_log_that_was_closed_in_order_and_has_lost_its_end_is_doubtful_where_it_ends(
    home: Home, disk: SimulatedDisk
) -> None:
    whole = written(home)
    disk.cut(home.path(LOG), len(whole) - 1)
    log = opened(home, "stopped")
    assert (log.log_end_offset, log.doubtful_from) == (10, 10)
    assert whole.startswith(read_bytes(log))


def test_a_log_start_behind_the_end_is_not_believed_after_a_stop_in_order(home: Home) -> None:
    whole = written(home)
    log = home.open(RARELY, was_clean=True, recovery_point=12, log_start_offset=92, high_watermark=12)
    assert (log.log_start_offset, log.log_end_offset) == (0, 12)
    assert read_bytes(log) == whole

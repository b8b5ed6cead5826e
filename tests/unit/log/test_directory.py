"""A log directory: its partitions, checkpoints, clean shutdown, and failure of its disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.checkpoints import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, parse_offsets
from pessoa.log.directory import DirectoryOffline, LogDirectory, partition_of
from pessoa.log.files import DiskError
from pessoa.log.meta_properties import MetaProperties
from pessoa.log.os_disk import OsDisk
from pessoa.log.partition_log import ReadUpTo
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.batch import batches
from tests.support.batches import NOW_MS, idempotent, plain
from tests.support.partition_logs import EVERY_BATCH, fill, produce, read_offsets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pessoa.log.files import Disk
    from pessoa.log.log_config import LogConfig

SMALL = EVERY_BATCH.but(segment_bytes=1000)
ID, OTHER_ID = Uuid.of(1001), Uuid.of(1002)
META = MetaProperties("cluster", 3, Uuid.of(500))


def config_of(_: str) -> LogConfig:
    return SMALL


def open_directory(disk: Disk, path: str = "/data") -> LogDirectory:
    directory = LogDirectory(disk, path)
    directory.open(config_of, NOW_MS)
    return directory


def checkpoint(disk: Disk, name: str, path: str = "/data") -> dict[tuple[str, int], int]:
    return parse_offsets(disk.read_file(f"{path}/{name}").decode(), name)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(now_ms=lambda: NOW_MS)


# Opening, creating, closing.


@pytest.mark.parametrize("kind", ["os", "simulated"])
def test_a_reopened_log_directory_has_the_partitions_topic_ids_and_offsets_from_before_it_was_closed(
    tmp_path: Path, kind: str
) -> None:
    disk: Disk = OsDisk(max_open_files=5) if kind == "os" else SimulatedDisk()
    path = f"{tmp_path}/logs"
    directory = open_directory(disk, path)
    assert (directory.meta, directory.was_clean, directory.partitions) == (None, False, {})
    directory.format(META, NOW_MS)
    for topic, partition in (("orders", 0), ("orders", 11), ("a-b.c_d-1", 2)):
        fill(directory.create(topic, partition, ID, SMALL, NOW_MS), 7, size=200)
    directory.partitions["orders", 0].delete_records_before(6)
    directory.close(broker_epoch=42)
    assert json.loads(disk.read_file(f"{path}/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 42}
    directory = open_directory(disk, path)
    assert (directory.was_clean, directory.meta) == (True, META)
    assert not disk.exists(f"{path}/.kafka_cleanshutdown")
    assert set(directory.partitions) == {("orders", 0), ("orders", 11), ("a-b.c_d-1", 2)}
    assert set(directory.topic_ids.values()) == {ID}
    log = directory.partitions["orders", 0]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (6, 7, 7)
    directory.close()


def test_a_directory_that_was_not_closed_is_recovered(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("orders", 0, ID, SMALL, NOW_MS)
    fill(log, 7, size=200)
    directory.write_checkpoints()
    fill(log, 2)
    disk.crash_process()
    directory = open_directory(disk)
    assert not directory.was_clean
    log = directory.partitions["orders", 0]
    assert (log.log_end_offset, log.high_watermark) == (9, 7)


def test_checkpoint_files_have_the_recovery_point_high_watermark_and_log_start_of_each_log(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    first = directory.create("orders", 0, ID, SMALL, NOW_MS)
    second = directory.create("orders", 1, ID, SMALL, NOW_MS)
    fill(first, 12, size=200)
    first.flush()
    fill(second, 3)
    second.high_watermark = 2
    first.delete_records_before(7)
    directory.write_checkpoints()
    assert checkpoint(disk, RECOVERY_POINT_FILE) == {("orders", 0): 12, ("orders", 1): 0}
    assert checkpoint(disk, REPLICATION_OFFSET_FILE) == {("orders", 0): 12, ("orders", 1): 2}
    assert checkpoint(disk, LOG_START_OFFSET_FILE) == {("orders", 0): 7}
    # A log that starts with its first segment needs no entry.
    first.delete_records_before(10)
    first.drop_segments(2, NOW_MS)
    directory.write_checkpoints()
    assert checkpoint(disk, LOG_START_OFFSET_FILE) == {}


def test_deleted_records_stay_deleted_after_a_power_loss(disk: SimulatedDisk) -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        directory = open_directory(disk)
        log = directory.create("orders", 0, ID, SMALL, NOW_MS)
        fill(log, 12, size=200)
        log.flush()
        log.delete_records_before(7)
        disk.lose_power()
        assert open_directory(disk).partitions["orders", 0].log_start_offset == 7


@pytest.mark.parametrize("incarnations", [1, 2, 3])
def test_after_a_power_loss_no_truncated_batch_is_below_the_checkpointed_high_watermark(incarnations: int) -> None:
    for seed in range(100):
        disk = SimulatedDisk(seed)
        directory = open_directory(disk)
        log = directory.create("orders", 0, ID, SMALL, NOW_MS)
        log.append_as_follower(plain(3, epoch=0), NOW_MS)
        log.update_high_watermark(3)
        log.flush()
        directory.write_checkpoints()
        log.append_as_follower(plain(3, at=3, epoch=0), NOW_MS)
        log.truncate_to(3, NOW_MS)
        for _ in range(incarnations - 1):
            # What a process had written is there when it has died, and no safer than before.
            disk.crash_process()
            directory = open_directory(disk)
            log = directory.partitions["orders", 0]
        log.append_as_follower(plain(3, at=3, epoch=1), NOW_MS)
        log.update_high_watermark(6)
        directory.write_checkpoints()
        disk.lose_power()
        log = open_directory(disk).partitions["orders", 0]
        committed = log.read(0, 1000, ReadUpTo.HIGH_WATERMARK).data
        assert committed is not None
        epochs = [batch.partition_leader_epoch for batch in batches(committed.read())]
        assert epochs in ([0], [0, 1]), f"seed {seed}"


def test_the_checkpointed_high_watermark_advances_past_a_truncation_once_the_truncation_is_flushed(
    disk: SimulatedDisk,
) -> None:
    directory = open_directory(disk)
    log = directory.create("orders", 0, ID, SMALL, NOW_MS)
    log.append_as_follower(plain(3, epoch=0), NOW_MS)
    log.append_as_follower(plain(3, at=3, epoch=0), NOW_MS)
    log.update_high_watermark(3)
    log.truncate_to(3, NOW_MS)
    log.append_as_follower(plain(3, at=3, epoch=1), NOW_MS)
    log.update_high_watermark(6)
    directory.write_checkpoints()
    assert checkpoint(disk, REPLICATION_OFFSET_FILE) == {("orders", 0): 3}
    log.flush()
    directory.write_checkpoints()
    assert checkpoint(disk, REPLICATION_OFFSET_FILE) == {("orders", 0): 6}


def test_an_older_checkpoint_never_takes_the_place_of_a_newer_one(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("orders", 0, ID, SMALL, NOW_MS)
    fill(log, 12, size=200)
    log.flush()
    # As the upkeep does it: rendered now, written by a thread that comes to it later.
    rendered = directory.render_checkpoints()
    log.truncate_to(3, NOW_MS)
    directory.write_rendered(rendered)
    assert checkpoint(disk, RECOVERY_POINT_FILE) == {("orders", 0): 3}
    assert checkpoint(disk, REPLICATION_OFFSET_FILE) == {("orders", 0): 12}


@pytest.mark.parametrize("text", [b"", b"0\n", b"0\n1\norders 0 x\n", b"\0\0\0\0", b"7\n0\n"])
@pytest.mark.parametrize("name", [RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, LOG_START_OFFSET_FILE])
def test_a_directory_opens_without_a_checkpoint_that_is_damaged(disk: SimulatedDisk, name: str, text: bytes) -> None:
    directory = open_directory(disk)
    fill(directory.create("orders", 0, ID, SMALL, NOW_MS), 7, size=200)
    directory.write_checkpoints()
    disk.write_file(f"/data/{name}", text)
    disk.crash_process()
    log = open_directory(disk).partitions["orders", 0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 7)


def with_a_gap(disk: SimulatedDisk) -> LogDirectory:
    """Return a directory with a log that has a gap between two segments, from compaction; the topic's policy is
    delete."""
    directory = open_directory(disk)
    log = directory.create("orders", 0, ID, SMALL, NOW_MS)
    fill(log, 12, size=200)
    directory.write_checkpoints()
    for kind in (".log", ".index", ".timeindex"):
        disk.remove(f"/data/orders-0/{5:020d}{kind}")
    return directory


def test_recovery_drops_what_follows_a_gap_above_the_recovery_point(disk: SimulatedDisk) -> None:
    with_a_gap(disk)
    disk.crash_process()
    assert open_directory(disk).partitions["orders", 0].log_end_offset == 5


@pytest.mark.parametrize("text", [None, b"", b"\0\0\0\0"])
def test_a_gap_in_a_log_without_a_known_recovery_point_is_kept(disk: SimulatedDisk, text: bytes | None) -> None:
    with_a_gap(disk)
    if text is None:
        disk.remove(f"/data/{RECOVERY_POINT_FILE}")
    else:
        disk.write_file(f"/data/{RECOVERY_POINT_FILE}", text)
    for _ in range(2):
        disk.crash_process()
        log = open_directory(disk).partitions["orders", 0]
        assert [first for first, _ in read_offsets(log)] == [0, 1, 2, 3, 4, 10, 11]
        # All of it was synced, so that a second crash has nothing to doubt.
        assert log.recovery_point == 12


def test_opening_a_log_directory_ignores_and_keeps_directories_with_other_names(disk: SimulatedDisk) -> None:
    for name in ("orders-0.0123-future", "orders-1.0123-stray", "lost+found", "__cluster_metadata-0", "noise", "-1"):
        disk.make_directory(f"/data/{name}")
    assert open_directory(disk).partitions == {}
    assert len(disk.list("/data")) >= 6


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("my-topic-12", ("my-topic", 12)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("orders", None),
        ("orders-", None),
        ("-3", None),
        ("orders-x", None),
        ("orders-٣", None),
    ],
)
def test_a_directory_name_is_parsed_into_topic_and_partition(name: str, expected: tuple[str, int] | None) -> None:
    assert partition_of(name) == expected


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"version: 0\n"])
def test_a_damaged_partition_metadata_does_not_keep_the_directory_closed(disk: SimulatedDisk, content: bytes) -> None:
    directory = open_directory(disk)
    fill(directory.create("orders", 0, ID, SMALL, NOW_MS), 1)
    fill(directory.create("orders", 1, ID, SMALL, NOW_MS), 1)
    disk.write_file("/data/orders-0/partition.metadata", content)
    disk.crash_process()
    directory = open_directory(disk)
    assert directory.topic_ids == {("orders", 1): ID}
    assert set(directory.partitions) == {("orders", 0), ("orders", 1)}


@pytest.mark.parametrize("content", [None, b"", b"version: 0\n"])
def test_a_log_whose_partition_metadata_is_lost_belongs_to_the_topic_that_adopts_it(
    disk: SimulatedDisk, content: bytes | None
) -> None:
    fill(open_directory(disk).create("orders", 0, ID, SMALL, NOW_MS), 1)
    path = "/data/orders-0/partition.metadata"
    disk.remove(path)
    if content is not None:
        disk.write_file(path, content)
    disk.crash_process()
    directory = open_directory(disk)
    assert directory.topic_ids == {}
    assert directory.adopt("orders", 0, ID)
    disk.lose_power()
    directory = open_directory(disk)
    assert directory.topic_ids == {("orders", 0): ID}
    assert not directory.adopt("orders", 0, OTHER_ID)


def test_a_log_directory_goes_offline_if_it_cannot_write_the_metadata_of_an_adopted_partition(
    disk: SimulatedDisk,
) -> None:
    fill(open_directory(disk).create("orders", 0, ID, SMALL, NOW_MS), 1)
    disk.remove("/data/orders-0/partition.metadata")
    disk.crash_process()
    directory = open_directory(disk)
    disk.fail("write", "*partition.metadata*")
    assert directory.adopt("orders", 0, ID)
    assert directory.offline is not None


def test_a_partition_gets_files_with_its_first_batch_and_without_files_is_found_again(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    for topic in ("empty", "written"):
        directory.create(topic, 0, ID, SMALL, NOW_MS)
        assert disk.list(f"/data/{topic}-0") == []
    fill(directory.partitions["written", 0], 1)
    assert [directory.unsynced_creations, directory.unwanted] == [[directory.partitions["written", 0]], []]
    assert {name.rpartition(".")[2] for name in disk.list("/data/written-0")} == {
        "metadata", "log", "index", "timeindex", "leader-epoch-checkpoint",
    }  # fmt: skip
    directory.close()
    assert disk.list("/data/empty-0") == []
    directory = open_directory(disk)
    assert directory.topic_ids == {("written", 0): ID}
    empty = directory.partitions["empty", 0]
    assert disk.list("/data/empty-0") == []
    # The topic id is adopted before the first batch.
    assert directory.adopt("empty", 0, OTHER_ID)
    assert not directory.adopt("empty", 0, ID)
    fill(empty, 3)
    empty.flush()
    disk.lose_power()
    directory = open_directory(disk)
    assert directory.topic_ids == {("written", 0): ID, ("empty", 0): OTHER_ID}
    assert directory.partitions["empty", 0].log_end_offset == 3


def test_a_partition_without_files_is_removed_with_its_directory_and_can_be_created_again(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    directory.create("orders", 0, ID, SMALL, NOW_MS)
    directory.remove("orders", 0, Uuid.of(1))
    assert (directory.partitions, directory.topic_ids, directory.unwanted) == ({}, {}, [])
    assert not disk.exists("/data/orders-0")
    fill(directory.create("orders", 0, OTHER_ID, SMALL, NOW_MS), 2)
    disk.crash_process()
    directory = open_directory(disk)
    assert directory.topic_ids == {("orders", 0): OTHER_ID}
    assert directory.partitions["orders", 0].log_end_offset == 2


@pytest.mark.parametrize("how", ["append", "roll", "restart"])
def test_a_partition_that_was_removed_before_it_had_files_does_not_get_any(disk: SimulatedDisk, how: str) -> None:
    directory = open_directory(disk)
    removed = directory.create("orders", 0, ID, SMALL, NOW_MS)
    directory.remove("orders", 0, Uuid.of(1))
    directory.create("orders", 0, OTHER_ID, SMALL, NOW_MS)
    tried: dict[str, Callable[[], object]] = {
        "append": lambda: fill(removed, 1),
        "roll": lambda: removed.roll(NOW_MS),
        "restart": lambda: removed.restart_at(5, NOW_MS),
    }
    with pytest.raises(ValueError, match="/data/orders-0 is closed"):
        tried[how]()
    assert disk.list("/data/orders-0") == []
    assert directory.unsynced_creations == []


def test_the_removal_of_a_partition_without_files_survives_a_power_loss_beside_other_log_directories() -> None:
    """Or it would be taken for the one of its name that a neighbour has by then."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        directory = open_directory(disk)
        directory.neighbours = (directory, open_directory(disk, "/other"))
        directory.create("orders", 0, ID, SMALL, NOW_MS)
        disk.sync_directory("/data")
        directory.remove("orders", 0, Uuid.of(1))
        disk.lose_power()
        assert open_directory(disk).partitions == {}


def test_an_empty_log_that_restarts_at_an_offset_creates_its_files_there(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    directory.create("orders", 0, ID, SMALL, NOW_MS).restart_at(5000, NOW_MS)
    disk.crash_process()
    log = open_directory(disk).partitions["orders", 0]
    assert (log.log_start_offset, log.log_end_offset) == (5000, 5000)


def test_a_power_loss_right_after_the_creation_of_a_partition_leaves_a_directory_that_opens(
    disk: SimulatedDisk,
) -> None:
    for seed in range(30):
        disk = SimulatedDisk(seed)
        open_directory(disk).create("orders", 0, ID, SMALL, NOW_MS).roll(NOW_MS)
        disk.lose_power()
        directory = open_directory(disk)
        assert directory.topic_ids in ({("orders", 0): ID}, {})
        assert all(one.log_end_offset == 0 for one in directory.partitions.values())


def test_a_created_partition_survives_a_power_loss_once_it_was_synced_or_flushed(disk: SimulatedDisk) -> None:
    for seed in range(30):
        disk = SimulatedDisk(seed)
        directory = open_directory(disk)
        synced = directory.create("synced", 0, ID, SMALL, NOW_MS)
        synced.roll(NOW_MS)
        directory.sync_creations([synced])
        flushed = directory.create("flushed", 0, ID, SMALL, NOW_MS)
        fill(flushed, 1)
        flushed.flush()
        assert flushed.sync_creation is None
        disk.lose_power()
        directory = open_directory(disk)
        assert directory.topic_ids == {("synced", 0): ID, ("flushed", 0): ID}
        assert directory.partitions["flushed", 0].log_end_offset == 1


def test_a_log_not_synced_before_the_broker_died_keeps_its_first_segment_if_it_has_a_second() -> None:
    """It would seem to begin with the second, as if what the first had were deleted, and never fetch that again."""
    for seed in range(60):
        disk = SimulatedDisk(seed)
        fill(open_directory(disk).create("orders", 0, ID, SMALL, NOW_MS), 1)
        disk.crash_process()
        log = open_directory(disk).partitions["orders", 0]
        assert log.log_end_offset == 1
        log.roll(NOW_MS)
        disk.lose_power()
        for one in open_directory(disk).partitions.values():
            assert one.log_start_offset == 0, seed


def test_a_new_log_that_was_not_flushed_before_a_crash_is_synced_after_the_restart(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    for topic in ("appended", "flushed"):
        fill(directory.create(topic, 0, ID, SMALL, NOW_MS), 1)
    directory.partitions["flushed", 0].flush()
    directory.write_checkpoints()
    disk.crash_process()
    directory = open_directory(disk)
    assert directory.unsynced_creations == [directory.partitions["appended", 0]]
    directory.close()
    assert open_directory(disk).unsynced_creations == []


@pytest.mark.parametrize("told", ["/data", "/data/b", "/database"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/orders-0/00000000000000000000.log", "/data"),
        ("/data/b/orders-0/00000000000000000000.log", "/data/b"),
        ("/data/b", "/data/b"),
        ("/database/recovery-point-offset-checkpoint.tmp", "/database"),
        ("/data/bees-0/partition.metadata", "/data"),
    ],
)
def test_the_directory_that_fails_is_the_one_that_holds_the_path_of_the_error(
    disk: SimulatedDisk, told: str, path: str, expected: str
) -> None:
    directories = {name: open_directory(disk, name) for name in ("/data", "/data/b", "/database")}
    for directory in directories.values():
        directory.neighbours = list(directories.values())
    # A flush of a log that has moved meanwhile reports to the directory that it was in.
    directories[told].fail(DiskError("sync", path, "broken"))
    assert [name for name, one in directories.items() if one.offline is not None] == [expected]


def test_two_brokers_cannot_open_one_directory(tmp_path: Path) -> None:
    directory = open_directory(OsDisk(), f"{tmp_path}")
    with pytest.raises(DiskError) as refused:
        open_directory(OsDisk(), f"{tmp_path}")
    assert refused.value.is_locked
    directory.close()
    open_directory(OsDisk(), f"{tmp_path}").close()


# Removing.


def test_a_removed_partition_is_not_listed_any_more_and_its_files_are_deleted_later(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    fill(directory.create("orders", 0, ID, SMALL, NOW_MS), 7, size=200)
    directory.create("orders", 1, ID, SMALL, NOW_MS)
    directory.write_checkpoints()
    directory.remove("orders", 0, Uuid.of(0xABC))
    name = f"orders-0.{'0' * 29}abc-delete"
    assert set(directory.partitions) == set(directory.topic_ids) == {("orders", 1)}
    assert directory.unwanted == [name]
    assert disk.exists(f"/data/{name}/00000000000000000000.log")
    assert checkpoint(disk, RECOVERY_POINT_FILE) == {("orders", 1): 0}
    disk.crash_process()
    directory = open_directory(disk)
    assert (set(directory.partitions), directory.unwanted) == ({("orders", 1)}, [name])
    directory.remove_unwanted()
    assert not disk.exists(f"/data/{name}")


def test_the_directory_name_of_a_removed_partition_keeps_its_number_however_long_the_topic_name(
    disk: SimulatedDisk,
) -> None:
    directory = open_directory(disk)
    fill(directory.create("t" * 249, 12345, ID, SMALL, NOW_MS), 1)
    directory.remove("t" * 249, 12345, Uuid.of(1))
    (name,) = directory.unwanted
    assert len(name) == 255
    assert name.startswith("ttt")
    assert "-12345." in name


def test_removing_many_partitions_takes_as_many_syncs_as_removing_one(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(disk)
    for partition in range(12):
        fill(directory.create("orders", partition, ID, SMALL, NOW_MS), 1)
    synced: list[str] = []
    sync_directory = SimulatedDisk.sync_directory

    def count(one: SimulatedDisk, path: str) -> None:
        synced.append(path)
        sync_directory(one, path)

    monkeypatch.setattr(SimulatedDisk, "sync_directory", count)
    directory.remove("orders", 0, Uuid.of(1))
    of_one = len(synced)
    numbers = iter(range(2, 100))
    directory.remove_all([("orders", partition) for partition in range(1, 11)], lambda: Uuid.of(next(numbers)))
    assert len(synced) == 2 * of_one
    assert list(directory.partitions) == [("orders", 11)]
    assert len(set(directory.unwanted)) == 11
    assert checkpoint(disk, RECOVERY_POINT_FILE) == {("orders", 11): 0}
    disk.lose_power()
    directory = open_directory(disk)
    assert len(directory.unwanted) == 11
    assert ("orders", 1) not in directory.partitions


def test_a_partition_that_is_created_again_inherits_no_records_or_offsets(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("orders", 0, ID, SMALL, NOW_MS)
    fill(log, 12, size=200)
    log.flush()
    log.delete_records_before(9)
    directory.write_checkpoints()
    # The process dies between the rename and the checkpoints.
    disk.crash_at("create", f"/data/{RECOVERY_POINT_FILE}.tmp")
    with pytest.raises(BaseException, match="dies here"):
        directory.remove("orders", 0, Uuid.of(1))
    disk.crash_process()
    log = open_directory(disk).create("orders", 0, OTHER_ID, SMALL, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 0)
    produce(log, idempotent(9, 0))
    disk.crash_process()
    directory = open_directory(disk)
    log = directory.partitions["orders", 0]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 1)
    assert directory.topic_ids["orders", 0] == OTHER_ID


# Failing.


def test_a_directory_whose_disk_fails_goes_offline_once_and_refuses_from_then_on(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    directory.create("orders", 0, ID, SMALL, NOW_MS)
    told: list[DiskError] = []
    directory.on_offline = told.append
    disk.fail("sync", times=None)
    fill(directory.partitions["orders", 0], 1)
    with pytest.raises(DirectoryOffline):
        directory.close()
    disk.heal()
    disk.record()
    directory.fail(DiskError("read", "/data", "later"))
    for refused in (
        lambda: directory.create("orders", 1, ID, SMALL, NOW_MS),
        lambda: directory.remove("orders", 0, Uuid.of(1)),
        directory.close,
    ):
        with pytest.raises(DirectoryOffline) as offline:
            refused()
        assert offline.value.__cause__ is told[0]
    assert told == [directory.offline]
    assert disk.calls("change") == []
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_an_offline_log_directory_writes_no_checkpoint_when_records_are_deleted(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("orders", 0, ID, SMALL, NOW_MS)
    fill(log, 3)
    directory.fail(DiskError("read", "/data", "broken"))
    disk.record()
    log.delete_records_before(2)
    assert disk.calls("change", f"/data/{LOG_START_OFFSET_FILE}*") == []


def test_a_failing_directory_does_not_disturb_a_healthy_one(disk: SimulatedDisk) -> None:
    sick, healthy = open_directory(disk, "/sick"), open_directory(disk, "/healthy")
    healthy.create("orders", 0, ID, SMALL, NOW_MS)
    disk.fail("any", "/sick/*", times=None)
    with pytest.raises(DirectoryOffline):
        sick.create("orders", 1, ID, SMALL, NOW_MS)
    fill(healthy.partitions["orders", 0], 3)
    healthy.close()
    assert sick.offline is not None
    assert healthy.offline is None
    disk.heal()
    disk.crash_process()
    assert open_directory(disk, "/healthy").partitions["orders", 0].log_end_offset == 3


def test_a_directory_that_cannot_be_read_is_not_opened(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    fill(directory.create("orders", 0, ID, SMALL, NOW_MS), 3)
    disk.crash_process()
    disk.fail("read", "*.log")
    with pytest.raises(DiskError):
        open_directory(disk)


def test_after_a_full_disk_and_a_restart_everything_acknowledged_is_there(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("orders", 0, ID, SMALL, NOW_MS)
    fill(log, 3)
    disk.fill(30)
    with pytest.raises(DiskError) as failure:
        produce(log, plain())
    directory.fail(failure.value)
    disk.crash_process()
    disk.heal()
    log = open_directory(disk).partitions["orders", 0]
    assert read_offsets(log) == [(0, 0), (1, 1), (2, 2)]
    assert produce(log, plain()).base_offset == 3

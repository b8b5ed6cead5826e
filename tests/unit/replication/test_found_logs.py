"""After a start: which log a replica uses if more than one directory has a log of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.directory import LogDirectory
from tests.support.batches import NOW_MS
from tests.support.partition_logs import fill
from tests.unit.replication.test_directory_moves import SMALL, TOPIC, TOPIC_ID, Rig, play

if TYPE_CHECKING:
    from pessoa.log.simulated_disk import SimulatedDisk


def left_over(disk: SimulatedDisk, path: str, batches: int, topic_id: Uuid = TOPIC_ID, *, epoch: int = 0) -> None:
    """Write a log into a directory, as an earlier incarnation of the broker left it."""
    directory = LogDirectory(disk, path)
    directory.open(lambda _: SMALL, NOW_MS)
    log = directory.create(TOPIC, 0, topic_id, SMALL, NOW_MS)
    if batches:
        fill(log, batches, epoch=epoch)
        log.flush()
    directory.close()


@pytest.mark.parametrize("path", ["/a", "/b", "/c"])
def test_a_log_with_data_is_preferred_to_empty_directories_of_its_name(path: str) -> None:
    async def scene(rig: Rig) -> None:
        for one in ("/a", "/b", "/c"):
            left_over(rig.disk, one, 5 if one == path else 0)
        rig.start()
        assert (rig.partition.directory.path, rig.partition.log.log_end_offset) == (path, 5)
        assert rig.where() == [path]

    play(scene)


def test_of_two_logs_of_one_topic_the_longer_is_served_and_the_other_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(rig: Rig) -> None:
        left_over(rig.disk, "/a", 3)
        left_over(rig.disk, "/b", 5)
        rig.start()
        assert (rig.partition.directory.path, rig.partition.log.log_end_offset) == ("/b", 5)
        (kept,) = rig.names()["/a"]
        assert kept.endswith("-stray")
        assert rig.disk.exists(f"/a/{kept}/{0:020d}.log")

    play(scene)
    assert "orders-0 is in /b and in /a" in caplog.text


def test_a_log_with_a_later_leader_epoch_is_preferred_to_a_longer_one() -> None:
    """What reaches further was perhaps never committed, and followers would truncate theirs to match it (KIP-101)."""

    async def scene(rig: Rig) -> None:
        left_over(rig.disk, "/a", 9, epoch=5)
        left_over(rig.disk, "/b", 5, epoch=6)
        rig.start()
        assert rig.partition.directory.path == "/b"

    play(scene)


def test_a_log_of_another_topic_is_set_aside_however_long_it_is() -> None:
    async def scene(rig: Rig) -> None:
        left_over(rig.disk, "/a", 9, Uuid.of(2000))
        left_over(rig.disk, "/b", 1)
        rig.start()
        assert (rig.partition.directory.path, rig.partition.log.log_end_offset) == ("/b", 1)
        assert [name.endswith("-stray") for name in rig.names()["/a"]] == [True]

    play(scene)

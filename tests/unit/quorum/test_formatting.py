"""Formatting: empty directories are formatted for a node; others are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.simulated_disk import Crashed, SimulatedDisk
from pessoa.metadata.supported_features import bootstrap_records
from pessoa.quorum.formatting import WrongDirectory, format_metadata, read_bootstrap
from pessoa.wire.stored.metadata_records import FeatureLevelRecord


def uuids(start: int = 1 << 100) -> Callable[[], Uuid]:
    numbers = count(start)
    return lambda: Uuid.of(next(numbers))


def test_a_new_node_gets_one_cluster_id_and_an_id_for_each_directory() -> None:
    disk = SimulatedDisk()
    metas = format_metadata(disk, ["/a", "/b"], "/a", 3, uuids(), 0)
    assert {meta.cluster_id for meta in metas.values()} == {str(Uuid.of(1 << 100))}
    assert metas["/a"].directory_id != metas["/b"].directory_id
    assert disk.exists("/a/bootstrap.checkpoint")
    assert not disk.exists("/b/bootstrap.checkpoint")


def test_formatting_again_changes_nothing() -> None:
    disk = SimulatedDisk()
    first = format_metadata(disk, ["/a"], "/a", 3, uuids(), 0)
    before = disk.contents()
    assert format_metadata(disk, ["/a"], "/a", 3, uuids(1 << 110), 1) == first
    assert disk.contents() == before


def test_a_directory_that_is_added_joins_the_cluster_of_the_others() -> None:
    disk = SimulatedDisk()
    first = format_metadata(disk, ["/a"], "/a", 3, uuids(), 0)
    second = format_metadata(disk, ["/a", "/new"], "/a", 3, uuids(1 << 110), 1)
    assert second["/new"].cluster_id == first["/a"].cluster_id


@pytest.mark.parametrize(("node_id", "cluster_id", "sentence"), [(4, None, "node 3"), (3, "other", "not to other")])
def test_a_directory_of_another_node_or_cluster_is_refused(node_id: int, cluster_id: str | None, sentence: str) -> None:
    disk = SimulatedDisk()
    format_metadata(disk, ["/a"], "/a", 3, uuids(), 0)
    with pytest.raises(WrongDirectory, match=sentence):
        format_metadata(disk, ["/a"], "/a", node_id, uuids(), 0, cluster_id)


def test_a_crash_at_any_disk_call_of_formatting_leaves_directories_that_can_be_formatted() -> None:
    probe = SimulatedDisk()
    probe.record()
    format_metadata(probe, ["/a", "/b"], "/a", 3, uuids(), 0)
    for call in range(1, len(probe.journal) + 1):
        disk = SimulatedDisk(call)
        disk.crash_at("any", nth=call)
        with pytest.raises(Crashed):
            format_metadata(disk, ["/a", "/b"], "/a", 3, uuids(), 0)
        disk.heal()
        disk.lose_power()
        metas = format_metadata(disk, ["/a", "/b"], "/a", 3, uuids(1 << 110), 0)
        assert len({meta.cluster_id for meta in metas.values()}) == 1
        assert len(read_bootstrap(disk, "/a")) == 6


def test_the_bootstrap_file_holds_the_levels_of_a_new_cluster_and_is_optional() -> None:
    disk = SimulatedDisk()
    format_metadata(disk, ["/a"], "/a", 3, uuids(), 0)
    levels = {
        record.name: record.feature_level
        for record in read_bootstrap(disk, "/a")
        if isinstance(record, FeatureLevelRecord)
    }
    assert levels["metadata.version"] == 30
    assert levels["transaction.version"] == 2
    assert read_bootstrap(disk, "/nowhere") == bootstrap_records()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda good: b"", "names no metadata.version"),
        (lambda good: good[:100], "says it has"),
        (lambda good: b"\x00\xff not a number\n", "says it has"),
        (lambda good: good[:120] + bytes([good[120] ^ 1]) + good[121:], "a checksum is wrong"),
    ],
    ids=["empty", "cut", "garbage", "a bit"],
)
def test_a_damaged_bootstrap_checkpoint_is_refused(change: Callable[[bytes], bytes], sentence: str) -> None:
    disk = SimulatedDisk()
    format_metadata(disk, ["/a"], "/a", 3, uuids(), 0)
    disk.write_file("/a/bootstrap.checkpoint", change(disk.read_file("/a/bootstrap.checkpoint")))
    with pytest.raises(WrongDirectory, match=f"/a/bootstrap.checkpoint is damaged: .*{sentence}"):
        read_bootstrap(disk, "/a")

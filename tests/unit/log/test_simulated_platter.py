"""What a power loss leaves on the simulated disk.

A randomised test runs many seeds and checks two things: what holds for every seed, and what must happen for some. The
second is as important: with a power loss that loses nothing, every log would pass.
"""

from __future__ import annotations

import copy
from random import Random
from typing import TYPE_CHECKING

import pytest

from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import Crashed
from pessoa.log.simulated_platter import PAGE_SIZE
from tests.support.simulated_disks import SEEDS, after_power_loss, disk_with

if TYPE_CHECKING:
    from pessoa.log.simulated_disk import SimulatedDisk

# Longer than three pages, no two alike, none of them zeros.
OLD = b"".join(bytes([65 + number % 26]) * 100 for number in range(130))
NEW = OLD.lower()


# Content.


def test_synced_bytes_survive_every_power_loss() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(NEW)
        file.sync()
        file.append(OLD)

    for outcome in after_power_loss(prepare, log=OLD):
        assert outcome["log"].startswith(OLD + NEW)


def test_an_append_that_was_not_synced_is_kept_lost_torn_holed_or_short() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.open("/data/log").append(NEW)

    seen = set()
    for outcome in after_power_loss(prepare, log=OLD):
        content = outcome["log"]
        assert content.startswith(OLD)
        assert len(content) <= len(OLD + NEW)
        # Each byte is the one that was written there, or zero.
        assert all(byte in (expected, 0) for byte, expected in zip(content, OLD + NEW, strict=False))
        tail = content[len(OLD) :]
        seen.add(
            "kept"
            if tail == NEW
            else "lost"
            if not tail.strip(b"\0")
            else "holed"
            if b"\0" in tail.rstrip(b"\0")
            else "torn"
            if len(content.rstrip(b"\0")) % PAGE_SIZE
            else "short"
        )
        seen.add("full length" if len(tail) == len(NEW) else "shorter")
    assert seen == {"kept", "lost", "holed", "torn", "short", "full length", "shorter"}


def test_an_overwrite_that_was_not_synced_leaves_the_old_bytes_the_new_ones_or_both() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.open("/data/log").write_at(5000, NEW[5000:6000])

    new = OLD[:5000] + NEW[5000:6000] + OLD[6000:]
    outcomes = {outcome["log"] for outcome in after_power_loss(prepare, log=OLD)}
    assert {OLD, new} < outcomes
    for content in outcomes:
        assert len(content) == len(OLD)
        assert all(byte in choice for byte, choice in zip(content, zip(OLD, new, strict=True), strict=True))


def test_an_unsynced_truncation_survives_a_power_loss_with_what_followed_it_or_not_at_all() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.truncate(100)
        file.append(NEW[100:5000])

    outcomes = {outcome["log"] for outcome in after_power_loss(prepare, log=OLD)}
    assert OLD in outcomes
    assert OLD[:100] in outcomes
    assert OLD[:100] + NEW[100:5000] in outcomes
    for content in outcomes - {OLD}:
        assert content[:100] == OLD[:100]
        # No byte of the part that was cut away shows up between the new ones.
        assert all(byte in (expected, 0) for byte, expected in zip(content[100:], NEW[100:5000], strict=False))


def test_the_state_before_each_unsynced_truncation_may_come_back() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"first")
        file.truncate(3)
        file.append(b"second")
        file.truncate(4)

    outcomes = {outcome["log"] for outcome in after_power_loss(prepare, log=b"old")}
    assert {b"old", b"oldfirst", b"oldsecond", b"olds"} <= outcomes


def test_a_synced_truncation_survives_a_power_loss() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.truncate(100)
        file.sync()

    assert all(outcome == {"log": OLD[:100]} for outcome in after_power_loss(prepare, log=OLD))


def test_a_deferred_sync_makes_durable_only_what_was_written_before_it_was_requested() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"before")
        file.write_at(0, b"X")
        sync = file.sync_later()
        file.append(b"after")
        file.write_at(1, b"Y")
        sync()

    outcomes = {outcome["log"] for outcome in after_power_loss(prepare, log=b"old")}
    assert all(content.startswith((b"Xldbefore", b"XYdbefore")) for content in outcomes)
    assert {b"Xldbefore", b"XYdbeforeafter"} <= outcomes


def test_a_deferred_sync_that_runs_after_a_later_sync_does_not_restore_older_content() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"early")
        early = file.sync_later()
        file.truncate(0)
        file.append(b"late")
        file.sync()
        early()

    assert all(outcome == {"log": b"late"} for outcome in after_power_loss(prepare, log=b"old"))


def test_a_truncation_after_sync_later_is_not_made_durable_by_it() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"before")
        sync = file.sync_later()
        file.truncate(1)
        sync()

    assert {outcome["log"] for outcome in after_power_loss(prepare, log=b"old")} == {b"oldbefore", b"o"}


# Names.


def test_a_synced_file_whose_directory_was_not_synced_may_vanish() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log", create=True)
        file.append(b"abc")
        file.sync()

    outcomes = after_power_loss(prepare)
    assert {} in outcomes
    assert {"log": b"abc"} in outcomes
    assert all(outcome in ({}, {"log": b"abc"}) for outcome in outcomes)


def test_syncing_a_directory_does_not_make_the_content_of_its_files_durable() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.open("/data/log", create=True).append(b"abc")
        disk.sync_directory("/data")

    outcomes = after_power_loss(prepare)
    assert all("log" in outcome for outcome in outcomes)
    assert {b"", b"abc", b"\0\0\0"} <= {outcome["log"] for outcome in outcomes}


def test_a_removal_that_was_not_synced_may_be_undone() -> None:
    outcomes = after_power_loss(lambda disk: disk.remove("/data/log"), log=b"abc")
    assert all(outcome in ({}, {"log": b"abc"}) for outcome in outcomes)
    assert {} in outcomes
    assert {"log": b"abc"} in outcomes


def test_a_rename_happens_as_a_whole_or_not_at_all() -> None:
    outcomes = after_power_loss(lambda disk: disk.rename("/data/a", "/data/b"), a=b"1", b=b"2")
    assert all(outcome in ({"a": b"1", "b": b"2"}, {"b": b"1"}) for outcome in outcomes)
    assert {"b": b"1"} in outcomes
    assert {"a": b"1", "b": b"2"} in outcomes


def test_after_several_renames_a_power_loss_leaves_the_file_under_one_of_its_names() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.rename("/data/a", "/data/b")
        disk.rename("/data/b", "/data/c")

    outcomes = after_power_loss(prepare, a=b"1")
    assert all(list(outcome.values()) == [b"1"] for outcome in outcomes)
    assert {name for outcome in outcomes for name in outcome} == {"a", "b", "c"}


def test_changes_of_names_happen_independently() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.remove("/data/a")
        disk.rename("/data/b", "/data/c")

    outcomes = {tuple(outcome) for outcome in after_power_loss(prepare, a=b"1", b=b"2")}
    assert outcomes == {("a", "b"), ("a", "c"), ("b",), ("c",)}


def test_synced_names_stay_when_power_is_lost_after_later_changes() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.rename("/data/a", "/data/b")
        disk.remove("/data/c")
        disk.open("/data/d", create=True)
        disk.sync_directory("/data")
        disk.open("/data/e", create=True)

    assert {tuple(outcome) for outcome in after_power_loss(prepare, a=b"1", c=b"2")} == {("b", "d"), ("b", "d", "e")}


def test_a_rename_between_directories_is_durable_once_either_is_synced() -> None:
    for synced in ("/data/here", "/data/there"):
        for seed in SEEDS:
            disk = disk_with(seed)
            disk.make_directory("/data/here")
            disk.make_directory("/data/there")
            disk.open("/data/here/log", create=True).sync()
            disk.rename("/data/here/log", "/data/there/log")
            disk.sync_directory(synced)
            disk.lose_power()
            assert list(disk.contents()) == ["/data/there/log"]


def test_a_file_under_a_durable_name_is_not_replaced_by_an_older_file_after_a_power_loss() -> None:
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.make_directory("/data/here")
        disk.make_directory("/data/there")
        disk.open("/data/there/log", create=True).append(b"older")
        newer = disk.open("/data/here/log", create=True)
        newer.append(b"newer")
        newer.sync()
        disk.rename("/data/here/log", "/data/there/log")
        disk.sync_directory("/data/here")
        disk.lose_power()
        assert disk.contents() == {"/data/there/log": b"newer"}


def test_a_renamed_directory_takes_its_files_along() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.make_directory("/data/topic-0")
        disk.write_file("/data/topic-0/log", b"abc")
        disk.rename("/data/topic-0", "/data/topic-0-delete")
        disk.lose_power()
        outcomes.add(tuple(disk.contents().items()))
    assert outcomes == {(("/data/topic-0/log", b"abc"),), (("/data/topic-0-delete/log", b"abc"),)}


def test_the_name_of_a_directory_is_kept_by_the_one_above_it() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.make_directory("/data/topic-0")
        disk.rename("/data/topic-0", "/data/renamed")
        disk.sync_directory("/data/renamed")
        disk.lose_power()
        outcomes.add(tuple(disk.list("/data")))
    assert outcomes == {("topic-0",), ("renamed",)}


def test_a_tree_that_was_removed_without_a_sync_may_come_back_in_part() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.make_directory("/data/t")
        disk.write_file("/data/t/a", b"1")
        disk.write_file("/data/t/b", b"2")
        disk.remove_tree("/data/t")
        disk.lose_power()
        outcomes.add((disk.exists("/data/t"), *disk.contents()))
    assert {(False,), (True,), (True, "/data/t/a"), (True, "/data/t/a", "/data/t/b")} <= outcomes


def test_a_made_directory_is_durable() -> None:
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.make_directory("/data/a/b")
        disk.lose_power()
        assert disk.exists("/data/a/b")


def test_a_file_written_whole_has_its_old_content_or_the_new_one_after_a_crash_at_any_step() -> None:
    steps = disk_with(checkpoint=OLD)
    steps.record()
    steps.write_file("/data/checkpoint", NEW)
    outcomes = set()
    for step in range(1, len(steps.calls("change")) + 2):
        for seed in range(40):
            disk = disk_with(seed, checkpoint=OLD)
            disk.crash_at(nth=step)
            try:
                disk.write_file("/data/checkpoint", NEW)
                assert step > len(steps.calls("change"))
                expected = {NEW}
            except Crashed:
                expected = {OLD, NEW}
            disk.lose_power()
            assert disk.read_file("/data/checkpoint") in expected
            outcomes.add(disk.read_file("/data/checkpoint"))
            disk.heal()
            disk.write_file("/data/checkpoint", b"again")
            assert disk.list("/data") == ["checkpoint"]
    assert outcomes == {OLD, NEW}


def test_a_file_written_whole_but_not_durably_survives_the_death_of_the_process_only() -> None:
    disk = disk_with(checkpoint=OLD)
    disk.write_file("/data/checkpoint", NEW, durable=False)
    disk.crash_process()
    assert disk.read_file("/data/checkpoint") == NEW
    outcomes = {
        outcome["checkpoint"]
        for outcome in after_power_loss(
            lambda disk: disk.write_file("/data/checkpoint", NEW, durable=False), checkpoint=OLD
        )
    }
    assert {OLD, NEW, b""} < outcomes


# Syncs that lie or fail, and other worlds.


def test_a_sync_that_is_configured_to_lie_reports_success_and_makes_nothing_durable() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.lie_about_sync("*/log")
        file = disk.open("/data/log")
        file.append(b"def")
        file.sync()

    outcomes = {outcome["log"] for outcome in after_power_loss(prepare, log=b"abc")}
    assert {b"abc", b"abcdef"} < outcomes


def test_after_a_failed_sync_the_lost_pages_count_as_clean_and_a_second_sync_succeeds() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"def")
        disk.fail("sync")
        with pytest.raises(DiskError):
            file.sync()
        assert file.read(0, 9) == b"abcdef"
        file.close()
        disk.open("/data/log").sync()

    assert all(outcome == {"log": b"abc\0\0\0"} for outcome in after_power_loss(prepare, log=b"abc"))


def test_changes_of_a_copied_simulated_disk_do_not_affect_the_original() -> None:
    disk = disk_with(log=OLD)
    disk.open("/data/log").append(NEW)
    outcomes = set()
    for seed in range(20):
        twin = copy.deepcopy(disk)
        twin.lose_power(Random(seed))
        outcomes.add(twin.read_file("/data/log"))
    assert len(outcomes) > 3
    assert disk.contents() == {"/data/log": OLD + NEW}

"""What the simulated disk does beyond the contract (`test_files`): crashes, power losses, faults and the journal.

A test of chance runs over many seeds and says two things: what holds for every seed, and what must come up for some.
The second half matters as much: a power loss that loses nothing would let every log pass.
"""

from __future__ import annotations

import copy
from errno import EIO, ENOSPC, EROFS
from random import Random
from typing import TYPE_CHECKING

import pytest

from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import ENDLESS, Call, Crashed, SimulatedDisk
from pessoa.log.simulated_platter import PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.simulated_disk import SimulatedFile

SEEDS = range(200)
# Longer than three pages, no two alike, none of them zeros.
OLD = b"".join(bytes([65 + number % 26]) * 100 for number in range(130))
NEW = OLD.lower()


def disk_with(seed: int = 0, **contents: bytes) -> SimulatedDisk:
    """A disk with some files in /data, all durable."""
    disk = SimulatedDisk(seed)
    disk.make_directory("/data")
    for name, content in contents.items():
        disk.write_file(f"/data/{name}", content)
    return disk


def after_power_loss(prepare: Callable[[SimulatedDisk], None], **contents: bytes) -> list[dict[str, bytes]]:
    """What each seed makes of the same preparation: names in /data → contents."""
    outcomes = []
    for seed in SEEDS:
        disk = disk_with(seed, **contents)
        prepare(disk)
        disk.lose_power()
        outcomes.append({path.removeprefix("/data/"): data for path, data in disk.contents().items()})
    return outcomes


# The death of the process.


def test_a_crash_of_the_process_keeps_all_that_was_written_and_kills_the_open_files() -> None:
    disk = disk_with()
    file = disk.open("/data/log", create=True)
    file.append(b"abc")
    sync = file.sync_later()
    disk.crash_process()
    for use in (lambda: file.append(b"x"), lambda: file.read(0, 1), lambda: file.truncate(0), file.sync, sync):
        with pytest.raises(Crashed):
            use()
    file.close()
    assert disk.read_file("/data/log") == b"abc"


def test_a_crash_within_a_call_stops_the_process_until_it_is_started_again() -> None:
    disk = disk_with(log=b"abc")
    file = disk.open("/data/log")
    disk.crash_at("rename")
    file.append(b"def")
    with pytest.raises(Crashed):
        disk.rename("/data/log", "/data/other")
    for use in (lambda: file.append(b"x"), lambda: disk.list("/data"), lambda: disk.write_file("/data/x", b"")):
        with pytest.raises(Crashed):
            use()
    disk.crash_process()
    assert disk.contents() == {"/data/log": b"abcdef"}
    disk.rename("/data/log", "/data/other")


def test_no_handler_of_errors_survives_the_death_of_its_process() -> None:
    assert not issubclass(Crashed, Exception)


def test_a_crash_within_a_write_leaves_a_piece_of_any_length() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = disk_with(seed, log=b"abc")
        disk.crash_at("write", "*.nothing")
        disk.crash_at("write", "*/log", nth=2)
        file = disk.open("/data/log")
        file.append(b"def")
        with pytest.raises(Crashed):
            file.append(b"ghi")
        disk.crash_process()
        content = disk.read_file("/data/log")
        assert b"abcdefghi".startswith(content)
        lengths.add(len(content))
    assert lengths == {6, 7, 8, 9}


def test_every_change_can_be_the_last_one() -> None:
    def work(disk: SimulatedDisk) -> None:
        disk.make_directory("/data/topic-0")
        file = disk.open("/data/topic-0/log", create=True)
        file.append(b"abc")
        file.truncate(1)
        file.sync()
        disk.rename("/data/topic-0/log", "/data/log")
        disk.remove("/data/log")

    disk = disk_with()
    disk.record()
    work(disk)
    changes = disk.calls("change")
    assert [call.kind for call in changes] == [
        "make_directory",
        "sync_directory",
        "create",
        "write",
        "truncate",
        "sync",
        "rename",
        "remove",
    ]
    for number, change in enumerate(changes, 1):
        disk = disk_with()
        journal = disk.record()
        disk.crash_at(nth=number)
        with pytest.raises(Crashed):
            work(disk)
        assert journal[-1] == change._replace(outcome="crashed")
    disk = disk_with()
    disk.crash_at(nth=len(changes) + 1)
    work(disk)


# The loss of power: content.


def test_what_was_synced_survives_every_loss_of_power() -> None:
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
        # Whatever is there is what was written there, or nothing.
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


def test_a_cut_that_was_not_synced_happens_with_what_followed_or_not_at_all() -> None:
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


def test_the_state_before_each_cut_may_come_back() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"first")
        file.truncate(3)
        file.append(b"second")
        file.truncate(4)

    outcomes = {outcome["log"] for outcome in after_power_loss(prepare, log=b"old")}
    assert {b"old", b"oldfirst", b"oldsecond", b"olds"} <= outcomes


def test_a_synced_cut_stays_cut() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.truncate(100)
        file.sync()

    assert all(outcome == {"log": OLD[:100]} for outcome in after_power_loss(prepare, log=OLD))


def test_a_sync_for_later_promises_only_what_was_written_before_it_was_asked_for() -> None:
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


def test_a_sync_for_later_that_comes_too_late_undoes_nothing() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"early")
        early = file.sync_later()
        file.truncate(0)
        file.append(b"late")
        file.sync()
        early()

    assert all(outcome == {"log": b"late"} for outcome in after_power_loss(prepare, log=b"old"))


def test_a_cut_after_a_sync_for_later_was_asked_for_is_not_made_durable_by_it() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append(b"before")
        sync = file.sync_later()
        file.truncate(1)
        sync()

    assert {outcome["log"] for outcome in after_power_loss(prepare, log=b"old")} == {b"oldbefore", b"o"}


# The loss of power: names.


def test_a_synced_file_whose_directory_was_not_synced_may_vanish() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log", create=True)
        file.append(b"abc")
        file.sync()

    outcomes = after_power_loss(prepare)
    assert {} in outcomes
    assert {"log": b"abc"} in outcomes
    assert all(outcome in ({}, {"log": b"abc"}) for outcome in outcomes)


def test_a_synced_name_says_nothing_about_the_content() -> None:
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


def test_a_row_of_renames_leaves_the_file_under_one_of_its_names() -> None:
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


def test_synced_names_stay_whatever_comes_after() -> None:
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


def test_a_file_that_took_a_durable_name_is_not_driven_out_by_what_happened_before() -> None:
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
    assert all(
        disk.exists("/data/a/b")
        for disk in (lost(disk_with(seed), lambda disk: disk.make_directory("/data/a/b")) for seed in SEEDS)
    )


def lost(disk: SimulatedDisk, prepare: Callable[[SimulatedDisk], None]) -> SimulatedDisk:
    prepare(disk)
    disk.lose_power()
    return disk


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


# Faults.


def test_the_nth_call_of_a_kind_on_a_path_fails() -> None:
    disk = disk_with()
    log = disk.open("/data/0.log", create=True)
    index = disk.open("/data/0.index", create=True)
    disk.fail("write", "*.log", nth=2, times=2, error=EROFS)
    log.append(b"1")
    index.append(b"1")
    index.append(b"2")
    for _ in range(2):
        with pytest.raises(DiskError, match="Read-only file system") as caught:
            log.append(b"2")
        assert (caught.value.errno, caught.value.path) == (EROFS, "/data/0.log")
    log.append(b"3")
    assert disk.contents() == {"/data/0.log": b"13", "/data/0.index": b"12"}


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("open", lambda disk, file: disk.open("/data/log")),
        ("create", lambda disk, file: disk.open("/data/new", create=True)),
        ("read", lambda disk, file: file.read(0, 1)),
        ("read", lambda disk, file: file.read_into(0, bytearray(1))),
        ("write", lambda disk, file: file.append(b"x")),
        ("write", lambda disk, file: file.append_all([b"x"])),
        ("write", lambda disk, file: file.write_at(0, b"x")),
        ("truncate", lambda disk, file: file.truncate(0)),
        ("sync", lambda disk, file: file.sync()),
        ("sync", lambda disk, file: file.sync_later()()),
        ("sync_directory", lambda disk, file: disk.sync_directory("/data")),
        ("rename", lambda disk, file: disk.rename("/data/log", "/data/new")),
        ("remove", lambda disk, file: disk.remove("/data/log")),
        ("remove", lambda disk, file: disk.remove_tree("/data")),
        ("make_directory", lambda disk, file: disk.make_directory("/data/new")),
        ("list", lambda disk, file: disk.list("/data")),
        ("look_up", lambda disk, file: disk.exists("/data/log")),
        ("look_up", lambda disk, file: disk.size("/data/log")),
        ("look_up", lambda disk, file: disk.modified_ms("/data/log")),
        ("look_up", lambda disk, file: disk.set_modified_ms("/data/log", 1)),
        ("look_up", lambda disk, file: disk.free_bytes("/data")),
    ],
)
def test_every_kind_of_call_can_fail_and_then_has_done_nothing(
    kind: str, use: Callable[[SimulatedDisk, SimulatedFile], object]
) -> None:
    disk = disk_with(log=b"abc")
    file = disk.open("/data/log")
    disk.fail(kind)  # type: ignore[arg-type]  # the table above has only kinds
    with pytest.raises(DiskError) as caught:
        use(disk, file)
    assert caught.value.errno == EIO
    assert disk.contents() == {"/data/log": b"abc"}
    assert disk.list("/data") == ["log"]


def test_a_torn_write_that_fails_is_cut_back() -> None:
    disk = disk_with(log=b"abc")
    file = disk.open("/data/log")
    disk.record()
    disk.tear(keep=2)
    with pytest.raises(DiskError):
        file.append(b"def")
    assert (file.size, disk.contents()) == (3, {"/data/log": b"abc"})
    assert [(call.kind, call.outcome) for call in disk.journal] == [("write", "failed"), ("truncate", "done")]


def test_a_torn_write_shows_if_the_process_dies_in_it() -> None:
    disk = disk_with(log=b"abc")
    disk.tear(keep=2, crash=True)
    with pytest.raises(Crashed):
        disk.open("/data/log").append(b"def")
    disk.crash_process()
    assert disk.contents() == {"/data/log": b"abcde"}


def test_a_torn_overwrite_leaves_both_old_and_new_bytes() -> None:
    disk = disk_with(log=b"abcdef")
    disk.tear(keep=2)
    with pytest.raises(DiskError):
        disk.open("/data/log").write_at(1, b"XYZ")
    assert disk.contents() == {"/data/log": b"aXYdef"}


def test_a_full_disk_takes_bytes_again_when_some_are_freed() -> None:
    disk = disk_with(log=b"abc", other=b"defghi")
    file = disk.open("/data/log")
    disk.fill(4)
    assert disk.free_bytes("/data") == 4
    file.append(b"1234")
    with pytest.raises(DiskError) as caught:
        file.append(b"5")
    assert caught.value.errno == ENOSPC
    file.write_at(0, b"ABC")
    assert disk.free_bytes("/data") == 0
    disk.remove("/data/other")
    assert disk.free_bytes("/data") == 6
    file.append(b"567890")
    file.truncate(8)
    assert disk.free_bytes("/data") == 5
    disk.write_file("/data/new", b"12345")
    with pytest.raises(DiskError):
        disk.write_file("/data/new", b"1")
    disk.heal()
    assert disk.free_bytes("/data") == ENDLESS
    assert disk.contents() == {"/data/log": b"ABC12345", "/data/new": b"12345"}


def test_a_lying_sync_says_yes_and_loses_everything() -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.lie_about_sync("*/log")
        file = disk.open("/data/log")
        file.append(b"def")
        file.sync()

    outcomes = {outcome["log"] for outcome in after_power_loss(prepare, log=b"abc")}
    assert {b"abc", b"abcdef"} < outcomes


def test_a_failed_sync_takes_the_lost_pages_for_clean_so_that_a_second_one_says_yes() -> None:
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


def test_slow_calls_are_counted_and_nobody_waits() -> None:
    disk = disk_with(log=b"abc")
    file = disk.open("/data/log")
    disk.record()
    disk.slow_down("sync", "*.nothing", delay_ms=1000)
    disk.slow_down("sync", "*/log", delay_ms=50)
    disk.slow_down("change", delay_ms=7)
    file.append(b"def")
    file.sync()
    assert disk.delayed_ms == 64
    assert [call.delay_ms for call in disk.journal] == [7, 57]


def test_a_file_at_rest_decays_for_good() -> None:
    disk = disk_with(log=b"abc", index=b"def")
    disk.flip_bit("/data/log", 1, bit=4)
    disk.cut("/data/index", 1)
    assert disk.contents() == {"/data/log": b"arc", "/data/index": b"d"}
    disk.lose_power()
    assert disk.contents() == {"/data/log": b"arc", "/data/index": b"d"}


def test_healing_ends_all_faults() -> None:
    disk = disk_with(log=b"abc")
    file = disk.open("/data/log")
    disk.fail("write", times=None)
    disk.fill(0)
    disk.slow_down("any", delay_ms=1)
    disk.heal()
    file.append(b"def")
    assert (disk.contents(), disk.delayed_ms) == ({"/data/log": b"abcdef"}, 0)


def test_a_pooled_file_that_is_not_found_under_its_path_fails_at_once() -> None:
    disk = disk_with(log=b"abc")
    file = disk.open("/data/log")
    file.append(b"def")
    disk.rename("/data/log", "/data/renamed")
    with pytest.raises(DiskError) as caught:
        file.append(b"ghi")
    assert caught.value.is_missing


def test_a_file_with_two_writers_is_a_bug_of_the_caller() -> None:
    disk = disk_with(log=b"abc")
    one, other = disk.open("/data/log"), disk.open("/data/log")
    one.read(0, 1)
    other.read(0, 1)
    one.append(b"def")
    with pytest.raises(AssertionError, match="two writers"):
        other.append(b"ghi")


# The journal, chance and time.


def test_the_journal_tells_the_order_of_calls() -> None:
    disk = disk_with()
    disk.record()
    disk.write_file("/data/checkpoint", b"abc")
    assert disk.journal == [
        Call("create", "/data/checkpoint.tmp"),
        Call("truncate", "/data/checkpoint.tmp"),
        Call("write", "/data/checkpoint.tmp", size=3),
        Call("sync", "/data/checkpoint.tmp"),
        Call("rename", "/data/checkpoint.tmp", target="/data/checkpoint"),
        Call("sync_directory", "/data"),
    ]
    assert disk.calls("sync") == [Call("sync", "/data/checkpoint.tmp")]
    assert disk.calls(path="/data") == [Call("sync_directory", "/data")]
    disk.record()
    disk.open("/data/checkpoint").append(b"def")
    assert disk.journal == [Call("open", "/data/checkpoint"), Call("write", "/data/checkpoint", position=3, size=3)]


def test_the_same_seed_gives_the_same_disk() -> None:
    def run(seed: int | Random) -> dict[str, bytes]:
        disk = SimulatedDisk(seed)
        disk.make_directory("/data")
        for number in range(20):
            file = disk.open(f"/data/{number}", create=True)
            file.append(NEW)
            disk.rename(f"/data/{number}", f"/data/renamed-{number}")
        disk.lose_power()
        disk.open("/data/last", create=True).append(NEW)
        disk.lose_power(Random(99))
        return disk.contents()

    assert run(5) == run(5) == run(Random(5))
    assert run(5) != run(6)


def test_a_copy_of_a_disk_goes_its_own_way() -> None:
    disk = disk_with(log=OLD)
    disk.open("/data/log").append(NEW)
    outcomes = set()
    for seed in range(20):
        twin = copy.deepcopy(disk)
        twin.lose_power(Random(seed))
        outcomes.add(twin.read_file("/data/log"))
    assert len(outcomes) > 3
    assert disk.contents() == {"/data/log": OLD + NEW}


def test_files_are_as_old_as_the_clock_says() -> None:
    now = [1000]
    disk = SimulatedDisk(now_ms=lambda: now[0])
    file = disk.open("/log", create=True)
    assert disk.modified_ms("/log") == 1000
    now[0] = 2000
    file.append(b"abc")
    assert disk.modified_ms("/log") == 2000
    now[0] = 3000
    file.read(0, 1)
    assert disk.modified_ms("/log") == 2000
    file.truncate(0)
    assert disk.modified_ms("/log") == 3000


def test_the_disk_says_how_it_is() -> None:
    disk = disk_with(log=b"abc")
    disk.fail("sync")
    assert repr(disk) == "<SimulatedDisk: 1 files, life 0, 1 faults>"
    disk.crash_at("list")
    with pytest.raises(Crashed):
        disk.list("/data")
    assert "down" in repr(disk)


def test_a_simulated_file_has_no_descriptor() -> None:
    with pytest.raises(OSError, match="no descriptor"):
        disk_with(log=b"abc").open("/data/log").fileno()

"""What the simulated disk does beyond the contract (`test_files`): crashes, faults and the journal."""

from __future__ import annotations

from errno import EIO, ENOSPC, EROFS
from random import Random
from typing import TYPE_CHECKING

import pytest

from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import ENDLESS, Call, Crashed, SimulatedDisk
from tests.support.simulated_disks import SEEDS, disk_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.simulated_disk import SimulatedFile

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


def test_a_simulated_crash_is_not_caught_by_handlers_of_exception() -> None:
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


def test_a_crash_can_be_simulated_at_every_change_of_a_disk() -> None:
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
        ("write", lambda disk, file: file.append(b"x")),
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
def test_every_kind_of_disk_call_can_fail_and_a_failed_call_changes_nothing(
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


def test_a_torn_append_that_fails_is_truncated_again() -> None:
    disk = disk_with(log=b"abc")
    file = disk.open("/data/log")
    disk.record()
    disk.tear(keep=2)
    with pytest.raises(DiskError):
        file.append(b"def")
    assert (file.size, disk.contents()) == (3, {"/data/log": b"abc"})
    assert [(call.kind, call.outcome) for call in disk.journal] == [("write", "failed"), ("truncate", "done")]


def test_a_torn_write_is_in_the_file_if_the_process_dies_in_it() -> None:
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


def test_delays_of_slow_calls_are_counted_without_waiting() -> None:
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


def test_flipped_bits_and_cut_files_survive_a_power_loss() -> None:
    disk = disk_with(log=b"abc", index=b"def")
    disk.flip_bit("/data/log", 1, bit=4)
    disk.cut("/data/index", 1)
    assert disk.contents() == {"/data/log": b"arc", "/data/index": b"d"}
    disk.lose_power()
    assert disk.contents() == {"/data/log": b"arc", "/data/index": b"d"}


def test_heal_removes_all_faults_of_a_simulated_disk() -> None:
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


def test_appending_to_a_file_through_two_handles_is_an_assertion_error() -> None:
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


def test_simulated_disks_with_the_same_seed_have_the_same_content_after_a_power_loss() -> None:
    def run(seed: int | Random) -> dict[str, bytes]:
        disk = SimulatedDisk(seed)
        disk.make_directory("/data")
        for number in range(20):
            file = disk.open(f"/data/{number}", create=True)
            file.append(b"abc" * 5000)
            disk.rename(f"/data/{number}", f"/data/renamed-{number}")
        disk.lose_power()
        disk.open("/data/last", create=True).append(b"abc" * 5000)
        disk.lose_power(Random(99))
        return disk.contents()

    assert run(5) == run(5) == run(Random(5))
    assert run(5) != run(6)


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


def test_repr_of_a_simulated_disk_shows_its_files_and_faults() -> None:
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

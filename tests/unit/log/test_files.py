"""The contract of the disk door, on both disks; then errors that only a real one has.

A `Workbench` is a disk with an empty directory, and can cause the faults of the contract on this kind of disk: a full
disk, a sync that fails, a file that cannot be truncated. On the real disk these are a limit of the size of files, a
named pipe (which cannot be synced) and /dev/full: no function of the system is replaced.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from errno import EFBIG, EIO, ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from pessoa.log.files import DiskError, parent_directory
from pessoa.log.os_disk import OsDisk
from pessoa.log.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.log.files import Disk, File


class Workbench(Protocol):
    root: str

    @property
    def disk(self) -> Disk: ...

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Limit the size of every file within the context."""

    def file_that_cannot_be_synced(self) -> File: ...

    def file_that_cannot_be_truncated(self) -> File:
        """Return a file to which every append fails, and which cannot be truncated."""


class OsBench:
    def __init__(self, root: Path) -> None:
        # Two descriptors for all the files of a test: nearly every use is a return after an eviction.
        self.disk = OsDisk(max_open_files=2)
        self.root = str(root)

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        with limit(resource.RLIMIT_FSIZE, size):
            yield

    def file_that_cannot_be_synced(self) -> File:
        os.mkfifo(f"{self.root}/pipe")
        return self.disk.open(f"{self.root}/pipe")

    def file_that_cannot_be_truncated(self) -> File:
        Path(f"{self.root}/full").symlink_to("/dev/full")
        return self.disk.open(f"{self.root}/full")


class SimulatedBench:
    def __init__(self) -> None:
        self.disk = SimulatedDisk(seed=7)
        self.root = "/data"
        self.disk.make_directory(self.root)

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        self.disk.fill(size - sum(map(len, self.disk.contents().values())))
        yield
        self.disk.heal()

    def file_that_cannot_be_synced(self) -> File:
        self.disk.fail("sync", "*/pipe", times=None)
        return self.disk.open(f"{self.root}/pipe", create=True)

    def file_that_cannot_be_truncated(self) -> File:
        self.disk.fail("write", "*/full", times=None, error=ENOSPC)
        self.disk.fail("truncate", "*/full", times=None)
        return self.disk.open(f"{self.root}/full", create=True)


@contextmanager
def limit(kind: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@pytest.fixture(params=["os", "simulated"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Workbench:
    return OsBench(tmp_path) if request.param == "os" else SimulatedBench()


@pytest.fixture
def file(bench: Workbench) -> File:
    return bench.disk.open(f"{bench.root}/file", create=True)


# Bytes in and out.


def test_appended_bytes_are_read_back_from_any_position(file: File) -> None:
    file.append(b"abc")
    file.append(bytearray(b"def"))
    file.append(memoryview(b"..gh..")[2:4])
    assert file.size == 8
    assert file.read(0, 8) == b"abcdefgh"
    assert file.read(2, 3) == b"cde"
    assert type(file.read(0, 8)) is bytes


def test_a_read_ends_at_the_end_of_the_file(file: File) -> None:
    file.append(b"abc")
    assert file.read(1, 100) == b"bc"
    assert file.read(3, 100) == b""
    assert file.read(1000, 1) == b""
    assert file.read(0, 0) == b""


def test_a_view_of_numbers_is_appended_as_its_bytes(file: File) -> None:
    numbers = memoryview(b"\x00\x01\x02\x03" * 3).cast("I")
    file.append(numbers)
    file.append(b"!")
    assert file.read(0, 99) == b"\x00\x01\x02\x03" * 3 + b"!"
    assert file.size == 13


def test_a_file_is_truncated_and_grows_again_from_there(file: File) -> None:
    file.append(b"abcdef")
    file.truncate(2)
    assert (file.size, file.read(0, 99)) == (2, b"ab")
    file.append(b"XY")
    file.truncate(4)
    assert file.read(0, 99) == b"abXY"


@pytest.mark.parametrize("size", [-1, 4])
def test_a_file_is_never_truncated_to_more_than_it_has(file: File, size: int) -> None:
    file.append(b"abc")
    with pytest.raises(AssertionError):
        file.truncate(size)


def test_a_reopened_file_knows_its_size(bench: Workbench, file: File) -> None:
    file.append(b"abc")
    file.close()
    again = bench.disk.open(file.path)
    again.append(b"d")
    assert (again.size, again.read(0, 99)) == (4, b"abcd")


def test_a_second_handle_of_a_file_sees_the_size_at_which_it_was_opened(bench: Workbench, file: File) -> None:
    file.append(b"abc")
    reader = bench.disk.open(file.path, pooled=False, read_only=True)
    file.append(b"def")
    assert (reader.size, reader.read(0, 99)) == (3, b"abc")


def test_a_file_opened_for_reading_cannot_be_written(bench: Workbench, file: File) -> None:
    file.append(b"abc")
    reader = bench.disk.open(file.path, read_only=True)
    with pytest.raises(DiskError):
        reader.append(b"d")
    with pytest.raises(DiskError):
        reader.truncate(0)
    assert reader.read(0, 99) == file.read(0, 99) == b"abc"


def test_using_a_closed_file_raises_value_error(file: File) -> None:
    file.append(b"abc")
    file.close()
    file.close()
    for use in (
        lambda: file.append(b"x"),
        lambda: file.read(0, 1),
        lambda: file.truncate(0),
        file.sync,
        file.sync_later,
    ):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_repr_of_a_file_shows_its_path_size_and_whether_it_is_open(file: File) -> None:
    file.append(b"abc")
    assert "/file: 3 bytes, open" in repr(file)
    file.close()
    assert "closed" in repr(file)


# When the disk refuses.


def test_an_append_without_room_leaves_the_file_as_it_was(bench: Workbench, file: File) -> None:
    file.append(b"a" * 1000)
    with bench.room_for(1500):
        with pytest.raises(DiskError) as caught:
            file.append(b"b" * 1000)
        assert (file.size, file.read(0, 9999)) == (1000, b"a" * 1000)
        assert bench.disk.size(file.path) == 1000
        assert caught.value.errno in (ENOSPC, EFBIG)
        assert caught.value.path == file.path
        assert str(caught.value).startswith(f"cannot append to {file.path}: ")
        file.append(b"c" * 400)
    file.append(b"d" * 1000)
    assert file.read(0, 9999) == b"a" * 1000 + b"c" * 400 + b"d" * 1000


def test_a_file_that_cannot_be_truncated_after_a_failed_append_takes_no_more_bytes(bench: Workbench) -> None:
    file = bench.file_that_cannot_be_truncated()
    with pytest.raises(DiskError) as caught:
        file.append(b"abc")
    assert caught.value.errno == ENOSPC
    assert file.size == 0
    assert "broken" in repr(file)
    with pytest.raises(DiskError, match="broken since it failed to append to"):
        file.append(b"abc")
    with pytest.raises(DiskError, match="broken"):
        file.sync()


def test_a_failed_sync_is_final(bench: Workbench) -> None:
    file = bench.file_that_cannot_be_synced()
    earlier = file.sync_later()
    with pytest.raises(DiskError, match=r"cannot sync .*/pipe"):
        file.sync()
    if isinstance(bench.disk, SimulatedDisk):
        bench.disk.heal()
    for use in (
        file.sync,
        file.sync_later,
        earlier,
        lambda: file.append(b"x"),
        lambda: file.write_again(0),
        lambda: file.truncate(0),
    ):
        with pytest.raises(DiskError, match="broken since it failed to sync"):
            use()
    assert file.size == 0
    file.close()


def test_a_deferred_sync_that_fails_makes_the_file_unwritable_too(bench: Workbench) -> None:
    file = bench.file_that_cannot_be_synced()
    sync = file.sync_later()
    with pytest.raises(DiskError, match="cannot sync"):
        sync()
    with pytest.raises(DiskError, match="broken"):
        file.append(b"x")


def test_a_broken_file_can_still_be_read(bench: Workbench) -> None:
    file = bench.file_that_cannot_be_truncated()
    with pytest.raises(DiskError):
        file.append(b"abc")
    assert file.read(0, 99) == b""


# Syncing.


def test_a_deferred_sync_runs_once_in_any_thread_and_does_not_need_the_file_open(file: File) -> None:
    file.append(b"abc")
    sync = file.sync_later()
    file.append(b"def")
    file.close()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            sync()
        except BaseException as error:  # noqa: BLE001 (the test below looks at it)
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    with pytest.raises(ValueError, match="done already"):
        sync()


@pytest.mark.parametrize("position", [0, 2, 1 << 20, (2 << 20) + 3])
def test_writing_again_leaves_every_byte_and_the_size_as_they_are(file: File, position: int) -> None:
    data = bytes(range(256)) * (2 << 12) + b"end"
    file.append(data)
    file.write_again(position)
    assert file.size == len(data)
    assert file.read(0, len(data)) == data
    file.append(b"x")
    assert file.read(len(data), 9) == b"x"


def test_a_deferred_sync_works_after_its_file_was_closed_and_removed(bench: Workbench, file: File) -> None:
    file.append(b"abc")
    sync = file.sync_later()
    file.close()
    bench.disk.remove(file.path)
    sync()


# Names.


def test_opening_a_missing_file_raises_an_error_that_says_so(bench: Workbench) -> None:
    missing = f"{bench.root}/missing"
    for use in (
        lambda: bench.disk.open(missing),
        lambda: bench.disk.open(f"{missing}/below", create=True),
        lambda: bench.disk.size(missing),
        lambda: bench.disk.modified_ms(missing),
        lambda: bench.disk.list(missing),
        lambda: bench.disk.remove(missing),
        lambda: bench.disk.remove_tree(missing),
        lambda: bench.disk.rename(missing, f"{bench.root}/other"),
        lambda: bench.disk.sync_directory(missing),
        lambda: bench.disk.read_file(missing),
        lambda: bench.disk.free_bytes(missing),
    ):
        with pytest.raises(DiskError) as caught:
            use()
        assert caught.value.is_missing, caught.value
        assert missing in str(caught.value)
    assert not bench.disk.exists(missing)
    assert not bench.disk.exists(f"{missing}/below")
    bench.disk.remove(missing, missing_ok=True)
    bench.disk.remove_tree(missing, missing_ok=True)


def test_file_operations_on_a_directory_and_directory_operations_on_a_file_raise_disk_error(
    bench: Workbench, file: File
) -> None:
    folder = f"{bench.root}/folder"
    bench.disk.make_directory(folder)
    for use in (
        lambda: bench.disk.open(folder),
        lambda: bench.disk.open(f"{file.path}/below", create=True),
        lambda: bench.disk.list(file.path),
        lambda: bench.disk.make_directory(file.path),
        lambda: bench.disk.remove(folder),
        lambda: bench.disk.rename(file.path, folder),
        lambda: bench.disk.rename(folder, file.path),
        lambda: bench.disk.sync_directory(file.path),
    ):
        with pytest.raises(DiskError):
            use()
    assert bench.disk.list(bench.root) == ["file", "folder"]


def test_directories_are_made_with_those_above_them(bench: Workbench) -> None:
    bench.disk.make_directory(f"{bench.root}/a/b/c")
    bench.disk.make_directory(f"{bench.root}/a/b")
    bench.disk.write_file(f"{bench.root}/a/b/z", b"")
    bench.disk.write_file(f"{bench.root}/a/b/a", b"")
    assert bench.disk.list(f"{bench.root}/a/b") == ["a", "c", "z"]
    assert bench.disk.exists(f"{bench.root}/a/b/c")


def test_remove_tree_removes_a_directory_with_all_files_below_it(bench: Workbench, file: File) -> None:
    bench.disk.make_directory(f"{bench.root}/a/b")
    bench.disk.write_file(f"{bench.root}/a/b/c", b"x")
    bench.disk.write_file(f"{bench.root}/a/d", b"x")
    bench.disk.remove_tree(f"{bench.root}/a")
    assert bench.disk.list(bench.root) == ["file"]


def test_a_renamed_file_takes_the_place_of_another(bench: Workbench) -> None:
    old, new = f"{bench.root}/old", f"{bench.root}/new"
    bench.disk.write_file(old, b"the old one")
    bench.disk.write_file(new, b"in the way")
    bench.disk.rename(old, new)
    assert bench.disk.list(bench.root) == ["new"]
    assert bench.disk.read_file(new) == b"the old one"


def test_an_open_file_stays_usable_after_it_is_renamed(bench: Workbench, file: File) -> None:
    file.append(b"abc")
    bench.disk.rename(file.path, f"{bench.root}/renamed")
    file.path = f"{bench.root}/renamed"
    for number in range(5):
        bench.disk.open(f"{bench.root}/{number}", create=True)
    file.append(b"def")
    assert bench.disk.read_file(f"{bench.root}/renamed") == b"abcdef"


def test_an_open_file_stays_usable_after_its_directory_is_renamed(bench: Workbench) -> None:
    bench.disk.make_directory(f"{bench.root}/topic-0")
    file = bench.disk.open(f"{bench.root}/topic-0/log", create=True)
    file.append(b"abc")
    bench.disk.rename(f"{bench.root}/topic-0", f"{bench.root}/topic-0-delete")
    file.path = f"{bench.root}/topic-0-delete/log"
    for number in range(5):
        bench.disk.open(f"{bench.root}/{number}", create=True)
    assert file.read(0, 99) == b"abc"
    bench.disk.remove_tree(f"{bench.root}/topic-0-delete")


def test_a_pooled_file_whose_path_now_holds_another_file_raises_disk_error(bench: Workbench, file: File) -> None:
    file.append(b"abc")
    bench.disk.write_file(f"{bench.root}/other", b"xyz")
    bench.disk.rename(f"{bench.root}/other", file.path)
    for number in range(5):
        bench.disk.open(f"{bench.root}/{number}", create=True)
    for _ in range(2):
        with pytest.raises(DiskError, match="another file has taken its place"):
            file.append(b"def")
    assert bench.disk.read_file(file.path) == b"xyz"


def test_a_file_outside_the_pool_stays_usable_after_its_path_is_removed(bench: Workbench) -> None:
    file = bench.disk.open(f"{bench.root}/file", create=True, pooled=False)
    file.append(b"abc")
    bench.disk.remove(f"{bench.root}/file")
    file.append(b"def")
    assert file.read(0, 99) == b"abcdef"
    assert not bench.disk.exists(f"{bench.root}/file")


def test_times_are_kept_to_the_millisecond(bench: Workbench, file: File) -> None:
    bench.disk.set_modified_ms(file.path, 1_700_000_000_123)
    assert bench.disk.modified_ms(file.path) == 1_700_000_000_123


def test_free_bytes_of_a_disk_is_positive(bench: Workbench) -> None:
    assert bench.disk.free_bytes(bench.root) > 0


# Whole files.


def test_a_file_is_replaced_whole_and_nothing_else_is_left(bench: Workbench) -> None:
    path = f"{bench.root}/checkpoint"
    bench.disk.write_file(path, b"a long first version")
    bench.disk.write_file(path, memoryview(b"second"))
    assert bench.disk.read_file(path) == b"second"
    bench.disk.write_file(path, b"", durable=False)
    assert bench.disk.read_file(path) == b""
    assert bench.disk.list(bench.root) == ["checkpoint"]


def test_a_temporary_file_left_by_a_crash_does_not_get_into_the_replaced_file(bench: Workbench) -> None:
    left = bench.disk.open(f"{bench.root}/checkpoint.tmp", create=True)
    left.append(b"half of something much longer")
    left.close()
    bench.disk.write_file(f"{bench.root}/checkpoint", b"whole")
    assert bench.disk.read_file(f"{bench.root}/checkpoint") == b"whole"
    assert bench.disk.list(bench.root) == ["checkpoint"]


def test_a_file_that_cannot_be_replaced_keeps_its_content(bench: Workbench) -> None:
    path = f"{bench.root}/checkpoint"
    bench.disk.write_file(path, b"old")
    with bench.room_for(500), pytest.raises(DiskError) as caught:
        bench.disk.write_file(path, b"x" * 1000)
    assert caught.value.errno in (ENOSPC, EFBIG)
    assert bench.disk.read_file(path) == b"old"
    assert bench.disk.list(bench.root) == ["checkpoint"]


# The real disk alone.


def test_the_descriptor_of_a_file_can_be_passed_to_sendfile(tmp_path: Path) -> None:
    file = OsDisk().open(f"{tmp_path}/file", create=True)
    file.append(b"abcdef")
    reader, writer = os.pipe()
    try:
        with suppress(BlockingIOError):
            assert os.sendfile(writer, file.fileno(), 2, 3) == 3
        assert os.read(reader, 9) == b"cde"
    finally:
        os.close(reader)
        os.close(writer)
        file.close()


def test_a_file_limit_of_the_system_is_reported_by_its_name(tmp_path: Path) -> None:
    file = OsDisk().open(f"{tmp_path}/file", create=True)
    with limit(resource.RLIMIT_FSIZE, 100), pytest.raises(DiskError, match="File too large") as caught:
        file.append(b"x" * 101)
    assert caught.value.errno == EFBIG
    assert (tmp_path / "file").stat().st_size == 0
    file.close()


def test_an_append_during_which_the_disk_fills_up_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root on Linux only")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system could be mounted here: {mounted.stderr.strip()}")
    try:
        disk = OsDisk()
        file = disk.open(f"{tmp_path}/file", create=True)
        file.append(b"a" * 50_000)
        with pytest.raises(DiskError) as caught:
            file.append(b"b" * 50_000)
        assert caught.value.errno == ENOSPC
        assert (tmp_path / "file").stat().st_size == file.size == 50_000
        assert 10_000 <= disk.free_bytes(str(tmp_path)) <= 65_536 - 50_000
        file.append(b"c" * 10_000)
        assert file.read(49_999, 99_999) == b"a" + b"c" * 10_000
        file.close()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_disk_error_says_what_was_tried_where_and_why() -> None:
    error = DiskError("append to", "/data/t-0/0.log", OSError(EIO, "Input/output error"))
    assert str(error) == "cannot append to /data/t-0/0.log: Input/output error"
    assert (error.action, error.path, error.errno, error.reason) == (
        "append to",
        "/data/t-0/0.log",
        EIO,
        "Input/output error",
    )
    assert not error.is_missing


@pytest.mark.parametrize(("path", "parent"), [("/a/b", "/a"), ("/a", "/"), ("a/b", "a"), ("a", "."), ("/", "/")])
def test_the_parent_of_a_path(path: str, parent: str) -> None:
    assert parent_directory(path) == parent


def test_a_locked_directory_cannot_be_locked_again_until_it_is_unlocked(bench: Workbench) -> None:
    unlock = bench.disk.lock(bench.root)
    with pytest.raises(DiskError) as refused:
        bench.disk.lock(bench.root)
    assert refused.value.is_locked
    unlock()
    bench.disk.lock(bench.root)()


# Room in advance.


def test_a_growing_file_gets_its_blocks_in_advance_and_gives_back_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = OsDisk().open(str(path), create=True)
    for _ in range(130):
        file.append(bytes(16_384))
    assert file.size == path.stat().st_size == 130 * 16_384
    taken = path.stat().st_blocks * 512
    file.trim()
    assert path.stat().st_size == file.size
    assert file.size <= path.stat().st_blocks * 512 <= taken
    file.append(b"more")
    assert file.read(130 * 16_384, 10) == b"more"

"""The descriptor pool: many files on few descriptors, as counted by the real system."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from pessoa.log.descriptor_pool import default_max_open_files
from pessoa.log.files import DiskError
from pessoa.log.os_disk import OsDisk

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _settled_descriptors() -> None:
    """Collect garbage first, so that disks of earlier tests do not close descriptors during a count."""
    gc.collect()


@contextmanager
def descriptor_limit(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def take_all() -> list[int]:
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return taken


@contextmanager
def all_but(count: int) -> Iterator[None]:
    """Open other files until this process has only `count` descriptors left."""
    with descriptor_limit(max(open_descriptors()) + 32):
        taken = take_all()
        for _ in range(count):
            os.close(taken.pop())
        try:
            yield
        finally:
            for descriptor in taken:
                os.close(descriptor)


def open_descriptors() -> list[int]:
    return [int(path.name) for path in Path("/dev/fd").iterdir()]


def descriptors(folder: Path) -> int:
    """Return how many files under the folder this process has open; descriptors of other files do not count."""
    count = 0
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):
            count += path.readlink().is_relative_to(folder)
    return count


def test_a_hundred_files_work_on_eight_descriptors(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=8)
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(100)]
    for turn in range(5):
        for number in range(100):
            # A stride that shares no factor with 100, so that neighbours in time are strangers in the ring.
            file = files[number * 37 % 100]
            file.append(b"%d.%d;" % (number * 37 % 100, turn))
            other = files[number * 59 % 100]
            assert other.read(0, other.size) == (tmp_path / f"{number * 59 % 100}").read_bytes()
            assert disk.open_files <= 8
            assert descriptors(tmp_path) <= 8
    for number, file in enumerate(files):
        assert file.read(0, 99) == b"".join(b"%d.%d;" % (number, turn) for turn in range(5))
    for file in files:
        file.close()
    assert (disk.open_files, descriptors(tmp_path)) == (0, 0)


def test_a_file_in_use_keeps_its_descriptor_while_others_come_and_go(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=4)
    busy = disk.open(f"{tmp_path}/busy", create=True)
    descriptor = busy.fileno()
    for number in range(50):
        disk.open(f"{tmp_path}/{number}", create=True)
        busy.append(b"x")
        # With four places and one newcomer at a time the hand never passes the same file twice between two uses.
        assert "open" in repr(busy)
    assert busy.fileno() == descriptor
    assert disk.open_files == 4
    assert "4 of at most 4" in repr(disk)


def test_closing_a_file_frees_its_descriptor_for_other_files_of_the_pool(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=3)
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(3)]
    files[0].close()
    files[2].close()
    assert disk.open_files == 1
    files += [disk.open(f"{tmp_path}/{number}", create=True) for number in (3, 4)]
    assert "open" in repr(files[1])
    files.append(disk.open(f"{tmp_path}/5", create=True))
    assert disk.open_files == 3
    for file in files:
        file.close()
    assert disk.open_files == 0


def test_using_an_evicted_file_whose_path_was_removed_raises_an_error_that_names_it(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=1)
    file = disk.open(f"{tmp_path}/file", create=True)
    disk.open(f"{tmp_path}/other", create=True)
    disk.remove(f"{tmp_path}/file")
    assert "evicted" in repr(file)
    with pytest.raises(DiskError) as caught:
        file.read(0, 1)
    assert caught.value.is_missing


def test_files_outside_the_pool_are_never_evicted(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=1)
    file = disk.open(f"{tmp_path}/file", create=True, pooled=False)
    descriptor = file.fileno()
    for number in range(5):
        disk.open(f"{tmp_path}/{number}", create=True)
    file.append(b"abc")
    assert (file.fileno(), disk.open_files) == (descriptor, 1)
    file.close()


def test_when_descriptors_run_out_opening_a_file_outside_the_pool_evicts_a_pooled_file(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=1000)
    with all_but(6):
        files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(50)]
        disk.write_file(f"{tmp_path}/checkpoint", b"0\n0\n")
        assert disk.read_file(f"{tmp_path}/checkpoint") == b"0\n0\n"
        for file in files:
            file.append(b"abc")


def test_directories_can_be_listed_and_removed_when_descriptors_have_run_out(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=1000)
    for name in ("full/deep", "empty"):
        disk.make_directory(f"{tmp_path}/{name}")
    for name in ("full/file", "full/deep/file"):
        disk.open(f"{tmp_path}/{name}", create=True, pooled=False).close()
    with all_but(6):
        files = [disk.open(f"{tmp_path}/full/{number}", create=True) for number in range(50)]
        assert len(disk.list(f"{tmp_path}/full")) == 52
        taken = take_all()
        try:
            disk.remove_tree(f"{tmp_path}/empty")
            assert disk.open_files == 5
            disk.remove_tree(f"{tmp_path}/full")
        finally:
            for descriptor in taken:
                os.close(descriptor)
        for file in files:
            file.close()
    assert disk.list(str(tmp_path)) == []


def test_another_thread_that_finds_no_descriptor_waits_for_one(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=1000)
    outcome: list[bytes] = []

    def sync() -> None:
        disk.sync_directory(str(tmp_path))
        outcome.append(b"done")

    with all_but(6):
        files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(6)]
        taken = take_all()
        thread = Thread(target=sync)
        thread.start()
        # Nothing of the pool is taken from under its own thread.
        assert all("open" in repr(file) for file in files)
        assert outcome == []
        files[0].close()
        for descriptor in taken:
            os.close(descriptor)
        thread.join(60)
        assert outcome == [b"done"]


def test_when_descriptors_run_out_the_pool_works_with_fewer_open_files(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=1000)
    with all_but(6):
        files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(50)]
        for file in files:
            file.append(b"abc")
            assert file.read(0, 9) == b"abc"
            # It needs one descriptor more, and there is none.
            file.sync_later()()
        assert disk.open_files == 6
        for file in files:
            file.close()


def test_opening_a_file_without_any_free_descriptor_raises_an_error_that_says_so(tmp_path: Path) -> None:
    with all_but(0), pytest.raises(DiskError, match="Too many open files"):
        OsDisk().open(f"{tmp_path}/file", create=True)


def test_a_deferred_sync_that_is_dropped_closes_its_descriptor(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    file = OsDisk().open(f"{tmp_path}/file", create=True)
    sync = file.sync_later()
    assert descriptors(tmp_path) == before + 2
    del sync
    assert descriptors(tmp_path) == before + 1
    file.sync_later()()
    assert descriptors(tmp_path) == before + 1
    file.close()
    assert descriptors(tmp_path) == before


def test_a_deferred_sync_works_after_its_file_was_evicted_from_the_pool(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=1)
    file = disk.open(f"{tmp_path}/file", create=True)
    file.append(b"abc")
    sync = file.sync_later()
    disk.open(f"{tmp_path}/other", create=True)
    assert "evicted" in repr(file)
    sync()
    assert file.read(0, 9) == b"abc"


def test_the_pool_leaves_half_of_the_descriptors_to_others() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert default_max_open_files() == min(4096, soft // 2)
    with descriptor_limit(256):
        assert default_max_open_files() == 128

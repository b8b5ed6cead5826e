"""The two disks give the same results for every script, and a power loss never loses synced bytes.

The second test has a simple model of the promise. For each file it keeps, byte by byte, the values that may be found
after a power loss: a sync leaves one, a write adds one. It also has the names that are durable. What must be lost in
some seeds is tested in `tests/unit/log/test_simulated_platter.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pessoa.log.files import DiskError
from pessoa.log.os_disk import OsDisk
from pessoa.log.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.files import Disk, File

NAMES = st.sampled_from(["a", "b", "folder", "folder/c", "folder/d"])
STEPS = st.one_of(
    st.tuples(st.just("append"), NAMES, st.binary(max_size=20)),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 20)),
    st.tuples(st.just("read"), NAMES, st.integers(0, 20), st.integers(0, 20)),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("remove_tree"), NAMES),
    st.tuples(st.just("make_directory"), NAMES),
    st.tuples(st.just("list"), NAMES),
    st.tuples(st.just("exists"), NAMES),
    st.tuples(st.just("read_file"), NAMES),
    st.tuples(st.just("sync_directory"), NAMES),
    st.tuples(st.just("write_file"), NAMES, st.binary(max_size=20)),
)
ON_A_FILE = ("append", "truncate", "read")
# Who moves, removes or replaces a file closes it first.
CLOSING = ("rename", "remove", "remove_tree", "write_file")


class Player:
    """Plays a script on one disk and returns the result of each step."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root
        self.files: dict[str, File] = {}

    def play(self, method: str, name: str, *arguments: object) -> object:
        path = f"{self.root}/{name}"
        try:
            if method in ON_A_FILE:
                return self.play_on_file(method, path, *arguments)
            if method == "rename":
                arguments = (f"{self.root}/{arguments[0]}",)
            if method in CLOSING:
                self.close_under(path, *arguments)
            return getattr(self.disk, method)(path, *arguments)
        except DiskError as error:
            return error.errno
        except AssertionError:
            return "a bug of the caller"

    def play_on_file(self, method: str, path: str, *arguments: object) -> object:
        file = self.files.get(path)
        if file is None:
            file = self.files[path] = self.disk.open(path, create=True)
        answer = getattr(file, method)(*arguments)
        return answer, file.size, file.read(0, 1000)

    def close_under(self, *paths: object) -> None:
        for path in [path for path in self.files if path.startswith(tuple(str(prefix) for prefix in paths))]:
            self.files.pop(path).close()


@given(st.lists(STEPS, max_size=40))
def test_the_simulated_disk_behaves_as_the_real_one_in_every_script(script: list[tuple[str, ...]]) -> None:
    simulated = SimulatedDisk()
    simulated.make_directory("/data")
    with tempfile.TemporaryDirectory() as folder:
        real_player, simulated_player = Player(OsDisk(max_open_files=2), folder), Player(simulated, "/data")
        for step in script:
            assert simulated_player.play(*step) == real_player.play(*step), step
        real_player.close_under("")
        found = {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
    assert {path.removeprefix("/data/"): data for path, data in simulated.contents().items()} == found


class Promise:
    """The contents that one file may have after a power loss."""

    def __init__(self) -> None:
        # The values each byte may have. A byte behind the smallest size may also be missing, or 0.
        self.values: list[set[int]] = []
        self.smallest = 0
        self.is_named = False

    def write(self, position: int, data: bytes) -> None:
        self.values += [{0} for _ in range(position + len(data) - len(self.values))]
        for at, byte in enumerate(data, position):
            self.values[at].add(byte)

    def cut(self, size: int) -> None:
        self.smallest = min(self.smallest, size)
        # A cut that may or may not have happened: from there on all is possible that was, and zeros.
        for choice in self.values[size:]:
            choice.add(0)

    def synced(self, content: bytes) -> None:
        self.values = [{byte} for byte in content]
        self.smallest = len(content)

    def holds_for(self, content: bytes) -> bool:
        return self.smallest <= len(content) <= len(self.values) and all(
            byte in choice for byte, choice in zip(content, self.values, strict=False)
        )


SIZES = st.sampled_from([0, 1, 100, 4095, 4096, 4097, 9000])
LETTERS = st.integers(1, 255)
CHANGES = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), SIZES, LETTERS),
    st.tuples(st.just("rewrite"), st.integers(0, 2), SIZES, LETTERS),
    st.tuples(st.just("cut"), st.integers(0, 2), SIZES, LETTERS),
    st.tuples(st.just("sync"), st.integers(0, 2), SIZES, LETTERS),
    st.tuples(st.just("sync_later"), st.integers(0, 2), SIZES, LETTERS),
    st.tuples(st.just("run_sync"), st.integers(0, 2), SIZES, LETTERS),
    st.tuples(st.just("sync_directory"), st.integers(0, 2), SIZES, LETTERS),
)


class Writer:
    """Three files that are written and synced, and the promise for each."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.promises = [Promise() for _ in range(3)]
        self.files = [disk.open(f"/{number}", create=True) for number in range(3)]
        # Syncs asked for and not yet run, with what was there when they were asked for.
        self.waiting: list[list[tuple[Callable[[], None], bytes]]] = [[] for _ in range(3)]
        # Since the last one that was asked for, has the file changed other than by growing?
        self.appended_only = [True] * 3

    def play(self, change: str, number: int, size: int, letter: int) -> None:
        file, promise = self.files[number], self.promises[number]
        if change == "append":
            promise.write(file.size, bytes([letter]) * size)
            file.append(bytes([letter]) * size)
        elif change == "rewrite" and size <= file.size:
            position = (file.size - size) // 2
            promise.write(position, bytes([letter]) * size)
            file.write_at(position, bytes([letter]) * size)
            self.appended_only[number] = False
        elif change == "cut" and size <= file.size:
            promise.cut(size)
            file.truncate(size)
            self.appended_only[number] = False
        elif change == "sync":
            file.sync()
            promise.synced(file.read(0, file.size))
            self.waiting[number].clear()
        elif change == "sync_later":
            self.waiting[number].append((file.sync_later(), file.read(0, file.size)))
            self.appended_only[number] = True
        elif change == "run_sync" and self.waiting[number]:
            sync, content = self.waiting[number].pop()
            self.waiting[number].clear()
            sync()
            # After other changes than appends the model could not say more than before.
            if self.appended_only[number]:
                promise.synced(content)
                promise.write(len(content), file.read(len(content), file.size))
        elif change == "sync_directory":
            self.disk.sync_directory("/")
            for promise in self.promises:
                promise.is_named = True


@given(st.lists(CHANGES, max_size=25), st.integers(0, 2**32))
def test_no_power_loss_removes_synced_bytes(script: list[tuple[str, int, int, int]], seed: int) -> None:
    writer = Writer(SimulatedDisk(seed))
    for change in script:
        writer.play(*change)
    writer.disk.lose_power(Random(seed))
    found = writer.disk.contents()
    for number, promise in enumerate(writer.promises):
        if promise.is_named:
            assert f"/{number}" in found
        if f"/{number}" in found:
            assert promise.holds_for(found[f"/{number}"])

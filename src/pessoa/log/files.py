"""The door for the disk: every file of a log is reached through a `Disk` and the `File`s that it opens.

`OsDisk` (`os_disk`) is the real one; `SimulatedDisk` keeps files in memory and makes the faults that tests ask for. One
contract test runs on both. What the rest of the log may rely on:

- **All or nothing.** An append puts all its bytes at the end of the file, or raises `DiskError` and the file ends
  where it ended before. If even truncating it fails, the file is broken: it takes no more bytes.
- **Written is not durable.** Written bytes survive the death of the process, and nothing else. `sync` makes a file's
  content durable; `sync_directory` does it for names: which files are there, and what they are called. A new file needs
  both.
- **A failed sync is final.** The kernel may have dropped the pages that it could not write and will report success
  the next time, so it is not known what is on the disk. The `File` is broken from then on: it can be read and closed,
  and refuses everything else. The caller that gets the error takes the log directory offline.
- **The next process reads what no sync will write.** Those pages are still in the page cache, taken for clean, so what
  was not certainly synced has to be written again (`write_again`) before a sync of it means anything.
- **One class of error.** What the operating system refuses comes out as `DiskError`, which knows the path. A program
  that uses a closed file, or a place outside the file, has a bug and gets `ValueError` or an assertion.

A `File` belongs to the thread that opened it. It knows its size without asking, which is right because a file has
one writer. Two threads that need the same file open it twice, and the one that does not write sees the size at its
opening.

**Open files are bounded.** A *pooled* file may lose its descriptor behind its back when others need one, and opens
itself anew on its next use (`descriptor_pool` says which). So it must be found under its `path`: a rename sets
`path`, a removal closes the file first. A file that finds another one under its name raises `DiskError`. All
pooled files of a disk belong to one thread; worker threads open theirs with `pooled=False`.

Paths are `str`, because a broker makes them by the thousand and `Path` is ten times the price. The door has no
opinion on formats, and does not keep two brokers out of one directory.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Bytes: TypeAlias = bytes | bytearray | memoryview
# Within `Disk`, `list` is a method.
Names: TypeAlias = list[str]

# `write_file` builds the new content here. Apache Kafka uses the same suffix, so either cleans up after the other.
TEMPORARY_SUFFIX = ".tmp"
# Apache Kafka locks the same file, so neither opens a directory that the other is at work in.
LOCK_FILE = ".lock"


class DiskError(Exception):
    """The disk refused: what was tried, on which path, and why. The log directory that holds the path is in doubt."""

    def __init__(self, action: str, path: str, reason: OSError | str) -> None:
        super().__init__(action, path, reason)
        self.action = action
        self.path = path
        self.errno = reason.errno or 0 if isinstance(reason, OSError) else 0
        self.reason = (reason.strerror or str(reason)) if isinstance(reason, OSError) else reason

    def __str__(self) -> str:
        return f"cannot {self.action} {self.path}: {self.reason}"

    @property
    def is_missing(self) -> bool:
        """Whether the file does not exist, which some callers expect."""
        return self.errno in (errno.ENOENT, errno.ENOTDIR)

    @property
    def is_locked(self) -> bool:
        return self.errno == errno.EWOULDBLOCK


class File(Protocol):
    """One open file."""

    # The caller that renames the file sets it: a pooled file finds itself by its path.
    path: str

    @property
    def size(self) -> int:
        """The size of the file in bytes."""

    def append(self, data: Bytes) -> None:
        """Put the bytes at the end: all of them, or `DiskError` and none."""

    def write_again(self, position: int) -> None:
        """Write what the file has from a position on once more, so that the next sync puts it on the disk, whatever
        became of a sync that an earlier process tried."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes from a position on: fewer than `size` at the end of the file, none behind it."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, which is at most what it has."""

    def trim(self) -> None:
        """Free the space that is reserved after the end of this file, which does not grow any more."""

    def sync(self) -> None:
        """Make what was written durable. Waits for the disk."""

    def sync_later(self) -> Callable[[], None]:
        """Return a function that makes durable what was written before this call. It may be called once, from any
        thread. It does not need the file to stay open, and holds one descriptor until it is called or dropped."""

    def fileno(self) -> int:
        """The descriptor, for `sendfile`. Good until the next use of any pooled file, which may close it."""

    def close(self) -> None:
        """Give the descriptor back. Closing twice is fine, using the file afterwards is a `ValueError`."""


class Disk(Protocol):
    """The files and directories under some paths. All methods raise `DiskError`."""

    def open(self, path: str, *, create: bool = False, pooled: bool = True, read_only: bool = False) -> File:
        """Open a file, with `create` also if there is none. The name of a new file needs `sync_directory`."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def list(self, path: str) -> Names:
        """The names in a directory, sorted."""

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        """Make a directory and its parents, unless it exists; return whether it was made. If not `durable`, its name
        needs a sync."""

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        """Remove a file."""

    def remove_tree(self, path: str, *, missing_ok: bool = False) -> None:
        """Remove a directory and all it holds."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, in one step. It takes the place of a file that has the name."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable: creations, renames, removals."""

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: Bytes, *, durable: bool = True) -> None:
        """Replace a whole file: after any crash it has its old content or the new one.

        If not `durable`, that holds for the death of the process only, and the call does not wait for the disk: for
        files that are synced later, or can be made again.
        """

    def free_bytes(self, path: str) -> int:
        """The free space of the disk that holds the path."""

    def lock(self, path: str) -> Callable[[], None]:
        """Lock a directory against other processes, until the returned function is called or this process ends. Raises
        `DiskError` with `is_locked` if another process holds the lock."""


def parent_directory(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


def replace_file(disk: Disk, path: str, data: Bytes, *, durable: bool = True) -> None:
    """Write a whole file: `write_file` of every disk. The content is durable before the file gets its name, so a crash
    leaves the old content or the new."""
    temporary = path + TEMPORARY_SUFFIX
    try:
        file = disk.open(temporary, create=True, pooled=False)
        try:
            file.truncate(0)
            file.append(data)
            if durable:
                file.sync()
        finally:
            file.close()
        disk.rename(temporary, path)
    except DiskError:
        # The disk has trouble already: what matters is the first error.
        with suppress(DiskError):
            disk.remove(temporary, missing_ok=True)
        raise
    if durable:
        disk.sync_directory(parent_directory(path))


def create_file(disk: Disk, path: str, data: Bytes) -> None:
    """Write a file that is not there. Nothing is durable: a crash leaves it whole, torn or not at all."""
    file = disk.open(path, create=True, pooled=False)
    try:
        file.append(data)
    finally:
        file.close()


@contextmanager
def disk_errors(action: str, path: str) -> Iterator[None]:
    """Turn an OSError into a `DiskError`. Too slow for reads and appends, which do it themselves."""
    try:
        yield
    except OSError as error:
        raise DiskError(action, path, error) from error

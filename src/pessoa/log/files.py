"""The door for the disk: every file of a log is reached through a `Disk` and the `File`s that it opens.

`OsDisk`, below, is the real one; `SimulatedDisk` keeps files in memory and makes the faults that tests ask for. One
contract test runs on both. What the rest of the log may rely on:

- **All or nothing.** An append puts all its bytes at the end of the file, or raises `DiskError` and the file ends
  where it ended before. If even cutting it back fails, the file is broken: it takes no more bytes.
- **Written is not durable.** Written bytes survive the death of the process, and nothing else. `sync` makes a file's
  content durable; `sync_directory` does it for names: which files are there, and what they are called. A new file needs
  both.
- **A failed sync is final.** The kernel may have dropped the pages that it could not write and will report success
  the next time, so nobody can say what is on the disk. The `File` is broken from then on: it can be read and closed,
  and refuses everything else. Whoever sees the error takes the log directory offline.
- **One class of error.** What the operating system refuses comes out as `DiskError`, which knows the path. A program
  that uses a closed file, or a place outside the file, has a bug and gets `ValueError` or an assertion.

A `File` belongs to the thread that opened it. It knows its size without asking, which is right because a file has
one writer. Two threads that need the same file open it twice, and the one that does not write sees the size at its
opening.

**Open files are bounded.** A *pooled* file may lose its descriptor behind its back when others need one, and opens
itself anew on its next use (`descriptors` says which one has to go). So it must be found under its `path`: who renames
it sets `path`, who removes it closes it first. A file that finds another one under its name raises `DiskError`. All
pooled files of a disk belong to one thread; worker threads open theirs with `pooled=False`.

Appends are `pwrite` at the known end and not `write` with O_APPEND: it costs the same, `write_at` can use the same
descriptor (Linux appends whatever position a `pwrite` names on a descriptor with O_APPEND), and bytes that a failed
append left behind are overwritten by the next one.

Paths are `str`, because a broker makes them by the thousand and `Path` is ten times the price. The door has no
opinion on formats, and does not keep two brokers out of one directory.
"""

# Here paths meet the operating system.
# ruff: noqa: PTH102, PTH105, PTH108, PTH112, PTH116, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pessoa.log.descriptors import DescriptorPool, default_max_open_files
from pessoa.log.reservation import RESERVED_BYTES, reserve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Bytes: TypeAlias = bytes | bytearray | memoryview
# Within `Disk`, `list` is a method.
Names: TypeAlias = list[str]

# Linux and macOS take at most this many buffers in one call (IOV_MAX).
_MAX_BUFFERS = 1024
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
        """There is no such file: for some callers the expected answer."""
        return self.errno in (errno.ENOENT, errno.ENOTDIR)

    @property
    def is_locked(self) -> bool:
        return self.errno == errno.EWOULDBLOCK

    @property
    def is_full(self) -> bool:
        return self.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class File(Protocol):
    """One open file."""

    # Who renames the file sets it: a pooled file finds itself by its path.
    path: str

    @property
    def size(self) -> int:
        """How many bytes it has."""

    def append(self, data: Bytes) -> None:
        """Put the bytes at the end: all of them, or `DiskError` and none."""

    def append_all(self, buffers: Sequence[Bytes]) -> None:
        """Put the buffers at the end, one behind the other: all of them, or `DiskError` and none."""

    def write_at(self, position: int, data: Bytes) -> None:
        """Overwrite bytes within the file. A `DiskError` leaves it unknown which of them are new."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes from a position on: fewer than `size` at the end of the file, none behind it."""

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        """Fill the buffer from a position on; how many bytes there were."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, which is at most what it has."""

    def trim(self) -> None:
        """It will not grow any more: give back what the disk keeps for it behind its end."""

    def sync(self) -> None:
        """Make what was written durable. Waits for the disk."""

    def sync_later(self) -> Callable[[], None]:
        """A function that makes durable what was written before this call. For one call, from any thread.

        It does not need the file to stay open, and holds one descriptor until it is called or dropped.
        """

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
        """Make a directory and those above it, unless it is there; whether it was made. Not `durable`: its name needs
        a sync."""

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

        If not `durable`, that holds for the death of the process only, and nobody waits for the disk: for files that
        are synced later, or can be made again.
        """

    def free_bytes(self, path: str) -> int:
        """How much more the disk that holds the path can take."""

    def lock(self, path: str) -> Callable[[], None]:
        """Keep every other process out of a directory until the returned function is called, or this one ends.

        `DiskError` with `is_locked` if another has it.
        """


def parent_directory(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


def replace_file(disk: Disk, path: str, data: Bytes, *, durable: bool = True) -> None:
    """`write_file` of every disk. The order makes it safe: the content is durable before it gets the name."""
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
    """What the system refuses becomes a `DiskError`. Too dear for reads and appends, which do it by hand."""
    try:
        yield
    except OSError as error:
        raise DiskError(action, path, error) from error


class OsDisk:
    """The disk of the operating system."""

    __slots__ = ("_pool",)

    def __init__(self, max_open_files: int | None = None) -> None:
        self._pool = DescriptorPool(default_max_open_files() if max_open_files is None else max_open_files)

    def __repr__(self) -> str:
        return f"<OsDisk: {self.open_files} of at most {self._pool.max_open} pooled files open>"

    @property
    def open_files(self) -> int:
        """How many pooled files hold a descriptor."""
        return len(self._pool.ring)

    def open(self, path: str, *, create: bool = False, pooled: bool = True, read_only: bool = False) -> OsFile:
        return OsFile(path, self._pool if pooled else None, create=create, read_only=read_only)

    def exists(self, path: str) -> bool:
        # `os.path.exists` would call a file missing whose disk is dying.
        try:
            self._stat(path)
        except DiskError as error:
            if error.is_missing:
                return False
            raise
        return True

    def size(self, path: str) -> int:
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    def _stat(self, path: str) -> os.stat_result:
        with disk_errors("look up", path):
            return os.stat(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with disk_errors("set the time of", path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def list(self, path: str) -> Names:
        with disk_errors("list", path):
            return sorted(os.listdir(path))

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        parent = parent_directory(path)
        with disk_errors("make the directory", path):
            try:
                os.mkdir(path)
            except FileNotFoundError:
                if parent == path:
                    raise
                self.make_directory(parent)
                os.mkdir(path)
            except OSError:
                # Also what a disk says that cannot be written to.
                if os.path.isdir(path):
                    return False
                raise
        if durable:
            self.sync_directory(parent)
        return True

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        with disk_errors("remove", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def remove_tree(self, path: str, *, missing_ok: bool = False) -> None:
        with disk_errors("remove", path):
            if not missing_ok or os.path.lexists(path):
                shutil.rmtree(path)

    def rename(self, old: str, new: str) -> None:
        with disk_errors(f"rename to {new}", old):
            os.replace(old, new)

    def sync_directory(self, path: str) -> None:
        with disk_errors("sync the directory", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read_file(self, path: str) -> bytes:
        with closing(self.open(path, pooled=False, read_only=True)) as file:
            return file.read(0, file.size)

    def write_file(self, path: str, data: Bytes, *, durable: bool = True) -> None:
        replace_file(self, path, data, durable=durable)

    def free_bytes(self, path: str) -> int:
        with disk_errors("ask for the free space of", path):
            found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        name = f"{path}/{LOCK_FILE}"
        with disk_errors("lock", name):
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise
        return partial(os.close, descriptor)


class OsFile:
    """A file of the operating system; with a pool, its descriptor comes and goes."""

    __slots__ = (
        "_broken",
        "_closed",
        "_descriptor",
        "_flags",
        "_identity",
        "_pool",
        "_reserved_to",
        "_sync_lock",
        "path",
        "recent",
        "size",
        "slot",
    )

    def __init__(self, path: str, pool: DescriptorPool | None, *, create: bool, read_only: bool) -> None:
        self.path = path
        self._pool = pool
        self._flags = os.O_RDONLY if read_only else os.O_RDWR
        self._closed = False
        # The error after which nothing may be written or called durable.
        self._broken: DiskError | None = None
        # There once `sync_later` was asked for.
        self._sync_lock: Lock | None = None
        # Opening is no use: a file that is opened and left alone goes before those at work.
        self.recent = False
        self.slot = -1
        # -1: evicted or closed.
        self._descriptor = -1
        found = self._acquire(self._flags | os.O_CREAT if create else self._flags)
        self.size = found.st_size
        # The disk has room for the file up to here, as far as we know.
        self._reserved_to = max(self.size, RESERVED_BYTES)
        # By this an evicted file tells whether it has found itself again.
        self._identity = (found.st_dev, found.st_ino)

    def __repr__(self) -> str:
        place = "closed" if self._closed else "open" if self._descriptor >= 0 else "evicted"
        return f"<OsFile {self.path}: {self.size} bytes, {place}{', broken' if self._broken is not None else ''}>"

    def append(self, data: Bytes) -> None:
        if self._broken is not None:
            raise self._refusal("append to")
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._reopen()
        self.recent = True
        end = self.size
        if end > self._reserved_to:
            self._reserved_to = end + RESERVED_BYTES
            reserve(descriptor, end)
        try:
            written = os.pwrite(descriptor, data, end)
        except OSError as error:
            raise self._cut_back(error) from error
        # `len` counts elements: for a view of anything but bytes the long way finds out that all is well.
        if written == len(data):
            self.size = end + written
        else:
            self._append_rest([data], written)

    def append_all(self, buffers: Sequence[Bytes]) -> None:
        if self._broken is not None:
            raise self._refusal("append to")
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._reopen()
        self.recent = True
        end = self.size
        try:
            written = os.pwritev(descriptor, buffers if len(buffers) <= _MAX_BUFFERS else buffers[:_MAX_BUFFERS], end)
        except OSError as error:
            raise self._cut_back(error) from error
        if written == sum(map(len, buffers)):
            self.size = end + written
        else:
            self._append_rest(buffers, written)

    def _append_rest(self, buffers: Sequence[Bytes], written: int) -> None:
        """Go on after a short write: the next one finishes the job or says what is wrong."""
        end = self.size
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        total = sum(map(len, views))
        landed = written
        while landed < total:
            while written >= len(views[0]):
                written -= len(views.pop(0))
            views[0] = views[0][written:]
            try:
                written = os.pwritev(self._descriptor, views[:_MAX_BUFFERS], end + landed)
            except OSError as error:
                raise self._cut_back(error) from error
            if written == 0:
                raise self._cut_back("the system wrote nothing and gave no reason")
            landed += written
        self.size = end + total

    def _cut_back(self, reason: OSError | str) -> DiskError:
        """Take away what a failed append left behind the end; the error to raise for it."""
        failure = DiskError("append to", self.path, reason)
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self._broken = failure
        return failure

    def write_at(self, position: int, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        assert 0 <= position <= self.size - len(view), f"{self!r} has no {len(view)} bytes at {position}"
        descriptor = self._writable("write to")
        with disk_errors("write to", self.path):
            while view:
                written = os.pwrite(descriptor, view, position)
                position += written
                view = view[written:]

    def read(self, position: int, size: int) -> bytes:
        assert position >= 0, f"{self!r} has no position {position}"
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._reopen()
        self.recent = True
        # Behind the end may lie what a failed append left there.
        if size > self.size - position:
            size = self.size - position
            if size <= 0:
                return b""
        try:
            data = os.pread(descriptor, size, position)
            # One call moves at most 2 GiB; otherwise a short one means that another thread has cut the file.
            while len(data) < size and (more := os.pread(descriptor, size - len(data), position + len(data))):
                data += more
        except OSError as error:
            raise DiskError("read", self.path, error) from error
        return data

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        assert position >= 0, f"{self!r} has no position {position}"
        descriptor = self.fileno()
        view = memoryview(buffer).cast("B")[: max(0, self.size - position)]
        filled = 0
        with disk_errors("read", self.path):
            while filled < len(view) and (count := os.preadv(descriptor, [view[filled:]], position + filled)):
                filled += count
        return filled

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size, f"{self!r} cannot be cut to {size} bytes"
        descriptor = self._writable("truncate")
        with disk_errors("truncate", self.path):
            os.ftruncate(descriptor, size)
        self.size = size
        self._reserved_to = max(size, RESERVED_BYTES)

    def trim(self) -> None:
        if self._reserved_to > self.size > RESERVED_BYTES and self._broken is None and self._descriptor >= 0:
            # As little of a promise as the reservation was.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            self._reserved_to = self.size

    def sync(self) -> None:
        descriptor = self._writable("sync")
        with self._sync_lock or nullcontext():
            self.sync_on(descriptor)

    def sync_later(self) -> Callable[[], None]:
        descriptor = self._writable("sync")
        if self._sync_lock is None:
            self._sync_lock = Lock()
        try:
            return SyncLater(self, os.dup(descriptor), self._sync_lock)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise DiskError("sync", self.path, error) from error
        # No descriptor is left, which is no fault of the disk: wait for it here.
        self.sync()
        return lambda: None

    def sync_on(self, descriptor: int) -> None:
        """Only one runs at a time, because the kernel reports a lost page to one of them and success to the other."""
        if self._broken is not None:
            raise self._refusal("sync")
        try:
            sync_data(descriptor)
        except OSError as error:
            self._broken = DiskError("sync", self.path, error)
            raise self._broken from error

    def fileno(self) -> int:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._reopen()
        self.recent = True
        return descriptor

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._pool is not None and self._descriptor >= 0:
                self._pool.drop(self)
            self.release()

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Give the descriptor back. Written bytes are the kernel's, so there is nothing that closing could lose."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            # Linux frees the descriptor whatever it says, and trying again could close somebody else's.
            with suppress(OSError):
                os.close(descriptor)

    def _writable(self, action: str) -> int:
        if self._broken is not None:
            raise self._refusal(action)
        return self.fileno()

    def _refusal(self, action: str) -> DiskError:
        assert self._broken is not None
        return DiskError(action, self.path, f"broken since it failed to {self._broken.action}: {self._broken.reason}")

    def _reopen(self) -> int:
        """Come back after an eviction."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        assert self._pool is not None, "only the pool takes descriptors away"
        found = self._acquire(self._flags)
        if (found.st_dev, found.st_ino) != self._identity:
            self._pool.drop(self)
            self.release()
            raise DiskError("open", self.path, "another file has taken its place")
        return self._descriptor

    def _acquire(self, flags: int) -> os.stat_result:
        with disk_errors("open", self.path):
            if self._pool is None:
                self._descriptor = os.open(self.path, flags, 0o666)
            else:
                self._descriptor = self._pool.open(self.path, flags)
                self._pool.add(self)
            return os.fstat(self._descriptor)


class SyncLater:
    """Makes one file durable, on a descriptor of its own, so that eviction and `close` cannot hurt."""

    __slots__ = ("_descriptor", "_file", "_lock")

    def __init__(self, file: OsFile, descriptor: int, lock: Lock) -> None:
        self._file = file
        self._descriptor = descriptor
        self._lock = lock

    def __call__(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            raise ValueError(f"this sync of {self._file.path} was done already")
        try:
            with self._lock:
                self._file.sync_on(descriptor)
        finally:
            os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


if sys.platform == "darwin":
    import fcntl

    def sync_data(descriptor: int) -> None:
        """On macOS `fsync` stops at the drive's cache."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    # The content and the size; not the time stamps, which would cost a second write.
    sync_data = os.fdatasync

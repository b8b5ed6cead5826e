"""The disk of the operating system: what the door (`files`) promises, kept with system calls.

Appends are `pwrite` at the known end and not `write` with O_APPEND: it costs the same, and bytes that a failed append
left behind are overwritten by the next one.

A file that is pooled comes and goes with its descriptor: `descriptor_pool` says which one has to go, and `OsFile` opens
itself anew by its path, and makes sure that it has found itself. A sync that runs in a worker thread has a descriptor
of its own (`SyncLater`), so that neither eviction nor `close` can hurt it.
"""

# Here paths meet the operating system.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH112, PTH116, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import sys
from contextlib import closing, nullcontext, suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from pessoa.log.descriptor_pool import DescriptorPool, default_max_open_files
from pessoa.log.files import LOCK_FILE, DiskError, disk_errors, parent_directory, replace_file
from pessoa.log.reservation import RESERVED_BYTES, reserve

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.files import Bytes, Names

# Bytes; larger pieces are no faster.
_WRITTEN_AGAIN_AT_ONCE = 1 << 20


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
        return OsFile(path, self._pool, pooled=pooled, create=create, read_only=read_only)

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
            return sorted(self._pool.beside(lambda: os.listdir(path)))

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
            try:
                # Takes no descriptor, and most of what is removed was never written to.
                os.rmdir(path)
            except FileNotFoundError:
                if not missing_ok:
                    raise
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                import shutil

                # Once more is fine: what is gone by then need not be removed.
                self._pool.beside(lambda: shutil.rmtree(path))

    def rename(self, old: str, new: str) -> None:
        with disk_errors(f"rename to {new}", old):
            os.replace(old, new)

    def sync_directory(self, path: str) -> None:
        with disk_errors("sync the directory", path):
            descriptor = self._pool.open_beside(path, os.O_RDONLY | os.O_DIRECTORY)
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
            descriptor = self._pool.open_beside(name, os.O_RDWR | os.O_CREAT)
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
        "ring_index",
        "size",
    )

    def __init__(self, path: str, pool: DescriptorPool, *, pooled: bool, create: bool, read_only: bool) -> None:
        self.path = path
        # None: it keeps its descriptor.
        self._pool = pool if pooled else None
        self._flags = os.O_RDONLY if read_only else os.O_RDWR
        self._closed = False
        # The error after which nothing may be written or called durable.
        self._broken: DiskError | None = None
        # There once `sync_later` was asked for.
        self._sync_lock: Lock | None = None
        # Opening is no use: a file that is opened and left alone goes before those at work.
        self.recent = False
        self.ring_index = -1
        # -1: evicted or closed.
        self._descriptor = -1
        found = self._acquire(self._flags | os.O_CREAT if create else self._flags, pool)
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
            raise self._truncate_to_end(error) from error
        # `len` counts elements: for a view of anything but bytes the long way finds out that all is well.
        if written == len(data):
            self.size = end + written
        else:
            self._append_rest(data, written)

    def _append_rest(self, data: Bytes, written: int) -> None:
        """Write the rest after a short write, or raise the error that stopped it."""
        end = self.size
        view = memoryview(data).cast("B")
        while written < len(view):
            try:
                more = os.pwrite(self._descriptor, view[written:], end + written)
            except OSError as error:
                raise self._truncate_to_end(error) from error
            if more == 0:
                raise self._truncate_to_end("the system wrote nothing and gave no reason")
            written += more
        self.size = end + len(view)

    def _truncate_to_end(self, reason: OSError | str) -> DiskError:
        """Truncate what a failed append left behind the end; return the error to raise for it."""
        failure = DiskError("append to", self.path, reason)
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self._broken = failure
        return failure

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
            # One call moves at most 2 GiB; otherwise a short one means that another thread has truncated the file.
            while len(data) < size and (more := os.pread(descriptor, size - len(data), position + len(data))):
                data += more
        except OSError as error:
            raise DiskError("read", self.path, error) from error
        return data

    def write_again(self, position: int) -> None:
        descriptor = self._writable("write to")
        with disk_errors("write to", self.path):
            while position < self.size:
                piece = os.pread(descriptor, min(_WRITTEN_AGAIN_AT_ONCE, self.size - position), position)
                assert piece, f"{self!r} has no byte at {position}"
                position += os.pwrite(descriptor, piece, position)

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size, f"{self!r} cannot be truncated to {size} bytes"
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
        """Sync the file. Only one sync of a file runs at a time, because the kernel reports a lost page to one caller
        and success to the next."""
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
        """Close the descriptor. The kernel has what was written, so that closing loses nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            # Linux frees the descriptor even if close fails, and trying again could close another file's.
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
        """Open the file again after the descriptor pool has closed it."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        assert self._pool is not None, "only the pool takes descriptors away"
        found = self._acquire(self._flags, self._pool)
        if (found.st_dev, found.st_ino) != self._identity:
            self._pool.drop(self)
            self.release()
            raise DiskError("open", self.path, "another file has taken its place")
        return self._descriptor

    def _acquire(self, flags: int, pool: DescriptorPool) -> os.stat_result:
        with disk_errors("open", self.path):
            if self._pool is None:
                self._descriptor = pool.open_beside(self.path, flags)
            else:
                self._descriptor = pool.open(self.path, flags)
                pool.add(self)
            return os.fstat(self._descriptor)


class SyncLater:
    """Syncs one file on a descriptor of its own, so that neither eviction nor `close` of the file matters."""

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
        """Sync the file to the disk itself: on macOS `fsync` stops at the drive's cache."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    # The content and the size; not the time stamps, which would cost a second write.
    sync_data = os.fdatasync

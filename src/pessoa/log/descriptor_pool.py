"""The pool of descriptors: which of many files are open at the same time.

Ten thousand partitions have forty thousand files, more than a process may hold open. So a pooled file may lose its
descriptor behind its back when others need one, and opens itself anew on its next use:

    open ──use──▶ recently used ──the hand passes──▶ open ──the hand passes──▶ evicted ──use──▶ recently used

The pool is a clock (second chance): files stand in a ring, each use marks the file, and the hand that looks for a
victim clears marks until it finds a file without one. So a use costs one store, and the order of uses is kept as far
as it matters. A pool belongs to one thread.

That no descriptor is left is no fault of a disk, and must not look like one: a directory that goes offline does not
come back. The pool's own thread that opens a file beside the pool, for a moment, gets the descriptor of a pooled one.
Another thread waits until one has been given back. So does a call that lists or removes a directory, which takes a
descriptor as well (`beside`).
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# How long a thread waits for a descriptor: connections that came in a horde are gone or refused by then.
_PATIENCE_S = 30.0
_RETRY_S = 0.01


class PooledFile(Protocol):
    """A file whose descriptor the pool may close to open another one."""

    # Used since the hand last passed.
    recent: bool
    # Its place in the ring; -1 while it has no descriptor of the pool.
    ring_index: int

    def release(self) -> None:
        """Close the descriptor; the file is opened again when it is next used."""


class DescriptorPool:
    """The ring of open pooled files and the hand that finds the next to lose its descriptor."""

    __slots__ = ("_owner", "hand", "max_open", "ring")

    def __init__(self, max_open: int) -> None:
        assert max_open >= 1
        self.max_open = max_open
        # ring[file.ring_index] is file; never longer than max_open.
        self.ring: list[PooledFile] = []
        self.hand = 0
        # The thread that it belongs to.
        self._owner = threading.get_ident()

    def open(self, path: str, flags: int) -> int:
        """Open a descriptor, for which another pooled file may be evicted. `add` must follow."""
        self._owner = threading.get_ident()
        if len(self.ring) >= self.max_open:
            self._evict()
        while True:
            try:
                return os.open(path, flags, 0o666)
            except OSError as error:
                # Sockets and other programs need descriptors as well: what they took, the pool has to do without.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self.ring:
                    raise
                self._evict()

    def open_beside(self, path: str, flags: int) -> int:
        """Open a file with a descriptor that is not counted in the pool, and is soon closed. From any thread."""
        return self.beside(lambda: os.open(path, flags, 0o666))

    def beside(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which opens descriptors that are not counted in the pool. If the process has
        none left, a pooled file is evicted and `work` is called again. From any thread."""
        deadline_s: float | None = None
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                now_s = time.monotonic()
                deadline_s = deadline_s or now_s + _PATIENCE_S
                if threading.get_ident() != self._owner:
                    if now_s >= deadline_s:
                        raise
                    time.sleep(_RETRY_S)
                elif self.ring:
                    self._evict()
                else:
                    raise

    def add(self, file: PooledFile) -> None:
        file.ring_index = len(self.ring)
        self.ring.append(file)

    def drop(self, file: PooledFile) -> None:
        # The last one takes the place, which keeps this independent of the length of the ring.
        last = self.ring.pop()
        if last is not file:
            last.ring_index = file.ring_index
            self.ring[last.ring_index] = last
        file.ring_index = -1

    def _evict(self) -> None:
        while True:
            if self.hand >= len(self.ring):
                self.hand = 0
            file = self.ring[self.hand]
            if not file.recent:
                break
            file.recent = False
            self.hand += 1
        self.drop(file)
        file.release()
        # On to the next one: a new file has a round before the hand comes by.
        self.hand += 1


def default_max_open_files() -> int:
    """Return half of the number of files that the process may open, at most 4096: the rest is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(16, min(4096, soft // 2))

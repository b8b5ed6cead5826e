"""The file of a log: lines are collected, written together, and dropped rather than waited for.

    append ──▶ lines in memory ── after a moment, or when there are many ──▶ one write ──▶ access.log
                    │                                                                          │ full
                    └── more than MAX_BUFFERED_BYTES: dropped and counted                access.log.1 … .N

A write is an ordinary one, into the page cache; nothing is synced. When the disk refuses (it is full, say), lines stay
in memory up to the bound, the write is tried again, and the first lines that get through are followed by one that says
how many were dropped.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.files import DiskError, parent_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.clock import Clock, Timer
    from pessoa.log.files import Disk, File

log = logging.getLogger("pessoa.broker")

FLUSH_MS = 200
RETRY_MS = 5_000
# So many are written without waiting for the moment.
_ENOUGH_BYTES = 64 * 1024
MAX_BUFFERED_BYTES = 1024 * 1024


class Rotation(NamedTuple):
    max_bytes: int
    # With the one that is written to.
    max_files: int


class LogFile:
    def __init__(
        self, disk: Disk, path: str, rotation: Rotation, clock: Clock, render_dropped: Callable[[int], bytes]
    ) -> None:
        self.path = path
        # Lines that found no place, since the start.
        self.dropped = 0
        self._unsaid = 0
        self._disk = disk
        self._rotation = rotation
        self._clock = clock
        self._render_dropped = render_dropped
        self._file: File | None = None
        self._lines: list[bytes] = []
        self._buffered_bytes = 0
        self._timer: Timer | None = None
        self._is_failing = False
        self._is_abandoned = False

    def __repr__(self) -> str:
        state = ", failing" if self._is_failing else ""
        return f"<LogFile {self.path}: {self._buffered_bytes} bytes to write, {self.dropped} lines dropped{state}>"

    def append(self, line: bytes) -> None:
        """Add a line to the buffer, or drop it if the buffer is full; an empty buffer takes a line of any size."""
        if self._is_abandoned:
            return
        if self._lines and self._buffered_bytes + len(line) > MAX_BUFFERED_BYTES:
            self.dropped += 1
            self._unsaid += 1
            return
        self._lines.append(line)
        self._buffered_bytes += len(line)
        if self._buffered_bytes >= _ENOUGH_BYTES and not self._is_failing:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.call_after_ms(FLUSH_MS, self.flush)

    def flush(self) -> None:
        """Write the buffered lines; if that fails, they stay for the next attempt."""
        self._stop_timer()
        if not self._lines:
            return
        data = b"".join(self._lines)
        try:
            self._write(data)
        except DiskError as problem:
            self._forget_file()
            if not self._is_failing:
                self._is_failing = True
                log.warning("%s; its lines are kept in memory, and dropped when there are too many", problem)
            self._timer = self._clock.call_after_ms(RETRY_MS, self.flush)
            return
        self._lines.clear()
        self._buffered_bytes = 0
        self._is_failing = False
        if self._unsaid:
            unsaid, self._unsaid = self._unsaid, 0
            self.append(self._render_dropped(unsaid))

    def close(self) -> None:
        """Write the buffered lines, in one attempt; the next line opens the file again."""
        self.flush()
        self._stop_timer()
        self._forget_file()

    def abandon(self) -> None:
        """Drop the buffered lines, and take no more."""
        self._is_abandoned = True
        self._lines.clear()
        self._buffered_bytes = 0
        self._stop_timer()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._disk.make_directory(parent_directory(self.path), durable=False)
            self._file = self._disk.open(self.path, create=True, pooled=False)
        if self._file.size and self._file.size + len(data) > self._rotation.max_bytes:
            self._rotate()
        self._file.append(data)

    def _rotate(self) -> None:
        """Remove the oldest file, rename the others, and begin a new one."""
        self._forget_file()
        names = [self.path, *(f"{self.path}.{number}" for number in range(1, self._rotation.max_files))]
        self._disk.remove(names[-1], missing_ok=True)
        for old, new in reversed(list(pairwise(names))):
            if self._disk.exists(old):
                self._disk.rename(old, new)
        self._file = self._disk.open(self.path, create=True, pooled=False)

    def _forget_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""Claiming the log directories of a node: nothing is read or written in a directory that another process holds.

A broker that was told to stop holds its directories until everything is synced, so the next start may meet them still
locked. That start waits, and says so, for as long as an orderly stop may take. Only a directory that stays locked is
refused: another broker runs there.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from pessoa.log.files import LOCK_FILE, DiskError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.base.clock import Clock
    from pessoa.log.directory import LogDirectory

log = logging.getLogger("pessoa.broker")

# As long as a broker that stops waits for its controller to let it go (`registration._GOODBYE_MS`).
LOCKED_WAIT_MS = 30_000
_LOOK_AGAIN_MS = 50


async def claim_directories(directories: Iterable[LogDirectory], clock: Clock) -> None:
    """Lock every log directory, and wait for those that are locked. Raises a DiskError with `is_locked` for one that
    stays locked."""
    deadline_ms = clock.monotonic_ms() + LOCKED_WAIT_MS
    for directory in directories:
        await _claim(directory, deadline_ms, clock)


async def _claim(directory: LogDirectory, deadline_ms: int, clock: Clock) -> None:
    has_told = False
    while True:
        try:
            directory.claim()
        except DiskError as problem:
            if not problem.is_locked:
                raise
            if clock.monotonic_ms() >= deadline_ms:
                why = f"another broker is at work there, and has been for {LOCKED_WAIT_MS // 1000} s"
                lock = f"{directory.path}/{LOCK_FILE}"
                raise DiskError("lock", lock, OSError(errno.EWOULDBLOCK, why)) from problem
        else:
            return
        if not has_told:
            has_told = True
            told = "another broker is at work in %s; waiting up to %s s for it to stop"
            log.warning(told, directory.path, LOCKED_WAIT_MS // 1000)
        await clock.wait_ms(_LOOK_AGAIN_MS)

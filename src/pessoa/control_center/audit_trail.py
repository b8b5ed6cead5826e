"""What was changed through the control centre, by whom, and whether it worked: the last entries, and all in a file.

An entry names the action and its target, never the content of messages, passwords or values of configurations.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from copy import copy
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec

MAX_ENTRIES = 1000


class AuditEntry(msgspec.Struct, frozen=True):
    at_ms: int
    user: str
    action: str
    target: str
    outcome: str = "ok"


class AuditLog:
    def __init__(self, directory: Path | None) -> None:
        self.entries: deque[AuditEntry] = deque(maxlen=MAX_ENTRIES)
        self._prefix = ""
        self._file: RotatingFileHandler | None = None
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = RotatingFileHandler(
                directory / "control-center-audit.log", maxBytes=16 << 20, backupCount=5, delay=True
            )

    def __repr__(self) -> str:
        return f"<AuditLog of {len(self.entries)} entries>"

    def note(self, user: str, action: str, target: str, outcome: str = "ok") -> None:
        entry = AuditEntry(int(time.time() * 1000), user, action, f"{self._prefix}{target}"[:256], outcome[:256])
        self.entries.append(entry)
        if self._file is not None:
            text = msgspec.json.encode(entry).decode()
            self._file.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))

    def of_cluster(self, name: str) -> AuditLog:
        """Return a view of this log that prefixes targets with the cluster's name."""
        found = copy(self)
        found._prefix = f"{name}: "
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

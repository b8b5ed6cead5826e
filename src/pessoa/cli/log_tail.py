"""The last lines of a log file, and those that come, also when it is rotated meanwhile (x.log becomes x.log.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

# Enough for many lines, and a log of gigabytes stays out of memory.
TAIL_BYTES = 1024 * 1024


class LogTail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("rb")
        self._unfinished = b""

    def __repr__(self) -> str:
        return f"<LogTail of {self._path}>"

    def last(self, count: int) -> list[str]:
        """Return the last lines, including those of the file before a rotation if this file has too few."""
        self._file.seek(max(0, self._path.stat().st_size - TAIL_BYTES))
        found = _lines(self._file.read())
        before = self._path.with_name(f"{self._path.name}.1")
        if len(found) < count and before.exists():
            with before.open("rb") as older:
                older.seek(max(0, before.stat().st_size - TAIL_BYTES))
                found = _lines(older.read()) + found
        return found[len(found) - min(count, len(found)) :]

    def more(self) -> list[str]:
        """Return the complete lines that were written since the last call."""
        data = self._file.read()
        if not data and self._is_rotated():
            self._file.close()
            self._file = self._path.open("rb")
            data = self._file.read()
        *whole, self._unfinished = (self._unfinished + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        self._file.close()

    def _is_rotated(self) -> bool:
        import os

        try:
            return self._path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            # Between the two renames of a rotation.
            return False


def _lines(data: bytes) -> list[str]:
    """Return the lines, split at newlines alone: `splitlines` would also split at characters that a client has put
    into a name."""
    lines = data.decode(errors="replace").split("\n")
    return lines[:-1] if not lines[-1] else lines

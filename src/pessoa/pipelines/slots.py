"""The number of slots that a query began with, in its folder.

A batch that is repeated must be dealt to the slots as it was the first time, also if the specification was changed
since. So the file is whole or not there, also after a loss of power; one that says nothing is never guessed at.
"""

from __future__ import annotations

import os
from pathlib import Path


class SlotsUnreadable(Exception):
    """The file exists and holds no number."""


def kept_slots(folder: Path, wanted: int) -> int:
    path = folder / "slots"
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        if not text.strip().isdecimal():
            raise SlotsUnreadable(f"{path} should hold the number of slots that the query has, and holds {text!r}")
        return int(text)
    write_whole(path, str(wanted))
    return wanted


def write_whole(path: Path, text: str) -> None:
    """Write a file of a query's folder atomically: after a loss of power it has the whole new text, or the old one."""
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    # The names as well: without the file, a machine that lost its power would take what is true today.
    for named in (folder, folder.parent):
        sync_names(named)


def sync_names(folder: Path) -> None:
    """Sync a folder, so that files created or renamed in it survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

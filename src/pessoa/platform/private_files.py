"""Files and directories that only their owner may read: keys, and settings with passwords.

A file is written beside its place, with its mode from the first byte on, and moved there: it is never readable for
others, and never half written.
"""

from __future__ import annotations

import os
from pathlib import Path

PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE = 0o700, 0o600, 0o644


def make_private_directory(path: Path) -> None:
    path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    # One that was there may have had another mode.
    path.chmod(PRIVATE_DIRECTORY)


def write_private(path: Path, text: str, mode: int = PRIVATE_FILE) -> None:
    """Write the text to a new file and move it to `path`, so that the file there is replaced as a whole."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        # The umask may have taken more than it should.
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)

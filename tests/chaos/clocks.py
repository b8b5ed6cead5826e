"""Wall clocks that jump: libfaketime under a broker, told by a file what time it is.

    clock = JumpingClock(tmp_path / "clock")
    Home(data, command=clock.command)
    clock.jump(3600)            an hour on, at once; with a minus, back

What measures durations goes on evenly, as it does when an administrator or a time server sets a real clock.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")


@cache
def _library() -> Path | None:
    return next((found for pattern in _LIBRARIES for found in Path("/").glob(pattern[1:])), None)


@cache
def why_no_jumps() -> str | None:
    return None if _library() else "no clock can be made to jump without libfaketime (Debian: faketime)"


class JumpingClock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.jump(0)

    def __repr__(self) -> str:
        return f"<JumpingClock {self._path.read_text()}>"

    @property
    def command(self) -> tuple[str, ...]:
        return (
            "env",
            f"LD_PRELOAD={_library()}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            # The file is read whenever the process asks for the time.
            "FAKETIME_NO_CACHE=1",
            "DONT_FAKE_MONOTONIC=1",
            # Times of files are the file system's.
            "NO_FAKE_STAT=1",
        )

    def jump(self, seconds: int) -> None:
        """From the true time. Put in place whole, because it is read at any moment."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{seconds:+d}")
        new.replace(self._path)
